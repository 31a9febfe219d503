//! CPU masks: hexadecimal words of 32 bits, the highest first, separated by commas (`ff,ffffffff`).

use whylate_core::cpus::CpuSet;
use whylate_core::units::CpuId;

/// The CPUs of a mask; `None` when it is none.
pub fn parse(text: &str) -> Option<CpuSet> {
    let mut cpus = Vec::new();
    for (word, digits) in text.trim().split(',').rev().enumerate() {
        let bits = u32::from_str_radix(digits, 16).ok()?;
        let first = u32::try_from(word).ok()?.checked_mul(32)?;
        cpus.extend((0..32).filter(|bit| bits >> bit & 1 == 1).map(|bit| CpuId(first + bit)));
    }
    Some(cpus.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_32_bits() {
        let list = |text: &str| parse(text).map(|cpus| cpus.to_string());
        assert_eq!(list("3\n").as_deref(), Some("0-1"));
        assert_eq!(list("1,80000001").as_deref(), Some("0,31-32"));
        assert_eq!(list("00000000").as_deref(), Some(""));
        assert_eq!((list(""), list("xyz"), list("100000000")), (None, None, None));
    }
}
