//! Connections: how many there are, and how long each may take.
//!
//! A request's head has to arrive within [`HEAD_MAX`], counted from when the server starts to wait for it, so that a
//! connection without requests ends too. No handler reads a body: a connection that sends one ends with the answer. A
//! connection also ends if its reader takes nothing for [`STALL_MAX`].
//!
//! If there is no room for another connection, the one that has waited longest for its head is closed; connections
//! that are being answered stay.

use axum::Router;
use axum::body::Body;
use hyper::body::{Bytes, Frame, Incoming, SizeHint};
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rustix::process::{Resource, getrlimit};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;

pub(crate) const HEAD_MAX: Duration = Duration::from_secs(10);
pub(crate) const STALL_MAX: Duration = Duration::from_secs(60);
/// The most connections at once, and at most half of the files that the process may open, because answers read files
/// too.
const CONNECTIONS_MAX: usize = 512;
/// The longest head: browsers send a few KiB.
const HEAD_BYTES_MAX: usize = 32 << 10;
/// Pause after an error of the listener, such as too many open files.
const PAUSE: Duration = Duration::from_millis(100);

pub(crate) async fn serve(listener: &TcpListener, router: &Router) -> Infallible {
    let files = getrlimit(Resource::Nofile).current.and_then(|files| usize::try_from(files / 2).ok());
    let most = files.map_or(CONNECTIONS_MAX, |files| files.clamp(1, CONNECTIONS_MAX));
    let connections = Connections::default();
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            connections.close_one();
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        if connections.table().all.len() < most || connections.close_one() {
            connections.take(stream, router);
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum HeadState {
    /// No head was complete so far.
    New,
    /// It has been answered and may ask again.
    Answered,
    Answering,
}

struct Connection {
    state: HeadState,
    /// The sequence number of its last change.
    changed: u64,
    task: Option<AbortHandle>,
}

#[derive(Default)]
struct ConnectionTable {
    all: BTreeMap<u64, Connection>,
    changes: u64,
}

impl ConnectionTable {
    fn change(&mut self) -> u64 {
        self.changes += 1;
        self.changes
    }

    fn set(&mut self, number: u64, state: HeadState) {
        let changed = self.change();
        if let Some(connection) = self.all.get_mut(&number) {
            (connection.state, connection.changed) = (state, changed);
        }
    }

    /// The connection that has waited longest for its head, first among those that never had one.
    fn waits_longest(&self) -> Option<u64> {
        let waiting = self.all.iter().filter(|(_, it)| it.state != HeadState::Answering);
        waiting.min_by_key(|(_, it)| (it.state, it.changed)).map(|(number, _)| *number)
    }
}

#[derive(Clone, Default)]
struct Connections(Arc<Mutex<ConnectionTable>>);

impl Connections {
    fn table(&self) -> MutexGuard<'_, ConnectionTable> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes the connection that has waited longest for its head; false when all are being answered.
    fn close_one(&self) -> bool {
        let mut table = self.table();
        let closed = table.waits_longest().and_then(|number| table.all.remove(&number));
        drop(table);
        if let Some(task) = closed.as_ref().and_then(|it| it.task.as_ref()) {
            task.abort();
        }
        closed.is_some()
    }

    fn take(&self, stream: TcpStream, router: &Router) {
        // An option that cannot be set makes the connection slower, or keeps it longer.
        _ = stream.set_nodelay(true);
        _ = socket2::SockRef::from(&stream).set_tcp_user_timeout(Some(STALL_MAX));
        let mut table = self.table();
        let number = table.change();
        table.all.insert(number, Connection { state: HeadState::New, changed: number, task: None });
        drop(table);
        let place = OpenConnection { connections: self.clone(), number };
        let (connections, router) = (self.clone(), TowerToHyperService::new(router.clone()));
        let service = service_fn(move |request: hyper::Request<Incoming>| {
            let answering = Answering::begin(connections.clone(), number);
            let answer = router.call(request);
            async move {
                Ok::<_, Infallible>(answer.await?.map(|body| HeldAnswer { body, _answering: answering }))
            }
        });
        let task = tokio::spawn(async move {
            let mut http = http1::Builder::new();
            http.timer(TokioTimer::new()).header_read_timeout(HEAD_MAX).max_buf_size(HEAD_BYTES_MAX);
            _ = http.serve_connection(TokioIo::new(stream), service).await;
            drop(place);
        });
        if let Some(connection) = self.table().all.get_mut(&number) {
            connection.task = Some(task.abort_handle());
        }
    }
}

/// An open connection.
struct OpenConnection {
    connections: Connections,
    number: u64,
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.connections.table().all.remove(&self.number);
    }
}

/// From the end of a head to the end of its answer.
struct Answering {
    connections: Connections,
    number: u64,
}

impl Answering {
    fn begin(connections: Connections, number: u64) -> Self {
        connections.table().set(number, HeadState::Answering);
        Self { connections, number }
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        self.connections.table().set(self.number, HeadState::Answered);
    }
}

struct HeldAnswer {
    body: Body,
    _answering: Answering,
}

impl hyper::body::Body for HeldAnswer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_wait_makes_room_and_answers_do_not() {
        let mut table = ConnectionTable::default();
        for _ in 0..4 {
            let number = table.change();
            table.all.insert(number, Connection { state: HeadState::New, changed: number, task: None });
        }
        table.set(1, HeadState::Answering);
        table.set(2, HeadState::Answering);
        table.set(2, HeadState::Answered);
        let order: Vec<u64> =
            std::iter::from_fn(|| table.waits_longest().inspect(|number| _ = table.all.remove(number)))
                .collect();
        assert_eq!((order, table.all.into_keys().collect()), (vec![3, 4, 2], vec![1]));
    }
}
