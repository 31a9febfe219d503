//! Lines of a stream, without copying them.
//!
//! In: a stream of bytes. Out: slices of a buffer of fixed size, with the offset of each line.

use memchr::memchr;
use std::io::{self, Read};

/// Size of the buffer, so also the longest line: the kernel writes lines of at most a page or two.
pub(super) const LINE_BYTES_MAX: usize = 256 << 10;

/// Where a line is: in the file, and in the buffer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line {
    pub(super) offset: u64,
    start: usize,
    end: usize,
    /// Whether a newline ends it; the last line of a file may lack it, and may be cut.
    pub(super) ended: bool,
}

pub(super) struct Lines {
    stream: Box<dyn Read + Send>,
    buffer: Box<[u8]>,
    /// What is unread in the buffer.
    start: usize,
    end: usize,
    /// Offset in the file of the start of the buffer.
    base: u64,
    at_end: bool,
}

/// Why there is no line.
#[derive(Debug)]
pub(super) enum LineError {
    /// The stream failed at this offset.
    Read(io::Error, u64),
    /// No newline for [`LINE_BYTES_MAX`] bytes from this offset on.
    TooLong(u64),
}

impl Lines {
    /// The lines of `stream`, whose first byte is at `offset` of the file.
    pub(super) fn new(stream: Box<dyn Read + Send>, offset: u64) -> Self {
        let buffer = vec![0; LINE_BYTES_MAX].into_boxed_slice();
        Self { stream, buffer, start: 0, end: 0, base: offset, at_end: false }
    }

    pub(super) fn offset(&self) -> u64 {
        self.base + self.start as u64
    }

    /// The next line; `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<Line>, LineError> {
        let mut searched = self.start;
        loop {
            if let Some(length) = memchr(b'\n', &self.buffer[searched..self.end]) {
                let line =
                    Line { offset: self.offset(), start: self.start, end: searched + length, ended: true };
                self.start = line.end + 1;
                return Ok(Some(line));
            }
            if self.at_end {
                if self.start == self.end {
                    return Ok(None);
                }
                let line = Line { offset: self.offset(), start: self.start, end: self.end, ended: false };
                self.start = self.end;
                return Ok(Some(line));
            }
            let unread = self.end - self.start;
            self.fill()?;
            searched = self.start + unread;
        }
    }

    /// Reads more behind what is unread.
    fn fill(&mut self) -> Result<(), LineError> {
        self.buffer.copy_within(self.start..self.end, 0);
        self.base += self.start as u64;
        self.end -= self.start;
        self.start = 0;
        if self.end == self.buffer.len() {
            let offset = self.base;
            // If the caller goes on, the rest is read as another line.
            self.base += self.end as u64;
            self.end = 0;
            return Err(LineError::TooLong(offset));
        }
        loop {
            match self.stream.read(&mut self.buffer[self.end..]) {
                Ok(0) => self.at_end = true,
                Ok(read) => self.end += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => {
                    // Reading again would give the same error.
                    self.at_end = true;
                    let offset = self.base + self.end as u64;
                    self.start = self.end;
                    return Err(LineError::Read(error, offset));
                }
            }
            return Ok(());
        }
    }

    /// The bytes of the line that [`Lines::next`] gave last, without its end.
    pub(super) fn bytes(&self, line: Line) -> &[u8] {
        let bytes = &self.buffer[line.start..line.end];
        bytes.strip_suffix(b"\r").unwrap_or(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives one byte at a time, like a slow pipe.
    struct Slow(Vec<u8>, usize);
    impl Read for Slow {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let Some(byte) = self.0.get(self.1) else { return Ok(0) };
            buffer[0] = *byte;
            self.1 += 1;
            Ok(1)
        }
    }

    fn all(stream: Box<dyn Read + Send>) -> Vec<(u64, Vec<u8>, bool)> {
        let mut lines = Lines::new(stream, 10);
        let mut found = Vec::new();
        while let Some(line) = lines.next().expect("memory can be read") {
            found.push((line.offset, lines.bytes(line).to_vec(), line.ended));
        }
        found
    }

    #[test]
    fn lines_have_their_offsets() {
        let text = b"a\n\nbcd\r\ne".to_vec();
        let expected = vec![
            (10, b"a".to_vec(), true),
            (12, Vec::new(), true),
            (13, b"bcd".to_vec(), true),
            (18, b"e".to_vec(), false),
        ];
        assert_eq!(all(Box::new(io::Cursor::new(text.clone()))), expected);
        assert_eq!(all(Box::new(Slow(text, 0))), expected);
    }

    #[test]
    fn lines_cross_the_buffer() {
        let long = vec![b'x'; LINE_BYTES_MAX - 10];
        let text = [&long[..], b"\n", &long[..], b"\ny\n"].concat();
        let found = all(Box::new(io::Cursor::new(text)));
        assert_eq!(found.len(), 3);
        assert_eq!((&found[0].1, &found[1].1), (&long, &long));
        assert_eq!(found[2], (10 + 2 * long.len() as u64 + 2, b"y".to_vec(), true));
    }

    #[test]
    fn a_line_without_end_is_an_error() {
        let mut lines = Lines::new(Box::new(io::repeat(b'x')), 5);
        assert!(matches!(lines.next(), Err(LineError::TooLong(5))));
        assert!(
            matches!(lines.next(), Err(LineError::TooLong(offset)) if offset == 5 + LINE_BYTES_MAX as u64)
        );
    }
}
