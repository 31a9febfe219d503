//! Debian packages of the host's own sources: what is there, and fetching it.

use crate::error::LabError;
use crate::host;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The keys that Debian signs its package lists with.
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// The lines of the host's package sources that lead to Debian itself, in the form of `sources.list`.
///
/// # Errors
/// [`LabError::Unavailable`] when the host has none.
pub(crate) fn debian_sources() -> Result<Vec<String>, LabError> {
    let mut apt = Command::new("apt-get");
    apt.args(["indextargets", "--format", "$(ORIGIN)|$(ARCHITECTURE)|$(REPO_URI)|$(RELEASE)|$(COMPONENT)"]);
    apt.arg("Created-By: Packages");
    let targets = host::run(&mut apt).map_err(|error| no_packages(&error.brief()))?;
    let lines = source_lines(&targets, Path::new(KEYRING).is_file());
    if lines.is_empty() {
        return Err(no_packages("apt knows no package list of Debian for amd64"));
    }
    Ok(lines)
}

fn source_lines(targets: &str, has_keyring: bool) -> Vec<String> {
    let options =
        if has_keyring { format!("[arch=amd64 signed-by={KEYRING}]") } else { "[arch=amd64]".into() };
    let mut lines = Vec::new();
    for target in targets.lines() {
        let [origin, architecture, uri, release, component] = target.split('|').collect::<Vec<_>>()[..]
        else {
            continue;
        };
        if origin == "Debian" && architecture == "amd64" {
            lines.push(format!("deb {options} {uri} {release} {component}"));
        }
    }
    lines.dedup();
    lines
}

/// The names of the packages that the newest version of a package depends on.
///
/// # Errors
/// [`LabError::Unavailable`] when apt does not know the package.
pub(crate) fn dependencies(package: &str) -> Result<Vec<String>, LabError> {
    let show = || host::run(Command::new("apt-cache").args(["show", "--no-all-versions", package]));
    let mut record = show();
    if record.is_err() && host::is_root() {
        // The lists of a fresh machine are empty.
        refresh_lists()?;
        record = show();
    }
    let record = record.map_err(|_| no_packages(&format!("apt does not know the package {package}")))?;
    Ok(depends_of(&record))
}

/// Fetches the lists of packages anew; only root can.
///
/// # Errors
/// [`LabError::Unavailable`] when they cannot be fetched.
pub(crate) fn refresh_lists() -> Result<(), LabError> {
    // Without this apt takes a server that it cannot reach for a success.
    let mut apt = Command::new("apt-get");
    apt.args(["-qq", "-o", "APT::Update::Error-Mode=any", "update"]);
    host::run(&mut apt).map(|_| ()).map_err(|error| no_packages(&error.brief()))
}

/// The first alternative of each dependency, without versions.
fn depends_of(record: &str) -> Vec<String> {
    let line = record.lines().find_map(|line| line.strip_prefix("Depends: ")).unwrap_or_default();
    let names = line.split(',').filter_map(|dependency| dependency.split_whitespace().next());
    names.map(str::to_owned).collect()
}

/// Fetches packages to a folder, those that are there already excepted, and unpacks them to another.
///
/// # Errors
/// [`LabError::Unavailable`] when they cannot be fetched.
pub(crate) fn unpack(packages: &[String], downloads: &Path, to: &Path) -> Result<(), LabError> {
    host::create_folder(downloads)?;
    host::create_folder(to)?;
    let mut apt = host::bound("apt-get");
    apt.current_dir(downloads).args(["-qq", "-o", "APT::Sandbox::User=root", "download"]).args(packages);
    host::run(&mut apt).map_err(|error| no_packages(&error.brief()))?;
    for package in packages {
        let file = downloaded(package, downloads)?;
        host::run(host::bound("dpkg-deb").arg("-x").arg(&file).arg(to))?;
    }
    Ok(())
}

/// The file of a package, the newest if there are several.
fn downloaded(package: &str, downloads: &Path) -> Result<PathBuf, LabError> {
    let entries = std::fs::read_dir(downloads).map_err(LabError::file("read", downloads))?;
    let prefix = format!("{package}_");
    let files = entries.filter_map(Result::ok).map(|entry| entry.path());
    let mine = files.filter(|path| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&prefix))
            && path.extension().is_some_and(|extension| extension == "deb")
    });
    mine.max_by_key(|path| path.metadata().and_then(|metadata| metadata.modified()).ok())
        .ok_or_else(|| no_packages(&format!("apt fetched no file of {package}")))
}

fn no_packages(reason: &str) -> LabError {
    LabError::Unavailable {
        reason: reason.trim().to_owned(),
        fix: "the lab is built from the packages of a Debian host with a network: run `apt-get update` and try again"
            .into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_sources_of_debian_are_used() {
        let targets = "Debian|amd64|http://mirror/debian/|stable|main\n\
                       Other|amd64|http://other/|stable|main\n\
                       Debian|arm64|http://mirror/debian/|stable|main\n";
        assert_eq!(source_lines(targets, false), ["deb [arch=amd64] http://mirror/debian/ stable main"]);
        assert!(source_lines(targets, true)[0].contains("signed-by=/usr/share/keyrings/"));
    }

    #[test]
    fn dependencies_are_names_without_versions() {
        let record = "Package: a\nDepends: linux-image-6.1.0-1-rt-amd64 (= 6.1-1), b | c\nDescription: d\n";
        assert_eq!(depends_of(record), ["linux-image-6.1.0-1-rt-amd64", "b"]);
        assert!(depends_of("Package: a\n").is_empty());
    }
}
