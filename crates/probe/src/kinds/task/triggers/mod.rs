//! Triggers: the application says that it was late. Each of them is counted; the activations of the time before it are
//! explained.
//!
//! Threads wait for lines, numbers, signals and requests, and leave what came in an inbox with its moment. The thread that
//! reads the records of watched threads looks at the inbox each time.

mod counter;
mod file;
mod inbox;
mod lines;
mod moments;
mod output;
mod signal;
mod socket;
mod stream;

pub use socket::send_trigger;

use super::lanes::Lanes;
use super::source::Source;
use crate::error::ProbeError;
use crate::measure::{Happened, Observer, TriggerLine};
use inbox::{Come, Inbox, Teller, Watcher};
use lines::{Rule, TriggerLines, regex};
use moments::{MomentCandidate, Moments, TriggerGroup, choose};
use std::io;
use std::process::Command;
use std::time::{Duration, Instant};
use stream::Journal;
use whylate_bpf::tasks::{Activation, check_place};
use whylate_core::plan::{TaskPlan, Trigger};
use whylate_core::result::{TriggerMoment, TriggerRecord, TriggerThread};
use whylate_sys::clock;

/// How long the rest of a program's output may take after its end; processes that it leaves behind may keep the output open.
const OUTPUT_END: Duration = Duration::from_millis(200);
const LOOK: Duration = Duration::from_millis(2);
/// The most triggers of one look that are passed on at once.
const HAPPENED_MAX: usize = 8;

/// The triggers of a watch.
pub(super) struct Triggers {
    /// As given.
    given: Vec<String>,
    inbox: Inbox,
    watchers: Vec<Watcher>,
    journals: Vec<Journal>,
    /// What the lines of the program's output are compared with, and the threads that read them.
    of_output: Vec<Rule>,
    output: Vec<Watcher>,
    of_kernel: Vec<OfKernel>,
    moments: Moments,
    /// Since the last stored interval.
    records: Vec<TriggerRecord>,
    explained: Vec<TriggerMoment>,
    is_stored: bool,
    line: TriggerLine,
    unexplained: u64,
}

/// A trigger for which a program in the kernel waits.
struct OfKernel {
    rule: u32,
    /// Its place among the given ones.
    trigger: usize,
    seen: u64,
}

impl OfKernel {
    /// Counts those that came so soon after another one that they have no record.
    fn count(&mut self, count: u64, record: &mut TriggerRecord) {
        let more = count.saturating_sub(self.seen);
        self.seen += more;
        record.count += more;
        record.shared += more;
    }
}

fn parsed(plan: &TaskPlan) -> Result<Vec<(usize, Trigger)>, ProbeError> {
    plan.triggers().map_err(|error| ProbeError::Failed(error.to_string()))
}

/// Checks the triggers of a plan, as far as that needs no machine.
pub(super) fn check(plan: &TaskPlan) -> Result<(), ProbeError> {
    for (_, trigger) in parsed(plan)? {
        trigger.pattern().map_or(Ok(()), |it| regex(it).map(drop))?;
        check_place(&trigger).map_err(ProbeError::Failed)?;
    }
    Ok(())
}

/// How long the kernel's records of an activation have to be kept.
pub(super) fn keep_ns(plan: &TaskPlan) -> u64 {
    if plan.triggers.is_empty() { 0 } else { plan.last().0 + Moments::LOOKED_AT_AFTER_NS }
}

impl Triggers {
    /// Begins to wait for the triggers of a plan; `None` without any.
    pub(super) fn start(plan: &TaskPlan) -> Result<Option<Self>, ProbeError> {
        Self::start_those(plan, |_| true)
    }

    /// Tries whether they can be waited for, without those that others may send meanwhile.
    pub(super) fn try_to_start(plan: &TaskPlan) -> Result<Option<Self>, ProbeError> {
        Self::start_those(plan, |it| !matches!(it, Trigger::Socket | Trigger::Signal { .. }))
    }

