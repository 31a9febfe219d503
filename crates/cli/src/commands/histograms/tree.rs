//! The files of the OSADL patch's `latency_hist`, in a folder: written at each interval, and looked at for what scripts
//! write into them.
//!
//! `enable/KIND` holds 1 or 0, and a script switches the histogram by writing the other; whatever is written into
//! `KIND/reset` empties it. The files of samples are replaced as a whole, so that a reader never sees half of one.

use super::control::{Act, Request};
use anyhow::{Context, Result, bail};
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use whylate_core::result::{CpuHistograms, HistogramKind};
use whylate_report::osadl::{self, SWITCHES, folder};
use whylate_trace::record::histograms::LatencyHistograms;

/// The file by which a folder is known to be such a tree.
const MARK: &str = ".whylate-histograms";

/// A tree under way.
#[derive(Debug)]
pub(super) struct Tree {
    top: PathBuf,
    /// What each switch was when it was written last.
    switches: HashMap<HistogramKind, bool>,
    /// What the files hold, where that takes long to write again.
    written: HashMap<String, u64>,
}

impl Tree {
    /// Makes the folders. One that holds anything else is refused.
    pub(super) fn create(top: &Path) -> Result<Self> {
        let failed = || format!("--output {}", top.display());
        fs::create_dir_all(top).with_context(failed)?;
        let is_empty = fs::read_dir(top).with_context(failed)?.next().is_none();
        if !is_empty && !top.join(MARK).exists() {
            bail!("--output {} is not empty; give a folder that is, or does not exist", top.display());
        }
        fs::write(top.join(MARK), "").with_context(failed)?;
        let folders = HistogramKind::ALL.map(folder);
        for folder in folders.into_iter().chain(["enable"]) {
            fs::create_dir_all(top.join(folder)).with_context(failed)?;
        }
        for kind in HistogramKind::ALL {
            fs::write(top.join(folder(kind)).join("reset"), "").with_context(failed)?;
        }
        Ok(Self { top: top.to_owned(), switches: HashMap::new(), written: HashMap::new() })
    }

    /// Brings the files in `enable` to what is on.
    pub(super) fn show_switches(&mut self, histograms: &mut LatencyHistograms) -> Result<()> {
        let on = histograms.enabled();
        for kind in SWITCHES {
            let is_on = on.iter().any(|(_, other)| *other == kind);
            if self.switches.insert(kind, is_on) != Some(is_on) {
                self.put(&self.switch(kind), if is_on { "1\n" } else { "0\n" })?;
            }
        }
        Ok(())
    }

    /// What was written into the files since they were looked at last.
    pub(super) fn requests(&mut self) -> Vec<Request> {
        let mut requests = Vec::new();
        let mut ask = |act, kinds: &[HistogramKind]| {
            requests.push(Request { act, kinds: kinds.to_vec(), cpus: None });
        };
        for kind in SWITCHES {
            // A file that is being written may be empty for a moment.
            let value = fs::read_to_string(self.switch(kind)).ok().and_then(|text| text.trim().parse().ok());
            let wanted = value.map(|value: i64| value != 0);
            let kinds = [kind, HistogramKind::SharedPriority];
            // The histogram of waiting for equals goes with that of wake-ups.
            let kinds = if kind == HistogramKind::Wakeup { &kinds[..] } else { &kinds[..1] };
            let act = match wanted {
                Some(true) if self.switches.get(&kind) == Some(&false) => Act::Enable,
                Some(false) if self.switches.get(&kind) == Some(&true) => Act::Disable,
                _ => continue,
            };
            ask(act, kinds);
            // What has become of it is written again, also when it is not possible.
            self.switches.remove(&kind);
        }
        for kind in HistogramKind::ALL {
            let path = self.top.join(folder(kind)).join("reset");
            let is_asked = fs::metadata(&path).is_ok_and(|file| file.len() > 0);
            // Emptied first: a script that writes again in between asks again.
            if is_asked && fs::write(&path, "").is_ok() {
                ask(Act::Reset, &[kind]);
            }
        }
        requests
    }

    /// Writes what has changed.
    pub(super) fn write(&mut self, cpus: &[CpuHistograms]) -> Result<()> {
        for cpu in cpus {
            for file in osadl::files(cpu) {
                let sum = checksum(&file.text);
                if self.written.get(&file.path) != Some(&sum) {
                    self.replace(&self.top.join(&file.path), &file.text)?;
                    self.written.insert(file.path, sum);
                }
            }
        }
        Ok(())
    }

    fn switch(&self, kind: HistogramKind) -> PathBuf {
        self.top.join("enable").join(kind.name())
    }

    fn put(&self, path: &Path, text: &str) -> Result<()> {
        fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
    }

    fn replace(&self, path: &Path, text: &str) -> Result<()> {
        let unfinished = path.with_extension("part");
        self.put(&unfinished, text)?;
        fs::rename(&unfinished, path).with_context(|| format!("cannot write {}", path.display()))
    }
}

fn checksum(text: &str) -> u64 {
    use std::hash::{DefaultHasher, Hasher as _};
    let mut hasher = DefaultHasher::new();
    hasher.write(text.as_bytes());
    hasher.finish()
}
