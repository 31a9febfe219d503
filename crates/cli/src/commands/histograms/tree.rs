//! The files of the OSADL patch's `latency_hist` in a folder: written at each interval, and checked for writes by
//! scripts.
//!
//! `enable/KIND` holds 1 or 0, and a script switches the histogram by writing the other value; any write to
//! `KIND/reset` empties it. The files of samples are replaced as a whole, so that a reader never sees half of one.

use super::control::{Act, Request};
use anyhow::{Context, Result, bail};
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use whylate_core::CpuId;
use whylate_core::result::{CpuHistograms, HistogramKind, KernelHistogram};
use whylate_record::histograms::LatencyHistograms;
use whylate_report::osadl::{self, SWITCHES, folder};

/// The file that marks a folder as such a tree.
const MARK: &str = ".whylate-histograms";
/// Suffix of an incomplete file's name.
const UNFINISHED: &str = ".part";

#[derive(Debug)]
pub(super) struct Tree {
    top: PathBuf,
    /// The last written state of each switch.
    switches: HashMap<HistogramKind, bool>,
    /// The contents of the files, by CPU and kind.
    written: HashMap<(CpuId, HistogramKind), KernelHistogram>,
    /// Whether files of an earlier run may be there.
    has_old: bool,
}

impl Tree {
    /// Makes the folders. A folder with other contents is refused.
    pub(super) fn create(top: &Path) -> Result<Self> {
        let failed = || format!("--output {}", top.display());
        fs::create_dir_all(top).with_context(failed)?;
        let is_empty = fs::read_dir(top).with_context(failed)?.next().is_none();
        if !is_empty && !top.join(MARK).exists() {
            bail!("--output {} is not empty; give an empty or a new folder", top.display());
        }
        fs::write(top.join(MARK), "").with_context(failed)?;
        let folders = HistogramKind::ALL.map(folder);
        for folder in folders.into_iter().chain(["enable"]) {
            fs::create_dir_all(top.join(folder)).with_context(failed)?;
        }
        for kind in HistogramKind::ALL {
            fs::write(top.join(folder(kind)).join("reset"), "").with_context(failed)?;
        }
        Ok(Self {
            top: top.to_owned(),
            switches: HashMap::new(),
            written: HashMap::new(),
            has_old: !is_empty,
        })
    }

    /// Updates the files in `enable` to the current switches.
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

    /// Writes to the files since the last check.
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
            // sharedprio is switched together with wakeup.
            let kinds = if kind == HistogramKind::Wakeup { &kinds[..] } else { &kinds[..1] };
            let act = match wanted {
                Some(true) if self.switches.get(&kind) == Some(&false) => Act::Enable,
                Some(false) if self.switches.get(&kind) == Some(&true) => Act::Disable,
                _ => continue,
            };
            ask(act, kinds);
            // Writes back the current state, also if the request was refused.
            self.switches.remove(&kind);
        }
        for kind in HistogramKind::ALL {
            let path = self.top.join(folder(kind)).join("reset");
            let is_asked = fs::metadata(&path).is_ok_and(|file| file.len() > 0);
            // Clears the file first: a write that comes meanwhile is a new request.
            if is_asked && fs::write(&path, "").is_ok() {
                ask(Act::Reset, &[kind]);
            }
        }
        requests
    }

    /// Writes only changed files: one has more than ten thousand lines.
    pub(super) fn write(&mut self, cpus: &[CpuHistograms]) -> Result<()> {
        if std::mem::take(&mut self.has_old) {
            self.remove_old(cpus)?;
        }
        for cpu in cpus {
            for one in &cpu.histograms {
                let key = (cpu.cpu, one.kind);
                if self.written.get(&key) == Some(one) {
                    continue;
                }
                for file in osadl::files(cpu.cpu, one) {
                    self.replace(&self.top.join(&file.path), &file.text)?;
                }
                self.written.insert(key, one.clone());
            }
        }
        Ok(())
    }

    /// Removes an earlier run's files of CPUs and kinds that are not counted now: a script would take them for
    /// current figures.
    fn remove_old(&self, cpus: &[CpuHistograms]) -> Result<()> {
        for kind in HistogramKind::ALL {
            let is_counted = |cpu: CpuId| {
                let of_cpu = cpus.iter().filter(|one| one.cpu == cpu).flat_map(|one| &one.histograms);
                of_cpu.into_iter().any(|one| one.kind == kind)
            };
            let place = self.top.join(folder(kind));
            for entry in fs::read_dir(&place).with_context(|| format!("cannot read {}", place.display()))? {
                let name = entry.with_context(|| format!("cannot read {}", place.display()))?.file_name();
                let text = name.to_string_lossy();
                let unfinished = text.strip_suffix(UNFINISHED).map(|name| name.trim_start_matches('.'));
                let is_old = match unfinished {
                    Some(name) => osadl::cpu_of(name).is_some(),
                    None => osadl::cpu_of(&text).is_some_and(|cpu| !is_counted(cpu)),
                };
                if is_old {
                    let path = place.join(&name);
                    fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))?;
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
        // With a leading dot, so that `CPU*` does not match it.
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let unfinished = path.with_file_name(format!(".{name}{UNFINISHED}"));
        self.put(&unfinished, text)?;
        fs::rename(&unfinished, path).with_context(|| format!("cannot write {}", path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(cpus: &[u32], samples: u64) -> Vec<CpuHistograms> {
        let one = KernelHistogram {
            kind: HistogramKind::Wakeup,
            samples,
            quantiles: None,
            max_record: None,
            histogram: vec![(1_000, samples)],
        };
        let cpu = |cpu: &u32| CpuHistograms { cpu: CpuId(*cpu), histograms: vec![one.clone()] };
        cpus.iter().map(cpu).collect()
    }

    #[test]
    fn files_of_an_earlier_run_are_removed_and_others_stay() {
        let top = tempfile::tempdir().unwrap();
        let wakeup = top.path().join("wakeup");
        Tree::create(top.path()).unwrap().write(&counted(&[0, 3], 1)).unwrap();
        fs::write(wakeup.join(".CPU3.part"), "cut off").unwrap();
        fs::write(wakeup.join("notes.part"), "mine").unwrap();
        let mut tree = Tree::create(top.path()).unwrap();
        assert!(wakeup.join("CPU3").exists(), "they stay until there is something to write");
        tree.write(&counted(&[0], 2)).unwrap();
        let mut names: Vec<String> = fs::read_dir(&wakeup)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        assert_eq!(names, ["CPU0", "max_latency-CPU0", "notes.part", "reset", "sharedprio"]);
        assert!(fs::read_to_string(wakeup.join("CPU0")).unwrap().contains("#Total samples: 2\n"));
    }

    #[test]
    fn unchanged_files_are_not_written_again() {
        let top = tempfile::tempdir().unwrap();
        let mut tree = Tree::create(top.path()).unwrap();
        tree.write(&counted(&[0], 1)).unwrap();
        let file = top.path().join("wakeup/CPU0");
        fs::write(&file, "looked at").unwrap();
        tree.write(&counted(&[0], 1)).unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "looked at");
        tree.write(&counted(&[0], 2)).unwrap();
        assert!(fs::read_to_string(&file).unwrap().contains("#Total samples: 2\n"));
    }
}
