//! The activations that had not ended when the watch did, with their stages so far.

use super::build::{Builder, Owner, raw};
use super::{TaskWatch, Watched, choose};
use crate::error::BpfError;
use crate::layout::tasks::{Began, RawSlot, RawStretch, RawWoken, TASK_SLOTS, TaskEvent};
use whylate_core::CpuId;
use whylate_core::recording::{Activation, Doing, Stage, Waker};
use whylate_sys::clock;
use zerocopy::TryFromBytes as _;

impl TaskWatch {
    /// Stops watching all threads; the next [`Self::poll`] returns what was recorded until then.
    ///
    /// # Errors
    /// When the kernel does not take the change.
    pub fn leave_alone(&mut self) -> Result<(), BpfError> {
        // New threads that have not left a CPU have no record of their name.
        for (thread, process, first_ns) in self.named.unseen() {
            let known = choose::known(&self.host, process, thread).map(|it| it.known);
            if let Some(known) = known.filter(|it| self.target.is_named(&it.command)) {
                self.builder.threads.insert(thread, Watched { first_ns, ..known });
            }
        }
        let alive = self.builder.threads.iter().filter(|(_, known)| !known.is_gone);
        let alive: Vec<(u32, u32)> = alive.map(|(thread, known)| (*thread, known.process)).collect();
        for (thread, process) in alive {
            if self.set_slot(thread, 0)? {
                self.left_alone.insert(thread, clock::now().0);
                if !self.builder.is_seen(thread) && choose::is_runnable(&self.host, process, thread) {
                    self.runnable_unseen.push((thread, process, clock::now().0));
                }
            }
        }
        Ok(())
    }

    /// The activations that had not ended at [`Self::leave_alone`]: call it once, after the [`Self::poll`] that takes the last records.
    pub fn unended(&mut self) -> Vec<Activation> {
        let (host, object) = (&self.host, self.causes.histograms.object());
        let owner = |process, thread, is_shared| choose::owner(host, process, thread, is_shared);
        let mut found = Vec::new();
        for (thread, at_ns) in std::mem::take(&mut self.left_alone) {
            let slot = object.get::<[u8; size_of::<RawSlot>()]>("task_slots", thread % TASK_SLOTS);
            let slot = slot.ok().and_then(|slot| RawSlot::try_read_from_bytes(&slot).ok());
            let process = self.builder.threads.get(&thread).map(|known| known.process);
            let cpu = process.and_then(|process| choose::cpu(host, process, thread));
            let part =
                slot.zip(cpu).and_then(|(slot, cpu)| self.builder.unended(thread, &slot, cpu, at_ns, &owner));
            found.extend(self.builder.rhythms.unended(thread, part, at_ns));
        }
        for (thread, process, at_ns) in std::mem::take(&mut self.runnable_unseen) {
            let cpu = choose::cpu(host, process, thread).unwrap_or_default();
            found.extend(self.builder.never_seen(thread, cpu, at_ns));
        }
        self.builder.cut_gaps(clock::now().0);
        found
    }

    /// The activations in progress, and those that have ended and were not handed on; the watch of them goes on.
    pub fn in_progress(&mut self) -> Vec<Activation> {
        let (host, object) = (&self.host, self.causes.histograms.object());
        let owner = |process, thread, is_shared| choose::owner(host, process, thread, is_shared);
        let now_ns = clock::now().0;
        let alive = self.builder.threads.iter().filter(|(_, known)| !known.is_gone);
        let alive: Vec<(u32, u32)> = alive.map(|(thread, known)| (*thread, known.process)).collect();
        let mut found = Vec::new();
        for (thread, process) in alive {
            let at_ns = self.left_alone.get(&thread).copied().unwrap_or(now_ns);
            let slot = object.get::<[u8; size_of::<RawSlot>()]>("task_slots", thread % TASK_SLOTS);
            let slot = slot.ok().and_then(|slot| RawSlot::try_read_from_bytes(&slot).ok());
            // Most threads sleep, and then nothing has to be looked up.
            let is_at_work = |slot: &RawSlot| present(slot, at_ns).is_some() || self.builder.has_open(thread);
            let slot = slot.filter(is_at_work);
            let cpu = slot.as_ref().and_then(|_| choose::cpu(host, process, thread));
            let part = slot
                .zip(cpu)
                .and_then(|(slot, cpu)| self.builder.in_progress(thread, &slot, cpu, at_ns, &owner));
            found.extend(self.builder.rhythms.in_progress(thread, part, at_ns));
        }
        found
    }
}

