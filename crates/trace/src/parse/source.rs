//! Where the bytes of a trace come from: a file or memory, compressed or not.
//!
//! In: a path, or bytes. Out: a stream of the unpacked bytes from any offset. Compression is recognised by its magic number
//! (gzip, zstd, xz), whatever the file's name. Uncompressed data is read directly at an offset; compressed data is unpacked
//! from its start again. Memory stays bounded by the windows of the formats.

use super::ParseError;
use std::fs::File;
use std::io::{self, BufReader, Cursor, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use structured_zstd::decoding::{ContentChecksum, FrameDecoder, StreamingDecoder};
use tempfile::NamedTempFile;

/// Largest memory that unpacking xz may take: a hostile file must not take all (for zstd, the crate's limit of 128 MiB
/// holds; gzip needs little).
const XZ_BYTES_MAX: u64 = 128 << 20;
/// Bytes that identify a format.
const MAGIC_BYTES: usize = 6;

/// How the bytes are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    None,
    /// gzip (`.gz`), any number of members.
    Gzip,
    /// Zstandard (`.zst`), any number of frames.
    Zstandard,
    /// xz (`.xz`), any number of streams.
    Xz,
}

impl Compression {
    /// The storage that the first bytes of a file show.
    pub fn of(magic: &[u8]) -> Self {
        match magic {
            [0x1f, 0x8b, 8, ..] => Self::Gzip,
            // A frame, or a skippable frame before it.
            [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Self::Zstandard,
            [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Self::Xz,
            _ => Self::None,
        }
    }
}

/// What holds the bytes.
#[derive(Clone, Debug)]
enum Origin {
    File,
    /// A file that the caller has opened.
    Open(Arc<File>),
    Memory(Arc<[u8]>),
    /// The text that another form was converted to.
    Temporary(Arc<NamedTempFile>),
}

/// Reads and seeks: a file or memory.
trait ReadSeek: Read + Seek + Send {}
impl<T: Read + Seek + Send> ReadSeek for T {}

/// A position in an open file that others read, too.
struct At {
    file: Arc<File>,
    position: u64,
}

impl Read for At {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_at(buffer, self.position)?;
        self.position += read as u64;
        Ok(read)
    }
}

impl Seek for At {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let (base, offset) = match to {
            SeekFrom::Start(position) => (position, 0),
            SeekFrom::Current(offset) => (self.position, offset),
            SeekFrom::End(offset) => (self.file.metadata()?.len(), offset),
        };
        self.position = base.checked_add_signed(offset).ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.position)
    }
}

/// The bytes of a trace, which can be read any number of times.
#[derive(Clone, Debug)]
pub struct Source {
    path: PathBuf,
    origin: Origin,
    compression: Compression,
}

impl Source {
    /// The file at `path`.
    ///
    /// # Errors
    /// [`ParseError::Read`] when it cannot be opened or read.
    pub fn open(path: &Path) -> Result<Self, ParseError> {
        Self::new(path, Origin::File)
    }

    /// An open file; `path` is for messages.
    pub fn file(file: File, path: &Path) -> Result<Self, ParseError> {
        Self::new(path, Origin::Open(Arc::new(file)))
    }

    /// Bytes in memory; `name` stands for the path in messages.
    pub fn memory(name: &str, bytes: impl Into<Arc<[u8]>>) -> Result<Self, ParseError> {
        Self::new(Path::new(name), Origin::Memory(bytes.into()))
    }

    /// The content of a stream, in a temporary file without a name, so that it can be read several times.
    ///
    /// # Errors
    /// [`ParseError::Read`] when it cannot be read, or not be kept.
    pub fn copied(name: &str, stream: &mut dyn Read) -> Result<Self, ParseError> {
        let mut copy = || -> io::Result<File> {
            let mut file = tempfile::tempfile()?;
            io::copy(stream, &mut file)?;
            Ok(file)
        };
        let failed = |source| ParseError::Read { path: PathBuf::from(name), source };
        Self::file(copy().map_err(failed)?, Path::new(name))
    }

    /// A temporary file that stands for the one at `path`.
    pub(super) fn temporary(path: &Path, file: NamedTempFile) -> Self {
        let origin = Origin::Temporary(Arc::new(file));
        Self { path: path.to_owned(), origin, compression: Compression::None }
    }

