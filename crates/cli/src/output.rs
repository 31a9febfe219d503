//! Standard output holds only the result; all other messages go to standard error.
//!
//! Output contains names and paths of others, so it goes through [`text`] once: here, or in the writer that drew it
//! ([`drawn`], [`draw_message`]).

use anyhow::{Context, Result};
use rustix::fs::{CWD, RenameFlags};
use serde::Serialize;
use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::path::Path;
use whylate_core::{Warning, text};
use whylate_report::Style;

pub(crate) fn print(text: &str) -> Result<()> {
    drawn(&text::lines(text))
}

/// Prints the output of a report writer, with its colours.
pub(crate) fn drawn(text: &str) -> Result<()> {
    let mut output = io::stdout().lock();
    output.write_all(text.as_bytes())?;
    if !text.ends_with('\n') {
        output.write_all(b"\n")?;
    }
    Ok(output.flush()?)
}

/// Writes one JSON document to standard output.
pub(crate) fn print_json(document: &impl Serialize) -> Result<()> {
    drawn(&json(document)?)
}

/// Prints a JSON document as one line.
pub(crate) fn print_json_line(document: &impl Serialize) -> Result<()> {
    drawn(&format!("{}\n", text::json(&serde_json::to_string(document)?)))
}

/// The text of a JSON document.
pub(crate) fn json(document: &impl Serialize) -> Result<String> {
    Ok(text::json(&serde_json::to_string_pretty(document)?))
}

/// Writes one line to standard error; a failure is ignored.
pub(crate) fn message(line: &str) {
    draw_message(&text::lines(line));
}

/// Prints the output of a report writer on standard error.
pub(crate) fn draw_message(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// Prints warnings about what was not measured, or measured less well.
pub(crate) fn warnings(warnings: &[Warning]) {
    for warning in warnings {
        message(&format!("warning: {}", warning.text));
        if let Some(fix) = &warning.fix {
            message(&format!("    fix: {fix}"));
        }
    }
}

/// Writes a file that must not exist yet, whole or not at all: it gets its name when it is complete.
pub(crate) fn write_new(path: &Path, content: impl AsRef<[u8]>) -> Result<()> {
    let exists = || anyhow::anyhow!("{} exists; remove it or give another name (-o)", path.display());
    if path.symlink_metadata().is_ok() {
        return Err(exists());
    }
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let part = path.with_file_name(format!(".{name}.{}", std::process::id()));
    let written = File::options()
        .write(true)
        .create_new(true)
        .open(&part)
        .with_context(|| format!("cannot create {}", path.display()))
        .and_then(|mut file| {
            file.write_all(content.as_ref())
                .and_then(|()| file.sync_all())
                .with_context(|| format!("cannot write {}", path.display()))
        })
        .and_then(|()| match rustix::fs::renameat_with(CWD, &part, CWD, path, RenameFlags::NOREPLACE) {
            Err(rustix::io::Errno::EXIST) => Err(exists()),
            // A file system without this operation.
            Err(rustix::io::Errno::INVAL) => Ok(std::fs::rename(&part, path)?),
            other => other.with_context(|| format!("cannot create {}", path.display())),
        });
    if written.is_err() {
        // Only our own file: it was created above.
        let _ = std::fs::remove_file(&part);
    }
    written
}

/// How to draw on standard output.
pub(crate) fn style() -> Style {
    style_of(&io::stdout())
}

fn style_of(stream: &(impl IsTerminal + AsFd)) -> Style {
    let is_terminal = stream.is_terminal();
    let color = is_terminal && std::env::var_os("NO_COLOR").is_none();
    let columns = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    let terminal = || terminal_width(stream).filter(|_| is_terminal);
    Style { color, width: columns.or_else(terminal).unwrap_or(120) }
}

fn terminal_width(stream: &impl AsFd) -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(stream).ok()?;
    Some(usize::from(size.ws_col)).filter(|width| *width >= 40)
}
