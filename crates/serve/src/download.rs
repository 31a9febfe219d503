//! Runs as downloads: the result as JSON, the directory as a tar archive.

use crate::Site;
use crate::connections::STALL_MAX;
use crate::error::Refusal;
use crate::pages::{blocking, json};
use axum::body::{Body, Bytes};
use axum::extract::{Path as Name, State};
use axum::http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use std::io::{self, Read as _, Write};
use std::path::Path;
use std::sync::Arc;
use tokio::runtime::Handle;
use tokio::sync::mpsc::{Sender, channel};
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use whylate_store::Folder;

/// Pieces of an archive that wait for a slow reader.
const WAITING_MAX: usize = 4;
/// The most archives that are sent at once: each takes a thread.
pub(crate) const ARCHIVES_MAX: usize = 16;

/// The output of `whylate report --json`.
pub(crate) async fn result(
    State(site): State<Arc<Site>>,
    Name(name): Name<String>,
) -> Result<Response, Refusal> {
    let making = site.clone();
    let _making = making.pages.making().await;
    let text = blocking(move || {
        let run = site.runs.find(&name)?;
        let mut result = site.source.run(&run).map_err(Refusal::Run)?;
        result.shorten();
        json(serde_json::to_string_pretty(&result))
    });
    Ok(([(CONTENT_TYPE, "application/json")], text.await?).into_response())
}

pub(crate) async fn archive(
    State(site): State<Arc<Site>>,
    Name(name): Name<String>,
) -> Result<Response, Refusal> {
    let permit = site.archives.clone().try_acquire_owned().map_err(|_| Refusal::Busy)?;
    let run = blocking(move || Ok((site.runs.find(&name)?, name)));
    let (run, name) = run.await?;
    let (sender, receiver) = channel(WAITING_MAX);
    let runtime = Handle::current();
    tokio::task::spawn_blocking(move || {
        let failed =
            pack(&run, Path::new(&name), Pieces { sender: sender.clone(), runtime: runtime.clone() });
        // The archive ends early, and the transfer error shows it to the reader.
        if let Err(error) = failed {
            _ = runtime.block_on(timeout(STALL_MAX, sender.send(Err(error))));
        }
        drop(permit);
    });
    let headers =
        [(CONTENT_TYPE, "application/x-tar"), (CONTENT_DISPOSITION, "attachment; filename=\"run.tar\"")];
    Ok((headers, Body::from_stream(ReceiverStream::new(receiver))).into_response())
}

/// Packs the regular files of a run. Files that were removed meanwhile or must not be read are left out: the manifest
/// in the archive shows what is missing.
fn pack(run: &Folder, name: &Path, pieces: Pieces) -> io::Result<()> {
    let mut archive = tar::Builder::new(pieces);
    for found in run.tree()?.into_iter().filter(|it| !it.is_folder) {
        let Ok(Some(file)) = run.open_file(&found.name) else { continue };
        let mut header = tar::Header::new_gnu();
        header.set_metadata(&file.metadata()?);
        // A run in progress writes meanwhile: the length stays the one in the header.
        let length = header.size()?;
        let content = file.chain(io::repeat(0)).take(length);
        archive.append_data(&mut header, name.join(&found.name), content)?;
    }
    archive.into_inner()?.flush()
}

struct Pieces {
    sender: Sender<io::Result<Bytes>>,
    runtime: Handle,
}

impl Write for Pieces {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let sent = self.sender.send(Ok(Bytes::copy_from_slice(bytes)));
        match self.runtime.block_on(timeout(STALL_MAX, sent)) {
            Ok(Ok(())) => Ok(bytes.len()),
            Ok(Err(_)) => Err(io::ErrorKind::BrokenPipe.into()),
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
