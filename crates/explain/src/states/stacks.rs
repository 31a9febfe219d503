//! Chains of calls, from events that each name a function and its caller.
//!
//! The function tracer records only entries. A new entry whose caller is on the stack ends everything above that caller; an
//! entry with an unknown caller begins a new stack. A tail-called function has the caller of the function that called it: see
//! [`vocabulary::is_tail_call`].

use crate::describe;
use crate::vocabulary::{self, Class, Meaning};
use std::collections::{BTreeMap, HashMap};
use whylate_trace::event::Symbol;
use whylate_trace::reader::Reader;

/// A function, by its place in [`Functions`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct FunctionId(u32);

/// The functions of a window, with the meaning of their names.
#[derive(Debug, Default)]
pub(crate) struct Functions {
    ids: HashMap<Symbol, FunctionId>,
    by_name: HashMap<String, FunctionId>,
    entries: Vec<(String, Meaning)>,
}

impl Functions {
    pub(crate) fn id(&mut self, symbol: Symbol, reader: &dyn Reader) -> FunctionId {
        if let Some(id) = self.ids.get(&symbol) {
            return *id;
        }
        let id = self.named(describe::symbol(symbol, reader));
        self.ids.insert(symbol, id);
        id
    }

    fn named(&mut self, name: String) -> FunctionId {
        if let Some(id) = self.by_name.get(&name) {
            return *id;
        }
        let id = FunctionId(self.entries.len() as u32);
        let meaning = Meaning::of(&name);
        self.by_name.insert(name.clone(), id);
        self.entries.push((name, meaning));
        id
    }

    pub(crate) fn name(&self, id: FunctionId) -> &str {
        self.entries.get(id.0 as usize).map_or("", |(name, _)| name)
    }

    fn meaning(&self, id: FunctionId) -> Option<&Meaning> {
        self.entries.get(id.0 as usize).map(|(_, meaning)| meaning)
    }

    /// What the function means, entered from `caller`.
    pub(crate) fn class(&self, id: FunctionId, caller: Option<FunctionId>) -> Class {
        let caller = caller.and_then(|caller| self.meaning(caller));
        self.meaning(id).map_or(Class::Ordinary, |meaning| meaning.called_by(caller))
    }

    /// Whether the function is a mere helper of its caller.
    pub(crate) fn is_helper(&self, id: FunctionId) -> bool {
        self.meaning(id).is_some_and(|meaning| meaning.class == Class::Helper)
    }

    /// Whether the function may enable interrupts or preemption again.
    pub(crate) fn opens(&self, id: FunctionId) -> bool {
        self.meaning(id).is_some_and(|meaning| meaning.opens)
    }
}

/// The most nested calls that are followed: no kernel stack is as deep. A deeper one begins anew.
const DEPTH_MAX: u32 = 512;

/// A chain of calls; [`PathId::ROOT`] is the empty one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct PathId(u32);

impl PathId {
    pub(crate) const ROOT: Self = Self(0);
}

/// A tree of all chains of calls that were seen, each once.
#[derive(Debug, Default)]
pub(crate) struct Paths {
    /// Each with its depth.
    nodes: Vec<(PathId, FunctionId, u32)>,
    children: HashMap<(PathId, FunctionId), PathId>,
}

impl Paths {
    /// The chain without its innermost function, and that function; `None` at the root.
    pub(crate) fn split(&self, path: PathId) -> Option<(PathId, FunctionId)> {
        let (parent, function, _) = self.nodes.get((path.0 as usize).checked_sub(1)?)?;
        Some((*parent, *function))
    }

    /// Number of functions.
    pub(crate) fn depth(&self, path: PathId) -> u32 {
        let node = (path.0 as usize).checked_sub(1).and_then(|place| self.nodes.get(place));
        node.map_or(0, |(_, _, depth)| *depth)
    }

    pub(crate) fn push(&mut self, path: PathId, function: FunctionId) -> PathId {
        let path = if self.depth(path) < DEPTH_MAX { path } else { PathId::ROOT };
        let next = PathId(self.nodes.len() as u32 + 1);
        let id = *self.children.entry((path, function)).or_insert(next);
        if id == next {
            self.nodes.push((path, function, self.depth(path) + 1));
        }
        id
    }

    /// Innermost first.
    pub(crate) fn functions(&self, path: PathId) -> impl Iterator<Item = FunctionId> {
        std::iter::successors(self.split(path), |(parent, _)| self.split(*parent)).map(|(_, id)| id)
    }

    /// The stack after `function` was entered from `caller`, when `path` was the stack before.
    pub(crate) fn enter(
        &mut self,
        path: PathId,
        function: FunctionId,
        caller: FunctionId,
        functions: &Functions,
    ) -> PathId {
        let mut at = path;
        let mut above = None;
        while let Some((parent, id)) = self.split(at) {
            if id == caller {
                let tail = above.filter(|(above, id): &(PathId, FunctionId)| {
                    *above == path && vocabulary::is_tail_call(functions.name(*id), functions.name(function))
                });
                return self.push(tail.map_or(at, |(above, _)| above), function);
            }
            above = Some((at, id));
            at = parent;
        }
        // A report that shows calls by indentation does not name the caller of the outermost function.
        let root =
            if functions.name(caller) == "0x0" { PathId::ROOT } else { self.push(PathId::ROOT, caller) };
        self.push(root, function)
    }

