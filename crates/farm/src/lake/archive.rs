//! A run directory as one object, and back: the same directory gives the same bytes.

use super::hexadecimal;
use crate::error::{At as _, FarmError};
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use sha2::{Digest as _, Sha256};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

pub(super) struct Packed {
    pub(super) file: File,
    pub(super) bytes: u64,
    pub(super) sha256: String,
    /// SHA-256 over names and contents of all files.
    pub(super) content: String,
}

/// Packs every folder and regular file below a directory.
pub(super) fn pack(run: &Path) -> Result<Packed, FarmError> {
    let scratch = tempfile::tempfile().at("create a file for", run)?;
    let mut content = Sha256::new();
    let mut archive = tar::Builder::new(GzEncoder::new(Hashing::new(scratch), Compression::default()));
    for path in entries_of(run).at("read", run)? {
        let name = path.strip_prefix(run).unwrap_or(&path);
        if path.is_dir() {
            let mut header = tar::Header::new_gnu();
            header.set_entry_type(tar::EntryType::Directory);
            header.set_size(0);
            header.set_mode(0o755);
            archive.append_data(&mut header, name, io::empty()).at("read", &path)?;
            continue;
        }
        let mut file = File::open(&path).at("read", &path)?;
        let metadata = file.metadata().at("read", &path)?;
        let mut header = tar::Header::new_gnu();
        header.set_size(metadata.len());
        header.set_mode(metadata.permissions().mode() & 0o777);
        header.set_mtime(0);
        let mut inner = Sha256::new();
        let reader = Tee(&mut file, &mut inner);
        archive.append_data(&mut header, name, reader).at("read", &path)?;
        content.update(format!("{}\0{}\n", name.display(), hexadecimal(&inner.finalize())));
    }
    let packed = archive.into_inner().and_then(GzEncoder::finish).at("pack", run)?;
    let Hashing { mut file, hash, bytes } = packed;
    io::Seek::rewind(&mut file).at("pack", run)?;
    let content = hexadecimal(&content.finalize());
    Ok(Packed { file, bytes, sha256: hexadecimal(&hash.finalize()), content })
}

/// Unpacks an archive into an empty directory.
///
/// # Errors
/// [`FarmError::Io`]; a path that leads out of the directory is one.
pub(super) fn unpack(archive: impl Read, to: &Path) -> Result<(), FarmError> {
    let mut archive = tar::Archive::new(GzDecoder::new(archive));
    archive.set_preserve_mtime(false);
    for entry in archive.entries().at("unpack", to)? {
        let mut entry = entry.at("unpack", to)?;
        let kind = entry.header().entry_type();
        if !(kind.is_file() || kind.is_dir()) || !entry.unpack_in(to).at("unpack", to)? {
            return Err(io::Error::other("the archive holds something that is no file of a run"))
                .at("unpack", to);
        }
    }
    Ok(())
}

/// The folders and regular files below a directory, sorted; links are left out.
fn entries_of(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut entries = fs::read_dir(folder)?.collect::<io::Result<Vec<_>>>()?;
    entries.sort_by_key(fs::DirEntry::file_name);
    let mut found = Vec::new();
    for entry in entries {
        let kind = entry.file_type()?;
        if kind.is_dir() || kind.is_file() {
            found.push(entry.path());
        }
        if kind.is_dir() {
            found.extend(entries_of(&entry.path())?);
        }
    }
    Ok(found)
}

/// Writes into a file, and hashes what goes there.
struct Hashing {
    file: File,
    hash: Sha256,
    bytes: u64,
}

impl Hashing {
    fn new(file: File) -> Self {
        Self { file, hash: Sha256::new(), bytes: 0 }
    }
}

impl Write for Hashing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.hash.update(&bytes[..written]);
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Reads, and hashes what is read.
struct Tee<'a, R>(R, &'a mut Sha256);

impl<R: Read> Read for Tee<'_, R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let read = self.0.read(to)?;
        self.1.update(&to[..read]);
        Ok(read)
    }
}
