//! A run directory as one object, and back: the same directory gives the same bytes.

use super::hexadecimal;
use crate::error::{At as _, FarmError};
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use sha2::{Digest as _, Sha256};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use whylate_store::{Folder, Found, file_bytes_max};

pub(super) struct Packed {
    pub(super) file: File,
    pub(super) bytes: u64,
    pub(super) sha256: String,
    /// SHA-256 over names and contents of all files.
    pub(super) content: String,
}

/// Packs every folder and regular file below a directory; links are left out.
pub(super) fn pack(run: &Folder) -> Result<Packed, FarmError> {
    let place = run.path();
    let scratch = tempfile::tempfile().at("create a file for", place)?;
    let mut content = Sha256::new();
    let mut archive = tar::Builder::new(GzEncoder::new(Hashing::new(scratch), Compression::default()));
    for Found { name, is_folder, .. } in run.tree().at("read", place)? {
        let path = place.join(&name);
        let mut header = tar::Header::new_gnu();
        if is_folder {
            header.set_entry_type(tar::EntryType::Directory);
            header.set_size(0);
            header.set_mode(0o755);
            archive.append_data(&mut header, &name, io::empty()).at("read", &path)?;
            continue;
        }
        let mut file = run.open_file(&name).at("read", &path)?.ok_or_else(|| changed(&path))?;
        let metadata = file.metadata().at("read", &path)?;
        if metadata.len() > file_bytes_max(&name) {
            return Err(FarmError::refused(path.display(), too_large(metadata.len())));
        }
        header.set_size(metadata.len());
        header.set_mode(metadata.permissions().mode() & 0o777);
        header.set_mtime(0);
        let mut inner = Sha256::new();
        let mut reader = Tee((&mut file).take(metadata.len()), &mut inner);
        archive.append_data(&mut header, &name, &mut reader).at("read", &path)?;
        if reader.0.limit() > 0 {
            return Err(changed(&path));
        }
        content.update(format!("{}\0{}\n", name.display(), hexadecimal(&inner.finalize())));
    }
    let packed = archive.into_inner().and_then(GzEncoder::finish).at("pack", place)?;
    let Hashing { mut file, hash, bytes } = packed;
    io::Seek::rewind(&mut file).at("pack", place)?;
    let content = hexadecimal(&content.finalize());
    Ok(Packed { file, bytes, sha256: hexadecimal(&hash.finalize()), content })
}

/// The error for a file that changed since it was found.
fn changed(path: &Path) -> FarmError {
    FarmError::refused(path.display(), "the file changed while whylate read it; push the run after its end")
}

fn too_large(bytes: u64) -> String {
    format!("{bytes} bytes are too many for a file of a run")
}

/// Unpacks an archive into an empty directory.
///
/// # Errors
/// [`FarmError::Io`] or [`FarmError::Run`], also for a path that leads out of the directory.
pub(super) fn unpack(archive: impl Read, to: &Folder) -> Result<(), FarmError> {
    let mut archive = tar::Archive::new(GzDecoder::new(archive));
    for entry in archive.entries().at("unpack", to.path())? {
        let mut entry = entry.at("unpack", to.path())?;
        let name = entry.path().at("unpack", to.path())?.into_owned();
        match entry.header().entry_type() {
            tar::EntryType::Directory => to.make_folders(&name)?,
            tar::EntryType::Regular | tar::EntryType::Continuous if entry.size() > file_bytes_max(&name) => {
                return Err(io::Error::other(too_large(entry.size()))).at("unpack", to.path().join(&name));
            }
            tar::EntryType::Regular | tar::EntryType::Continuous => to.write_new(&name, &mut entry)?,
            _ => {
                let error = io::Error::other("the archive contains something that is not a file of a run");
                return Err(error).at("unpack", to.path());
            }
        }
    }
    Ok(())
}

/// Writes to a file and hashes the bytes.
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

/// Reads and hashes the bytes.
struct Tee<'a, R>(R, &'a mut Sha256);

impl<R: Read> Read for Tee<'_, R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let read = self.0.read(to)?;
        self.1.update(&to[..read]);
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_does_not_belong_to_a_run_is_not_unpacked() {
        for (name, bytes, is_taken) in
            [("run.json", 1 << 40, false), ("traces/a.dat", 1 << 40, false), ("traces/a.dat", 3, true)]
        {
            let mut header = tar::Header::new_gnu();
            header.set_path(name).unwrap();
            header.set_size(bytes);
            header.set_cksum();
            let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
            packed.write_all(header.as_bytes()).unwrap();
            packed.write_all(&[0; 1536]).unwrap();
            let folder = tempfile::tempdir().unwrap();
            let unpacked = unpack(&packed.finish().unwrap()[..], &Folder::open(folder.path()).unwrap());
            assert_eq!(
                (unpacked.is_ok(), folder.path().join(name).exists()),
                (is_taken, is_taken),
                "{unpacked:?}"
            );
        }
    }
}
