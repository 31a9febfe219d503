//! Sizes, absolute or relative to the caches of the CPU that uses them.

use crate::facts::CpuFacts;
use crate::units::{Bytes, CpuId, UnitError, as_text};
use std::fmt;
use std::str::FromStr;

/// A size such as `3MiB`, `l2`, `l3/2` or `llc*4`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    Absolute(Bytes),
    /// Relative to a cache.
    Cache {
        /// Which one; `None` is the last-level cache, whatever its level.
        level: Option<u32>,
        /// Times this (at least 1),
        times: u32,
        /// divided by this (at least 1).
        over: u32,
    },
}

/// The assumed size of the last-level cache if the kernel reports no cache at all, as on boards whose device tree
/// names none. A run on such a machine says so (`no-cache-sizes`). Processors of x86 always report it; if a virtual
/// machine hides it, the cache may have any size.
pub const ASSUMED_LAST_LEVEL: Option<Bytes> =
    if cfg!(any(target_arch = "x86_64", target_arch = "x86")) { None } else { Some(Bytes(2 << 20)) };

/// A size that this CPU cannot resolve.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SizeError {
    /// The kernel reports no such cache for the CPU.
    #[error(
        "CPU {cpu} reports no {cache} cache, so `{size}` has no meaning on this CPU; give a size in bytes, for example `8MiB`"
    )]
    NoCache {
        cpu: CpuId,
        /// The cache: `L3`, `last-level`.
        cache: String,
        size: Size,
    },
    /// The size is so small that not one cache line fits.
    #[error("`{size}` is {bytes} on CPU {cpu}, less than one cache line of 64 bytes")]
    TooSmall { cpu: CpuId, size: Size, bytes: Bytes },
}

impl Size {
    /// The size in bytes on that CPU.
    ///
    /// # Errors
    /// [`SizeError`] when the CPU has no such cache, or the size is below one cache line.
    pub fn resolve(&self, facts: &CpuFacts) -> Result<Bytes, SizeError> {
        let bytes = match *self {
            Self::Absolute(bytes) => bytes,
            Self::Cache { level, times, over } => {
                let cache = match level {
                    Some(level) => facts.cache_bytes(level),
                    None => {
                        let last = facts.caches.iter().max_by_key(|cache| cache.level);
                        last.map(|cache| cache.size_bytes).or(ASSUMED_LAST_LEVEL.map(|size| size.0))
                    }
                };
                let Some(cache) = cache else {
                    let cache = level.map_or("last-level".to_owned(), |level| format!("L{level}"));
                    return Err(SizeError::NoCache { cpu: facts.cpu, cache, size: *self });
                };
                Bytes(cache.saturating_mul(u64::from(times)) / u64::from(over))
            }
        };
        if bytes.0 < 64 {
            return Err(SizeError::TooSmall { cpu: facts.cpu, size: *self, bytes });
        }
        Ok(bytes)
    }
}

impl FromStr for Size {
    type Err = UnitError;
    fn from_str(text: &str) -> Result<Self, UnitError> {
        let trimmed = text.trim().to_ascii_lowercase();
        let Some(rest) = trimmed.strip_prefix('l') else {
            return text.parse().map(Self::Absolute);
        };
        let wrong =
            || UnitError::NotANumber { text: text.to_owned(), what: "a size", example: "3MiB` or `l3/2" };
        let split = rest.find(['*', '/']).unwrap_or(rest.len());
        let (name, factor) = rest.split_at(split);
        let level = match name.trim() {
            "lc" => None,
            digit => match digit.parse() {
                Ok(level @ 1..=4) => Some(level),
                _ => return Err(wrong()),
            },
        };
        let number = |digits: &str| match digits.trim().parse::<u32>() {
            Ok(number) if number > 0 => Ok(number),
            _ => Err(wrong()),
        };
        let (times, over) = match factor.split_at_checked(1) {
            None => (1, 1),
            Some(("*", digits)) => (number(digits)?, 1),
            Some((_, digits)) => (1, number(digits)?),
        };
        Ok(Self::Cache { level, times, over })
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (level, times, over) = match self {
            Self::Absolute(bytes) => return bytes.fmt(f),
            Self::Cache { level, times, over } => (level, times, over),
        };
        match level {
            Some(level) => write!(f, "l{level}")?,
            None => write!(f, "llc")?,
        }
        match (times, over) {
            (1, 1) => Ok(()),
            (times, 1) => write!(f, "*{times}"),
            (_, over) => write!(f, "/{over}"),
        }
    }
}

as_text!(
    Size,
    "l3/2",
    "A size with its unit (3MiB), or relative to a cache of the CPU that uses it: l2/2, l3*4, llc (the last-level cache)"
);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::CacheFacts;
    use whylate_testing::says;

    fn cpu(sizes: &[(u32, u64)]) -> CpuFacts {
        let cache = |&(level, size_bytes)| CacheFacts { level, size_bytes, ..CacheFacts::default() };
        CpuFacts { cpu: CpuId(3), caches: sizes.iter().map(cache).collect(), ..CpuFacts::default() }
    }

    fn resolve(text: &str, facts: &CpuFacts) -> Result<Bytes, SizeError> {
        text.parse::<Size>().unwrap().resolve(facts)
    }

    #[test]
    fn sizes_follow_the_caches_of_each_cpu() {
        let performance = cpu(&[(1, 48 << 10), (2, 2 << 20), (3, 24 << 20)]);
        let board = cpu(&[(1, 32 << 10), (2, 512 << 10)]);
        assert_eq!(resolve("l3/2", &performance), Ok(Bytes(12 << 20)));
        assert_eq!(resolve("l3*4", &performance), Ok(Bytes(96 << 20)));
        assert_eq!(resolve("l2", &performance), Ok(Bytes(2 << 20)));
        assert_eq!(resolve("llc/2", &board), Ok(Bytes(256 << 10)));
        assert_eq!(resolve("3MiB", &board), Ok(Bytes(3 << 20)));
    }

    #[test]
    fn a_missing_cache_says_what_to_give_instead() {
        let error = resolve("l3/2", &cpu(&[(2, 512 << 10)])).unwrap_err().to_string();
        assert!(says("cpu-reports-no-l3", &error), "{error}");
        assert!(resolve("l2", &cpu(&[])).is_err());
        assert!(resolve("l2/100000", &cpu(&[(2, 512 << 10)])).is_err());
    }

    #[test]
    fn without_any_cache_the_last_level_is_assumed_where_it_may_be() {
        let assumed = ASSUMED_LAST_LEVEL.map(|size| Bytes(2 * size.0));
        assert_eq!(resolve("llc*2", &cpu(&[])).ok(), assumed);
        assert_eq!(resolve("llc", &cpu(&[(1, 32 << 10)])), Ok(Bytes(32 << 10)));
    }

    #[test]
    fn texts_read_back_and_wrong_ones_are_refused() {
        for text in ["l3/2", "l3*4", "l2", "llc", "llc*4", "3MiB"] {
            assert_eq!(text.parse::<Size>().unwrap().to_string(), text);
        }
        for text in ["l5", "l3/0", "l3*", "l3+1", "large", "3", ""] {
            assert!(text.parse::<Size>().is_err(), "{text}");
        }
    }
}