impl Builder {
    fn has_open(&self, thread: u32) -> bool {
        self.tracks.get(&thread).is_some_and(|track| track.open.is_some())
    }

    /// The same as [`Self::unended`] for a watch that goes on. If the newest records of the thread were not read yet, the
    /// activation ends with the last one that was.
    fn in_progress(
        &mut self,
        thread: u32,
        slot: &RawSlot,
        cpu: CpuId,
        at_ns: u64,
        owner: &Owner<'_>,
    ) -> Option<Activation> {
        let track = self.tracks.get(&thread).cloned();
        let (incomplete, has_long_run, ended) = (self.incomplete, self.has_long_run, self.ended.len());
        let found = self.unended(thread, slot, cpu, at_ns, owner);
        self.ended.truncate(ended);
        (self.incomplete, self.has_long_run) = (incomplete, has_long_run);
        let open = track.as_ref().and_then(|track| track.open.clone());
        match track {
            Some(track) => drop(self.tracks.insert(thread, track)),
            None => drop(self.tracks.remove(&thread)),
        }
        let open = open.filter(|open| !open.stages.is_empty());
        found.or_else(|| open.map(|open| Activation { is_unended: true, ..open }))
    }

    /// What a thread has done since its last wake-up, from its slot at `at_ns`. `None` if it does nothing, if its start is
    /// not known, or if one of its records is missing.
    pub(super) fn unended(
        &mut self,
        thread: u32,
        slot: &RawSlot,
        cpu: CpuId,
        at_ns: u64,
        owner: &Owner<'_>,
    ) -> Option<Activation> {
        let nothing = raw(self.threads.get(&thread)?, thread);
        let left = self.tracks.get(&thread).and_then(|track| track.left.as_ref());
        let left_ns = left.map_or(0, |left| left.at_ns);
        if left_ns != slot.left_ns || at_ns < left_ns {
            return None;
        }
        if let Some((began, ready_ns, run_ns, woken)) = present(slot, at_ns) {
            let raw = RawStretch {
                kind: TaskEvent::Stretch,
                began,
                ready_ns,
                run_ns,
                end_ns: at_ns,
                is_runnable: 1,
                expires_ns: woken.expires_ns,
                waker: woken.waker,
                waker_prio: woken.waker_prio,
                waker_kind: woken.waker_kind,
                waker_command: woken.waker_command,
                moved_ns: slot.moved_ns,
                moved_from: slot.moved_from,
                fault_ns: slot.fault_ns,
                faults: slot.faults,
                faults_took_ns: slot.faults_took_ns,
                calls_took_ns: slot.calls_took_ns,
                lost: slot.lost,
                budget_before: slot.budget,
                previous: slot.previous,
                previous_prio: slot.previous_prio,
                previous_command: slot.previous_command,
                ..nothing
            };
            self.stretch(cpu, &raw, owner);
            let open = self.tracks.get_mut(&thread)?.open.take()?;
            return Some(Activation { is_unended: true, ..open });
        }
        let track = self.tracks.get_mut(&thread)?;
        let left = track.left.take()?;
        let wait = left.wait?;
        let mut open = track.open.take()?;
        let what = Doing::Blocked { wait, waker: Waker::Unknown };
        open.stages.push(Stage { from_ns: left_ns, to_ns: at_ns, cpu: left.cpu, what });
        Some(Activation { is_unended: true, ..open })
    }
}

