//! Causes: who took the time, and the evidence for it.

use crate::figure::count;
use crate::words::words;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A cause of late time, with the evidence.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Cause {
    /// The kind of cause.
    pub kind: CauseKind,
    /// Who caused the delay: a thread's name, an interrupt's line and devices, a softirq vector, or a lock's owner.
    pub actor: Option<String>,
    /// Thread id of the actor, if the actor is a thread.
    pub pid: Option<u32>,
    /// The thread that the actor delayed, if the task waited for this thread. It is the actor's own name if the task waited
    /// until the actor woke it.
    pub delayed: Option<String>,
    /// The kernel function that took the time, if it is known. For a task's own work: the function of its program
    /// that, with its callees, has most of the samples.
    pub function: Option<String>,
    /// The callers of this function, innermost first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub callers: Vec<String>,
    /// Start of the time that the cause took, on the clock of the spike.
    pub from_ns: Option<u64>,
    /// End of the time that the cause took.
    pub to_ns: Option<u64>,
    /// The part of [expected, actual] that the cause covers, in [0, 1].
    pub share: Option<f64>,
    /// How sure the cause is, in [0, 1]; lower if events were lost or not recorded (`evidence` says which). Absent
    /// for `unattributed`.
    pub confidence: Option<f64>,
    /// The evidence for the cause; empty for `unattributed`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub evidence: Vec<String>,
    /// The recorded parts of a task's own work, the largest first; empty for other kinds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<CausePart>,
    /// Samples of a task's own work; absent if none were taken.
    pub samples: Option<OwnSamples>,
    /// What the CPUs' counters show of a task's own work; absent without counters.
    pub counters: Option<OwnCounters>,
    /// The sources of the evidence, if a trace of the spike was kept; otherwise empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<CauseSource>,
}

/// A part of a task's own work.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CausePart {
    pub part: PartKind,
    /// The name of the system call.
    pub call: Option<String>,
    /// The number of calls or page faults.
    pub count: Option<u64>,
    /// How long the task ran in the calls or page faults; absent if this time was not recorded.
    pub ns: Option<u64>,
}

/// Samples of a task's own work, taken once the task had run for longer than usual.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OwnSamples {
    pub count: u64,
    /// Samples in the kernel, on behalf of the program.
    pub in_kernel: u64,
    /// When the first sample was taken, on the clock of the spike; no sample shows what the task did before.
    pub from_ns: u64,
    /// The number of samples of the thread's ordinary activations, for comparison; absent if there are too few.
    pub ordinary: Option<u64>,
    /// The functions of the program on the stacks, those in the most samples first.
    pub functions: Vec<SampledFunction>,
    /// The calls as a tree: after each call come its own calls, one level deeper. Calls in few samples are left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<SampledCall>,
}

/// What the CPUs' counters show of a task's own work: whether it was more work, or slower work.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OwnCounters {
    /// The figures of this activation.
    #[serde(flatten)]
    pub here: CountedWork,
    /// The medians of the thread's ordinary activations. Absent if too few are known.
    pub usual: Option<CountedWork>,
    /// The number of ordinary activations.
    pub activations: Option<u64>,
    /// What made the activation longer than usual; absent if the counters do not say.
    pub change: Option<WorkChange>,
    /// How sure `change` is, in [0, 1].
    pub confidence: Option<f64>,
}

/// What was counted while a thread ran in an activation, with the interrupts in that time.
#[serde_with::skip_serializing_none]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CountedWork {
    /// How long the thread ran.
    pub run_ns: u64,
    /// Instructions that the CPUs executed.
    pub instructions: u64,
    /// Cycles of the CPUs' clocks; absent if a CPU does not count them.
    pub cycles: Option<u64>,
    /// Misses of the last-level cache, or of the cache that the kernel's event `cache-misses` counts; absent if a CPU does not
    /// count them.
    pub cache_misses: Option<u64>,
}

/// Why own work takes longer than usual.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WorkChange {
    /// More instructions: the thread's path through its program was longer.
    MoreInstructions,
    /// More cycles for each instruction, and more cache misses.
    MoreCacheMisses,
    /// More cycles for each instruction, for another reason or an unknown one.
    MoreCycles,
    /// More time for each cycle: a lower clock frequency, or time that a hypervisor took.
    SlowerCycles,
}

