//! A text that is drawn over itself on the terminal.

use anyhow::Result;
use std::io::Write as _;

/// What is on the screen now.
#[derive(Debug, Default)]
pub(super) struct Screen {
    lines: usize,
}

impl Screen {
    /// Replaces what was drawn before. What does not fit into the terminal is left out: lines that have scrolled away
    /// cannot be reached again.
    pub(super) fn draw(&mut self, text: &str) -> Result<()> {
        let rows = rustix::termios::tcgetwinsize(std::io::stdout())
            .map_or(24, |size| usize::from(size.ws_row))
            .max(4);
        let mut frame = self.back();
        let lines: Vec<&str> = text.lines().collect();
        let shown = lines.len().min(rows - 1);
        for line in &lines[..shown] {
            frame.push_str(line);
            // Whatever was longer before is wiped.
            frame.push_str("\u{1b}[K\n");
        }
        frame.push_str("\u{1b}[J");
        self.lines = shown;
        let mut output = std::io::stdout().lock();
        output.write_all(frame.as_bytes())?;
        Ok(output.flush()?)
    }

    /// Takes it away.
    pub(super) fn clear(self) -> Result<()> {
        let mut output = std::io::stdout().lock();
        output.write_all(format!("{}\u{1b}[J", self.back()).as_bytes())?;
        Ok(output.flush()?)
    }

    /// Goes to the first line of what is there.
    fn back(&self) -> String {
        if self.lines == 0 { String::new() } else { format!("\u{1b}[{}F", self.lines) }
    }
}
