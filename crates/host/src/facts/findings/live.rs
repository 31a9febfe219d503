//! The running machine behind the questions: its files, and which of them could not be read.

use super::FindingCode;
use crate::HostRoot;
use std::cell::{OnceCell, RefCell};
use std::fs::File;
use std::io::ErrorKind;
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
}

impl<'a> LiveFiles<'a> {
    pub(super) fn new(root: &'a HostRoot, table: &'a CpuTable) -> Self {
        Self { root, table, unread: RefCell::default(), log: OnceCell::new() }
    }

    /// The trimmed text of a file; `None` when it is absent, or cannot be read: the second is noted.
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
            // Even root is refused in kernel lockdown or in a container.
            let fix = if rustix::process::geteuid().is_root() {
                "run it outside of containers, on a kernel without lockdown (`cat /sys/kernel/security/lockdown`)"
            } else {
                "run it as root"
            };
            self.note(&format!("{path} cannot be read ({error})"), Some(fix));
        }
    }

    /// Notes that something could not be looked at.
    pub(super) fn note(&self, problem: &str, fix: Option<&str>) {
        let text = format!("{problem}: it was not checked");
        let warning = match fix {
            Some(fix) => FindingCode::FactUnreadable.warning(text, fix),
            None => FindingCode::FactUnreadable.warning_without_fix(text),
        };
        push_once(&mut self.unread.borrow_mut(), warning);
    }

    /// The log of the kernel, read once; `None` where it may not be read, which is noted.
    pub(super) fn log(&self) -> Option<&KernelLog> {
        let read = || match crate::kernel_log::read(self.root) {
            Ok(log) => Some(log),
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                self.note("/dev/kmsg, the kernel's log, cannot be read", Some("run it as root"));
                None
            }
            Err(_) => None,
        };
        self.log.get_or_init(read).as_ref()
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
