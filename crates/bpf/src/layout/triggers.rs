//! The rules of triggers: the counterpart of the end of `bpf/layout.h`.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The most triggers that programs wait for.
pub(crate) const TRIGGERS: u32 = 16;
/// The place of the sound driver's xrun.
pub(crate) const TRIGGER_XRUN: u32 = 15;

/// What a rule compares.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Operand {
    #[default]
    None,
    /// A register of those that the kernel saved.
    Register,
    /// What is at the address in that register, plus a displacement.
    Memory,
    Constant,
    /// How long the call took.
    Took,
}

/// When a trigger comes, and how often it did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct RawTriggerRule {
    pub(crate) count: u64,
    pub(crate) noted_ns: u64,
    /// What is compared; for an end of a chain, the programs count in it.
    pub(crate) value: i64,
    pub(crate) displacement: i64,
    /// [`Operand`].
    pub(crate) operand: u32,
    /// The number of a [`whylate_core::plan::Comparison`].
    pub(crate) comparison: u32,
    /// The place of the register among those that the kernel saved.
    pub(crate) offset: u32,
    /// Bytes of the value; 0: not known.
    pub(crate) width: u16,
    pub(crate) is_signed: u8,
    /// It is an end of a chain: each pass has a record, up to a number in each 10 ms.
    pub(crate) is_pass: u8,
}

const _: () = assert!(size_of::<RawTriggerRule>() == 48);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::tests::{constant, names};
    use whylate_core::plan::Comparison;

    #[test]
    fn both_sides_have_the_same_words_for_triggers() {
        assert_eq!(
            (constant("TRIGGERS"), constant("TRIGGER_XRUN")),
            (TRIGGERS as usize, TRIGGER_XRUN as usize)
        );
        let words = |all: &[&str]| all.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
        let operands = ["OperandNone", "OperandRegister", "OperandMemory", "OperandConstant", "OperandTook"];
        assert_eq!((names("operand"), Operand::Took as usize), (words(&operands), operands.len() - 1));
        let comparisons = ["Above", "AtLeast", "Below", "AtMost", "Equal", "Different"];
        let expected: Vec<String> = comparisons.iter().map(|it| format!("Comparison{it}")).collect();
        assert_eq!((names("comparison"), Comparison::Different as usize), (expected, comparisons.len() - 1));
    }
}
