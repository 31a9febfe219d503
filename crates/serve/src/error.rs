//! What can go wrong: before anything is served, and with one request.

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error(
        "{0} is not a loopback address: readers need a token there (--token-file FILE or WHYLATE_TOKEN), and only a \
         proxy with TLS in front of it keeps that secret"
    )]
    NoToken(SocketAddr),
    /// There is no such folder, or it is not for us.
    #[error("cannot read {}", folder.display())]
    Folder { folder: PathBuf, source: io::Error },
    /// The address is taken, or not ours.
    #[error("cannot serve at {address}")]
    Address { address: SocketAddr, source: io::Error },
    /// No threads could be started.
    #[error("cannot start threads")]
    Runtime(#[source] io::Error),
}

/// Why a request has no page.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// The folder has no run of this name.
    NoRun(String),
    /// The request asks for something that there is not.
    Bad(String),
    /// There are as many readers as are allowed.
    Busy,
    /// The run cannot be read or is too large for a page.
    Run(String),
    /// A page that says it all.
    Page(Box<Response>),
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let (status, text) = match self {
            Self::Page(page) => return *page,
            Self::NoRun(name) => (StatusCode::NOT_FOUND, format!("there is no run {name} here")),
            Self::Bad(text) => (StatusCode::BAD_REQUEST, text),
            Self::Busy => {
                (StatusCode::SERVICE_UNAVAILABLE, "too many readers: try again in a minute".to_owned())
            }
            Self::Run(text) => (StatusCode::UNPROCESSABLE_ENTITY, text),
        };
        (status, format!("{text}\n")).into_response()
    }
}
