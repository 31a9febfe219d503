//! Tells each program that connects to the socket in a run's directory how far the run is. Without a connection it
//! costs nothing.

use crate::{Audience, Stage};
use std::io::{self, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;
use whylate_core::record::{RateRecord, SpikeRecord};
use whylate_core::result::{LIVE_SOCKET, LiveCpu, LiveValue};
use whylate_core::{CpuSet, Nanos, Warning};
use whylate_probe::{Happened, Progress, TaskLine, TriggerLine};
use whylate_store::Folder;
use whylate_sys::schedule;

/// How often a reader gets an update.
const PERIOD: Duration = Duration::from_millis(500);
/// A reader that takes nothing for this long has gone.
const PATIENCE: Duration = Duration::from_secs(5);
/// The web server is one reader for each page that is open.
const READERS_MAX: usize = 200;

/// An audience that also tells each program that connects to the socket.
pub struct Live<'a> {
    audience: &'a mut dyn Audience,
    run: Folder,
    measured: CpuSet,
    value: Arc<Mutex<LiveValue>>,
    has_begun: bool,
}

impl<'a> Live<'a> {
    /// The audience of a run that measures these CPUs.
    pub fn new(audience: &'a mut dyn Audience, run: Folder, measured: CpuSet) -> Self {
        Self { audience, run, measured, value: Arc::default(), has_begun: false }
    }

    /// Listens from now on. If sockets are not possible in its directory, the run goes on without one.
    fn begin(&mut self) {
        if std::mem::replace(&mut self.has_begun, true) {
            return;
        }
        let Ok(listener) = listen(&self.run) else { return };
        let (value, measured) = (self.value.clone(), self.measured.clone());
        let _detached = thread::Builder::new().name("live".to_owned()).spawn(move || {
            let others = schedule::allowed_of_this_thread().map(|allowed| allowed.difference(&measured));
            // On a machine whose CPUs are all measured, a reader costs a little time of one of them.
            _ = others.and_then(|others| schedule::pin_this_thread(&others));
            serve(&listener, &value);
        });
    }

    fn value(&self) -> std::sync::MutexGuard<'_, LiveValue> {
        self.value.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Live<'_> {
    fn drop(&mut self) {
        if self.has_begun {
            // The kernel refuses connections to what is left of it, like those to the socket of a killed run.
            _ = self.run.remove(LIVE_SOCKET);
        }
    }
}

/// A socket of that name in a folder whose path may be longer than an address can hold.
fn listen(run: &Folder) -> io::Result<UnixListener> {
    // Left by a run that was killed and goes on now.
    _ = run.remove(LIVE_SOCKET);
    UnixListener::bind(run.fixed_path().join(LIVE_SOCKET))
}

fn serve(listener: &UnixListener, value: &Arc<Mutex<LiveValue>>) {
    let readers = Arc::new(());
    for stream in listener.incoming() {
        let Ok(stream) = stream else { return };
        if Arc::strong_count(&readers) > READERS_MAX {
            continue;
        }
        let (value, reader) = (value.clone(), readers.clone());
        let _detached = thread::Builder::new().name("live-reader".to_owned()).spawn(move || {
            _ = tell(stream, &value);
            drop(reader);
        });
    }
}

/// Tells one reader, until it has gone.
fn tell(mut stream: UnixStream, value: &Mutex<LiveValue>) -> io::Result<()> {
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut sent: Vec<LiveCpu> = Vec::new();
    loop {
        let mut now = value.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for cpu in &mut now.cpus {
            let former = sent.iter().find(|it| it.cpu == cpu.cpu && it.samples <= cpu.samples);
            let is_new = former.is_none_or(|former| cpu.max_ns > former.max_ns);
            cpu.newest_max_ns = if is_new { cpu.max_ns } else { 0 };
        }
        let mut line = serde_json::to_vec(&now)?;
        line.push(b'\n');
        stream.write_all(&line)?;
        sent = now.cpus;
        thread::sleep(PERIOD);
    }
}

impl Audience for Live<'_> {
    fn stage(&mut self, stage: &Stage<'_>) {
        self.begin();
        *self.value() = LiveValue {
            cell: stage.cell.to_owned(),
            repeat: stage.repeat,
            what: stage.what.to_owned(),
            done: stage.done,
            total: stage.total,
            part: 0.0,
            cpus: Vec::new(),
        };
        self.audience.stage(stage);
    }

    fn progress(&mut self, progress: &Progress) {
        let cpu = |(cpu, samples, max_ns): &(_, u64, u64)| LiveCpu {
            cpu: *cpu,
            samples: *samples,
            max_ns: *max_ns,
            newest_max_ns: 0,
        };
        let cpus = progress.cpus.iter().map(cpu).collect();
        let part = progress.elapsed.0 as f64 / progress.duration.0.max(1) as f64;
        {
            let mut value = self.value();
            value.cpus = cpus;
            value.part = part.min(1.0);
        }
        self.audience.progress(progress);
    }

    fn first_spike(&mut self, latency: Nanos) {
        self.audience.first_spike(latency);
    }

    fn should_stop(&self) -> bool {
        self.audience.should_stop()
    }

    fn decides_end(&self) -> bool {
        self.audience.decides_end()
    }

    fn tasks(&mut self, tasks: &[TaskLine]) {
        self.audience.tasks(tasks);
    }

    fn triggers(&mut self, triggers: &TriggerLine) {
        self.audience.triggers(triggers);
    }

    fn happened(&mut self, happened: Happened) {
        self.audience.happened(happened);
    }

    fn spikes(&mut self, spikes: &[SpikeRecord]) {
        self.audience.spikes(spikes);
    }

    fn rate(&mut self, unit: &str, rate: &RateRecord) {
        self.audience.rate(unit, rate);
    }

    fn said(&mut self, line: &str) {
        self.audience.said(line);
    }

    fn lost(&mut self, warning: &Warning) {
        self.audience.lost(warning);
    }
}