    /// The stack after `function` was entered at `depth` calls from the outermost.
    pub(crate) fn enter_at(&mut self, path: PathId, function: FunctionId, depth: u32) -> PathId {
        let kept = self.cut(path, depth);
        self.push(kept, function)
    }

    /// The stack with its outermost `depth` functions.
    pub(crate) fn cut(&self, path: PathId, depth: u32) -> PathId {
        let Some(more) = self.depth(path).checked_sub(depth) else { return path };
        let outer = |at: &PathId| self.split(*at).map(|(parent, _)| parent);
        std::iter::successors(Some(path), outer).nth(more as usize).unwrap_or(path)
    }
}

/// The innermost function that covers at least `least` of the time in `times`, helpers aside, and its callers.
pub(crate) fn covering(
    times: &[(PathId, u64)],
    least: f64,
    paths: &Paths,
    functions: &Functions,
) -> Option<(FunctionId, Vec<FunctionId>)> {
    let total: u64 = times.iter().map(|(_, time)| time).sum();
    // A chain comes after its prefixes, so in reverse order the times of all its continuations are known first.
    let mut open: BTreeMap<PathId, u64> = BTreeMap::new();
    for (path, time) in times {
        *open.entry(*path).or_default() += time;
    }
    let mut sums = Vec::new();
    while let Some((path, sum)) = open.pop_last() {
        let Some((parent, _)) = paths.split(path) else { continue };
        sums.push((path, sum));
        *open.entry(parent).or_default() += sum;
    }
    let enough = sums.iter().filter(|(_, sum)| *sum as f64 >= least * total as f64 && total > 0);
    let best = enough.max_by_key(|(path, sum)| (paths.depth(*path), *sum, std::cmp::Reverse(*path)))?;
    let mut chain: Vec<FunctionId> = paths.functions(best.0).collect();
    let inner = &chain[..chain.len().saturating_sub(1)];
    let helpers = inner.iter().take_while(|id| functions.is_helper(**id)).count();
    let callers = chain.split_off(chain.len().min(helpers + 1));
    Some((*chain.last()?, callers))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(lines: &[(&str, &str)]) -> Vec<String> {
        let (mut functions, mut paths) = (Functions::default(), Paths::default());
        let mut path = PathId::ROOT;
        for (function, caller) in lines {
            let (function, caller) = (functions.named((*function).into()), functions.named((*caller).into()));
            path = paths.enter(path, function, caller, &functions);
        }
        paths.functions(path).map(|id| functions.name(id).to_owned()).collect()
    }

    #[test]
    fn an_entry_ends_what_its_caller_called_before() {
        let stack = run(&[("b", "a"), ("c", "b"), ("d", "c"), ("e", "b")]);
        assert_eq!(stack, ["e", "b", "a"]);
    }

    #[test]
    fn an_unknown_caller_begins_a_new_stack() {
        assert_eq!(run(&[("b", "a"), ("y", "x")]), ["y", "x"]);
    }

    #[test]
    fn a_tail_call_keeps_its_dispatcher() {
        let stack = run(&[
            ("nvkm_pci_intr", "irq_forced_thread_fn"),
            ("nvkm_mc_intr_unarm", "nvkm_pci_intr"),
            ("gf100_mc_intr_unarm", "nvkm_pci_intr"),
        ]);
        assert_eq!(
            stack,
            ["gf100_mc_intr_unarm", "nvkm_mc_intr_unarm", "nvkm_pci_intr", "irq_forced_thread_fn"]
        );
        assert_eq!(run(&[("should_stop", "loop"), ("stall", "loop")]), ["stall", "loop"]);
    }

    #[test]
    fn the_covering_function_is_the_innermost_with_enough_time_and_no_helper() {
        let (mut functions, mut paths) = (Functions::default(), Paths::default());
        let mut path = PathId::ROOT;
        let ids: Vec<FunctionId> =
            ["thread", "work", "_raw_spin_lock"].iter().map(|name| functions.named((*name).into())).collect();
        let mut stacks = Vec::new();
        for id in &ids {
            path = paths.push(path, *id);
            stacks.push(path);
        }
        let covers = |times: &[(PathId, u64)]| {
            covering(times, 0.6, &paths, &functions).map(|(id, _)| functions.name(id).to_owned())
        };
        assert_eq!(covers(&[(stacks[2], 90), (stacks[0], 10)]).as_deref(), Some("work"));
        assert_eq!(covers(&[(stacks[1], 50), (stacks[0], 50)]).as_deref(), Some("thread"));
        assert_eq!(covers(&[(PathId::ROOT, 100)]), None);
    }

    #[test]
    fn depths_of_the_graph_tracer_cut_the_stack() {
        let (mut functions, mut paths) = (Functions::default(), Paths::default());
        let id: Vec<FunctionId> =
            ["a", "b", "c"].iter().map(|name| functions.named((*name).into())).collect();
        let a = paths.enter_at(PathId::ROOT, id[0], 0);
        let b = paths.enter_at(a, id[1], 1);
        assert_eq!(paths.enter_at(b, id[2], 1), paths.push(a, id[2]));
        assert_eq!(paths.cut(b, 0), PathId::ROOT);
        assert_eq!(paths.cut(a, 7), a);
    }
}
