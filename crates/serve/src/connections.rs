//! Connections: how many there are, and how long each may take for what.
//!
//! A request's head has to come within [`HEAD_MAX`], counted from when it is waited for, so that a connection without requests
//! ends, too. No handler reads a body: a connection on which one is sent ends with the answer. What a reader does not take for
//! [`STALL_MAX`] ends its connection.

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

pub(crate) const HEAD_MAX: Duration = Duration::from_secs(10);
pub(crate) const STALL_MAX: Duration = Duration::from_secs(60);
/// The most connections at once; more are closed at once.
const CONNECTIONS_MAX: usize = 512;
/// The longest head: browsers send a few KiB.
const HEAD_BYTES_MAX: usize = 32 << 10;
/// After an error of the listener, such as too many open files.
const PAUSE: Duration = Duration::from_millis(100);

pub(crate) async fn serve(listener: &TcpListener, router: &Router) -> Infallible {
    let permits = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        let Ok(permit) = permits.clone().try_acquire_owned() else { continue };
        // What cannot be set makes it slower, or hold on longer.
        _ = stream.set_nodelay(true);
        _ = socket2::SockRef::from(&stream).set_tcp_user_timeout(Some(STALL_MAX));
        let service = TowerToHyperService::new(router.clone());
        tokio::spawn(async move {
            let mut http = http1::Builder::new();
            http.timer(TokioTimer::new()).header_read_timeout(HEAD_MAX).max_buf_size(HEAD_BYTES_MAX);
            _ = http.serve_connection(TokioIo::new(stream), service).await;
            drop(permit);
        });
    }
}
