//! Reads a trace buffer without waiting for more: text lines, or the ring-buffer pages of a CPU.
//!
//! Reading consumes the data. The layout of the pages is read here, but not their content.

use super::error::RecordError;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use whylate_core::CpuId;
use whylate_trace::parse::{ByteOrder, PageLayout};

/// A file of tracefs whose content arrives while it is read: `trace_pipe`, `trace_pipe_raw`.
#[derive(Debug)]
pub(super) struct Pipe {
    path: PathBuf,
    file: File,
}

impl Pipe {
    /// Opens the text of the buffer in `folder`.
    pub(super) fn of_text(folder: &Path) -> Result<Self, RecordError> {
        Self::open(folder.join("trace_pipe"))
    }

    /// Opens the pages of a CPU of the buffer in `folder`.
    pub(super) fn of_pages(folder: &Path, cpu: CpuId) -> Result<Self, RecordError> {
        Self::open(folder.join(format!("per_cpu/cpu{cpu}/trace_pipe_raw")))
    }

    fn open(path: PathBuf) -> Result<Self, RecordError> {
        let no_wait = rustix::fs::OFlags::NONBLOCK.bits() as i32;
        let opened = OpenOptions::new().read(true).custom_flags(no_wait).open(&path);
        let file = opened.map_err(RecordError::read(&path))?;
        Ok(Self { path, file })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the available data, as far as it fits; 0 if there is none.
    pub(super) fn read(&mut self, bytes: &mut [u8]) -> Result<usize, RecordError> {
        loop {
            match self.file.read(bytes) {
                Ok(length) => return Ok(length),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(0),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(RecordError::read(&self.path)(error)),
            }
        }
    }

    /// Reads the next page into `page`, which has its size; `false` when there is none.
    pub(super) fn next_page(&mut self, page: &mut [u8]) -> Result<bool, RecordError> {
        let length = self.read(page)?;
        page[length..].fill(0);
        Ok(length > 0)
    }
}

/// How the kernel lays out the pages of its ring buffers, by its own description below `top`.
pub(super) fn page_layout(top: &Path) -> Result<PageLayout, RecordError> {
    let path = top.join("events/header_page");
    let text = String::from_utf8_lossy(&read_at_once(&path)?).into_owned();
    PageLayout::parse(&text, ByteOrder::NATIVE).map_err(|message| RecordError::unfit(&path, &message))
}

/// The kernel gives the descriptions of the page and event headers to the first read only, however short it is.
pub(super) fn read_at_once(path: &Path) -> Result<Vec<u8>, RecordError> {
    let mut bytes = vec![0; 64 << 10];
    let length =
        File::open(path).and_then(|mut file| file.read(&mut bytes)).map_err(RecordError::read(path))?;
    bytes.truncate(length);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_read_one_by_one_and_a_short_one_is_filled() {
        let folder = tempfile::tempdir().unwrap();
        let cpu = folder.path().join("per_cpu/cpu3");
        std::fs::create_dir_all(&cpu).unwrap();
        std::fs::write(cpu.join("trace_pipe_raw"), [7; 12]).unwrap();
        let mut pipe = Pipe::of_pages(folder.path(), CpuId(3)).unwrap();
        let mut page = [1; 8];
        assert!(pipe.next_page(&mut page).unwrap() && page == [7; 8]);
        assert!(pipe.next_page(&mut page).unwrap() && page == [7, 7, 7, 7, 0, 0, 0, 0]);
        assert!(!pipe.next_page(&mut page).unwrap());
        let error = Pipe::of_pages(folder.path(), CpuId(4)).unwrap_err().to_string();
        assert!(error.contains("cpu4/trace_pipe_raw"), "{error}");
    }

    #[test]
    fn a_layout_is_that_of_the_kernels_description() {
        let traces = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/traces");
        let bytes = |folder: &str| page_layout(&traces.join(folder)).unwrap().page_bytes;
        assert_eq!([bytes("raw-6.18-4k"), bytes("raw-6.18-16k")], [4 << 10, 16 << 10]);
        let nothing = tempfile::tempdir().unwrap();
        assert!(matches!(page_layout(nothing.path()), Err(RecordError::Read { .. })));
    }
}
