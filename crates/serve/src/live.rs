//! Live values of a running run, as server-sent events: the lines of the run's own socket.

use crate::Site;
use crate::error::Refusal;
use crate::pages::blocking;
use axum::extract::{Path as Name, State};
use axum::response::IntoResponse;
use axum::response::sse::{Event, KeepAlive, Sse};
use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::net::UnixStream;
use tokio::sync::mpsc::{Sender, channel};
use tokio_stream::wrappers::ReceiverStream;
use whylate_core::result::LIVE_SOCKET;
use whylate_core::text;
use whylate_store::Folder;

/// The most readers that follow runs at once.
pub(crate) const READERS_MAX: usize = 200;
/// whylate never sends a longer line.
const LINE_MAX: u64 = 1 << 20;
/// Values that wait for a slow reader.
const WAITING_MAX: usize = 4;

/// One `value` event for each line, then `end`; `refused` with the reason if the run reports nothing.
pub(crate) async fn events(
    State(site): State<Arc<Site>>,
    Name(name): Name<String>,
) -> Result<impl IntoResponse, Refusal> {
    let permit = site.readers.clone().try_acquire_owned().map_err(|_| Refusal::Busy)?;
    let run = blocking(move || site.runs.find(&name)).await?;
    let (events, receiver) = channel(WAITING_MAX);
    tokio::spawn(async move {
        follow(&run, &events).await;
        drop(permit);
    });
    Ok(Sse::new(ReceiverStream::new(receiver)).keep_alive(KeepAlive::default()))
}

/// The run's socket, whose path may be longer than a socket address can hold.
async fn connect(run: &Folder) -> io::Result<UnixStream> {
    let (_socket, path) = run.socket(LIVE_SOCKET)?;
    UnixStream::connect(path).await
}

/// Forwards the values until the run ends, or the reader is gone.
async fn follow(run: &Folder, events: &Sender<Result<Event, Infallible>>) {
    let send = |name: &'static str, text: String| events.send(Ok(Event::default().event(name).data(text)));
    let last = match connect(run).await {
        Ok(stream) => {
            let mut reader = BufReader::new(stream);
            while let Some(line) = next_line(&mut reader, events).await {
                if send("value", line).await.is_err() {
                    return;
                }
            }
            send("end", String::new())
        }
        Err(_) if !run.is_held() => send("end", String::new()),
        Err(error) => {
            let text = format!("The run reports no live values ({error}); its stored results are below.");
            send("refused", text)
        }
    };
    // A reader that is gone needs no last event.
    _ = last.await;
}

/// The next line, without invisible characters; `None` at the end, after a line that is too long, and if the reader
/// is gone.
async fn next_line(
    reader: &mut BufReader<UnixStream>,
    events: &Sender<Result<Event, Infallible>>,
) -> Option<String> {
    let mut line = Vec::new();
    let mut limited = reader.take(LINE_MAX);
    tokio::select! {
        read = limited.read_until(b'\n', &mut line) => { read.ok()?; }
        () = events.closed() => return None,
    }
    Some(text::line(str::from_utf8(line.strip_suffix(b"\n")?).ok()?))
}