    fn start_those(plan: &TaskPlan, is_meant: fn(&Trigger) -> bool) -> Result<Option<Self>, ProbeError> {
        if plan.triggers.is_empty() {
            return Ok(None);
        }
        let record =
            |trigger: &String| TriggerRecord { trigger: trigger.clone(), ..TriggerRecord::default() };
        let mut triggers = Self {
            given: plan.triggers.clone(),
            inbox: Inbox::default(),
            watchers: Vec::new(),
            journals: Vec::new(),
            of_output: Vec::new(),
            output: Vec::new(),
            of_kernel: Vec::new(),
            moments: Moments::new(plan.last().0),
            records: plan.triggers.iter().map(record).collect(),
            explained: Vec::new(),
            is_stored: false,
            line: TriggerLine::default(),
            unexplained: 0,
        };
        for (nth, trigger) in parsed(plan)?.into_iter().filter(|(_, it)| is_meant(it)) {
            triggers.wait_for(nth, &trigger)?;
        }
        Ok(Some(triggers))
    }

    fn wait_for(&mut self, nth: usize, trigger: &Trigger) -> Result<(), ProbeError> {
        let teller = Teller::new(&self.inbox, nth);
        let rule = |pattern: &str| -> Result<Rule, ProbeError> {
            Ok(Rule { regex: regex(pattern)?, teller: teller.clone() })
        };
        let lines = |pattern: &str| rule(pattern).map(|rule| TriggerLines::new(vec![rule]));
        match trigger {
            Trigger::Output { pattern } => self.of_output.push(rule(pattern)?),
            Trigger::File { path, pattern } => self.watchers.push(file::watch(path, lines(pattern)?)?),
            Trigger::Journal { pattern } => {
                self.journals.push(stream::journal(lines(pattern)?, teller.clone())?);
            }
            Trigger::Kernel { pattern } => self.watchers.push(stream::kernel(lines(pattern)?)?),
            Trigger::Counter { path } => self.watchers.push(counter::watch(path, teller)?),
            Trigger::Signal { number } => self.watchers.push(signal::watch(*number, teller)?),
            Trigger::Socket => self.watchers.push(socket::watch(teller)?),
            // Programs in the kernel wait for these: Self::wait_in_kernel().
            Trigger::Marker { .. } | Trigger::Call { .. } | Trigger::Xrun => {}
        }
        Ok(())
    }

    /// Waits for the triggers for which programs in the kernel are needed.
    pub(super) fn wait_in_kernel(&mut self, plan: &TaskPlan, watch: &mut Source) -> Result<(), ProbeError> {
        for (nth, trigger) in parsed(plan)?.into_iter().filter(|(_, trigger)| trigger.is_of_kernel()) {
            let rule = watch.wait_for(&trigger)?;
            self.of_kernel.push(OfKernel { rule, trigger: nth, seen: 0 });
        }
        Ok(())
    }

    /// What the programs in the kernel saw; those that were too close to another one are only counted.
    fn look_in_kernel(&mut self, watch: &mut Source, is_over: bool) -> Vec<Come> {
        let mut come = Vec::new();
        for triggered in watch.triggered() {
            let Some(of) = self.of_kernel.iter_mut().find(|of| of.rule == triggered.rule) else { continue };
            let (at_ns, trigger) = (triggered.at_ns, of.trigger);
            of.count(triggered.count.saturating_sub(1), &mut self.records[trigger]);
            of.seen += 1;
            let text = Some(format!("thread {}", inbox::short(&triggered.command)));
            come.push(Come { at_ns, trigger, text });
        }
        for of in self.of_kernel.iter_mut().filter(|_| is_over) {
            of.count(watch.trigger_count(of.rule), &mut self.records[of.trigger]);
        }
        come
    }

    /// Reads the output of the program that this command starts, if a trigger needs it.
    pub(super) fn read_output(&mut self, command: &mut Command) -> io::Result<()> {
        if !self.of_output.is_empty() {
            self.output = output::read(command, &self.of_output)?;
        }
        Ok(())
    }

