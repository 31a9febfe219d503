//! Chains of wake-ups: who woke a task, who had woken that one, and so on, back to the interrupt or timer that began it.
//!
//! A thread that wakes another one was woken itself before (or never slept). Its last wake-up is the next link, and the time
//! between the two wake-ups is the delay that it added. The recordings of the CPUs show what it did meanwhile: how long it
//! ran, and which thread it waited for.

use crate::segments::{self, Activity, Recording, Segment, Surroundings};
use std::collections::BTreeMap;
use whylate_core::CpuId;
use whylate_core::figure::nanoseconds;
use whylate_core::recording::{Activation, Waker};
use whylate_core::result::WakeLink;

/// How long before a task's wake-up earlier wake-ups are searched.
pub const CHAIN_BEFORE_NS: u64 = 100_000_000;
/// The most links of a chain: what began a longer one is long ago.
const LINKS_MAX: usize = 8;
/// A thread is named only if it kept a link waiting for at least this long, and for at least this part of its time.
const BEHIND_MIN_NS: u64 = 10_000;
const BEHIND_PART: u64 = 10;

/// Everything that the CPUs recorded around the wake-up of a task.
type Recordings = BTreeMap<CpuId, Recording>;

/// A wake-up, with the CPU that did it.
#[derive(Clone, Copy)]
struct Wake<'r> {
    cpu: CpuId,
    at_ns: u64,
    waker: &'r Waker,
}

/// Who woke the task, the last link first; empty if no wake-up of it was recorded.
pub fn chain(activation: &Activation, recordings: &Recordings, surroundings: &Surroundings) -> Vec<WakeLink> {
    let mut links: Vec<WakeLink> = Vec::new();
    let mut next = last_wake(activation.thread.pid, activation.woken_ns, recordings);
    while let Some(wake) = next.filter(|_| links.len() < LINKS_MAX) {
        let mut link = WakeLink { at_ns: wake.at_ns, cpu: wake.cpu, ..WakeLink::default() };
        next = None;
        match wake.waker {
            Waker::Thread(pid, command) => {
                (link.by, link.pid) = (command.clone(), Some(*pid));
                // A thread that is woken while it wakes others was already woken before.
                next = last_wake(*pid, wake.at_ns.saturating_sub(1), recordings);
                if let Some(before) = next {
                    tell_meanwhile(&mut link, *pid, before.at_ns, recordings);
                }
            }
            waker => link.by = interrupt(waker, &wake, recordings, surroundings),
        }
        links.push(link);
    }
    links
}

/// The last wake-up of a thread up to that moment.
fn last_wake(thread: u32, until_ns: u64, recordings: &Recordings) -> Option<Wake<'_>> {
    let found = recordings.iter().flat_map(|(cpu, recording)| {
        recording.segments.iter().filter_map(|segment| {
            let (woken, waker) = match &segment.what {
                Activity::Waking { pid, waker } => (*pid, waker),
                Activity::Timer { pid, .. } => (*pid, &Waker::Timer),
                _ => return None,
            };
            (woken == thread && segment.to_ns <= until_ns).then_some(Wake {
                cpu: *cpu,
                at_ns: segment.to_ns,
                waker,
            })
        })
    });
    found.max_by_key(|wake| wake.at_ns)
}

