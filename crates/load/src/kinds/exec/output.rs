//! The command's output: kept in a file, searched for rates, its last lines remembered for an error.

use super::ExecSpec;
use crate::child::LoadEvent;
use crate::error::LoadError;
use regex_lite::Regex;
use rustix::io::Errno;
use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt as _;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};
use whylate_sys::{clock, terminal};

const LAST_LINES: usize = 5;
/// Characters of each of them.
const LAST_LINE_CHARS: usize = 200;
/// A line longer than this is searched in pieces.
const LINE_BYTES_MAX: usize = 64 << 10;

/// Compiles a rate pattern.
pub(crate) fn pattern(text: &str) -> Result<Regex, LoadError> {
    let regex = Regex::new(text)
        .map_err(|error| LoadError::Pattern { pattern: text.to_owned(), reason: error.to_string() })?;
    match regex.captures_len() - 1 {
        1 => Ok(regex),
        groups => Err(LoadError::PatternGroups { pattern: text.to_owned(), groups }),
    }
}

/// The output file, and what is searched in it.
pub(super) struct Output {
    file: File,
    regex: Option<Regex>,
    /// The last lines so far.
    pub(super) tail: Tail,
}

/// The last lines so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Tail(Arc<Mutex<VecDeque<String>>>);

impl Output {
    /// Opens the file; its present content stays.
    pub(super) fn open(spec: &ExecSpec) -> Result<Self, LoadError> {
        // If others may write there too, a link in its place is not followed.
        let no_link = rustix::fs::OFlags::NOFOLLOW.bits().cast_signed();
        let file = OpenOptions::new().create(true).append(true).custom_flags(no_link).open(&spec.output);
        let file = file.map_err(|source| LoadError::Output { path: spec.output_shown(), source })?;
        let regex = spec.rate_pattern.as_deref().map(pattern).transpose()?;
        Ok(Self { file, regex, tail: Tail::default() })
    }

    /// The two ends of a channel for what a command prints: of a terminal, for commands that otherwise print only at
    /// their end (or a pipe, where there are no terminals), or of a pipe.
    pub(super) fn channel(&self, as_terminal: bool) -> Result<(File, OwnedFd), LoadError> {
        if as_terminal && let Ok(both) = terminal::open() {
            return Ok(both);
        }
        let (reader, writer) = io::pipe().map_err(LoadError::system("making a pipe for the output"))?;
        Ok((File::from(OwnedFd::from(reader)), OwnedFd::from(writer)))
    }

    /// Starts the thread that reads until all writers have closed the channel.
    pub(super) fn collect(
        &self,
        reader: impl Read + Send + 'static,
        sender: Sender<LoadEvent>,
    ) -> Result<(), LoadError> {
        let file = self.file.try_clone().map_err(LoadError::system("opening the output file again"))?;
        let (regex, tail) = (self.regex.clone(), self.tail.clone());
        let lines = OutputLines { regex, tail, partial: Vec::new(), sender };
        super::spawn("output", move || read_all(reader, file, lines))
    }
}

fn read_all(mut reader: impl Read, mut file: File, mut lines: OutputLines) {
    let mut bytes = vec![0; 64 << 10];
    let mut lost = None;
    loop {
        match reader.read(&mut bytes) {
            Ok(0) => break,
            Ok(length) => {
                // On a full disk go on reading without storing, so that the command does not block on the pipe.
                if lost.is_none() {
                    lost = file.write_all(&bytes[..length]).err();
                }
                lines.push(&bytes[..length]);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // A terminal reports this when no process has it open any more.
            Err(error) if error.raw_os_error() == Some(Errno::IO.raw_os_error()) => break,
            Err(error) => {
                lost = Some(error);
                break;
            }
        }
    }
    lines.finish();
    let _ = lines.sender.send(LoadEvent::OutputEnded(lost));
}

/// Cuts the output into lines and searches them.
struct OutputLines {
    regex: Option<Regex>,
    tail: Tail,
    partial: Vec<u8>,
    sender: Sender<LoadEvent>,
}

impl OutputLines {
    fn push(&mut self, bytes: &[u8]) {
        // Programs that redraw a line end it with a carriage return.
        for piece in bytes.split_inclusive(|byte| matches!(byte, b'\n' | b'\r')) {
            self.partial.extend_from_slice(piece);
            if piece.ends_with(b"\n") || piece.ends_with(b"\r") || self.partial.len() >= LINE_BYTES_MAX {
                self.finish();
            }
        }
    }

    /// What has arrived so far is a line.
    fn finish(&mut self) {
        let bytes = std::mem::take(&mut self.partial);
        let text = String::from_utf8_lossy(&bytes);
        let line = text.trim_end();
        if line.is_empty() {
            return;
        }
        self.tail.push(line);
        let Some(number) =
            self.regex.as_ref().and_then(|regex| regex.captures(line)).and_then(|found| found.get(1))
        else {
            return;
        };
        let value = number.as_str().trim().parse().ok().filter(|value: &f64| value.is_finite());
        let _ = self.sender.send(LoadEvent::Matched { at: clock::now(), value });
    }
}

impl Tail {
    fn push(&self, line: &str) {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() == LAST_LINES {
            lines.pop_front();
        }
        lines.push_back(line.chars().take(LAST_LINE_CHARS).collect());
    }

    /// As the end of a sentence; empty when there were none.
    pub(super) fn last_lines(&self) -> String {
        let lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.is_empty() {
            return "; it printed nothing".to_owned();
        }
        let quoted: Vec<&str> = lines.iter().map(String::as_str).collect();
        format!("; its last output: {}", quoted.join(" | "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    fn rates(regex: &str, pieces: &[&str]) -> (Vec<Option<f64>>, Tail) {
        let (sender, events) = mpsc::channel();
        let tail = Tail::default();
        let regex = Some(pattern(regex).unwrap());
        let mut lines = OutputLines { regex, tail: tail.clone(), partial: Vec::new(), sender };
        pieces.iter().for_each(|piece| lines.push(piece.as_bytes()));
        lines.finish();
        drop(lines);
        let values = events.into_iter().filter_map(|event| match event {
            LoadEvent::Matched { value, .. } => Some(value),
            _ => None,
        });
        (values.collect(), tail)
    }

    #[test]
    fn rates_are_found_in_lines_however_they_arrive() {
        let (values, tail) =
            rates(r"rate: (\S+)", &["rate: 1", "2.5\nnoise\nra", "te: 7e3\rrate: fast\n", "rate: 9"]);
        assert_eq!(values, [Some(12.5), Some(7000.0), None, Some(9.0)]);
        assert!(tail.last_lines().ends_with("rate: 12.5 | noise | rate: 7e3 | rate: fast | rate: 9"));
    }

    #[test]
    fn endless_lines_are_cut() {
        let long = "x".repeat(LINE_BYTES_MAX + 10);
        let (values, tail) = rates("(1)", &[&long, "1\n"]);
        assert_eq!(values, [Some(1.0)]);
        assert!(tail.last_lines().len() < 2 * LAST_LINE_CHARS);
    }

    #[test]
    fn no_output_is_reported() {
        assert_eq!(Tail::default().last_lines(), "; it printed nothing");
    }
}
