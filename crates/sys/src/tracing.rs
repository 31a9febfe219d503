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
    /// Opens those of the buffer in `folder`, or of the top-level one where tracefs is mounted; `None` where they
    /// may not be written.
    pub fn open(folder: Option<&Path>) -> Option<Self> {
        let open_in = |folder: &Path| {
            let open = |name: &str| File::options().write(true).open(folder.join(name)).ok();
            Some(Self { marker: open("trace_marker")?, switch: open("tracing_on")? })
        };
        match folder {
            Some(folder) => open_in(folder),
            None => {
                let places = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];
                places.iter().find_map(|place| open_in(Path::new(place)))
            }
        }
    }

    /// Writes `text` into the trace and stops tracing, so that the trace ends with the spike.
    pub fn mark_and_stop(&mut self, text: &str) {
        // The break is reported in any case; a failed marker cannot be reported from here.
        let _ = self.marker.write_all(text.as_bytes());
        let _ = self.switch.write_all(b"0");
    }
}