impl WorkChange {
    /// As texts name it.
    pub fn describe(self) -> &'static str {
        match self {
            Self::MoreInstructions => "more instructions",
            Self::MoreCacheMisses => "more cache misses",
            Self::MoreCycles => "more cycles for each instruction",
            Self::SlowerCycles => "more time for each cycle",
        }
    }
}

/// A call on the stacks of samples.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SampledCall {
    /// The call's depth: the number of calls above it in the program.
    pub depth: u64,
    pub function: String,
    pub samples: u64,
    /// How long the call ran from the first sample on, callees included.
    pub ns: u64,
    /// How long the call ran in an ordinary activation.
    pub ordinary_ns: Option<u64>,
}

/// A function of a program, by samples.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SampledFunction {
    /// The function's name without parameters; if the name is not known, the file and the offset in the file.
    pub function: String,
    /// The name of the file that contains the function; empty for memory without a file.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub file: String,
    /// Samples in the function itself.
    pub own: u64,
    /// Samples in the function and its callees.
    pub all: u64,
    /// How long the function ran from the first sample on, callees included.
    pub ns: Option<u64>,
    /// How long the function runs in an ordinary activation, callees included: an estimate from samples.
    pub ordinary_ns: Option<u64>,
}

/// What a part of a task's own work is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PartKind {
    /// A system call in which the task ran for at least 10 us at a time; without `call`, the rest together.
    SystemCall,
    /// Page faults of its program.
    PageFaults,
    /// User mode, and page faults whose time was not recorded.
    User,
}

/// A kind of evidence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CauseSource {
    /// What the BPF programs recorded.
    Bpf,
    /// What a trace buffer recorded instead of the BPF programs.
    Tracefs,
    /// A trace of the spike.
    Trace,
    /// Counters of the kernel and settings of the machine.
    Counters,
}

impl CauseSource {
    /// As texts name it.
    pub fn describe(self) -> &'static str {
        match self {
            Self::Bpf => "recording of the BPF programs",
            Self::Tracefs => "recording of the trace buffer",
            Self::Trace => "trace",
            Self::Counters => "kernel's counters",
        }
    }
}

/// A cause that is less sure is only possible.
const LIKELY: f64 = 0.6;

impl Cause {
    /// A cause of that kind, with nothing else known yet.
    pub fn new(kind: CauseKind) -> Self {
        Self {
            kind,
            actor: None,
            pid: None,
            delayed: None,
            function: None,
            callers: Vec::new(),
            from_ns: None,
            to_ns: None,
            share: None,
            confidence: None,
            evidence: Vec::new(),
            parts: Vec::new(),
            samples: None,
            counters: None,
            sources: Vec::new(),
        }
    }

    /// No record explains the delay.
    pub fn unattributed() -> Self {
        Self::new(CauseKind::Unattributed)
    }
}

#[expect(clippy::derivable_impls, reason = "the macro that makes the enum marks no default")]
impl Default for CauseKind {
    fn default() -> Self {
        Self::Unattributed
    }
}

impl Default for Cause {
    fn default() -> Self {
        Self::unattributed()
    }
}

/// The table of causes: meaning, name, class, and sentences, of which the first that can be filled in is used (see
/// [`Cause::sentence`]).
macro_rules! causes {
    ($(#[doc = $meaning:literal] $kind:ident = $name:tt, $class:ident, [$($sentence:literal),+];)+) => {
        words! {
            /// Kinds of causes. A kind is claimed only on evidence.
            pub enum CauseKind: "a kind of cause" {
                $(#[doc = $meaning] $kind = $name,)+
            }
        }

        impl CauseKind {
            /// What it stands for, in one line.
            pub const fn meaning(self) -> &'static str {
                match self {
                    $(Self::$kind => $meaning.trim_ascii(),)+
                }
            }

            /// Its name as people read it: `own work`.
            pub fn words(self) -> String {
                self.name().replace('_', " ")
            }

            /// What it has in common with other kinds.
            pub const fn class(self) -> CauseClass {
                match self {
                    $(Self::$kind => CauseClass::$class,)+
                }
            }

            /// Its page of the field guide, as Markdown: what it is, how it is detected, how to confirm it with
            /// another tool, what cures it, what misleads.
            pub const fn guide(self) -> &'static str {
                match self {
                    $(Self::$kind => include_str!(concat!("../../../../docs/causes/", $name, ".md")),)+
                }
            }

            const fn sentences(self) -> &'static [&'static str] {
                match self {
                    $(Self::$kind => &[$($sentence),+],)+
                }
            }
        }
    };
}

