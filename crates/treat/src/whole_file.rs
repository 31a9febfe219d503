//! Files of the system that have either their old or their new content, whenever the power fails.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

/// Writes a file: a power cut leaves the old one or the whole new one. The permissions of the old one stay.
///
/// # Errors
/// It cannot be written. [`temporary`] may be left then.
pub fn write(path: &Path, text: &str) -> io::Result<()> {
    let temporary = temporary(path);
    let mut file = File::create(&temporary)?;
    if let Ok(before) = fs::metadata(path) {
        file.set_permissions(before.permissions())?;
    }
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&temporary, path)?;
    sync_folder_of(path)
}

/// The name of a file until it is whole.
pub fn temporary(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".whylate-new");
    path.with_file_name(name)
}

/// Brings to the disk that a file is there, or no longer there.
pub fn sync_folder_of(path: &Path) -> io::Result<()> {
    File::open(path.parent().unwrap_or(Path::new("/")))?.sync_all()
}
