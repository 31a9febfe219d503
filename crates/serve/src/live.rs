//! Values of a run that goes on, as server-sent events: what the run's own socket says, line by line.

use crate::Site;
use crate::error::Refusal;
use crate::pages::blocking;
use axum::extract::{Path as Name, State};
use axum::response::IntoResponse;
use axum::response::sse::{Event, KeepAlive, Sse};
use std::convert::Infallible;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::sync::Arc;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::net::UnixStream;
use tokio::sync::mpsc::{Sender, channel};
use tokio_stream::wrappers::ReceiverStream;
use whylate_core::result::LIVE_SOCKET;

/// The most readers that follow runs at once.
pub(crate) const READERS_MAX: usize = 200;
/// whylate never sends more than this to one reader.
const BYTES_MAX: u64 = 1 << 30;
/// Values that wait for a slow reader.
const WAITING_MAX: usize = 4;

/// One `value` event for each line, then `end`; `refused` with the reason where the run reports nothing.
pub(crate) async fn events(
    State(site): State<Arc<Site>>,
    Name(name): Name<String>,
) -> Result<impl IntoResponse, Refusal> {
    let permit = site.readers.clone().try_acquire_owned().map_err(|_| Refusal::Busy)?;
    let path = blocking(move || site.runs.find(&name)).await?;
    let (events, receiver) = channel(WAITING_MAX);
    tokio::spawn(async move {
        follow(&path, &events).await;
        drop(permit);
    });
    Ok(Sse::new(ReceiverStream::new(receiver)).keep_alive(KeepAlive::default()))
}

/// The run's socket, in a folder whose path may be longer than what an address holds.
async fn connect(run: &Path) -> io::Result<UnixStream> {
    let folder = File::open(run)?;
    UnixStream::connect(format!("/proc/self/fd/{}/{LIVE_SOCKET}", folder.as_raw_fd())).await
}

/// Passes the values on until the run ends, or the reader has gone.
async fn follow(run: &Path, events: &Sender<Result<Event, Infallible>>) {
    let send = |name: &'static str, text: String| events.send(Ok(Event::default().event(name).data(text)));
    let last = match connect(run).await {
        Ok(stream) => {
            let mut lines = BufReader::new(stream.take(BYTES_MAX)).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                if send("value", line).await.is_err() {
                    return;
                }
            }
            send("end", String::new())
        }
        Err(_) if !whylate_store::is_being_written(run) => send("end", String::new()),
        Err(error) => {
            let text = format!("The run reports no values ({error}); below is what it has stored.");
            send("refused", text)
        }
    };
    // A reader who has gone needs no last word.
    _ = last.await;
}
