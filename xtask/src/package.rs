//! Packages of what `dist` built: .deb and .rpm by nfpm, as the files in `packaging` describe them, with checksums.
//!
//! The same sources give the same bytes: times in packages are those of the last commit.

use crate::{dist, process, skips};
use anyhow::{Context, Result, bail, ensure};
use cargo_metadata::MetadataCommand;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use whylate_testing::Need;

/// How Debian and nfpm call the machines of [`dist::TARGETS`].
const ARCHITECTURES: [&str; 2] = ["amd64", "arm64"];
/// The place of this machine among them.
const OWN: usize = if cfg!(target_arch = "aarch64") { 1 } else { 0 };
/// The units of systemd in `docs/systemd`.
const UNITS: [&str; 2] = ["whylate-run@.service", "whylate-watch@.service"];
const FORMS: [&str; 2] = ["deb", "rpm"];
const INSTALL: &str = "go install github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.43.4";

/// The chore: builds what is missing, or takes what `dist` built into `folder`.
///
/// # Errors
/// When nfpm is missing, or something cannot be built or packed.
pub(crate) fn run(root: &Path, folder: Option<&Path>) -> Result<()> {
    let Some(nfpm) = nfpm(root) else { bail!("nfpm makes the packages, and is not installed: {INSTALL}") };
    let built = match folder {
        Some(folder) => {
            fs::canonicalize(folder).with_context(|| format!("no folder {}", folder.display()))?
        }
        None => {
            dist::run(root, dist::SHIPPED)?;
            dist::build_helper(root)?;
            process::target_folder(root)?
        }
    };
    Packing::new(root, nfpm, built)?.all(&[0, 1])
}

/// The step of continuous integration: the packages for this machine, skipped without nfpm.
pub(crate) fn step(root: &Path) -> Result<()> {
    let Some(nfpm) = nfpm(root) else {
        return skips::note(root, "packages", Need::Program("nfpm"), &format!("no nfpm: {INSTALL}"));
    };
    dist::build_helper(root)?;
    Packing::new(root, nfpm, process::target_folder(root)?)?.all(&[OWN])
}

/// nfpm as it is installed, where Go installs, or in the folder of the build results.
fn nfpm(root: &Path) -> Option<PathBuf> {
    let home = std::env::var_os("HOME").map(|home| Path::new(&home).join("go/bin/nfpm"));
    let results = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let places = [Some("nfpm".into()), home, Some(results.join("tools/bin/nfpm"))];
    let works = |program: &PathBuf| process::output(Command::new(program).arg("--version")).is_ok();
    places.into_iter().flatten().find(works)
}

struct Packing {
    root: PathBuf,
    nfpm: PathBuf,
    built: PathBuf,
    packages: PathBuf,
    /// Generated files: man pages, completions, the unit.
    stage: PathBuf,
    version: String,
    /// Seconds since 1970, for all files.
    date: String,
}

impl Packing {
    fn new(root: &Path, nfpm: PathBuf, built: PathBuf) -> Result<Self> {
        let metadata = MetadataCommand::new().current_dir(root).no_deps().exec()?;
        let own = metadata.packages.iter().find(|package| package.name.as_str() == "whylate");
        let version = own.context("no package `whylate`")?.version.to_string();
        let commit = || {
            let mut git = Command::new("git");
            process::output(git.current_dir(root).args(["log", "-1", "--format=%ct"]))
        };
        let date = std::env::var("SOURCE_DATE_EPOCH").or_else(|_| commit())?.trim().to_owned();
        let (packages, stage) = (built.join("package"), built.join("package-stage"));
        for folder in [&packages, &stage] {
            if folder.exists() {
                fs::remove_dir_all(folder).with_context(|| format!("cannot empty {}", folder.display()))?;
            }
            fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
        }
        Ok(Self { root: root.to_owned(), nfpm, built, packages, stage, version, date })
    }

    fn binary(&self, target: &str) -> PathBuf {
        self.built.join(target).join("dist/whylate")
    }

    /// Packs the programs of these machines, and what is the same for all.
    fn all(&self, machines: &[usize]) -> Result<()> {
        self.generate()?;
        for machine in machines {
            let (binary, architecture) = (self.binary(dist::TARGETS[*machine]), ARCHITECTURES[*machine]);
            self.pack("whylate", &[("ARCH", architecture), ("BINARY", text(&binary)?)])?;
            let copy = self.packages.join(format!("whylate-{architecture}"));
            fs::copy(&binary, copy).with_context(|| format!("cannot copy {}", binary.display()))?;
        }
        let helper = self.built.join("dist/whylate-gpu");
        let bytes = fs::read(&helper).with_context(|| format!("cannot read {}", helper.display()))?;
        let glibc = newest_glibc(&bytes).context("the helper names no version of the C library")?;
        let architecture = ARCHITECTURES[OWN];
        self.pack(
            "whylate-gpu",
            &[("ARCH", architecture), ("GPU_BINARY", text(&helper)?), ("GLIBC", &glibc)],
        )?;
        self.pack("whylate-memtype-dkms", &[])?;
        self.sums()
    }