    fn new(path: &Path, origin: Origin) -> Result<Self, ParseError> {
        let mut source = Self { path: path.to_owned(), origin, compression: Compression::None };
        let mut magic = Vec::with_capacity(MAGIC_BYTES);
        source
            .raw()
            .and_then(|raw| raw.take(MAGIC_BYTES as u64).read_to_end(&mut magic))
            .map_err(|error| source.failed(error, 0))?;
        source.compression = Compression::of(&magic);
        Ok(source)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn compression(&self) -> Compression {
        self.compression
    }

    /// Number of bytes, if it is known without unpacking and each byte can be reached directly: a regular file or memory that
    /// is not compressed.
    pub fn len_bytes(&self) -> Option<u64> {
        if self.compression != Compression::None {
            return None;
        }
        let metadata = match &self.origin {
            Origin::Memory(bytes) => return Some(bytes.len() as u64),
            Origin::File => std::fs::metadata(&self.path),
            Origin::Open(file) => file.metadata(),
            Origin::Temporary(file) => std::fs::metadata(file.path()),
        };
        metadata.ok().filter(std::fs::Metadata::is_file).map(|data| data.len())
    }

    fn raw(&self) -> io::Result<Box<dyn ReadSeek>> {
        Ok(match &self.origin {
            Origin::Memory(bytes) => Box::new(Cursor::new(Arc::clone(bytes))),
            Origin::File => Box::new(File::open(&self.path)?),
            Origin::Open(file) => Box::new(At { file: Arc::clone(file), position: 0 }),
            Origin::Temporary(file) => Box::new(File::open(file.path())?),
        })
    }

    /// A stream of the unpacked bytes from `offset` on.
    ///
    /// # Errors
    /// [`ParseError`] when the file cannot be read, or its compression is damaged before `offset`.
    pub fn stream(&self, offset: u64) -> Result<Box<dyn Read + Send>, ParseError> {
        self.stream_raw(offset).map_err(|error| self.failed(error, offset))
    }

    fn stream_raw(&self, offset: u64) -> io::Result<Box<dyn Read + Send>> {
        let mut raw = self.raw()?;
        let mut unpacked: Box<dyn Read + Send> = match self.compression {
            Compression::None => {
                raw.seek(SeekFrom::Start(offset))?;
                return Ok(Box::new(raw));
            }
            Compression::Gzip => Box::new(flate2::bufread::MultiGzDecoder::new(BufReader::new(raw))),
            Compression::Zstandard => {
                let mut decoder = FrameDecoder::new();
                decoder.set_content_checksum(ContentChecksum::Verify);
                Box::new(StreamingDecoder::new_with_decoder(BufReader::new(raw), decoder))
            }
            Compression::Xz => Box::new(lzma_rust2::XzReader::new_mem_limit(
                BufReader::new(raw),
                true,
                (XZ_BYTES_MAX / 1024) as u32,
            )),
        };
        io::copy(&mut unpacked.by_ref().take(offset), &mut io::sink())?;
        Ok(unpacked)
    }

    /// A source whose bytes can be reached directly: itself when it is not compressed, otherwise a temporary file
    /// without a name that has them unpacked.
    ///
    /// # Errors
    /// [`ParseError`] when it cannot be unpacked, or not be written.
    pub fn unpacked(&self) -> Result<File, ParseError> {
        let fill = || -> io::Result<File> {
            match &self.origin {
                Origin::File if self.compression == Compression::None => return File::open(&self.path),
                // It is read at positions.
                Origin::Open(file) if self.compression == Compression::None => return file.try_clone(),
                _ => {}
            }
            let mut file = tempfile::tempfile()?;
            io::copy(&mut self.stream_raw(0)?, &mut file)?;
            file.flush()?;
            file.seek(SeekFrom::Start(0))?;
            Ok(file)
        };
        fill().map_err(|error| self.failed(error, 0))
    }

    /// What went wrong at `offset` of the unpacked bytes: the file could not be read, or its compression is damaged.
    pub fn failed(&self, error: io::Error, offset: u64) -> ParseError {
        let damaged = |what: &str| ParseError::Damaged {
            path: self.path.clone(),
            offset,
            message: format!("the {what} ({error})"),
        };
        match (self.compression, error.kind()) {
            (Compression::None, _) => ParseError::Read { path: self.path.clone(), source: error },
            (_, io::ErrorKind::UnexpectedEof) => damaged("compressed data ends too early"),
            (
                _,
                io::ErrorKind::InvalidData
                | io::ErrorKind::InvalidInput
                | io::ErrorKind::Other
                | io::ErrorKind::Unsupported
                | io::ErrorKind::OutOfMemory,
            ) => damaged("compressed data is damaged"),
            _ => ParseError::Read { path: self.path.clone(), source: error },
        }
    }
}