    /// Waits until the output of a program that has ended was read.
    pub(super) fn wait_for_output(&self) {
        let until = Instant::now() + OUTPUT_END;
        while !self.output.iter().all(Watcher::is_over) && Instant::now() < until {
            std::thread::sleep(LOOK);
        }
    }

    /// Keeps an activation that ended.
    pub(super) fn keep(&mut self, activation: &Activation) {
        self.moments.keep(activation.with_longest_wait());
    }

    /// Counts what came, and explains what can be explained; everything if the watch `is_over`.
    pub(super) fn look(
        &mut self,
        watch: &mut Source,
        lanes: &mut Lanes,
        observer: &mut dyn Observer,
        is_over: bool,
    ) -> Result<(), ProbeError> {
        let before = self.counts();
        let mut all = self.inbox.take(&mut self.records);
        all.extend(self.look_in_kernel(watch, is_over));
        for (nth, come) in all.into_iter().enumerate() {
            if nth < HAPPENED_MAX {
                let (trigger, text) = (self.given[come.trigger].clone(), come.text.clone());
                observer.happened(Happened::Trigger { at_ns: come.at_ns, trigger, text });
            }
            let record = &mut self.records[come.trigger];
            self.moments.take(come, record);
        }
        let now = self.counts();
        self.line.count += now.0 - before.0;
        self.unexplained += now.1 - before.1;
        let now_ns = clock::now().0;
        if self.moments.is_waiting() {
            let open: Vec<Activation> =
                watch.in_progress().iter().map(Activation::with_longest_wait).collect();
            for group in self.moments.ripe(now_ns, &open, is_over) {
                self.explain(&group, &open, watch, lanes)?;
            }
        }
        self.moments.forget(now_ns);
        Ok(())
    }

    /// How many came since the last stored interval, and how many of them are not explained.
    fn counts(&self) -> (u64, u64) {
        self.records.iter().fold((0, 0), |(all, not), it| (all + it.count, not + it.unexplained))
    }

    fn explain(
        &mut self,
        group: &TriggerGroup,
        in_progress: &[Activation],
        watch: &mut Source,
        lanes: &mut Lanes,
    ) -> Result<(), ProbeError> {
        let candidate = |activation: Activation| {
            let (thread, typical) = lanes.typical(&activation, watch.threads());
            MomentCandidate { activation, thread, typical }
        };
        let chosen = choose(self.moments.candidates(group, in_progress, candidate));
        let parts: Vec<&Activation> = chosen.iter().map(|one| &one.activation).collect();
        let explained = watch.explain(&parts)?;
        let threads = chosen.iter().zip(explained).map(|(one, explained)| TriggerThread {
            lost: explained.lost,
            causes: explained.causes,
            ..one.described()
        });
        let moment = TriggerMoment { threads: threads.collect(), ..group.moment(&self.given) };
        self.line.last = Some(moment.sentence());
        self.explained.push(moment);
        Ok(())
    }

    /// What came since the last call. The first time, each trigger has a record, also if it did not come.
    pub(super) fn take(&mut self) -> (Vec<TriggerRecord>, Vec<TriggerMoment>) {
        let fresh =
            |it: &TriggerRecord| TriggerRecord { trigger: it.trigger.clone(), ..TriggerRecord::default() };
        let fresh = self.records.iter().map(fresh).collect();
        let mut records = std::mem::replace(&mut self.records, fresh);
        if std::mem::replace(&mut self.is_stored, true) {
            records.retain(|record| record.count > 0);
        }
        (records, std::mem::take(&mut self.explained))
    }

    /// The state so far.
    pub(super) fn line(&self) -> &TriggerLine {
        &self.line
    }

    /// Activations that were dropped before a trigger could need them, and triggers that are not explained.
    pub(super) fn losses(&self) -> [u64; 2] {
        [self.moments.dropped, self.unexplained]
    }

    /// Which triggers stopped to work, with the reason.
    pub(super) fn failures(&self) -> Vec<String> {
        self.inbox.failures()
    }
}