causes! {
    /// A hard interrupt's handler ran.
    Irq = "irq", Interrupt, ["the handler of {actor|an interrupt} ran{place}"];
    /// A softirq ran.
    Softirq = "softirq", Interrupt, ["{actor|a softirq} ran{place}"];
    /// A non-maskable interrupt's handler ran.
    Nmi = "nmi", Interrupt, ["a non-maskable interrupt ran{place}"];
    /// Another thread had the CPU while the task was runnable.
    Thread = "thread", Thread, ["the task waited for {waker}, which was running{place}", "{actor} had the CPU{place} while {delayed}, for which the task waited, was runnable", "{actor} had the CPU{place} while the task was runnable", "the task waited for a CPU that another thread had{place}"];
    /// Code ran with preemption disabled.
    PreemptOff = "preempt_off", Section, ["{actor|code} disabled preemption{place}"];
    /// Code ran with interrupts disabled.
    IrqsOff = "irqs_off", Section, ["{actor|code} disabled interrupts{place}"];
    /// An interrupt that another CPU sent was handled.
    Ipi = "ipi", Interrupt, ["an interrupt from another CPU ran {function} ({actor|IPI})", "an interrupt from another CPU ran ({actor|IPI})"];
    /// The timer interrupt came late although interrupts were enabled.
    TimerLate = "timer_late", Idle, ["the timer interrupt was late although interrupts were enabled ({who} ran)", "the timer interrupt was late without a recorded reason"];
    /// The timer of an ordinary thread was still within its timer slack, by which the kernel may delay the expiry.
    TimerSlack = "timer_slack", Scheduler, ["the kernel may delay an ordinary thread's timer by its timer slack"];
    /// The CPU needed the time to leave an idle state.
    IdleExit = "idle_exit", Idle, ["the CPU was leaving an idle state"];
    /// The task had a page fault.
    PageFault = "page_fault", Idle, ["the task had a page fault"];
    /// The task was moved to another CPU.
    Migration = "migration", Thread, ["the task was moved to another CPU by {actor|the kernel}"];
    /// The scheduler throttled the task: by real-time throttling, for the fair server, or because its deadline runtime was used up.
    Throttled = "throttled", Scheduler, ["the task was throttled ({actor|real-time throttling})"];
    /// The switch from one task to another, with interrupts disabled, took the time.
    ContextSwitch = "context_switch", Section, ["the CPU was switching from one task to another{place}"];
    /// The task waited for a lock that another thread held.
    Lock = "lock", Section, ["the task waited for a lock that {actor|another thread} held{place}"];
    /// The control group of the task had used up its CPU quota.
    Quota = "quota", Scheduler, ["the control group {who} had used up its CPU quota", "the task's control group had used up its CPU quota"];
    /// The task was blocked in the kernel: on a disk, memory, or an unknown kernel lock.
    Wait = "wait", Section, ["the task waited in {function}", "the task slept until {actor} woke {delayed}", "the task waited in the kernel"];
    /// The task was running: its own work took the time.
    OwnWork = "own_work", Idle, ["{actor} did its own work", "the task did its own work, mostly in {function}", "the task did its own work"];
    /// The CPU ran below its highest frequency, at which the task's own work would have taken less time.
    SlowClock = "slow_clock", Idle, ["the CPU's clock was below its highest frequency"];
    /// The hypervisor ran something else on the physical CPU (steal time).
    Steal = "steal", Machine, ["the hypervisor ran something else"];
    /// The hypervisor stopped the virtual CPU and did not count the time as steal time.
    HostStall = "host_stall", Machine, ["the hypervisor stopped the CPU"];
    /// The firmware took the CPU (a system-management interrupt was counted).
    Smi = "smi", Machine, ["the firmware took the CPU (SMI)"];
    /// Interrupts were provably enabled and no kernel code ran: hardware or firmware.
    Hardware = "hardware", Machine, ["hardware or firmware took the CPU, and no kernel code ran"];
    /// The SMT sibling of the CPU slowed the task down.
    Smt = "smt", Thread, ["the SMT sibling of the CPU slowed the task down"];
    /// No record explains the delay.
    Unattributed = "unattributed", Unknown, ["no record explains the delay; {who} was on the CPU", "no record explains the delay"];
}

