//! Network requests by the machine's own curl, with its TLS, certificates and proxies. The static program has no TLS
//! of its own, which would need security updates on each board.

use async_trait::async_trait;
use bytes::Bytes;
use http::request::Parts;
use http::{Method, Response};
use http_body_util::BodyExt as _;
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody, HttpResponse,
    HttpService,
};
use std::io::{self, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};

/// Makes [`Curl`] clients.
#[derive(Debug)]
pub(super) struct Connector;

impl HttpConnector for Connector {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(Curl))
    }
}

/// One curl process for each request. Headers, which hold the credentials, go through its standard input, and the
/// body through an unlinked file.
#[derive(Debug)]
struct Curl;

#[async_trait]
impl HttpService for Curl {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let (parts, body) = request.into_parts();
        let body = whole(body).await?;
        let asked = move || ask(&parts, &body);
        let answer = tokio::task::spawn_blocking(asked).await;
        let answer = answer.unwrap_or_else(|error| Err(failed(HttpErrorKind::Unknown, error.to_string())));
        Ok(answer?.map(Into::into))
    }
}

fn failed(kind: HttpErrorKind, text: String) -> HttpError {
    HttpError::new(kind, io::Error::other(text))
}

/// The bytes of a request's body.
async fn whole(body: HttpRequestBody) -> Result<Bytes, HttpError> {
    Ok(body.collect().await?.to_bytes())
}

/// Runs curl for one request.
fn ask(parts: &Parts, body: &Bytes) -> Result<Response<Bytes>, HttpError> {
    let local = |error: io::Error| failed(HttpErrorKind::Unknown, format!("cannot run curl: {error}"));
    let mut file = tempfile::NamedTempFile::new().map_err(local)?;
    file.write_all(body).map_err(local)?;
    let spawned = Command::new("curl")
        .args(["--config", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut curl = match spawned {
        Ok(curl) => curl,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let text = "`curl`, which makes the network requests, is missing; install it, or push to a folder and copy the folder";
            return Err(failed(HttpErrorKind::Unknown, text.to_owned()));
        }
        Err(error) => return Err(local(error)),
    };
    if let Some(mut input) = curl.stdin.take() {
        let options = settings(parts, body, file.path());
        input.write_all(options.as_bytes()).map_err(local)?;
    }
    let output = curl.wait_with_output().map_err(local)?;
    match output.status.code() {
        Some(0) => response(&output.stdout, parts.method == Method::HEAD),
        code => {
            let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            Err(failed(
                kind_of(code),
                if said.is_empty() { format!("curl ended with {}", output.status) } else { said },
            ))
        }
    }
}

/// The options that curl reads from its standard input, where no other user sees them.
fn settings(parts: &Parts, body: &Bytes, file: &Path) -> String {
    let quoted = |text: &str| format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""));
    let mut lines = vec![
        format!("url = {}", quoted(&parts.uri.to_string())),
        "silent\nshow-error\ninclude\ngloboff\npath-as-is\nsuppress-connect-headers".to_owned(),
        // Notices a dead network, but waits for a slow one.
        "connect-timeout = 15\nspeed-limit = 1\nspeed-time = 60".to_owned(),
        "header = \"Expect:\"".to_owned(),
    ];
    match parts.method {
        Method::HEAD => lines.push("head".to_owned()),
        _ => lines.push(format!("request = {}", quoted(parts.method.as_str()))),
    }
    if parts.method == Method::PUT || parts.method == Method::POST {
        let from = if body.is_empty() { String::new() } else { format!("@{}", file.display()) };
        lines.push(format!("data-binary = {}", quoted(&from)));
        if !parts.headers.contains_key(http::header::CONTENT_TYPE) {
            lines.push("header = \"Content-Type:\"".to_owned());
        }
    }
    for (name, value) in parts.headers.iter().filter(|(name, _)| *name != http::header::CONTENT_LENGTH) {
        let value = String::from_utf8_lossy(value.as_bytes());
        lines.push(format!("header = {}", quoted(&format!("{name}: {value}"))));
    }
    lines.join("\n") + "\n"
}

/// The kind of error that an exit code of curl means.
fn kind_of(code: Option<i32>) -> HttpErrorKind {
    match code {
        // Proxy or host not found, no connection, TLS.
        Some(5..=7 | 35) => HttpErrorKind::Connect,
        Some(28) => HttpErrorKind::Timeout,
        Some(18 | 52 | 55 | 56 | 92) => HttpErrorKind::Interrupted,
        _ => HttpErrorKind::Unknown,
    }
}

/// The head and body of curl's output.
fn response(printed: &[u8], is_head: bool) -> Result<Response<Bytes>, HttpError> {
    let wrong = |what: String| failed(HttpErrorKind::Decode, what);
    let mut rest = printed;
    loop {
        let mut headers = [httparse::EMPTY_HEADER; 100];
        // curl prints HTTP/2 and later without a second digit.
        let plain = plain_version(rest);
        let mut parsed = httparse::Response::new(&mut headers);
        let length = match parsed.parse(&plain) {
            Ok(httparse::Status::Complete(length)) => length,
            Ok(httparse::Status::Partial) => return Err(wrong("the answer is cut off".to_owned())),
            Err(error) => return Err(wrong(format!("the answer is not HTTP: {error}"))),
        };
        let body = plain[length..].to_vec();
        let code = parsed.code.unwrap_or(0);
        if (100..200).contains(&code) {
            rest = &rest[rest.len() - body.len()..];
            continue;
        }
        let mut response = Response::builder().status(code);
        for header in parsed.headers.iter() {
            response = response.header(header.name, header.value);
        }
        let body = if is_head { Vec::new() } else { body };
        return response.body(body.into()).map_err(|error| wrong(error.to_string()));
    }
}

/// The same output with `HTTP/1.1` in front, which the parser knows.
fn plain_version(printed: &[u8]) -> Vec<u8> {
    let after = printed.iter().position(|byte| *byte == b' ').unwrap_or(0);
    [b"HTTP/1.1", &printed[after..]].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(printed: &[u8], is_head: bool) -> Result<(u16, Option<String>, Bytes), String> {
        let (parts, body) = response(printed, is_head).map_err(|error| error.to_string())?.into_parts();
        let length = parts.headers.get("etag").map(|it| it.to_str().unwrap().to_owned());
        Ok((parts.status.as_u16(), length, body))
    }

    #[test]
    fn answers_are_taken_apart() {
        let two = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/2 200 \r\netag: \"a\"\r\n\r\nbo\r\n\r\ndy";
        assert_eq!(read(two, false).unwrap(), (200, Some("\"a\"".to_owned()), "bo\r\n\r\ndy".into()));
        assert_eq!(read(b"HTTP/1.1 404 Not Found\r\n\r\n", true).unwrap(), (404, None, Bytes::new()));
        assert!(read(b"HTTP/1.1 200 OK\r\netag", false).unwrap_err().contains("cut off"));
        assert!(read(b"SSH-2.0", false).is_err());
    }

    #[test]
    fn credentials_are_quoted_and_not_on_the_command_line() {
        let request = http::Request::put("https://b.example/a=1/b?x=%20").header("authorization", "a\"b\\c");
        let (parts, ()) = request.body(()).unwrap().into_parts();
        let options = settings(&parts, &Bytes::from_static(b"x"), Path::new("/tmp/body"));
        assert!(options.contains("header = \"authorization: a\\\"b\\\\c\"\n"), "{options}");
        assert!(options.contains("data-binary = \"@/tmp/body\"\n"), "{options}");
        assert!(options.starts_with("url = \"https://b.example/a=1/b?x=%20\"\n"), "{options}");
    }
}
