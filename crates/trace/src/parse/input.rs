//! A file, or bytes in memory, read at positions: what binary readers work on.
//!
//! Nothing is mapped, and only requested bytes are read. A length that a file claims is compared with the file's own length
//! before memory is allocated for it.

use super::ParseError;
use super::bytes::{ByteOrder, text};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

#[derive(Clone, Debug)]
enum Origin {
    File(Arc<File>),
    Memory(Arc<Vec<u8>>),
}

/// Bytes with a name for messages. A copy shares them.
#[derive(Clone, Debug)]
pub struct Input {
    path: PathBuf,
    origin: Origin,
    length: u64,
    /// Where in the file an unpacked section was: its errors are reported there.
    section: Option<u64>,
}

impl Input {
    /// An open file; `path` is for messages.
    pub fn file(file: File, path: &Path) -> Result<Self, ParseError> {
        let length =
            file.metadata().map_err(|source| ParseError::Read { path: path.to_owned(), source })?.len();
        Ok(Self { path: path.to_owned(), origin: Origin::File(Arc::new(file)), length, section: None })
    }

    /// The file at `path`.
    pub fn open(path: &Path) -> Result<Self, ParseError> {
        let file = File::open(path).map_err(|source| ParseError::Read { path: path.to_owned(), source })?;
        Self::file(file, path)
    }

    /// Bytes in memory; `name` stands for the path in messages.
    pub fn memory(name: &Path, bytes: impl Into<Vec<u8>>) -> Self {
        let bytes = Arc::new(bytes.into());
        Self {
            path: name.to_owned(),
            length: bytes.len() as u64,
            origin: Origin::Memory(bytes),
            section: None,
        }
    }

    /// The unpacked content of a compressed section at `offset` of this file.
    pub fn section(&self, offset: u64, bytes: Vec<u8>) -> Self {
        Self { section: Some(offset), ..Self::memory(&self.path, bytes) }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Number of bytes.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Fills `buffer` from `offset` on.
    pub fn fill(&self, offset: u64, buffer: &mut [u8]) -> Result<(), ParseError> {
        if offset.checked_add(buffer.len() as u64).is_none_or(|end| end > self.length) {
            return Err(self.ends(offset, buffer.len() as u64));
        }
        match &self.origin {
            Origin::Memory(bytes) => {
                let begin = offset as usize;
                buffer.copy_from_slice(&bytes[begin..begin + buffer.len()]);
                Ok(())
            }
            Origin::File(file) => file.read_exact_at(buffer, offset).map_err(|source| {
                if source.kind() == std::io::ErrorKind::UnexpectedEof {
                    return self.ends(offset, buffer.len() as u64);
                }
                ParseError::Read { path: self.path.clone(), source }
            }),
        }
    }

    /// `length` bytes from `offset` on.
    pub fn bytes(&self, offset: u64, length: u64) -> Result<Vec<u8>, ParseError> {
        if offset.checked_add(length).is_none_or(|end| end > self.length) {
            return Err(self.ends(offset, length));
        }
        let mut buffer = vec![0; length as usize];
        self.fill(offset, &mut buffer)?;
        Ok(buffer)
    }

    /// The file is damaged at `offset`.
    pub fn damaged(&self, offset: u64, message: impl Into<String>) -> ParseError {
        let offset = self.section.unwrap_or(offset);
        ParseError::Damaged { path: self.path.clone(), offset, message: message.into() }
    }

    fn ends(&self, offset: u64, wanted: u64) -> ParseError {
        let what = if self.section.is_some() { "section" } else { "file" };
        let length = self.length;
        self.damaged(
            offset,
            format!("{wanted} bytes are expected here, but the {what} ends after {length}: it is truncated or damaged; copy it again, or record again"),
        )
    }

    /// Reads sequentially from `offset` on.
    pub fn scan(&self, offset: u64, order: ByteOrder) -> Scan<'_> {
        Scan { input: self, position: offset, order }
    }
}

/// Reads sequentially.
#[derive(Clone, Debug)]
pub struct Scan<'a> {
    input: &'a Input,
    pub position: u64,
    /// Byte order of numbers.
    pub order: ByteOrder,
}

/// The longest section that is read at once: descriptions of a kernel are far shorter.
pub(crate) const SECTION_BYTES_MAX: u64 = 64 << 20;
/// The longest text that is searched for.
const TEXT_BYTES_MAX: usize = 1 << 16;

impl<'a> Scan<'a> {
    pub fn input(&self) -> &'a Input {
        self.input
    }

    fn number(&mut self, width: usize) -> Result<u64, ParseError> {
        let mut buffer = [0; 8];
        self.input.fill(self.position, &mut buffer[..width])?;
        self.position += width as u64;
        Ok(self.order.number(&buffer, 0, width).unwrap_or(0))
    }

    /// One byte.
    pub(crate) fn u8(&mut self) -> Result<u8, ParseError> {
        self.number(1).map(|value| value as u8)
    }

    /// Two bytes.
    pub(crate) fn u16(&mut self) -> Result<u16, ParseError> {
        self.number(2).map(|value| value as u16)
    }

    /// Four bytes.
    pub(crate) fn u32(&mut self) -> Result<u32, ParseError> {
        self.number(4).map(|value| value as u32)
    }

    /// Eight bytes.
    pub(crate) fn u64(&mut self) -> Result<u64, ParseError> {
        self.number(8)
    }

    /// `length` bytes.
    pub fn bytes(&mut self, length: u64) -> Result<Vec<u8>, ParseError> {
        if length > SECTION_BYTES_MAX {
            return Err(self.damaged(format!("{length} bytes are too many for this section")));
        }
        let bytes = self.input.bytes(self.position, length)?;
        self.position += length;
        Ok(bytes)
    }

    /// Passes over `length` bytes.
    pub fn skip(&mut self, length: u64) -> Result<(), ParseError> {
        if self.position.checked_add(length).is_none_or(|end| end > self.input.length) {
            return Err(self.input.ends(self.position, length));
        }
        self.position += length;
        Ok(())
    }

    /// `length` bytes as text; invalid UTF-8 is replaced.
    pub fn text(&mut self, length: u64) -> Result<String, ParseError> {
        self.bytes(length).map(text)
    }

    /// A text that ends with NUL.
    pub fn terminated(&mut self) -> Result<String, ParseError> {
        let begin = self.position;
        let mut found = Vec::new();
        loop {
            let left = self.input.length.saturating_sub(self.position).min(256);
            let block = self.input.bytes(self.position, left.max(1))?;
            if let Some(end) = block.iter().position(|byte| *byte == 0) {
                found.extend_from_slice(&block[..end]);
                self.position += end as u64 + 1;
                return Ok(text(found));
            }
            found.extend_from_slice(&block);
            self.position += block.len() as u64;
            if found.len() > TEXT_BYTES_MAX {
                return Err(self.input.damaged(begin, "a text here has no terminating NUL"));
            }
        }
    }

    /// The file is damaged at the current position.
    pub fn damaged(&self, message: impl Into<String>) -> ParseError {
        self.input.damaged(self.position, message)
    }
}
