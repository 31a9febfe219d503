//! Graphics devices, sampled each second while a cell is measured.
//!
//! A thread of its own asks, on the CPUs that are not measured: a driver that takes long, or never answers, delays
//! nothing else. While probes measure, only what the kernel has counted itself is asked, and nothing at all if every
//! CPU is measured; the devices themselves are asked just before and after.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;
use whylate_core::record::GpuRecord;
use whylate_host::HostRoot;
use whylate_host::facts::{GpuQuestion, GpuSampler};
use whylate_probe::ProbeSpec;
use whylate_store::{RowKey, Sink};
use whylate_sys::clock;

const EVERY: Duration = Duration::from_secs(1);
/// How long an answer is waited for when something else begins or ends.
const ANSWER_WITHIN: Duration = Duration::from_millis(500);

/// The thread that looks. It ends when this is dropped.
pub(crate) struct GpuWatch {
    key: Arc<RowKey>,
    /// What is asked from now on; the first time at once.
    questions: Sender<Option<GpuQuestion>>,
    found: Receiver<Vec<GpuRecord>>,
}

impl GpuWatch {
    /// Starts, without a question yet; `None` without a graphics device.
    pub(crate) fn start(host: &HostRoot, key: Arc<RowKey>) -> Option<Self> {
        let mut sampler = GpuSampler::new(host)?;
        let (questions, asked) = channel::<Option<GpuQuestion>>();
        let (answers, found) = channel();
        let look = move || {
            let mut question = None;
            loop {
                match asked.recv_timeout(EVERY) {
                    Ok(next) => question = next,
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => return,
                }
                let Some(question) = question else { continue };
                if answers.send(sampler.sample(clock::now(), question)).is_err() {
                    return;
                }
            }
        };
        // The CPUs of this thread are inherited. Without it there are no figures.
        std::thread::Builder::new().name("gpus".to_owned()).spawn(look).ok()?;
        Some(Self { key, questions, found })
    }

    /// For probes that are about to start: asks the devices at once, and after that only for what disturbs no probe.
    pub(crate) fn alongside(
        specs: &[ProbeSpec],
        host: &HostRoot,
        key: &Arc<RowKey>,
        sink: &mut dyn Sink,
    ) -> Option<Self> {
        let watch = Self::start(host, Arc::clone(key))?;
        watch.ask(Some(GpuQuestion::Device), sink);
        let is_apart = specs.iter().all(|spec| !spec.other_cpus.is_empty());
        watch.ask(is_apart.then_some(GpuQuestion::Counters), sink);
        Some(watch)
    }

    /// Asks this from now on, and waits a moment for the first answer.
    pub(crate) fn ask(&self, question: Option<GpuQuestion>, sink: &mut dyn Sink) {
        self.keep(sink);
        let _ = self.questions.send(question);
        if question.is_some()
            && let Ok(records) = self.found.recv_timeout(ANSWER_WITHIN)
        {
            sink.rows().add_gpus(&self.key, records);
        }
    }

    pub(crate) fn keep(&self, sink: &mut dyn Sink) {
        self.found.try_iter().for_each(|records| sink.rows().add_gpus(&self.key, records));
    }
}
