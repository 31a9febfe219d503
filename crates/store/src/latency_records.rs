//! `latency-records.jsonl`: the task of each new maximum of the kernel's histograms, one line each.

use crate::directory::RunDirectory;
use crate::error::StoreError;
use crate::folder::Folder;
use crate::tables::RowKey;
use serde::{Deserialize, Serialize};
use whylate_core::result::{HistogramKind, LatencyRecord};
use whylate_core::{CpuId, Warning, WarningCode};

/// Its name in the run directory.
pub(crate) const FILE: &str = "latency-records.jsonl";

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Line {
    pub(crate) cell: String,
    pub(crate) repeat: u32,
    pub(crate) attempt: u32,
    pub(crate) cpu: CpuId,
    pub(crate) kind: HistogramKind,
    pub(crate) record: LatencyRecord,
}

impl Line {
    fn to_json(&self) -> String {
        serde_json::to_string(self).expect("numbers and texts are always JSON")
    }
}

impl RunDirectory {
    /// Stores the task of a new maximum of a kernel histogram: a line of `latency-records.jsonl`.
    pub fn add_latency_record(
        &self,
        key: &RowKey,
        cpu: CpuId,
        kind: HistogramKind,
        record: &LatencyRecord,
    ) -> Result<(), StoreError> {
        let RowKey { cell, repeat, attempt, .. } = key.clone();
        let line = Line { cell, repeat, attempt, cpu, kind, record: record.clone() };
        self.add_line_to(FILE, &line.to_json())
    }
}

/// The lines of a run (none without such a file), and warnings about unreadable ones. The last line of a killed run
/// may be incomplete; that is not damage.
pub(crate) fn read(run: &Folder) -> (Vec<Line>, Vec<Warning>) {
    let path = run.path().join(FILE);
    let warning = |text: String| {
        Warning::new(WarningCode::UnreadableLatencyRecord, format!("{}: {text}", path.display()))
    };
    let text = match run.read(FILE) {
        Ok(text) => text.unwrap_or_default(),
        Err(error) => {
            return (Vec::new(), vec![warning(format!("cannot read the latency records: {error}"))]);
        }
    };
    let (mut lines, mut damaged) = (Vec::new(), Vec::new());
    for (number, line) in (1..).zip(text.split_inclusive(|byte| *byte == b'\n')) {
        match serde_json::from_slice(line) {
            Ok(line) => lines.push(line),
            Err(error) if line.ends_with(b"\n") => damaged.push((number, error.to_string())),
            Err(_) => {}
        }
    }
    let said = damaged.first().map(|(number, reason): &(usize, String)| {
        warning(format!("skipped lines: {}; the first is line {number}: {reason}", damaged.len()))
    });
    (lines, said.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use whylate_testing::says;

    fn line(repeat: u32) -> String {
        let (cell, kind, record) = ("idle".to_owned(), HistogramKind::Wakeup, LatencyRecord::default());
        Line { cell, repeat, attempt: 1, cpu: CpuId(0), kind, record }.to_json()
    }

    fn read_of(content: &[u8]) -> (Vec<u32>, Vec<String>) {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(FILE), content).unwrap();
        let (lines, warnings) = read(&Folder::open(folder.path()).unwrap());
        let texts = warnings.into_iter().map(|warning| warning.text).collect();
        (lines.iter().map(|line| line.repeat).collect(), texts)
    }

    #[test]
    fn only_the_end_of_a_killed_run_may_be_cut_off() {
        let whole = format!("{}\n{}\n", line(1), line(2));
        assert_eq!(read_of(whole.as_bytes()), (vec![1, 2], Vec::new()));
        assert_eq!(read_of(&whole.as_bytes()[..whole.len() - 9]), (vec![1], Vec::new()));
        assert_eq!(read_of(line(1).as_bytes()), (vec![1], Vec::new()), "complete but for its end");
        let folder = tempfile::tempdir().unwrap();
        assert!(
            matches!(read(&Folder::open(folder.path()).unwrap()), (lines, warnings) if lines.is_empty() && warnings.is_empty())
        );
    }

    #[test]
    fn lines_that_cannot_be_read_are_counted_and_the_others_are_there() {
        let text = [line(1).as_bytes(), b"\n{\"cell\":\n\xff\xfe\n", line(2).as_bytes(), b"\n"].concat();
        let (repeats, warnings) = read_of(&text);
        assert_eq!((repeats, warnings.len()), (vec![1, 2], 1));
        assert!(warnings[0].contains(FILE) && warnings[0].contains("lines: 2;"), "{warnings:?}");
        assert!(says("first-line", &warnings[0]), "{warnings:?}");
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join(FILE)).unwrap();
        assert_eq!(read(&Folder::open(folder.path()).unwrap()).1.len(), 1, "a folder is not a file");
    }
}
