//! A recording that records nothing but what is done to it.

use crate::mock::Record;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use whylate_core::CpuId;
use whylate_core::record::SpikeRecord;
use whylate_record::{RecordError, Request, Ring, Saved};
use whylate_sys::clock;

/// Its traces are files that no reader understands.
pub(crate) struct MockRing {
    pub(crate) record: Arc<Record>,
    /// The act that fails.
    pub(crate) failing: Option<&'static str>,
}

impl fmt::Debug for MockRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MockRing")
    }
}

impl MockRing {
    pub(crate) fn start(&self, request: &Request) -> Result<(), RecordError> {
        self.record.say(format!("trace {} on {}", request.profile.tracer(), request.cpus));
        if self.failing == Some("start") {
            return Err(RecordError::Unavailable("planted: no tracefs".to_owned()));
        }
        Ok(())
    }

    fn act(&self, what: &'static str) -> Result<(), RecordError> {
        self.record.say(format!("trace {what}"));
        if self.failing != Some(what) {
            return Ok(());
        }
        let source = std::io::Error::other("planted");
        Err(RecordError::Write { path: self.folder().to_owned(), value: what.to_owned(), source })
    }
}

impl Ring for MockRing {
    fn folder(&self) -> &Path {
        Path::new("/mock/instances/whylate")
    }
    fn pause(&self) -> Result<(), RecordError> {
        self.act("pause")
    }
    fn resume(&self) -> Result<(), RecordError> {
        self.act("resume")
    }
    fn save(&self, path: &Path) -> Result<Saved, RecordError> {
        self.act("save")?;
        std::fs::write(path, "not a trace").unwrap();
        Ok(Saved { path: path.to_owned(), ..Saved::default() })
    }
    fn finish(self: Box<Self>) -> Result<(), RecordError> {
        self.act("finish")
    }
}

/// Spikes on CPU 3 that happened at this moment.
pub(crate) fn spikes_now(latencies: &[u64]) -> Vec<SpikeRecord> {
    let spike = |latency_ns: &u64| SpikeRecord {
        cpu: CpuId(3),
        at_ns: clock::now().0,
        latency_ns: *latency_ns,
        ..SpikeRecord::default()
    };
    latencies.iter().map(spike).collect()
}
