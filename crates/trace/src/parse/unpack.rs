//! Unpacks the compressed sections and chunks of trace.dat.
//!
//! In: packed bytes, and the unpacked size that the file claims. Out: exactly that number of bytes, or an error. Memory is
//! allocated only as far as the packed size makes the claim plausible.

use std::io::Read;
use structured_zstd::decoding::{ContentChecksum, FrameDecoder};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Algorithm {
    /// Not at all.
    #[default]
    None,
    Zlib,
    Zstandard,
}

impl Algorithm {
    /// The algorithm of that name in the file's header; `None` for one that is not known.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "none" => Some(Self::None),
            "zlib" => Some(Self::Zlib),
            "zstd" => Some(Self::Zstandard),
            _ => None,
        }
    }
}

/// A claim up to this is believed whatever the packed size is: a chunk of empty pages packs very well.
const BYTES_BELIEVED: usize = 1 << 20;
/// Above it, data cannot be packed better than this (zlib's own limit is 1032).
const RATIO_MAX: usize = 1100;

/// Unpacks, and keeps the tables of the algorithm from one call to the next.
pub struct Unpacker {
    algorithm: Algorithm,
    zstandard: FrameDecoder,
}

impl std::fmt::Debug for Unpacker {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Unpacker").field("algorithm", &self.algorithm).finish_non_exhaustive()
    }
}

impl Unpacker {
    /// An unpacker for `algorithm`.
    pub fn new(algorithm: Algorithm) -> Self {
        let mut zstandard = FrameDecoder::new();
        zstandard.set_content_checksum(ContentChecksum::Verify);
        Self { algorithm, zstandard }
    }

    /// Unpacks `packed` into `output`, which then has exactly `length` bytes.
    pub fn unpack(&mut self, packed: &[u8], length: usize, output: &mut Vec<u8>) -> Result<(), String> {
        if length > BYTES_BELIEVED && length > packed.len().saturating_mul(RATIO_MAX) {
            return Err(format!("{} packed bytes cannot hold {length} bytes", packed.len()));
        }
        output.clear();
        output.resize(length, 0);
        let filled = match self.algorithm {
            Algorithm::None => {
                let filled = packed.len().min(length);
                output[..filled].copy_from_slice(&packed[..filled]);
                Ok(filled)
            }
            Algorithm::Zlib => fill(&mut flate2::bufread::ZlibDecoder::new(packed), output),
            Algorithm::Zstandard => {
                self.zstandard.decode_all(packed, output).map_err(|error| error.to_string())
            }
        };
        match filled {
            Ok(filled) if filled == length => Ok(()),
            Ok(filled) => Err(format!("compressed data contains {filled} bytes, but {length} are expected")),
            Err(_) => Err("compressed data is damaged: copy the file again, or record again".to_owned()),
        }
    }
}

/// Reads until `output` is full or the input ends; how much was read.
fn fill(input: &mut impl Read, output: &mut [u8]) -> Result<usize, String> {
    let mut filled = 0;
    while filled < output.len() {
        match input.read(&mut output[filled..]) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) => return Err(error.to_string()),
        }
    }
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use whylate_testing::says;

    fn zlib(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn each_algorithm_gives_back_what_was_packed() {
        let bytes: Vec<u8> = (0..9000u32).map(|number| (number / 7) as u8).collect();
        let zstandard = structured_zstd::encoding::compress_to_vec(
            bytes.as_slice(),
            structured_zstd::encoding::CompressionLevel::Fastest,
        );
        let packed = [
            (Algorithm::None, bytes.clone()),
            (Algorithm::Zlib, zlib(&bytes)),
            (Algorithm::Zstandard, zstandard),
        ];
        for (algorithm, packed) in packed {
            let mut output = vec![9; 3];
            Unpacker::new(algorithm).unpack(&packed, bytes.len(), &mut output).unwrap();
            assert_eq!(output, bytes, "{algorithm:?}");
        }
    }

    #[test]
    fn another_length_is_refused() {
        let packed = zlib(b"some bytes");
        let mut output = Vec::new();
        let error = Unpacker::new(Algorithm::Zlib).unpack(&packed, 11, &mut output).unwrap_err();
        assert!(says("holds-bytes-where", &error), "{error}");
        let error = Unpacker::new(Algorithm::None).unpack(b"abc", 2 << 20, &mut output).unwrap_err();
        assert!(error.contains("cannot hold"), "{error}");
    }

    #[test]
    fn damaged_data_is_refused() {
        let mut output = Vec::new();
        for algorithm in [Algorithm::Zlib, Algorithm::Zstandard] {
            let error = Unpacker::new(algorithm).unpack(b"no frame at all", 100, &mut output).unwrap_err();
            assert!(error.contains("damaged"), "{error}");
        }
    }
}
