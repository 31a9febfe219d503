//! Runs as files: the result as JSON, the directory as a tar archive.

use crate::Site;
use crate::error::Refusal;
use crate::pages::{blocking, files_of};
use crate::runs::name_of;
use axum::body::{Body, Bytes};
use axum::extract::{Path as Name, State};
use axum::http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use tokio::sync::mpsc::{Sender, channel};
use tokio_stream::wrappers::ReceiverStream;

/// Pieces of an archive that wait for a slow reader.
const WAITING_MAX: usize = 4;

/// What `whylate report --json` prints.
pub(crate) async fn result(
    State(site): State<Arc<Site>>,
    Name(name): Name<String>,
) -> Result<Response, Refusal> {
    let making = site.clone();
    let _making = making.pages.making().await;
    let text = blocking(move || {
        let path = site.runs.find(&name)?;
        let mut result = site.source.run(&path).map_err(Refusal::Run)?;
        result.shorten();
        serde_json::to_string_pretty(&result).map_err(|error| Refusal::Run(error.to_string()))
    });
    Ok(([(CONTENT_TYPE, "application/json")], text.await?).into_response())
}

pub(crate) async fn archive(
    State(site): State<Arc<Site>>,
    Name(name): Name<String>,
) -> Result<Response, Refusal> {
    let path = blocking(move || site.runs.find(&name)).await?;
    let (pieces, receiver) = channel(WAITING_MAX);
    tokio::task::spawn_blocking(move || {
        let failed = pack(&path, Pieces(pieces.clone()));
        // The archive ends early, and the reader is told that it did.
        failed.err().map(|error| pieces.blocking_send(Err(error)))
    });
    let headers =
        [(CONTENT_TYPE, "application/x-tar"), (CONTENT_DISPOSITION, "attachment; filename=\"run.tar\"")];
    Ok((headers, Body::from_stream(ReceiverStream::new(receiver))).into_response())
}

fn pack(run: &Path, pieces: Pieces) -> io::Result<()> {
    let folder = name_of(run);
    let mut archive = tar::Builder::new(pieces);
    for path in files_of(run) {
        let name = Path::new(&folder).join(path.strip_prefix(run).unwrap_or(&path));
        match File::open(&path) {
            Ok(mut file) => archive.append_file(name, &mut file)?,
            // The run goes on: what was renamed meanwhile has another name now.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    archive.into_inner()?.flush()
}

struct Pieces(Sender<io::Result<Bytes>>);

impl Write for Pieces {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let gone = |_| io::Error::from(io::ErrorKind::BrokenPipe);
        self.0.blocking_send(Ok(Bytes::copy_from_slice(bytes))).map_err(gone)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