/// What several kinds of causes have in common; reports give each a colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CauseClass {
    /// Interrupts.
    Interrupt,
    /// Other threads.
    Thread,
    /// The scheduler, on purpose: throttling, quotas, timer slack.
    Scheduler,
    /// Sections that exclude others: interrupts disabled, preemption disabled, locks.
    Section,
    /// The CPU or the task was not ready.
    Idle,
    /// What is outside the kernel.
    Machine,
    /// Not known.
    Unknown,
}

impl Cause {
    /// Fewer page faults of unknown time are not named in a sentence.
    const MANY_FAULTS: u64 = 100;

    /// What was done, by whom, in which function: `irq/45-nvkm (thread 489) disabled interrupts in unarm`.
    ///
    /// A cause that is only possible begins with "possibly".
    pub fn sentence(&self) -> String {
        // Such a wait is an upper bound.
        let is_bound = self.actor.is_none() && self.confidence.is_some_and(|confidence| confidence <= LIKELY);
        if self.kind == CauseKind::Thread && is_bound {
            return "the task may have waited for a CPU".to_owned();
        }
        let filled = self.kind.sentences().iter().find_map(|sentence| self.filled(sentence));
        let many = |part: &&CausePart| {
            part.part == PartKind::PageFaults && part.ns.is_none() && part.count >= Some(Self::MANY_FAULTS)
        };
        let faults = self.parts.iter().find(many).and_then(|part| part.count);
        let faults = faults.map(|number| format!(", with {} page faults", count(number)));
        let sentence = filled.unwrap_or_else(|| self.kind.meaning().to_owned()) + &faults.unwrap_or_default();
        let is_open = self.kind == CauseKind::Unattributed;
        if self.confidence.is_some_and(|confidence| confidence < LIKELY) && !is_open {
            return format!("possibly {sentence}");
        }
        sentence
    }

    /// Fills in `{actor}` and `{actor|default}`, `{who}` (the actor without its thread), `{function}` and `{place}` (` in
    /// function`, or nothing); `None` if one without a default is not known.
    fn filled(&self, sentence: &str) -> Option<String> {
        let mut text = String::new();
        let mut rest = sentence;
        while let Some((before, after)) = rest.split_once('{') {
            let (name, after) = after.split_once('}')?;
            text.push_str(before);
            match (name.split_once('|'), &self.actor, &self.function) {
                (Some((_, default)), None, _) => text.push_str(default),
                (Some(_), Some(actor), _) => text.push_str(&self.with_thread(actor)),
                (None, Some(actor), _) if name == "actor" => text.push_str(&self.with_thread(actor)),
                (None, Some(actor), _) if name == "who" => text.push_str(actor),
                (None, Some(actor), _) if name == "waker" && self.delayed.as_ref() == Some(actor) => {
                    text.push_str(&self.with_thread(actor));
                }
                (None, _, _) if name == "delayed" => text.push_str(self.delayed.as_ref()?),
                (None, _, Some(function)) if name == "function" => text.push_str(function),
                (None, _, function) if name == "place" => {
                    text.extend(function.as_ref().map(|function| format!(" in {function}")));
                }
                _ => return None,
            }
            rest = after;
        }
        Some(text + rest)
    }

