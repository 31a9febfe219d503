//! Words of copies: the types of memory, and the ways to copy. What each way does is in the crate `whylate-copy`.

use crate::units::as_text;
use crate::words::words;
use std::fmt;
use std::str::FromStr;

words! {
    /// How accesses to a mapping use the caches.
    pub enum MemoryMode: "a memory type" {
        /// Write-back: loads and stores are cached.
        WriteBack = "wb" | "write-back",
        /// Write-through: loads are cached, stores go to memory.
        WriteThrough = "wt" | "write-through",
        /// Write-combining: nothing is cached, and stores are gathered into lines.
        WriteCombining = "wc" | "write-combining",
        /// Weakly uncached: nothing is cached; the memory type ranges of the CPU may make it write-combining.
        UncachedMinus = "uc-",
        /// Uncached.
        Uncached = "uc" | "uncached",
    }
}

impl MemoryMode {
    /// Whether timing tells the two apart: strong and weak uncached memory have the same speed.
    pub fn is_timed_as(self, other: Self) -> bool {
        let timed = |mode| if mode == Self::UncachedMinus { Self::Uncached } else { mode };
        timed(self) == timed(other)
    }
}

words! {
    /// Ways to copy.
    #[derive(Default)]
    pub enum CopyMethod: "a copy method" {
        /// The C library's memcpy.
        #[default]
        Memcpy = "memcpy",
        /// The x86 string instruction.
        RepMovsb = "rep-movsb",
        /// 128-bit loads and stores.
        Sse2 = "sse2",
        /// 256-bit loads and stores.
        Avx2 = "avx2",
        /// 512-bit loads and stores.
        Avx512 = "avx512",
        /// 128-bit loads, non-temporal stores.
        Sse2Nt = "sse2-nt",
        /// 256-bit loads, non-temporal stores.
        Avx2Nt = "avx2-nt",
        /// 512-bit loads, non-temporal stores.
        Avx512Nt = "avx512-nt",
        /// Streaming loads through a bounce buffer, ordinary stores.
        Movntdqa = "movntdqa",
        /// Streaming loads through a bounce buffer, non-temporal stores.
        MovntdqaNt = "movntdqa-nt",
        /// Direct stores of 64 bytes.
        Movdir64b = "movdir64b",
        /// After the copy, clflush writes back and drops the destination's cache lines.
        Clflush = "clflush",
        /// After the copy, clflushopt writes back and drops the destination's cache lines.
        Clflushopt = "clflushopt",
        /// After the copy, clwb writes back the destination's cache lines.
        Clwb = "clwb",
        /// Before the copy, clflush drops the source's cache lines.
        ClflushFirst = "clflush-first",
        /// Before the copy, clflushopt drops the source's cache lines.
        ClflushoptFirst = "clflushopt-first",
        /// 128-bit NEON loads and stores.
        Neon = "neon",
        /// NEON loads, non-temporal pairs stored.
        Stnp = "stnp",
        /// Non-temporal pairs loaded and stored.
        LdnpStnp = "ldnp-stnp",
        /// After the copy, dc cvac writes back the destination's cache lines.
        DcCvac = "dc-cvac",
        /// Before the copy, dc civac drops the source's cache lines.
        DcCivac = "dc-civac",
    }
}

/// A video frame: its size in memory, and the frame rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Frame {
    /// Pixels in a line.
    pub width: u32,
    /// Number of lines.
    pub height: u32,
    /// Layout of the pixels.
    pub format: PixelFormat,
    /// Frames per second.
    pub frames_per_s: f64,
    /// Size in memory.
    pub bytes: u64,
}

words! {
    /// Layouts of pixels.
    pub enum PixelFormat: "a pixel format" {
        /// 8-bit luma, colour at a quarter of the resolution: 12 bits per pixel.
        Nv12 = "nv12",
        /// Like `nv12`, in three planes.
        I420 = "i420" | "yuv420",
        /// 10-bit luma in 16 bits, colour at a quarter of the resolution.
        P010 = "p010",
        /// Colour at half the resolution: 16 bits per pixel.
        Yuyv = "yuyv" | "yuy2",
        /// 16 bits per pixel.
        Rgb565 = "rgb565",
        /// 24 bits per pixel.
        Rgb24 = "rgb24",
        /// 32 bits per pixel.
        Rgba = "rgba" | "xrgb",
        /// Luma alone: 8 bits per pixel.
        Gray = "gray",
    }
}

impl PixelFormat {
    /// Bits that a pixel takes, on average.
    pub fn bits_per_pixel(self) -> u64 {
        match self {
            Self::Gray => 8,
            Self::Nv12 | Self::I420 => 12,
            Self::Yuyv | Self::Rgb565 => 16,
            Self::P010 | Self::Rgb24 => 24,
            Self::Rgba => 32,
        }
    }
}

impl FromStr for Frame {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is not a frame; write it as `1920x1080:nv12@60`");
        let (size, rest) = text.split_once(':').ok_or_else(wrong)?;
        let (format, rate) = rest.split_once('@').ok_or_else(wrong)?;
        let (width, height) = size.split_once('x').ok_or_else(wrong)?;
        let format: PixelFormat = format.parse()?;
        let side =
            |text: &str| text.parse().ok().filter(|side| (1..=65_536).contains(side)).ok_or_else(wrong);
        let (width, height): (u32, u32) = (side(width)?, side(height)?);
        let frames_per_s: f64 = rate.parse().map_err(|_| wrong())?;
        if !(0.1..=10_000.0).contains(&frames_per_s) {
            return Err(format!("{rate} frames per second is out of range; give 0.1 to 10000"));
        }
        let bytes = (u64::from(width) * u64::from(height) * format.bits_per_pixel()).div_ceil(8);
        Ok(Self { width, height, format, frames_per_s, bytes })
    }
}

impl fmt::Display for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}:{}@{}", self.width, self.height, self.format, self.frames_per_s)
    }
}

as_text!(Frame, "1920x1080:nv12@60", "A frame of video: WIDTHxHEIGHT:FORMAT@RATE");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_have_the_size_of_their_format() {
        let frame: Frame = "1920x1080:nv12@60".parse().unwrap();
        assert_eq!((frame.bytes, frame.frames_per_s), (3_110_400, 60.0));
        assert_eq!(frame.to_string(), "1920x1080:nv12@60");
        assert_eq!("640x480:xrgb@29.97".parse::<Frame>().unwrap().bytes, 1_228_800);
    }

    #[test]
    fn what_is_not_a_frame_is_refused() {
        for wrong in ["", "1920x1080", "1920x1080@60", "0x1:nv12@60", "1920x1080:nv12@0", "1x1:vhs@60"] {
            assert!(wrong.parse::<Frame>().is_err(), "{wrong}");
        }
        assert!("1920x1080:vhs@60".parse::<Frame>().unwrap_err().contains("nv12"));
    }

    #[test]
    fn strong_and_weak_uncached_memory_are_timed_alike() {
        assert!(MemoryMode::Uncached.is_timed_as(MemoryMode::UncachedMinus));
        assert!(!MemoryMode::WriteCombining.is_timed_as(MemoryMode::WriteBack));
    }
}
