//! A text that redraws itself in place on the terminal.

use anyhow::Result;
use std::io::Write as _;

/// What is on the screen now.
#[derive(Debug, Default)]
pub(super) struct HistogramScreen {
    lines: usize,
}

impl HistogramScreen {
    /// Replaces the drawn text. Lines that do not fit the terminal are left out: lines that have scrolled away cannot
    /// be reached again, and a wrapped line would count as one.
    pub(super) fn draw(&mut self, text: &str) -> Result<()> {
        let rows = rustix::termios::tcgetwinsize(std::io::stdout())
            .map_or(24, |size| usize::from(size.ws_row))
            .max(4);
        let frame = self.frame(text, rows - 1);
        let mut output = std::io::stdout().lock();
        output.write_all(frame.as_bytes())?;
        Ok(output.flush()?)
    }

    /// The sequence that replaces the drawn lines by the first ones of `text`.
    fn frame(&mut self, text: &str, lines_max: usize) -> String {
        // Lines longer than the terminal are cut off, not wrapped.
        let mut frame = format!("\u{1b}[?7l{}", self.back());
        self.lines = 0;
        for line in text.lines().take(lines_max) {
            frame.push_str(line);
            // Clears the rest of a longer old line, and resets a colour whose end was cut off.
            frame.push_str("\u{1b}[0m\u{1b}[K\n");
            self.lines += 1;
        }
        frame.push_str("\u{1b}[J\u{1b}[?7h");
        frame
    }

    pub(super) fn clear(self) -> Result<()> {
        let mut output = std::io::stdout().lock();
        output.write_all(format!("{}\u{1b}[J", self.back()).as_bytes())?;
        Ok(output.flush()?)
    }

    /// Moves to the first drawn line.
    fn back(&self) -> String {
        if self.lines == 0 { String::new() } else { format!("\u{1b}[{}F", self.lines) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_drawn_over_the_one_before_and_wraps_nothing() {
        let mut screen = HistogramScreen::default();
        let first = screen.frame("one\ntwo\nthree\n", 2);
        assert_eq!(first, "\u{1b}[?7lone\u{1b}[0m\u{1b}[K\ntwo\u{1b}[0m\u{1b}[K\n\u{1b}[J\u{1b}[?7h");
        let second = screen.frame("four", 2);
        assert!(second.starts_with("\u{1b}[?7l\u{1b}[2Ffour"), "{second:?}");
        assert!(screen.frame("", 2).starts_with("\u{1b}[?7l\u{1b}[1F\u{1b}[J"));
    }
}
