//! Errors of trace files.

use std::path::PathBuf;

/// A file that is not a trace, or a damaged one.
#[derive(Debug, thiserror::Error)]
pub enum ParseError {
    /// The file cannot be opened or read.
    #[error("cannot read {}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("{} is not a trace that whylate reads ({found}). whylate reads tracefs text (also of trace-cmd \
             report, perf script, perf sched timehist, rtla, atrace, systrace), trace.dat, perf.data, \
             Perfetto traces with ftrace events and trace_pipe_raw pages", path.display())]
    Foreign { path: PathBuf, found: String },
    /// Damaged or truncated.
    #[error("{}: at byte {offset}: {message}", path.display())]
    Damaged { path: PathBuf, offset: u64, message: String },
}
