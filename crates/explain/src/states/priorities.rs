//! Priorities of the threads in a window, and when they changed: the owner of a lock may inherit another one.
//!
//! In: the events of a window. Out: the priority of a thread at an event. The time before the window is not known: until the
//! first event about a thread its first known priority is used.

use crate::window::Window;
use std::collections::{HashMap, HashSet};
use whylate_trace::event::{EventKind, Task};

/// What the events of a window show about priorities.
#[derive(Debug, Default)]
pub(crate) struct Priorities {
    /// For each thread, the places of the events that show its priority, in their order.
    known: HashMap<u32, Vec<(usize, i32)>>,
    /// The threads whose priority an event shows as inherited.
    inherits: HashSet<u32>,
}

/// Why a thread has different priorities in a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// It has only one.
    None,
    /// Priority inheritance.
    Inherited,
    /// No event says so: its own call, another thread's, or an inheritance that was not recorded.
    Unknown,
}

impl Priorities {
    /// Looks through a window once.
    pub(crate) fn of(window: &Window) -> Self {
        let mut priorities = Self::default();
        for (index, event) in window.events.iter().enumerate() {
            match event.kind {
                EventKind::Switch { previous, next, .. } => {
                    priorities.tell(index, previous);
                    priorities.tell(index, next);
                }
                EventKind::Waking { task, .. }
                | EventKind::Wakeup { task, .. }
                | EventKind::Migrate { task, .. } => priorities.tell(index, task),
                EventKind::PriorityInherited { task, new_priority } => {
                    priorities.inherits.insert(task.pid);
                    priorities.tell(index, Task { priority: new_priority, ..task });
                }
                _ => {}
            }
        }
        priorities
    }

    fn tell(&mut self, index: usize, task: Task) {
        let known = self.known.entry(task.pid).or_default();
        // Most events repeat the known priority.
        if known.last().is_none_or(|(_, last)| *last != task.priority) {
            known.push((index, task.priority));
        }
    }

    /// The priority of a thread after the event at `index`, in the kernel's numbers; `None` if none is known.
    pub(crate) fn at(&self, pid: u32, index: usize) -> Option<i32> {
        let known = self.known.get(&pid)?;
        let later = known.partition_point(|(place, _)| *place <= index);
        known.get(later.saturating_sub(1)).map(|(_, priority)| *priority)
    }

    /// Why a thread has different priorities in the window.
    pub(crate) fn change(&self, pid: u32) -> Change {
        let changes = self.known.get(&pid).is_some_and(|known| known.len() > 1);
        match (changes, self.inherits.contains(&pid)) {
            (false, _) => Change::None,
            (true, true) => Change::Inherited,
            (true, false) => Change::Unknown,
        }
    }

    /// The first known priority of a thread.
    pub(crate) fn first(&self, pid: u32) -> Option<i32> {
        self.known.get(&pid)?.first().map(|(_, priority)| *priority)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use whylate_core::CpuId;
    use whylate_trace::event::{Context, Event, Name, TaskState};

    fn event(kind: EventKind) -> Event {
        let (at_ns, cpu, context) = (0, CpuId(0), Context::default());
        Event { at_ns, cpu, pid: None, command: None, context, offset: 0, kind }
    }

    fn task(pid: u32, priority: i32) -> Task {
        Task { pid, command: Name::default(), priority }
    }

    fn switch(previous: Task, next: Task) -> Event {
        event(EventKind::Switch { previous, state: TaskState::Runnable, next })
    }

    #[test]
    fn an_inherited_priority_counts_however_long_ago_it_was_inherited() {
        let mut events = vec![
            switch(task(0, 120), task(9, 98)),
            event(EventKind::PriorityInherited { task: task(9, 98), new_priority: 1 }),
        ];
        events.extend((0..40_000).map(|_| switch(task(3, 120), task(4, 120))));
        events.push(event(EventKind::PriorityInherited { task: task(9, 1), new_priority: 98 }));
        let last = events.len() - 1;
        let priorities = Priorities::of(&Window { events, ..Window::default() });
        let at = |index| priorities.at(9, index);
        assert_eq!([at(0), at(1), at(last - 1), at(last)], [Some(98), Some(1), Some(1), Some(98)]);
        // Before the first event with a priority, use that one.
        assert_eq!([priorities.at(4, 0), priorities.first(9)], [Some(120), Some(98)]);
        assert_eq!(priorities.at(8, last), None);
        assert_eq!(
            [9, 4, 8].map(|pid| priorities.change(pid)),
            [Change::Inherited, Change::None, Change::None]
        );
    }

    #[test]
    fn a_priority_that_changes_without_an_event_of_inheritance_may_be_the_threads_own() {
        let events = vec![switch(task(0, 120), task(9, 120)), switch(task(9, 19), task(3, 120))];
        let priorities = Priorities::of(&Window { events, ..Window::default() });
        assert_eq!(priorities.change(9), Change::Unknown);
    }
}
