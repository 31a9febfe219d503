//! Errors: before the server starts, and in one request.

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use std::io;
use std::net::SocketAddr;

#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error(
        "{0} is not a loopback address: clients from the network need a token (--token-file FILE or \
         WHYLATE_TOKEN), and only a TLS proxy in front of whylate keeps the token secret"
    )]
    NoToken(SocketAddr),
    /// The address is in use, or does not belong to this machine.
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
    /// The request asks for something that does not exist.
    Bad(String),
    /// The maximum number of readers is reached.
    Busy,
    /// The run cannot be read or is too large for a page.
    Run(String),
    /// A page that explains the refusal.
    Page(Box<Response>),
}

impl Refusal {
    /// The status and the text.
    pub(crate) fn answer(&self) -> (StatusCode, String) {
        match self {
            Self::Page(page) => (page.status(), String::new()),
            Self::NoRun(name) => (StatusCode::NOT_FOUND, format!("there is no run {name} in the folder")),
            Self::Bad(text) => (StatusCode::BAD_REQUEST, text.clone()),
            Self::Busy => {
                (StatusCode::SERVICE_UNAVAILABLE, "too many clients: try again in a minute".to_owned())
            }
            Self::Run(text) => (StatusCode::UNPROCESSABLE_ENTITY, text.clone()),
        }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        if let Self::Page(page) = self {
            return *page;
        }
        let (status, text) = self.answer();
        (status, format!("{text}\n")).into_response()
    }
}