    /// `irq/45-nvkm (thread 489)`.
    fn with_thread(&self, actor: &str) -> String {
        let thread = self.pid.map(|pid| format!(" (thread {pid})"));
        format!("{actor}{}", thread.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_has_one_name_everywhere() {
        for kind in CauseKind::ALL {
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.name());
            assert_eq!(CauseKind::from_name(kind.name()), Some(kind));
        }
        assert_eq!(CauseKind::from_name("late"), None);
    }

    #[test]
    fn every_kind_has_its_page_of_the_field_guide() {
        const HEADINGS: [&str; 5] =
            ["What it is", "How whylate knows", "Confirm it with another tool", "What cures it", "Pitfalls"];
        let list = include_str!("../../../../docs/causes/README.md");
        for kind in CauseKind::ALL {
            let (name, page) = (kind.name(), kind.guide());
            assert!(page.starts_with(&format!("# {name}: ")), "{name}: begin with `# {name}: `");
            let headings: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix("## ")).collect();
            assert_eq!(headings, HEADINGS, "{name}");
            assert!(list.contains(&format!("| [{name}]({name}.md) | ")), "{name} is not in the list");
            let sections: Vec<&str> = page.split("\n## ").collect();
            assert!(sections[3].contains("```sh\n"), "{name}: no command confirms it");
            assert!(sections[4].contains("`whylate treat apply "), "{name}: no treatment is named");
            let commands = page.split("```").skip(1).step_by(2).flat_map(str::lines);
            assert!(
                commands.clone().all(|line| line.chars().count() <= 76),
                "{name}: too wide for 80 columns"
            );
        }
    }

    #[test]
    fn own_work_names_many_page_faults_of_unknown_time() {
        let faults = |count, ns| Cause {
            parts: vec![CausePart { part: PartKind::PageFaults, call: None, count: Some(count), ns }],
            ..Cause::new(CauseKind::OwnWork)
        };
        assert!(faults(2_560, None).sentence().ends_with(", with 2,560 page faults"));
        for other in [faults(3, None), faults(2_560, Some(4_000_000))] {
            assert!(!other.sentence().contains("page faults"), "{}", other.sentence());
        }
    }

    #[test]
    fn a_wait_for_a_cpu_is_known_without_the_thread_that_had_it() {
        let bare = Cause::new(CauseKind::Thread);
        let named = Cause { actor: Some("cc1".to_owned()), pid: Some(7), ..bare.clone() };
        assert_eq!(bare.sentence(), "the task waited for a CPU that another thread had");
        assert_eq!(named.sentence(), "cc1 (thread 7) had the CPU while the task was runnable");
        let delayed = |name: &str| Cause { delayed: Some(name.to_owned()), ..named.clone() };
        let delayed_owner = delayed("owner").sentence();
        assert!(
            delayed_owner.contains("cc1 (thread 7)") && delayed_owner.contains("owner"),
            "{delayed_owner}"
        );
        assert!(!delayed_owner.contains("the task was runnable"), "{delayed_owner}");
        assert!(!delayed("cc1").sentence().contains("had the CPU"), "{}", delayed("cc1").sentence());
    }

    #[test]
    fn a_cause_that_is_not_likely_is_only_possible() {
        let sentence = |kind, confidence| {
            let actor = Some("cc1".to_owned());
            Cause { actor, confidence: Some(confidence), ..Cause::new(kind) }.sentence()
        };
        let hedged = [0.05, 0.5, 0.6, 0.9].map(|it| sentence(CauseKind::Thread, it).starts_with("possibly "));
        assert_eq!(hedged, [true, true, false, false]);
        assert!(!sentence(CauseKind::Unattributed, 0.05).contains("possibly"), "it names no cause");
    }

    #[test]
    fn every_kind_makes_a_sentence_with_and_without_details() {
        for kind in CauseKind::ALL {
            let bare = Cause::new(kind);
            let full = Cause {
                actor: Some("irq/45-nvkm".to_owned()),
                pid: Some(489),
                function: Some("unarm".to_owned()),
                ..Cause::new(kind)
            };
            for cause in [bare, full] {
                let filled = kind.sentences().iter().any(|sentence| cause.filled(sentence).is_some());
                assert!(filled && !cause.sentence().contains(['{', '}']), "{}", cause.sentence());
            }
        }
    }
}
