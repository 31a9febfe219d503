//! The two files of tracefs that a break needs: the marker and the switch.

use std::fs::File;
use std::io::Write;

/// Open files of the top-level trace buffer, ready to be written from a measuring thread.
#[derive(Debug)]
pub struct BreakTracing {
    marker: File,
    switch: File,
}

impl BreakTracing {
    /// Opens them where tracefs is mounted and may be written; `None` elsewhere.
    pub fn open() -> Option<Self> {
        ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"].iter().find_map(|root| {
            let open = |name: &str| File::options().write(true).open(format!("{root}/{name}")).ok();
            Some(Self { marker: open("trace_marker")?, switch: open("tracing_on")? })
        })
    }

    /// Writes `text` into the trace and stops tracing, so that the trace ends with the spike.
    pub fn mark_and_stop(&mut self, text: &str) {
        // A break is reported whether or not the trace takes the marker; there is nobody to tell in between.
        let _ = self.marker.write_all(text.as_bytes());
        let _ = self.switch.write_all(b"0");
    }
}
