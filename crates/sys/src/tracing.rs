//! The two files of a trace buffer that a break needs: the marker and the switch.

use std::fs::File;
use std::io::Write;
use std::path::Path;

/// Open files of a trace buffer, ready to be written from a measuring thread.
#[derive(Debug)]
pub struct BreakTracing {
    marker: File,
    switch: File,
}

impl BreakTracing {
    /// Opens those of the buffer in `folder`; `None` if they may not be written.
    pub fn open(folder: &Path) -> Option<Self> {
        let open = |name: &str| File::options().write(true).open(folder.join(name)).ok();
        Some(Self { marker: open("trace_marker")?, switch: open("tracing_on")? })
    }

    /// Writes `text` into the trace and stops tracing, so that the trace ends with the spike.
    pub fn mark_and_stop(&mut self, text: &str) {
        // The break is reported in any case; a failed marker cannot be reported from here.
        let _ = self.marker.write_all(text.as_bytes());
        let _ = self.switch.write_all(b"0");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_with_both_files_is_opened() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("trace_marker"), "").unwrap();
        assert!(BreakTracing::open(folder.path()).is_none());
        std::fs::write(path("tracing_on"), "1").unwrap();
        BreakTracing::open(folder.path()).unwrap().mark_and_stop("late");
        let read = |name: &str| std::fs::read_to_string(path(name)).unwrap();
        assert_eq!((read("trace_marker").as_str(), read("tracing_on").as_str()), ("late", "0"));
    }
}
