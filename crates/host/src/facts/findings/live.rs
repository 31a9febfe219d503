//! The running machine behind the questions: its files, and which of them could not be read.

use super::FindingCode;
use crate::HostRoot;
use flate2::read::MultiGzDecoder;
use std::cell::{OnceCell, RefCell};
use std::fs::File;
use std::io::{ErrorKind, Read};
use whylate_core::cpus::CpuSet;
use whylate_core::result::CpuTable;
use whylate_core::warning::{Warning, push_once};
use whylate_kmsg::KernelLog;

/// Files of the machine, and its CPU table.
pub(super) struct LiveFiles<'a> {
    pub(super) root: &'a HostRoot,
    pub(super) table: &'a CpuTable,
    unread: RefCell<Vec<Warning>>,
    log: OnceCell<Option<KernelLog>>,
    config: OnceCell<Option<KernelConfig>>,
}

/// How the running kernel was built.
pub struct KernelConfig {
    /// The file that says so.
    pub path: String,
    /// Lines `CONFIG_NAME=value`.
    pub text: String,
}

impl KernelConfig {
    /// Largest size that is read; those of distributions have 300 KB.
    const BYTES_MAX: u64 = 8 << 20;

    /// Reads `/proc/config.gz`, else the file that distributions install with the kernel.
    pub fn read(root: &HostRoot, release: &str) -> Option<Self> {
        const PACKED: &str = "/proc/config.gz";
        let mut text = String::new();
        if let Ok(file) = File::open(root.path(PACKED))
            && MultiGzDecoder::new(file).take(Self::BYTES_MAX).read_to_string(&mut text).is_ok()
        {
            return Some(Self { path: PACKED.to_owned(), text });
        }
        let paths = [format!("/boot/config-{release}"), format!("/lib/modules/{release}/config")];
        let read = |path: String| Some(Self { text: root.read(&path).ok()??, path });
        paths.into_iter().filter(|_| !release.is_empty()).find_map(read)
    }

    /// Whether the option `CONFIG_NAME` is built in, or a module.
    pub(super) fn has(&self, name: &str) -> bool {
        let value = |line: &str| {
            line.strip_prefix("CONFIG_")?.strip_prefix(name)?.strip_prefix('=').map(str::to_owned)
        };
        self.text.lines().filter_map(value).any(|value| value == "y" || value == "m")
    }
}

impl<'a> LiveFiles<'a> {
    pub(super) fn new(root: &'a HostRoot, table: &'a CpuTable) -> Self {
        Self { root, table, unread: RefCell::default(), log: OnceCell::new(), config: OnceCell::new() }
    }

    /// The trimmed text of a file; `None` if it is absent or cannot be read. The second case is noted.
    pub(super) fn text(&self, path: &str) -> Option<String> {
        let text = match self.root.read_trimmed(path) {
            Ok(text) => text,
            Err(error) => {
                self.note(&error.to_string(), None);
                None
            }
        };
        if text.is_none() {
            self.note_refusal(path);
        }
        text
    }

    fn note_refusal(&self, path: &str) {
        let Err(error) = File::open(self.root.path(path)) else { return };
        if error.kind() == ErrorKind::PermissionDenied {
            // In kernel lockdown or in a container, even root is refused.
            let fix = if rustix::process::geteuid().is_root() {
                "run whylate outside of a container, on a kernel without lockdown (`cat /sys/kernel/security/lockdown`)"
            } else {
                "run whylate as root"
            };
            self.note(&format!("{path} cannot be read ({error})"), Some(fix));
        }
    }

    /// Notes that something could not be looked at.
    pub(super) fn note(&self, problem: &str, fix: Option<&str>) {
        let text = format!("{problem}: findings that depend on this file are missing");
        let warning = match fix {
            Some(fix) => FindingCode::FactUnreadable.warning(text, fix),
            None => FindingCode::FactUnreadable.warning_without_fix(text),
        };
        push_once(&mut self.unread.borrow_mut(), warning);
    }

    /// The log of the kernel, read once; `None` if it may not be read, which is noted.
    pub(super) fn log(&self) -> Option<&KernelLog> {
        let read = || match crate::kernel_log::read(self.root) {
            Ok(log) => Some(log),
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                self.note("/dev/kmsg, the kernel's log, cannot be read", Some("run whylate as root"));
                None
            }
            Err(_) => None,
        };
        self.log.get_or_init(read).as_ref()
    }

    /// The configuration of the kernel of that release; `None` if no file has it.
    pub(super) fn config(&self, release: &str) -> Option<&KernelConfig> {
        self.config.get_or_init(|| KernelConfig::read(self.root, release)).as_ref()
    }

    /// A file that holds a number.
    pub(super) fn number(&self, path: &str) -> Option<i64> {
        self.text(path)?.parse().ok()
    }

    /// A file that holds a mask in hexadecimal words.
    pub(super) fn mask(&self, path: &str) -> Option<CpuSet> {
        CpuSet::from_mask(&self.text(path)?)
    }

    pub(super) fn into_unread(self) -> Vec<Warning> {
        self.unread.into_inner()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn the_packed_configuration_comes_first() {
        let folder = tempfile::tempdir().unwrap();
        for path in ["proc", "boot"] {
            std::fs::create_dir(folder.path().join(path)).unwrap();
        }
        std::fs::write(folder.path().join("boot/config-6.12"), "CONFIG_A=y\n").unwrap();
        let root = HostRoot::at(folder.path());
        let config = KernelConfig::read(&root, "6.12").unwrap();
        assert!(config.path.starts_with("/boot") && config.has("A") && !config.has("B"));
        let file = File::create(folder.path().join("proc/config.gz")).unwrap();
        let mut packed = flate2::write::GzEncoder::new(file, flate2::Compression::fast());
        packed.write_all(b"# CONFIG_A is not set\nCONFIG_AB=y\nCONFIG_B=m\n").unwrap();
        packed.finish().unwrap();
        let config = KernelConfig::read(&root, "6.12").unwrap();
        assert!(config.path.ends_with(".gz") && config.has("B") && !config.has("A"));
        assert!(KernelConfig::read(&HostRoot::at(folder.path().join("boot")), "").is_none());
    }
}