/// How the present stretch of a thread that runs or waits for a CPU began: how, since when it was runnable, when it got the
/// CPU, who woke it. `None` if it sleeps.
fn present(slot: &RawSlot, at_ns: u64) -> Option<(Began, u64, u64, &RawWoken)> {
    match slot {
        _ if slot.run_ns > at_ns || slot.waking_ns > at_ns => None,
        _ if slot.run_ns > 0 => Some((slot.began, slot.ready_ns, slot.run_ns, &slot.woken)),
        _ if slot.was_runnable != 0 => Some((Began::Preempted, slot.left_ns, at_ns, &slot.woken)),
        _ if slot.waking_ns > slot.left_ns => Some((Began::Woken, slot.waking_ns, at_ns, &slot.waking)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use whylate_core::recording::Wait;

    const THREAD: u32 = 5;

    fn slot() -> RawSlot {
        RawSlot::try_read_from_bytes(&[0; size_of::<RawSlot>()]).unwrap()
    }

    fn unnamed(_: u32, _: u32, _: bool) -> Option<String> {
        None
    }

    /// A thread was woken at 100, ran from 110 to 150, and then was preempted or slept in a page fault.
    fn begun(is_runnable: bool) -> Builder {
        let mut builder = Builder::default();
        let known = Watched { process: 4, command: "control".to_owned(), priority: 80, ..Watched::default() };
        let raw = RawStretch {
            kind: TaskEvent::Stretch,
            began: Began::Woken,
            ready_ns: 100,
            run_ns: 110,
            end_ns: 150,
            is_runnable: is_runnable.into(),
            fault_ns: 140,
            ..raw(&known, THREAD)
        };
        assert_eq!(builder.add(CpuId(1), &raw, &unnamed), None);
        builder
    }

    fn unended(builder: &mut Builder, slot: &RawSlot) -> Option<Activation> {
        builder.unended(THREAD, slot, CpuId(1), 1_000, &unnamed)
    }

    #[test]
    fn what_a_thread_is_at_can_be_looked_at_without_an_effect() {
        let mut builder = begun(true);
        let waits = |left_ns| RawSlot { waking_ns: 100, left_ns, was_runnable: 1, ..slot() };
        let look = |builder: &mut Builder, slot: &RawSlot, at_ns| {
            let found = builder.in_progress(THREAD, slot, CpuId(1), at_ns, &unnamed);
            found.map(|it| (it.due_ns, it.end_ns(), it.is_unended))
        };
        assert_eq!(look(&mut builder, &waits(150), 700), Some((100, 700, true)));
        assert_eq!(
            look(&mut builder, &waits(150), 900),
            Some((100, 900, true)),
            "the first look had no effect"
        );
        assert_eq!(look(&mut builder, &waits(800), 900), Some((100, 150, true)), "as far as it was read");
        assert_eq!(unended(&mut builder, &waits(150)).map(|it| it.response_ns()), Some(900));
        assert_eq!(look(&mut Builder::default(), &waits(150), 900), None);
    }

    #[test]
    fn what_a_thread_is_at_counts_up_to_now() {
        let left = || RawSlot { waking_ns: 100, left_ns: 150, ..slot() };
        let waits = unended(&mut begun(true), &RawSlot { was_runnable: 1, ..left() }).unwrap();
        assert_eq!((waits.due_ns, waits.response_ns(), waits.preempted_ns()), (100, 900, 850));
        let again = RawSlot { began: Began::Preempted, ready_ns: 150, run_ns: 200, ..left() };
        let runs = unended(&mut begun(true), &again).unwrap();
        assert_eq!((runs.response_ns(), runs.running_ns(), runs.preempted_ns()), (900, 840, 50));
        let sleeps = unended(&mut begun(false), &left()).unwrap();
        assert_eq!((sleeps.response_ns(), sleeps.blocked_ns(), sleeps.is_unended), (900, 850, true));
        assert!(matches!(sleeps.stages[2].what, Doing::Blocked { wait: Wait::Page, .. }), "{sleeps:?}");
        let woken = unended(&mut begun(false), &RawSlot { waking_ns: 400, ..left() }).unwrap();
        assert_eq!((woken.blocked_ns(), woken.preempted_ns()), (250, 600));
    }

    #[test]
    fn a_thread_without_a_record_counts_from_its_wake_up_where_that_was_seen() {
        let mut builder = begun(true);
        builder.tracks.clear();
        let first = RawSlot { waking_ns: 100, began: Began::Woken, ready_ns: 100, run_ns: 130, ..slot() };
        let one = unended(&mut builder, &first).unwrap();
        assert_eq!((one.response_ns(), one.wakeup_ns(), one.running_ns()), (900, 30, 870));
        builder.tracks.clear();
        let unknown = RawSlot { began: Began::Unknown, run_ns: 130, ..slot() };
        let found = unended(&mut builder, &unknown).map(|it| (it.due_ns, it.response_ns()));
        assert_eq!(found, Some((130, 870)), "it has not slept since then");
    }

    #[test]
    fn a_missing_record_and_idling_are_nothing() {
        let later = RawSlot { waking_ns: 100, left_ns: 700, was_runnable: 1, ..slot() };
        assert_eq!(unended(&mut begun(true), &later), None);
        let mut idle = Builder::default();
        idle.threads.insert(THREAD, Watched::default());
        assert_eq!(unended(&mut idle, &slot()), None);
    }
}
