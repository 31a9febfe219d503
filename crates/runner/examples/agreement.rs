//! Measures with one timer while BPF programs and a trace buffer look for causes at once, and prints for how many
//! spikes both name the same cause first. `agreement CPU SECONDS [PRIORITY]`, as root; start loads at the same time.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "this is what it is for")]

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use whylate_bpf::BpfError;
use whylate_core::plan::{ProbePlan, Source};
use whylate_core::record::{IpiRecord, SourceRecord, SpikeCauses, SpikeRecord};
use whylate_core::result::{Cause, HistogramSource};
use whylate_core::{CpuId, CpuSet, Facts, Nanos, Plan, Warning};
use whylate_host::{Host, HostRoot, facts};
use whylate_load::{LoadError, LoadSpec};
use whylate_probe::{Observer, Outcome, ProbeError, ProbeSpec};
use whylate_record::causes::{FindsCauses, Measured, find_causes};
use whylate_record::{RecordError, Request, Ring};
use whylate_runner::{
    Audience, Held, Machine, ProbeAlone, Progress, RealMachine, RunningLoad, Stage, hidden_command,
};
use whylate_treat::TreatError;

/// The causes of one spike by both.
type Pair = (SpikeCauses, Option<SpikeCauses>);

/// Both searches. The causes of the run are those of the first.
struct Both {
    searches: [Box<dyn FindsCauses>; 2],
    pairs: Arc<Mutex<Vec<Pair>>>,
}

impl FindsCauses for Both {
    fn warnings(&self) -> &[Warning] {
        self.searches[1].warnings()
    }
    fn begin(&mut self, probes: &[Measured]) -> Result<(), BpfError> {
        self.searches.iter_mut().try_for_each(|search| search.begin(probes))
    }
    fn armed(&mut self, cpus: &CpuSet, process: u32, start_ns: u64) -> Result<(), BpfError> {
        self.searches.iter_mut().try_for_each(|search| search.armed(cpus, process, start_ns))
    }
    fn explain(&mut self, spikes: &[SpikeRecord]) -> Result<(), BpfError> {
        self.searches.iter_mut().try_for_each(|search| search.explain(spikes))?;
        let mut pairs = self.pairs.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        for spike in spikes {
            let of = |search: &dyn FindsCauses| search.causes_of(spike.cpu, spike.at_ns);
            pairs.extend(of(&*self.searches[0]).map(|bpf| (bpf, of(&*self.searches[1]))));
        }
        Ok(())
    }
    fn causes_of(&self, cpu: CpuId, at_ns: u64) -> Option<SpikeCauses> {
        self.searches[0].causes_of(cpu, at_ns)
    }
    fn forget(&mut self, cpu: CpuId, at_ns: u64) {
        self.searches.iter_mut().for_each(|search| search.forget(cpu, at_ns));
    }
    fn ipis(&mut self) -> Result<Vec<IpiRecord>, BpfError> {
        self.searches[0].ipis()
    }
    fn sources(&mut self) -> Vec<SourceRecord> {
        self.searches[0].sources()
    }
    fn losses(&self) -> Vec<Warning> {
        self.searches.iter().flat_map(|search| search.losses()).collect()
    }
}

/// The running machine with both searches.
struct Twice {
    real: RealMachine,
    host: Host,
    pairs: Arc<Mutex<Vec<Pair>>>,
}

impl Machine for Twice {
    fn measure(
        &self,
        spec: &ProbeSpec,
        stored: Nanos,
        observer: &mut dyn Observer,
    ) -> Result<Outcome, ProbeError> {
        self.real.measure(spec, stored, observer)
    }
    fn start_load(&self, spec: &LoadSpec) -> Result<Box<dyn RunningLoad>, LoadError> {
        self.real.start_load(spec)
    }
    fn hold_treatments(&self, run: &str, has_treatments: bool) -> Result<Held, TreatError> {
        self.real.hold_treatments(run, has_treatments)
    }
    fn start_trace(&self, request: &Request) -> Result<(Box<dyn Ring>, Vec<Warning>), RecordError> {
        self.real.start_trace(request)
    }
    fn find_causes(
        &self,
        probes: &[Measured],
        facts: &Facts,
        _: Option<HistogramSource>,
    ) -> Result<Box<dyn FindsCauses>, BpfError> {
        let find = |source| find_causes(&self.host, probes, facts, Some(source));
        let searches = [find(HistogramSource::Bpf)?, find(HistogramSource::Tracefs)?];
        Ok(Box::new(Both { searches, pairs: Arc::clone(&self.pairs) }))
    }
    fn running(&self) -> &HostRoot {
        self.real.running()
    }
    fn pause(&self, time: Duration) {
        self.real.pause(time);
    }
    fn facts(&self) -> Facts {
        self.real.facts()
    }
}

