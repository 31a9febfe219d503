//! Debian packages through a package root of the lab's own: sources, lists and downloads in the cache. The host's apt
//! is only asked which mirror it uses; all downloads are checked against Debian's keys.

use crate::cache::{self, Cache};
use crate::error::LabError;
use crate::host;
use crate::machine::Architecture;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The keys that Debian signs its package lists with.
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
/// Releases that have the kernels of the lab, in addition to those of the host; a mirror that lacks one has fewer
/// kernels.
const RELEASES: [&str; 4] = [OLD, "bookworm", "trixie", ROLLING];
/// The release that is no longer supported: its security archive lists files that are no longer available.
const OLD: &str = "bullseye";
/// The release without a security archive.
const ROLLING: &str = "sid";
/// The name that stands for all releases.
const ALL: &str = "all";
/// Lists of packages are fetched again when they are older.
const LISTS_AGE: Duration = Duration::from_secs(7 * 24 * 3600);
/// Parts of packages that are not run or linked here, below `usr`.
const LEFT_OUT: [&str; 4] = ["share/doc", "share/man", "share/locale", "share/info"];

/// The lines of the host's package sources that lead to Debian itself, in the form of `sources.list`.
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

/// The lines of the lab's own sources: the releases from the host's mirror, and their security archive.
fn own_lines(host: &[String], architecture: Architecture) -> Vec<String> {
    let arch = |architecture: Architecture| format!("arch={}", architecture.debian());
    let mut lines = Vec::new();
    for security in [false, true] {
        let line = host
            .iter()
            .find(|line| release_of(line).is_some_and(|name| name.ends_with("-security") == security));
        // deb [options] URI RELEASE COMPONENT
        let Some(mirror) = line.and_then(|line| line.rsplitn(3, ' ').nth(2)) else { continue };
        for release in RELEASES.iter().filter(|release| !security || ![OLD, ROLLING].contains(release)) {
            let ending = if security { "-security" } else { "" };
            let line = format!("{mirror} {release}{ending} main");
            lines.push(line.replacen(&arch(Architecture::X86), &arch(architecture), 1));
        }
    }
    lines
}

/// The release of a line of `sources.list`.
pub(crate) fn release_of(line: &str) -> Option<&str> {
    line.split_whitespace().rev().nth(1)
}

/// The release that `bookworm-security` and the like belong to.
fn main_release(name: &str) -> &str {
    name.split('-').next().unwrap_or(name)
}

/// A version of a package, and the release that has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Offer {
    pub(crate) version: String,
    pub(crate) release: String,
}

/// Reads lines of the form `PACKAGE | VERSION | URI RELEASE/COMPONENT ARCHITECTURE Packages`, the newest first.
fn offers_of(table: &str) -> Vec<Offer> {
    let offer = |line: &str| -> Option<Offer> {
        let [_, version, source] = line.split('|').collect::<Vec<_>>()[..] else { return None };
        let (release, _) = source.split_whitespace().nth(1)?.rsplit_once('/')?;
        Some(Offer { version: version.trim().to_owned(), release: release.to_owned() })
    };
    table.lines().filter_map(offer).collect()
}

/// The package root in the cache. Only the holder of the cache's lock uses it.
#[derive(Debug)]
pub(crate) struct PackageRoot {
    folder: PathBuf,
    architecture: Architecture,
}

impl PackageRoot {
    /// The package root of a cache for packages of an architecture, with lists that are not too old, if they are
    /// available.
    ///
    /// # Errors
    /// [`LabError::Unavailable`] when there are no lists at all.
    pub(crate) fn open(cache: &Cache, architecture: Architecture) -> Result<Self, LabError> {
        let folder = cache.root().join(format!("apt{}", architecture.ending()));
        let root = Self { folder, architecture };
        for name in ["lists/partial", "empty"] {
            host::create_folder(&root.folder.join(name))?;
        }
        let lines = own_lines(&debian_sources()?, architecture);
        let sources = root.sources(ALL);
        let text = lines.join("\n");
        let is_new = std::fs::read_to_string(&sources).ok().as_ref() != Some(&text);
        if is_new {
            host::write(&sources, &text)?;
            for release in RELEASES {
                let own = lines
                    .iter()
                    .filter(|line| release_of(line).is_some_and(|name| main_release(name) == release));
                host::write(&root.sources(release), own.map(String::as_str).collect::<Vec<_>>().join("\n"))?;
            }
        }
        let fetched = root.fetched().metadata().and_then(|metadata| metadata.modified());
        let age = fetched.ok().and_then(|at| at.elapsed().ok());
        if is_new || age.is_none_or(|age| age > LISTS_AGE) {
            // Old lists are better than none.
            root.refresh().or_else(|error| if age.is_some() { Ok(()) } else { Err(error) })?;
        }
        Ok(root)
    }

