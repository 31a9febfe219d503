//! CPU masks: hexadecimal words of 32 bits, the highest first, separated by commas (`ff,ffffffff`).

use crate::cpus::CpuSet;
use crate::units::CpuId;

impl CpuSet {
    /// The CPUs of a mask; `None` when the text is not one.
    pub fn from_mask(text: &str) -> Option<Self> {
        let mut cpus = Vec::new();
        for (word, digits) in text.trim().split(',').rev().enumerate() {
            let bits = u32::from_str_radix(digits.trim_start_matches("0x"), 16).ok()?;
            let first = u32::try_from(word).ok()?.checked_mul(32)?;
            cpus.extend((0..32).filter(|bit| bits >> bit & 1 == 1).map(|bit| CpuId(first + bit)));
        }
        Some(cpus.into_iter().collect())
    }

    /// The CPUs as a mask in the kernel's form.
    pub fn mask(&self) -> String {
        let words = self.last().map_or(1, |last| last.0 / 32 + 1);
        let bits = |word: u32| self.iter().filter(move |cpu| cpu.0 / 32 == word);
        let word = |word| bits(word).fold(0u32, |all, cpu| all | 1 << (cpu.0 % 32));
        let words: Vec<String> = (0..words).rev().map(|index| format!("{:08x}", word(index))).collect();
        words.join(",")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_32_bits() {
        let list = |text: &str| CpuSet::from_mask(text).map(|cpus| cpus.to_string());
        assert_eq!(list("3\n").as_deref(), Some("0-1"));
        assert_eq!(list("1,80000001").as_deref(), Some("0,31-32"));
        assert_eq!(list("00000000").as_deref(), Some(""));
        assert_eq!((list(""), list("xyz"), list("100000000")), (None, None, None));
        assert_eq!("0-2,33".parse::<CpuSet>().unwrap().mask(), "00000002,00000007");
    }
}
