//! One page of figures for Prometheus, served by a running command.

use crate::connections;
use crate::error::ServeError;
use crate::guard::{self, Token};
use axum::Router;
use axum::http::header::CONTENT_TYPE;
use axum::routing::get;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

/// Serves the text of `page` at `/metrics` until the process ends, and returns the address: port 0 takes a free one.
///
/// # Errors
/// When an address that is not loopback has no token, when the address cannot be used, and when no thread can be
/// started.
pub fn endpoint(
    address: SocketAddr,
    token: Option<String>,
    page: impl Fn() -> String + Clone + Send + Sync + 'static,
) -> Result<SocketAddr, ServeError> {
    guard::needs_token(address, token.as_deref())?;
    let refused = |source| ServeError::Address { address, source };
    let listener = TcpListener::bind(address).map_err(refused)?;
    listener.set_nonblocking(true).map_err(refused)?;
    let address = listener.local_addr().map_err(refused)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(ServeError::Runtime)?;
    let token: Token = Arc::new(token);
    let answer = move || async move { ([(CONTENT_TYPE, "text/plain; version=0.0.4")], page()) };
    let router = Router::new()
        .route("/metrics", get(answer))
        .layer(axum::middleware::from_fn_with_state(token, guard::check));
    let serve = move || {
        runtime.block_on(async {
            let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
            match connections::serve(&listener, &router).await {}
        });
    };
    let thread = std::thread::Builder::new().name("prometheus".to_owned()).spawn(serve);
    thread.map_err(ServeError::Runtime)?;
    Ok(address)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};
    use std::net::TcpStream;

    fn asked(address: SocketAddr, path: &str, more: &str) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n{more}Connection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn figures_are_read_on_loopback_and_elsewhere_with_the_token_only() {
        let local = "127.0.0.1:0".parse().unwrap();
        let open = endpoint(local, None, || "whylate_up 1\n".to_owned()).unwrap();
        let answer = asked(open, "/metrics", "");
        assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("whylate_up 1\n"), "{answer}");
        assert!(asked(open, "/", "").starts_with("HTTP/1.1 404"));
        let guarded = endpoint(local, Some("secret".to_owned()), || "whylate_up 1\n".to_owned()).unwrap();
        assert!(asked(guarded, "/metrics", "").starts_with("HTTP/1.1 401"));
        let shown = asked(guarded, "/metrics", "Authorization: Bearer secret\r\n");
        assert!(shown.contains("content-type: text/plain; version=0.0.4"), "{shown}");
        assert!(shown.ends_with("whylate_up 1\n"), "{shown}");
        let all = "0.0.0.0:0".parse().unwrap();
        assert!(matches!(endpoint(all, None, String::new), Err(ServeError::NoToken(_))));
    }
}
