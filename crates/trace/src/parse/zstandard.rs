//! A stream of all frames of a Zstandard file: the crate's own decoder stops after the first one.

use std::io::{self, BufRead, BufReader, Read};
use structured_zstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use structured_zstd::decoding::{BlockDecodingStrategy, FrameDecoder};

/// The unpacked bytes of each frame, one after the other; skippable frames are skipped.
pub(super) struct Frames<R> {
    input: BufReader<R>,
    decoder: FrameDecoder,
    in_frame: bool,
}

impl<R: Read> Frames<R> {
    pub(super) fn new(input: R) -> Self {
        Self { input: BufReader::new(input), decoder: FrameDecoder::new(), in_frame: false }
    }

    /// Goes to the next frame; `false` at the end of the input.
    fn begin_frame(&mut self) -> io::Result<bool> {
        while !self.input.fill_buf()?.is_empty() {
            match self.decoder.reset(&mut self.input) {
                Ok(()) => {
                    self.in_frame = true;
                    return Ok(true);
                }
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => {
                    let length = u64::from(length);
                    if io::copy(&mut self.input.by_ref().take(length), &mut io::sink())? < length {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                }
                Err(error) => return Err(io::Error::new(io::ErrorKind::InvalidData, error.to_string())),
            }
        }
        Ok(false)
    }
}

impl<R: Read> Read for Frames<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        loop {
            if !self.in_frame && !self.begin_frame()? {
                return Ok(0);
            }
            while self.decoder.can_collect() == 0 && !self.decoder.is_finished() {
                self.decoder
                    .decode_blocks(&mut self.input, BlockDecodingStrategy::UptoBlocks(1))
                    .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.to_string()))?;
            }
            let read = self.decoder.read(buffer)?;
            if read > 0 {
                return Ok(read);
            }
            self.in_frame = false;
            let stored = self.decoder.get_checksum_from_data();
            if stored.is_some() && stored != self.decoder.get_calculated_checksum() {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    "the checksum of a frame does not match",
                ));
            }
        }
    }
}