    /// The age of this file is that of the lists.
    fn fetched(&self) -> PathBuf {
        self.folder.join("fetched")
    }

    /// The sources of a release, with its updates.
    fn sources(&self, release: &str) -> PathBuf {
        self.folder.join(format!("{release}.list"))
    }

    /// A program of apt that knows only this root, and only this release.
    fn apt(&self, program: &str, release: &str) -> Command {
        let mut apt = host::bound(program);
        let empty = self.folder.join("empty");
        let places = [
            ("Dir::Etc::sourcelist", self.sources(release)),
            ("Dir::Etc::sourceparts", empty.clone()),
            ("Dir::Etc::preferences", "/dev/null".into()),
            ("Dir::Etc::preferencesparts", empty),
            ("Dir::State", self.folder.clone()),
            ("Dir::State::lists", self.folder.join("lists")),
            ("Dir::State::status", "/dev/null".into()),
            ("Dir::Cache", self.folder.clone()),
            ("Dir::Cache::pkgcache", format!("{release}.bin").into()),
        ];
        for (option, place) in places {
            apt.arg("-o").arg(format!("{option}={}", place.display()));
        }
        for option in ["APT::Architecture", "APT::Architectures"] {
            apt.arg("-o").arg(format!("{option}={}", self.architecture.debian()));
        }
        apt.args(["-o", "APT::Sandbox::User=root", "-o", "Acquire::Languages=none"]);
        apt.args(["-o", "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false"]);
        apt
    }

    /// Fetches the lists again. A release that is not available is left out.
    pub(crate) fn refresh(&self) -> Result<(), LabError> {
        // Otherwise apt treats a server that it cannot reach as a success.
        let mut apt = self.apt("apt-get", ALL);
        apt.args(["-qq", "-o", "APT::Update::Error-Mode=any", "update"]);
        match host::run(&mut apt) {
            Err(error) if offers_of(&self.table("base-files")).is_empty() => Err(no_packages(&error.brief())),
            _ => host::write(&self.fetched(), ""),
        }
    }

    fn table(&self, package: &str) -> String {
        host::run(self.apt("apt-cache", ALL).args(["madison", package])).unwrap_or_default()
    }

    /// The newest version of a package that begins with `prefix`.
    pub(crate) fn newest(&self, package: &str, prefix: &str) -> Result<Offer, LabError> {
        let mut offers = offers_of(&self.table(package)).into_iter();
        offers
            .find(|offer| offer.version.starts_with(prefix))
            .ok_or_else(|| no_packages(&format!("no Debian release has {package} {prefix}")))
    }

    /// The names of the packages that a package (`NAME` or `NAME=VERSION`) depends on.
    pub(crate) fn dependencies(&self, package: &str) -> Result<Vec<String>, LabError> {
        let record = host::run(self.apt("apt-cache", ALL).args(["show", "--no-all-versions", package]));
        let record = record.map_err(|_| no_packages(&format!("apt does not know the package {package}")))?;
        Ok(depends_of(&record))
    }

    /// Fetches packages of a release to a folder, except those that exist there, and unpacks them to another.
    pub(crate) fn unpack(
        &self,
        release: &str,
        packages: &[String],
        downloads: &Path,
        to: &Path,
    ) -> Result<(), LabError> {
        host::create_folder(downloads)?;
        let mut apt = self.apt("apt-get", main_release(release));
        apt.current_dir(downloads).args(["-qq", "download"]).args(packages);
        host::run(&mut apt).map_err(|error| no_packages(&error.brief()))?;
        for package in packages {
            unpack_file(&downloaded(package, downloads)?, to)?;
        }
        Ok(())
    }

    /// A folder with packages of a release and everything that they need, as if it were a file system's root; none of
    /// their scripts has run. Returns its name below the cache's `trees`.
    pub(crate) fn tree(&self, cache: &Cache, release: &str, packages: &[&str]) -> Result<String, LabError> {
        let files = self.files(release, packages)?;
        let name = format!("{}-{}", packages[0], cache::key(files.iter().map(|file| file.as_bytes())));
        if cache.tree(&name).is_dir() {
            return Ok(name);
        }
        let work = cache.work_folder()?;
        let root = work.path().join("root");
        self.unpack_all(release, packages, work.path(), &root)?;
        cache::rename(&root, &cache.tree(&name))?;
        Ok(name)
    }