/// How long a link took since its own wake-up, how much of that it ran, and which thread it waited for.
fn tell_meanwhile(link: &mut WakeLink, pid: u32, woken_ns: u64, recordings: &Recordings) {
    let (from_ns, to_ns) = (woken_ns, link.at_ns);
    let took_ns = to_ns.saturating_sub(from_ns);
    let ran = |segment: &Segment| match &segment.what {
        Activity::Thread { thread, .. } => {
            let within_ns = segment.to_ns.min(to_ns).saturating_sub(segment.from_ns.max(from_ns));
            Some((thread.pid, thread.command.clone(), within_ns)).filter(|it| it.2 > 0)
        }
        _ => None,
    };
    let all = || recordings.values().flat_map(|recording| &recording.segments).filter_map(ran);
    let ran_ns: u64 = all().filter(|it| it.0 == pid).map(|it| it.2).sum();
    link.took_ns = Some(took_ns);
    // It still had the CPU when the rings were read: its time is not recorded yet.
    if ran_ns == 0 {
        return;
    }
    link.ran_ns = Some(ran_ns.min(took_ns));
    let here = recordings.get(&link.cpu).into_iter().flat_map(|recording| &recording.segments);
    let mut others: BTreeMap<(u32, String), u64> = BTreeMap::new();
    for (other, command, within_ns) in here.filter_map(ran).filter(|it| it.0 != pid && it.0 != 0) {
        *others.entry((other, command)).or_default() += within_ns;
    }
    let least_ns = (took_ns.saturating_sub(ran_ns) / 2).max(took_ns / BEHIND_PART).max(BEHIND_MIN_NS);
    let longest = others.into_iter().max_by_key(|(_, ns)| *ns).filter(|(_, ns)| *ns >= least_ns);
    link.behind = longest.map(|((_, command), _)| command);
}

/// The interrupt that did it, from the activity of its CPU.
fn interrupt(waker: &Waker, wake: &Wake<'_>, recordings: &Recordings, surroundings: &Surroundings) -> String {
    let covers = |segment: &&Segment| {
        segment.what.is_interrupt() && segment.from_ns <= wake.at_ns && wake.at_ns <= segment.to_ns
    };
    let segments = recordings.get(&wake.cpu).into_iter().flat_map(|recording| &recording.segments);
    let innermost = segments.filter(covers).max_by_key(|segment| segment.what.rank());
    let name =
        innermost.and_then(|it| segments::actor(&it.what, |line| surroundings.lines.get(&line).cloned()));
    match (waker, name) {
        (Waker::Timer, Some((_, name, _))) => format!("a timer ({name})"),
        (Waker::Timer, None) => "a timer".to_owned(),
        (_, Some((_, name, _))) => name,
        (_, None) => "an interrupt".to_owned(),
    }
}

/// The chain as a sentence; `None` if a timer or an interrupt woke the task directly.
pub fn told(chain: &[WakeLink]) -> Option<String> {
    chain.first().filter(|link| link.pid.is_some())?;
    let links: Vec<String> = chain.iter().map(link).collect();
    Some(format!("woken by {}", links.join(" <- ")))
}

