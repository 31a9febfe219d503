//! Who may read: on a loopback address, programs of this machine; elsewhere, clients with the token.

use crate::error::ServeError;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::header::{
    AUTHORIZATION, CONTENT_LENGTH, CONTENT_SECURITY_POLICY, CONTENT_TYPE, COOKIE, HOST, LOCATION,
    REFERRER_POLICY, SET_COOKIE, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use std::net::SocketAddr;
use std::sync::Arc;
use whylate_core::text;

/// No refusal is longer.
const REFUSAL_BYTES_MAX: usize = 1 << 20;
const COOKIE_NAME: &str = "whylate-token=";
const FORWARDED_PROTOCOL: &str = "x-forwarded-proto";
/// A page may load only from this server, and no other page may frame it.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; \
                      img-src data: blob:; form-action 'self'; frame-ancestors 'none'; base-uri 'none'";
/// Headers of every answer.
const HEADERS: [(HeaderName, &str); 3] = [
    (CONTENT_SECURITY_POLICY, POLICY),
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (REFERRER_POLICY, "no-referrer"),
];

/// The token that a reader has to show; `None` on a loopback address.
pub(crate) type Token = Arc<Option<String>>;

/// Refuses an address that other machines can reach if there is no token.
pub(crate) fn needs_token(address: SocketAddr, token: Option<&str>) -> Result<(), ServeError> {
    if address.ip().is_loopback() || token.is_some() { Ok(()) } else { Err(ServeError::NoToken(address)) }
}

pub(crate) async fn check(State(token): State<Token>, request: Request, next: Next) -> Response {
    let response = match refusal(token.as_deref(), &request) {
        Some(response) => response,
        None => next.run(request).await,
    };
    let mut response = shown_text(response).await;
    for (name, value) in HEADERS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

fn refusal(token: Option<&str>, request: &Request) -> Option<Response> {
    let Some(token) = token else {
        // A page of another site that resolves its own name to 127.0.0.1 must not read this server.
        return (!is_local(request.headers())).then(|| {
            let text = "open this page as http://localhost or http://127.0.0.1\n";
            (StatusCode::FORBIDDEN, text).into_response()
        });
    };
    if shown(request.headers()).is_some_and(|shown| is_same(shown, token)) {
        return None;
    }
    let query = request.uri().query().unwrap_or_default();
    let asked = query.split('&').find_map(|pair| pair.strip_prefix("token="));
    if asked.is_some_and(|asked| is_same(asked, token)) {
        // The token leaves the address line, so that it is in no history or bookmark. A TLS proxy in front of this
        // server sets the header.
        let is_encrypted = request.headers().get(FORWARDED_PROTOCOL).is_some_and(|it| it == "https");
        let secure = if is_encrypted { "; Secure" } else { "" };
        let cookie = format!("{COOKIE_NAME}{token}; HttpOnly; SameSite=Strict; Path=/{secure}");
        let headers = [(SET_COOKIE, cookie), (LOCATION, own_path(request.uri().path()))];
        return Some((StatusCode::SEE_OTHER, headers).into_response());
    }
    let text = "a token is needed: open /?token=TOKEN once, or send `Authorization: Bearer TOKEN`\n";
    Some((StatusCode::UNAUTHORIZED, text).into_response())
}

/// A path of this server. A path that begins with two slashes names another server, and browsers read `\\` as `/`.
fn own_path(path: &str) -> String {
    format!("/{}", path.trim_start_matches(['/', '\\']))
}

/// A refusal quotes the request or a file's content: it is shown as text, without characters that control a terminal.
async fn shown_text(response: Response) -> Response {
    let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let is_text = kind.is_some_and(|kind| kind.starts_with("text/plain"));
    if !is_text || response.status().is_success() {
        return response;
    }
    let (mut head, body) = response.into_parts();
    head.headers.remove(CONTENT_LENGTH);
    let body = to_bytes(body, REFUSAL_BYTES_MAX).await.unwrap_or_default();
    Response::from_parts(head, Body::from(text::lines(&String::from_utf8_lossy(&body))))
}

fn is_local(headers: &HeaderMap) -> bool {
    let Some(host) = headers.get(HOST).and_then(|host| host.to_str().ok()) else { return false };
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|it| it.is_ascii_digit()) => name,
        _ => host,
    };
    matches!(name, "localhost" | "[::1]")
        || name.starts_with("127.") && name.parse::<std::net::Ipv4Addr>().is_ok()
}

/// The token of a request's headers.
fn shown(headers: &HeaderMap) -> Option<&str> {
    let bearer = headers.get(AUTHORIZATION).and_then(|it| it.to_str().ok()?.strip_prefix("Bearer "));
    let cookies = headers.get_all(COOKIE).into_iter().filter_map(|it| it.to_str().ok());
    let cookie = cookies.flat_map(|it| it.split("; ")).find_map(|it| it.strip_prefix(COOKIE_NAME));
    bearer.or(cookie)
}

/// Takes equally long wherever they differ.
fn is_same(a: &str, b: &str) -> bool {
    let differences = a.bytes().zip(b.bytes()).fold(0, |all, (a, b)| all | (a ^ b));
    a.len() == b.len() && differences == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_this_machine_are_local() {
        let check = |host: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(HOST, HeaderValue::from_static(host));
            is_local(&headers)
        };
        for host in ["localhost", "localhost:8787", "127.0.0.1:80", "[::1]:80", "[::1]"] {
            assert!(check(host), "{host}");
        }
        for host in ["evil.example", "127.evil.example", "127.0.0.1.evil.example:80", "localhost.evil", ""] {
            assert!(!check(host), "{host}");
        }
    }

    #[test]
    fn behind_tls_the_token_never_travels_without_it() {
        let cookie = |headers: &[(&str, &str)]| {
            let builder = Request::builder().uri("/?token=secret");
            let builder = headers.iter().fold(builder, |it, (name, value)| it.header(*name, *value));
            let response = refusal(Some("secret"), &builder.body(Body::empty()).unwrap()).unwrap();
            assert_eq!(response.status(), StatusCode::SEE_OTHER);
            response.headers()[SET_COOKIE].to_str().unwrap().ends_with("; Secure")
        };
        assert!(!cookie(&[]));
        assert!(cookie(&[(FORWARDED_PROTOCOL, "https")]));
    }

    #[test]
    fn a_redirect_leads_to_a_path_of_this_server() {
        for path in
            ["//evil.example/", "///evil.example", "/\\evil.example", "//evil.example//x", "/runs/a", "/"]
        {
            let request = Request::builder().uri(format!("{}?token=secret", path.replace('\\', "%5C")));
            let response = refusal(Some("secret"), &request.body(Body::empty()).unwrap()).unwrap();
            let location = response.headers()[LOCATION].to_str().unwrap();
            for location in [location.to_owned(), own_path(path)] {
                let mut start = location.chars();
                assert_eq!(start.next(), Some('/'), "{path}");
                assert!(!matches!(start.next(), Some('/' | '\\')), "{path}: {location}");
            }
        }
        assert_eq!(own_path("/runs/a"), "/runs/a");
    }

    #[test]
    fn tokens_are_compared_whole() {
        assert!(is_same("secret", "secret"));
        assert!(!is_same("secre", "secret") && !is_same("", "secret") && !is_same("secrez", "secret"));
    }
}