    /// The files of packages of a release and of all that they need.
    fn files(&self, release: &str, packages: &[&str]) -> Result<Vec<String>, LabError> {
        let mut apt = self.install(release, packages);
        let files = host::run(apt.arg("--print-uris")).map_err(|error| no_packages(&error.brief()))?;
        // 'URI' FILE SIZE CHECKSUM
        let mut files: Vec<String> =
            files.lines().filter_map(|line| line.split(' ').nth(1)).map(str::to_owned).collect();
        files.sort_unstable();
        Ok(files)
    }

    fn install(&self, release: &str, packages: &[&str]) -> Command {
        let mut apt = self.apt("apt-get", main_release(release));
        apt.args(["-qq", "-y", "--no-install-recommends", "install"]).args(packages);
        apt
    }

    /// Unpacks packages of a release and all that they need to one folder; the files are fetched to another.
    pub(crate) fn unpack_all(
        &self,
        release: &str,
        packages: &[&str],
        work: &Path,
        root: &Path,
    ) -> Result<(), LabError> {
        let downloads = work.join("archives");
        host::create_folder(&downloads.join("partial"))?;
        let mut apt = self.install(release, packages);
        apt.args(["--download-only", "-o"]).arg(format!("Dir::Cache::archives={}", downloads.display()));
        host::run(&mut apt).map_err(|error| no_packages(&error.brief()))?;
        for file in self.files(release, packages)? {
            unpack_file(&downloads.join(file), root)?;
        }
        for left_out in LEFT_OUT {
            // Not every package has some.
            let _ = std::fs::remove_dir_all(root.join("usr").join(left_out));
        }
        Ok(())
    }
}

fn unpack_file(file: &Path, to: &Path) -> Result<(), LabError> {
    host::create_folder(to)?;
    host::run(host::bound("dpkg-deb").arg("-x").arg(file).arg(to)).map(|_| ())
}

/// The first alternative of each dependency, without versions.
fn depends_of(record: &str) -> Vec<String> {
    let line = record.lines().find_map(|line| line.strip_prefix("Depends: ")).unwrap_or_default();
    let names = line.split(',').filter_map(|dependency| dependency.split_whitespace().next());
    names.map(str::to_owned).collect()
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
    fn other_releases_come_from_the_hosts_mirror() {
        let host = [
            "deb [o] http://mirror/debian stable main",
            "deb [o] http://mirror/security stable-security main",
        ];
        let lines = own_lines(&host.map(str::to_owned), Architecture::X86);
        assert_eq!(
            lines[1..3],
            ["deb [o] http://mirror/debian bookworm main", "deb [o] http://mirror/debian trixie main"]
        );
        assert_eq!(lines[5], "deb [o] http://mirror/security trixie-security main");
        assert_eq!((lines.len(), own_lines(&[], Architecture::X86).len()), (6, 0));
        let line = "deb [arch=amd64 signed-by=k] http://mirror/debian stable main".to_owned();
        let lines = own_lines(&[line], Architecture::Arm64);
        assert_eq!(lines[1], "deb [arch=arm64 signed-by=k] http://mirror/debian bookworm main");
    }

    #[test]
    fn offers_are_versions_of_releases() {
        let table = "\
qemu-system-x86 | 1:10.0.13+ds-0 | http://mirror/debian trixie/main amd64 Packages
qemu-system-x86 | 1:7.2+dfsg-5 | http://mirror/security bookworm-security/main amd64 Packages
";
        let offers = offers_of(table);
        assert_eq!(offers[0], Offer { version: "1:10.0.13+ds-0".into(), release: "trixie".into() });
        assert_eq!(offers[1].release, "bookworm-security");
        assert_eq!(offers_of("N: nothing\n"), []);
        assert_eq!(main_release("bookworm-security"), "bookworm");
    }

    #[test]
    fn dependencies_are_names_without_versions() {
        let record = "Package: a\nDepends: linux-image-6.1.0-1-rt-amd64 (= 6.1-1), b | c\nDescription: d\n";
        assert_eq!(depends_of(record), ["linux-image-6.1.0-1-rt-amd64", "b"]);
        assert!(depends_of("Package: a\n").is_empty());
    }
}
