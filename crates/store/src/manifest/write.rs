//! Adding to the manifest: a line is on the disk before anything relies on it.

use super::read::Manifest;
use super::{CHAIN, Entry, FILE, FORMAT, Flush, Listed, chained};
use crate::error::{At, StoreError};
use crate::folder::Folder;
use std::fs::File;
use std::io::Write as _;
use std::path::PathBuf;
use whylate_core::result::Verdict;

/// The manifest of a run that is being written.
#[derive(Debug)]
pub(crate) struct ManifestWriter {
    file: File,
    path: PathBuf,
    /// Length of the lines that are whole.
    len: u64,
    /// The last line's hash.
    chain: String,
}

impl ManifestWriter {
    /// Continues the manifest of a run, or starts it; `known` is its content.
    pub(crate) fn begin(
        folder: &Folder,
        run: &str,
        known: Option<&Manifest>,
        first_segment: u32,
    ) -> Result<Self, StoreError> {
        let (len, chain) = known.map_or((0, String::new()), |known| (known.len, known.chain.clone()));
        let (file, path) = (folder.append(FILE)?, folder.path().join(FILE));
        let mut writer = Self { file, path, len, chain };
        writer.add(&Entry::Begun { format: FORMAT.to_owned(), run: run.to_owned(), first_segment })?;
        Ok(writer)
    }

    /// A new `run.json`.
    pub(crate) fn info(&mut self, sha256: String) -> Result<(), StoreError> {
        self.add(&Entry::Info { sha256 })
    }

    /// A flush whose segments are all in place.
    pub(crate) fn flushed(&mut self, flush: Flush) -> Result<(), StoreError> {
        self.add(&Entry::Flushed(flush))
    }

    pub(crate) fn seal(&mut self, files: &[Listed], verdict: Option<Verdict>) -> Result<(), StoreError> {
        self.add(&Entry::Sealed { files: files.to_vec(), verdict })
    }

    fn add(&mut self, entry: &Entry) -> Result<(), StoreError> {
        let text = serde_json::to_string(entry)
            .map_err(|error| StoreError::Encode(self.path.clone(), error.to_string()))?;
        let chain = chained(&self.chain, &text);
        let line = format!("{}{CHAIN}{chain}\"}}\n", text.strip_suffix('}').unwrap_or(&text));
        // Removes the remains of a failed attempt at a line.
        self.file.set_len(self.len).at("write", &self.path)?;
        self.file.write_all(line.as_bytes()).at("write", &self.path)?;
        self.file.sync_data().at("sync", &self.path)?;
        (self.len, self.chain) = (self.len + line.len() as u64, chain);
        Ok(())
    }
}