/// `logger (ran 1.20 ms of 1.50 ms; make had the CPU before it)`, `irq 31 (eth0) on CPU 2`.
fn link(link: &WakeLink) -> String {
    let behind =
        link.behind.as_ref().map(|name| format!("; {name} had the CPU before it")).unwrap_or_default();
    match (link.pid, link.took_ns, link.ran_ns) {
        (None, ..) => format!("{} on CPU {}", link.by, link.cpu),
        (_, Some(took_ns), Some(ran_ns)) => {
            format!("{} (ran {} of {}{behind})", link.by, nanoseconds(ran_ns), nanoseconds(took_ns))
        }
        (_, Some(took_ns), None) => format!("{} (after {})", link.by, nanoseconds(took_ns)),
        (_, None, _) => format!("{} (woken before the recorded time)", link.by),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segments::Thread;
    use whylate_testing::says;

    fn segment(from_ns: u64, to_ns: u64, what: Activity) -> Segment {
        Segment { from_ns, to_ns, what }
    }

    fn waking(at_ns: u64, pid: u32, waker: Waker) -> Segment {
        segment(at_ns, at_ns, Activity::Waking { pid, waker })
    }

    fn ran(from_ns: u64, to_ns: u64, pid: u32, command: &str) -> Segment {
        let thread = Thread { pid, priority: 10, command: command.to_owned() };
        segment(
            from_ns,
            to_ns,
            Activity::Thread { thread, process: pid, was_runnable: false, next_priority: 0 },
        )
    }

    fn by(pid: u32, command: &str) -> Waker {
        Waker::Thread(pid, command.to_owned())
    }

    fn recordings() -> Recordings {
        let on = |segments: Vec<Segment>| Recording { segments, ..Recording::default() };
        // The interrupt of line 31 wakes its thread on CPU 0, that wakes a reader, that wakes a logger on CPU 1, that wakes
        // the task.
        let first = vec![
            waking(100_000, 31, Waker::Interrupt),
            segment(90_000, 110_000, Activity::Irq { line: 31 }),
            waking(150_000, 20, by(31, "irq/31-eth0")),
            ran(110_000, 160_000, 31, "irq/31-eth0"),
            waking(400_000, 10, by(20, "reader")),
            ran(160_000, 410_000, 20, "reader"),
        ];
        let second = vec![
            // An earlier wake-up of the same threads does not belong to the chain.
            waking(50_000, 10, by(99, "other")),
            ran(390_000, 1_400_000, 7, "make"),
            waking(2_000_000, 5, by(10, "logger")),
            ran(1_400_000, 2_010_000, 10, "logger"),
        ];
        [(CpuId(0), on(first)), (CpuId(1), on(second))].into()
    }

    fn activation() -> Activation {
        let mut activation = Activation { woken_ns: 2_000_000, ..Activation::default() };
        activation.thread.pid = 5;
        activation
    }

    #[test]
    fn a_chain_goes_back_to_the_interrupt_that_began_it() {
        let mut surroundings = Surroundings::default();
        surroundings.lines.insert(31, "eth0".to_owned());
        let links = chain(&activation(), &recordings(), &surroundings);
        let names: Vec<&str> = links.iter().map(|link| link.by.as_str()).collect();
        assert_eq!(names, ["logger", "reader", "irq/31-eth0", "irq 31 (eth0)"]);
        assert_eq!((links[0].took_ns, links[0].ran_ns), (Some(1_600_000), Some(600_000)));
        assert_eq!(links[0].behind.as_deref(), Some("make"), "it waited for the CPU");
        assert_eq!(
            (links[1].took_ns, links[1].ran_ns, &links[1].behind),
            (Some(250_000), Some(240_000), &None)
        );
        assert_eq!((links[3].pid, links[3].cpu), (None, CpuId(0)));
        let sentence = told(&links).unwrap();
        assert!(says("woken-by-logger-ran", &sentence), "{sentence}");
        assert!(sentence.ends_with("<- irq 31 (eth0) on CPU 0"), "{sentence}");
    }

    #[test]
    fn a_chain_goes_back_to_the_timer_of_a_watched_thread() {
        let mut recordings = recordings();
        let first = recordings.get_mut(&CpuId(0)).unwrap();
        // A watched thread that its timer woke has no other record.
        let timer = Activity::Timer { pid: 20, process: 20, stack: Vec::new() };
        first.segments[2] = segment(140_000, 150_000, timer);
        let links = chain(&activation(), &recordings, &Surroundings::default());
        let names: Vec<&str> = links.iter().map(|link| link.by.as_str()).collect();
        assert_eq!(names, ["logger", "reader", "a timer"]);
    }

    #[test]
    fn a_chain_that_goes_back_further_than_the_recording_says_so() {
        let mut recordings = recordings();
        recordings.remove(&CpuId(0));
        let links = chain(&activation(), &recordings, &Surroundings::default());
        assert_eq!(links.len(), 2, "{links:?}");
        assert!(told(&links).unwrap().contains("other (woken before"));
        assert_eq!(chain(&Activation::default(), &recordings, &Surroundings::default()), []);
    }

    #[test]
    fn threads_that_wake_each_other_without_end_are_no_endless_chain() {
        let wakes = (0..1_000u32).map(|nth| {
            let (one, other) = if nth % 2 == 0 { (1, 2) } else { (2, 1) };
            waking(u64::from(nth) * 100, one, by(other, "ping"))
        });
        let recording = Recording { segments: wakes.collect(), ..Recording::default() };
        let mut activation = Activation { woken_ns: 99_000, ..Activation::default() };
        activation.thread.pid = 1;
        let links = chain(&activation, &[(CpuId(0), recording)].into(), &Surroundings::default());
        assert_eq!(links.len(), LINKS_MAX);
        assert!(links.windows(2).all(|pair| pair[0].at_ns > pair[1].at_ns));
    }
}
