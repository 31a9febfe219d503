//! `whylate explain` on a log of the kernel.

use anyhow::{Context, Result};
use std::io::{BufReader, Cursor, Read};
use std::path::Path;
use whylate_core::result::{EXPLAIN_FORMAT, ExplainAnswer, ExplainResult, ExplainedTrace};
use whylate_core::{Warning, WarningCode};
use whylate_kmsg::KernelLog;
use whylate_trace::parse::{self, Source};

/// The number of bytes that are examined.
const SNIFFED_BYTES: u64 = 256 << 10;

/// The messages of the log at `path`; `None` where it is not one.
pub(super) fn of_file(path: &Path) -> Result<Option<ExplainResult>> {
    let Some(source) = Source::open(path).ok().filter(|_| path.is_file()) else { return Ok(None) };
    let mut head = Vec::new();
    source.stream(0)?.take(SNIFFED_BYTES).read_to_end(&mut head)?;
    if !whylate_kmsg::is_log(&head) {
        return Ok(None);
    }
    let log = whylate_kmsg::read(BufReader::new(source.stream(0)?));
    result(path, log.with_context(|| format!("cannot read {}", path.display()))?)
}

/// The contents of standard input: a log, which is read to its end, or the bytes of something else.
pub(super) enum Given {
    Log(Box<ExplainResult>),
    Bytes(Vec<u8>),
}

/// Reads standard input: a log line by line, anything else whole.
pub(super) fn of_input(path: &Path) -> Result<Given> {
    let mut input = std::io::stdin().lock();
    let mut head = Vec::new();
    let context = "cannot read standard input";
    input.by_ref().take(SNIFFED_BYTES).read_to_end(&mut head).context(context)?;
    let is_trace = || parse::from_source(Source::memory("standard input", head.clone())?);
    if whylate_kmsg::is_log(&head) && whylate_import::tool(&head).is_none() && is_trace().is_err() {
        let log = whylate_kmsg::read(BufReader::new(Cursor::new(&head).chain(input))).context(context)?;
        if let Some(result) = result(path, log)? {
            return Ok(Given::Log(Box::new(result)));
        }
    } else {
        input.read_to_end(&mut head).context(context)?;
    }
    Ok(Given::Bytes(head))
}

fn result(path: &Path, log: KernelLog) -> Result<Option<ExplainResult>> {
    if !log.is_any() {
        return Ok(None);
    }
    let reason = if log.messages.is_empty() {
        "No message in the log is about latency; a task may still have been late. Measure with `whylate run`, or record a trace."
    } else {
        "A log does not show whether a task was late, or which one. Measure with `whylate run`, or record a trace."
    };
    let trace = ExplainedTrace {
        path: path.display().to_string(),
        format: "kernel log".to_owned(),
        kernel: log.kernel,
        answer: ExplainAnswer::Log,
        ..ExplainedTrace::default()
    };
    let damage = log.damage.map(|damage| {
        Warning::new(
            WarningCode::UnreadableTrace,
            format!("{}: {damage}; only the part before the damage was read", path.display()),
        )
    });
    Ok(Some(ExplainResult {
        format: EXPLAIN_FORMAT.to_owned(),
        events: log.lines,
        answer: ExplainAnswer::Log,
        answer_reason: Some(reason.to_owned()),
        traces: vec![trace],
        messages: log.messages,
        warnings: damage.into_iter().collect(),
        ..ExplainResult::default()
    }))
}
