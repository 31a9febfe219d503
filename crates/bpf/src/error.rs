//! What can go wrong with programs in the kernel.

use std::io;
use whylate_core::CpuId;

/// Why programs in the kernel cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum BpfError {
    /// The binary was built without the feature `bpf`.
    #[error("this build of whylate has no BPF programs; build it with the feature `bpf`")]
    NotBuilt,
    /// The kernel refuses BPF programs to this process.
    #[error("the kernel refuses BPF programs ({source}): {remedy}")]
    Refused { source: io::Error, remedy: String },
    /// The kernel has no type information, which the programs need to find what they read; what was tried.
    #[error(
        "the kernel has no type information (/sys/kernel/btf/vmlinux): use a kernel built with \
         CONFIG_DEBUG_INFO_BTF=y ({0})"
    )]
    NoTypeInformation(String),
    /// The compiled programs cannot be adapted to this kernel; the loader's message.
    #[error("the BPF programs do not fit this kernel: {0}")]
    Object(String),
    /// A program that is needed cannot be loaded.
    #[error("the BPF program for {event} cannot be loaded: {reason}")]
    Program { event: String, reason: String },
    /// A map of the programs cannot be read or written.
    #[error("the BPF map {name} cannot be used: {reason}")]
    Map { name: String, reason: String },
    /// A CPU that the programs have no room for.
    #[error("CPU {cpu} is beyond the {count} possible CPUs of this machine")]
    NoSuchCpu { cpu: CpuId, count: usize },
    /// The process ids that this process sees are not the kernel's.
    #[error(
        "this process is in a process-id namespace of its own (a container), where the kernel's records cannot be \
         attributed to processes: run whylate on the host"
    )]
    Namespace,
    /// CLOCK_MONOTONIC of this process is not the kernel's.
    #[error(
        "this process is in a time namespace whose clock differs from the kernel's, so the kernel's records cannot be \
         matched with a probe's samples: run whylate outside of that namespace"
    )]
    OtherClock,
    /// Loading programs would never end: why, and what helps.
    #[error("loading BPF programs would never end: {0}")]
    Starved(String),
    /// The kernel's events cannot be read from a trace buffer.
    #[error("a trace buffer cannot be used for causes: {0}")]
    TraceBuffer(String),
    /// Neither BPF programs nor a trace buffer are possible.
    #[error("{bpf}; a trace buffer cannot be used either: {tracefs}")]
    NoSource {
        /// Why no BPF programs.
        bpf: Box<Self>,
        /// Why no trace buffer.
        tracefs: String,
    },
    /// A mark of an activation is not in the file that should have it.
    #[error("this mark or trigger cannot be used: {0}")]
    NoMark(String),
    #[error("nothing is left to measure: name at least one CPU and one histogram")]
    Nothing,
}

impl BpfError {
    pub(crate) fn program(event: &str, reason: &str) -> Self {
        Self::Program { event: event.to_owned(), reason: reason.to_owned() }
    }

    pub(crate) fn map(name: &str, reason: &impl ToString) -> Self {
        Self::Map { name: name.to_owned(), reason: reason.to_string() }
    }

    /// Whether this machine or build lacks what is needed, whatever the user asks for.
    pub fn is_unavailable(&self) -> bool {
        matches!(
            self,
            Self::NotBuilt
                | Self::Refused { .. }
                | Self::NoTypeInformation(_)
                | Self::Object(_)
                | Self::Program { .. }
                | Self::Namespace
                | Self::OtherClock
                | Self::Starved(_)
                | Self::TraceBuffer(_)
                | Self::NoSource { .. }
        )
    }

    /// Whether a trace buffer may work where the programs do not: what keeps the kernel from loading them also keeps it from
    /// tracing.
    pub fn has_substitute(&self) -> bool {
        self.is_unavailable() && !matches!(self, Self::Starved(_))
    }
}
