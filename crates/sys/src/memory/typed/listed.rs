//! The kernel's own list of memory types: physical ranges other than RAM, each with the type of its mappings (x86;
//! `x86/pat_memtype_list` in debugfs).

use std::fs;
use whylate_core::MemoryMode;

const LIST: &str = "/sys/kernel/debug/x86/pat_memtype_list";

/// The list now; empty if it cannot be read.
pub(super) fn list() -> String {
    fs::read_to_string(LIST).unwrap_or_default()
}

/// The type of a mapping of `bytes` bytes that was made between two lists; `None` unless exactly one range of that
/// length was added.
pub(super) fn added(before: &str, after: &str, bytes: usize) -> Option<MemoryMode> {
    let pages = |bytes: u64| bytes.div_ceil(4096);
    let old: Vec<_> = before.lines().filter_map(range).collect();
    let is_new = |range: &(u64, u64, &str)| {
        !old.contains(range) && pages(range.1.saturating_sub(range.0)) == pages(bytes as u64)
    };
    let mut came = after.lines().filter_map(range).filter(is_new);
    let (_, _, name) = came.next().filter(|_| came.next().is_none())?;
    match name {
        "write-back" => Some(MemoryMode::WriteBack),
        "write-through" => Some(MemoryMode::WriteThrough),
        "write-combining" => Some(MemoryMode::WriteCombining),
        "uncached-minus" => Some(MemoryMode::UncachedMinus),
        "uncached" => Some(MemoryMode::Uncached),
        _ => None,
    }
}

/// `PAT: [mem 0x00000000fe000000-0x00000000fe001000] uncached-minus`; the end is exclusive.
fn range(line: &str) -> Option<(u64, u64, &str)> {
    let (range, name) = line.split_once("[mem ")?.1.split_once("] ")?;
    let (from, to) = range.split_once('-')?;
    let number = |text: &str| u64::from_str_radix(text.trim_start_matches("0x"), 16).ok();
    Some((number(from)?, number(to)?, name.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: &str =
        "PAT memtype list:\nPAT: [mem 0x00000000fd000000-0x00000000fd001000] uncached-minus\n";

    #[test]
    fn the_one_range_that_came_with_a_mapping_says_its_type() {
        let with = |lines: &str| format!("{BEFORE}{lines}");
        let one = "PAT: [mem 0x0000004000000000-0x0000004000300000] write-combining\n";
        assert_eq!(added(BEFORE, &with(one), 0x30_0000), Some(MemoryMode::WriteCombining));
        assert_eq!(added(BEFORE, &with(one), 0x2f_f001), Some(MemoryMode::WriteCombining), "whole pages");
        assert_eq!(added(BEFORE, &with(one), 0x20_0000), None, "of another length");
        let two = format!("{one}PAT: [mem 0x0000005000000000-0x0000005000300000] uncached\n");
        assert_eq!(added(BEFORE, &with(&two), 0x30_0000), None, "either may be it");
        assert_eq!(added(&with(one), &with(one), 0x30_0000), None, "it was there before");
        assert_eq!(added("", "", 4096), None);
    }
}
