//! What can be wrong with a trace file.

use std::path::PathBuf;

/// A file that is not a trace, or a damaged one.
#[derive(Debug, thiserror::Error)]
pub enum ParseError {
    /// The file cannot be opened or read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Nothing that this version reads.
    #[error("{}: is not a trace that whylate reads ({found}); it reads tracefs text (also of trace-cmd report, perf script, perf sched timehist, rtla, atrace, systrace), trace.dat, perf.data, Perfetto traces with ftrace events and trace_pipe_raw pages", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What it looks like.
        found: String,
    },
    /// Damaged or truncated.
    #[error("{}: at byte {offset}: {message}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where.
        offset: u64,
        /// What is wrong.
        message: String,
    },
}