    /// The program's own output, from the one that runs here.
    fn generate(&self) -> Result<()> {
        let program = self.binary(dist::TARGETS[OWN]);
        ensure!(program.is_file(), "no {}: run `cargo xtask dist`", program.display());
        let man = self.stage.join("man");
        process::output(Command::new(&program).args(["man", text(&man)?]))?;
        let pages: Vec<PathBuf> =
            fs::read_dir(&man)?.map(|entry| Ok(entry?.path())).collect::<std::io::Result<_>>()?;
        process::run(Command::new("gzip").args(["-9", "-n"]).args(&pages))?;
        for shell in ["bash", "zsh", "fish"] {
            let completions = process::output(Command::new(&program).args(["completions", shell]))?;
            fs::write(self.stage.join(format!("whylate.{shell}")), completions)?;
        }
        for unit in UNITS {
            let installed = fs::read_to_string(self.root.join("docs/systemd").join(unit))?;
            fs::write(self.stage.join(unit), installed.replace("/usr/local/bin/", "/usr/bin/"))?;
        }
        Ok(())
    }

    /// Packs what `packaging/NAME.yaml` describes, in each form.
    fn pack(&self, name: &str, variables: &[(&str, &str)]) -> Result<()> {
        for form in FORMS {
            let mut nfpm = Command::new(&self.nfpm);
            nfpm.current_dir(&self.root)
                .args(["package", "--packager", form, "--target"])
                .arg(&self.packages);
            nfpm.arg("--config").arg(format!("packaging/{name}.yaml")).envs(variables.iter().copied());
            nfpm.env("VERSION", &self.version).env("STAGE", &self.stage).env("SOURCE_DATE_EPOCH", &self.date);
            process::output(&mut nfpm)?;
        }
        Ok(())
    }

    fn sums(&self) -> Result<()> {
        let entries = fs::read_dir(&self.packages)?;
        let mut names: Vec<_> =
            entries.map(|entry| Ok(entry?.file_name())).collect::<std::io::Result<Vec<_>>>()?;
        names.sort();
        let sums = process::output(Command::new("sha256sum").current_dir(&self.packages).args(&names))?;
        fs::write(self.packages.join("SHA256SUMS"), &sums)?;
        println!("{sums}xtask: {} files in {}", names.len(), self.packages.display());
        Ok(())
    }
}

fn text(path: &Path) -> Result<&str> {
    path.to_str().with_context(|| format!("{} is not UTF-8", path.display()))
}

/// The newest version of the C library that a program asks for: `2.34`.
fn newest_glibc(program: &[u8]) -> Option<String> {
    const MARK: &[u8] = b"GLIBC_2.";
    let starts = program.windows(MARK.len()).enumerate().filter(|(_, bytes)| *bytes == MARK);
    let minor = |(at, _): (usize, &[u8])| -> Option<u32> {
        let digits = program[at + MARK.len()..].iter().take_while(|byte| byte.is_ascii_digit());
        String::from_utf8(digits.copied().collect()).ok()?.parse().ok()
    };
    starts.filter_map(minor).max().map(|minor| format!("2.{minor}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
    }

    #[test]
    fn the_newest_c_library_counts() {
        assert_eq!(newest_glibc(b"\0GLIBC_2.2.5\0GLIBC_2.34\0GLIBC_2.9\0").as_deref(), Some("2.34"));
        assert_eq!(newest_glibc(b"static"), None);
    }

    /// Every file that a description takes from the sources is there, and versions agree.
    #[test]
    fn descriptions_name_what_exists() {
        let folder = root().join("packaging");
        let mut sources = 0;
        for name in ["whylate", "whylate-gpu", "whylate-memtype-dkms"] {
            let description = fs::read_to_string(folder.join(format!("{name}.yaml"))).unwrap();
            assert!(description.contains(&format!("\nname: {name}\n")), "{name}");
            let keys = ["- src: ", "postinstall: ", "preremove: "];
            let named = description
                .lines()
                .filter_map(|line| keys.iter().find_map(|key| line.trim_start().strip_prefix(key)));
            for source in named.filter(|source| !source.starts_with("${")) {
                let ends_so = |folder: &str, end: &str| {
                    let mut entries = fs::read_dir(root().join(folder)).unwrap();
                    entries.any(|entry| entry.unwrap().file_name().to_string_lossy().ends_with(end))
                };
                let is_there = match source.split_once("/*") {
                    Some((folder, end)) => ends_so(folder, end),
                    None => root().join(source).exists(),
                };
                assert!(is_there, "{name}: no {source}");
                sources += 1;
            }
        }
        assert!(sources > 10, "{sources}");
        let dkms = fs::read_to_string(root().join("kmod/whylate_memtype/dkms.conf")).unwrap();
        let version = env!("CARGO_PKG_VERSION");
        assert!(dkms.contains(&format!("PACKAGE_VERSION=\"{version}\"")), "{dkms}");
        for file in ["whylate-memtype-dkms.yaml", "memtype-installed.sh", "memtype-removed.sh"] {
            let text = fs::read_to_string(folder.join(file)).unwrap();
            assert!(text.contains(version), "{file} is of another version than {version}");
        }
    }

    #[test]
    fn the_units_run_what_the_package_installs() {
        let packed = fs::read_to_string(root().join("packaging/whylate.yaml")).unwrap();
        for unit in UNITS {
            let text = fs::read_to_string(root().join("docs/systemd").join(unit)).unwrap();
            assert!(text.contains("/usr/local/bin/whylate"), "`generate` replaces that path");
            assert!(packed.contains(&format!("/usr/lib/systemd/system/{unit}")), "{unit} is not packed");
        }
    }
}
