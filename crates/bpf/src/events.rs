//! What is loaded: the compiled programs, the events that they are for, and the sizes of their maps.

/// One program of an object, and the event that it is for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Event {
    pub(crate) function: &'static str,
    /// The kernel's tracepoint, or the function at whose entry the program runs.
    pub(crate) tracepoint: &'static str,
}

/// The program `function` runs at `tracepoint`.
pub(crate) const fn event(function: &'static str, tracepoint: &'static str) -> Event {
    Event { function, tracepoint }
}

/// What is set before loading.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sizes<'a> {
    pub(crate) maps: Vec<(&'a str, u32)>,
    /// Constants of the programs that say whether the kernel has a tracepoint: 1 if it has.
    pub(crate) has_tracepoint: Vec<(&'a str, &'a str)>,
    pub(crate) constants: Vec<(&'a str, u32)>,
}