struct Silent;

impl Audience for Silent {
    fn stage(&mut self, _: &Stage<'_>) {}
    fn progress(&mut self, _: &Progress) {}
    fn first_spike(&mut self, _: Nanos) {}
    fn should_stop(&self) -> bool {
        false
    }
}

fn first(causes: &SpikeCauses) -> String {
    let name = |cause: &Cause| format!("{} {}", cause.kind.name(), cause.actor.as_deref().unwrap_or("-"));
    causes.causes.first().map_or_else(|| "none".to_owned(), name)
}

fn main() -> ExitCode {
    let host = Host { running: HostRoot::real(), settings: HostRoot::real() };
    let mut words = std::env::args_os().skip(1);
    if let Some(word) = words.next()
        && let Some(ended) = hidden_command(&word, &host.running, words)
    {
        return ended;
    }
    match compare(host) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn compare(host: Host) -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [cpu, seconds, ..] = words.as_slice() else {
        return Err("agreement CPU SECONDS [PRIORITY]".into());
    };
    let priority = words.get(2).map_or("80", String::as_str);
    let text = format!("name = \"agreement\"\n[[probe]]\nkind = \"timer\"\npriority = {priority}\n");
    let plan = Plan::parse(&Source { name: "agreement", text: &text }, &[])?;
    let probe: ProbePlan = plan.probe.into_iter().next().ok_or("no probe")?;
    let asked = ProbeAlone {
        plan: probe,
        cpus: cpu.parse()?,
        duration: Nanos::from_secs(seconds.parse()?),
        interval: None,
        warmup: Nanos::from_millis(50),
        spikes_kept: 1_000,
        strict: true,
        causes: true,
        causes_from: None,
        trace_folder: None,
    };
    let pairs = Arc::new(Mutex::new(Vec::new()));
    let machine = Twice { real: RealMachine::new(host.clone())?, host, pairs: Arc::clone(&pairs) };
    let (facts, warnings) = facts::collect(machine.running());
    let result = whylate_runner::measure(&asked, facts, warnings, &machine, &mut Silent)?;
    let pairs = std::mem::take(&mut *pairs.lock().unwrap_or_else(std::sync::PoisonError::into_inner));
    print(&pairs);
    result.warnings.iter().for_each(|warning| println!("{}: {}", warning.code, warning.text));
    Ok(())
}

/// For each latency from which spikes count: how many there are, for how many both name the same kind, and the same
/// kind and actor; then what they say.
fn print(pairs: &[Pair]) {
    for least_us in [0, 20, 50, 100, 500] {
        let large: Vec<&Pair> = pairs.iter().filter(|(bpf, _)| bpf.latency_ns >= least_us * 1_000).collect();
        let same_kind = large.iter().filter(|(bpf, other)| {
            let kind = |causes: &SpikeCauses| causes.causes.first().map(|cause| cause.kind);
            other.as_ref().is_some_and(|other| kind(other) == kind(bpf))
        });
        let same =
            large.iter().filter(|(bpf, other)| other.as_ref().is_some_and(|it| first(it) == first(bpf)));
        println!(
            "from {least_us} us: {} spikes, {} same kind, {} same kind and actor",
            large.len(),
            same_kind.count(),
            same.count()
        );
    }
    let mut counts: BTreeMap<(String, String), u64> = BTreeMap::new();
    for (bpf, other) in pairs {
        let other = other.as_ref().map_or_else(|| "none".to_owned(), first);
        *counts.entry((first(bpf), other)).or_default() += 1;
    }
    let mut counts: Vec<_> = counts.into_iter().collect();
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    counts.iter().take(30).for_each(|((bpf, tracefs), count)| println!("{count:6}  {bpf}  |  {tracefs}"));
}
