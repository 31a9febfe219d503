//! The programs need nothing that Linux 5.10 lacks. Its verifier rejects programs with an instruction or helper that it does
//! not know. The lab tests whether it accepts the rest (`rt-5.10`).

#![cfg(feature = "bpf")]

use aya_obj::Object;
use aya_obj::generated::bpf_insn;

const OBJECTS: [(&str, &[u8]); 2] = [
    ("whylate", include_bytes!("../objects/whylate.bpf.o")),
    ("dispatch", include_bytes!("../objects/dispatch.bpf.o")),
];

/// The last helper of Linux 5.10 (`bpf_redirect_peer`), and the last type of map (`BPF_MAP_TYPE_INODE_STORAGE`).
const HELPER_LAST: i32 = 155;
const MAP_TYPE_LAST: u32 = 28;
/// Helpers of later kernels that are called only where the kernel has them: `HELPER_EXISTS` in `bpf/kernel.h`.
const ASKED_FOR: [i32; 2] = [158, 175];
/// Only a trigger on a call loads these programs. It needs Linux 5.15, which has this helper.
const LATER: [(&str, i32); 2] = [("trigger_enters", 174), ("trigger_leaves", 174)];

/// Classes of instructions, and the other parts of their code.
const CLASS: u8 = 0x07;
const LDX: u8 = 0x01;
const STX: u8 = 0x03;
const JMP: u8 = 0x05;
const JMP32: u8 = 0x06;
const ALU: [u8; 2] = [0x04, 0x07];
const OPERATION: u8 = 0xf0;
const MODE: u8 = 0xe0;
const MODE_MEM: u8 = 0x60;
const MODE_ATOMIC: u8 = 0xc0;
const CALL: u8 = 0x80;
const JCOND: u8 = 0xe0;
const DIV: u8 = 0x30;
const MOD: u8 = 0x90;
const MOV: u8 = 0xb0;
const END: u8 = 0xd0;
/// The source register of a call: a helper, or a function of the same object.
const HELPER: u8 = 0;
const OWN: u8 = 1;

/// Why Linux 5.10 does not know an instruction.
fn newer(instruction: &bpf_insn) -> Option<&'static str> {
    let (code, imm, off) = (instruction.code, instruction.imm, instruction.off);
    match (code & CLASS, code & OPERATION) {
        // An addition that returns nothing is the only one before 5.12.
        (STX, _) if code & MODE == MODE_ATOMIC && imm != 0 => Some("an atomic instruction of 5.12"),
        (LDX, _) if code & MODE != MODE_MEM => Some("a load with sign of 6.6"),
        (JMP, CALL) if instruction.src_reg() == HELPER && ASKED_FOR.contains(&imm) => None,
        (JMP, CALL) if instruction.src_reg() == HELPER && imm > HELPER_LAST => Some("a helper"),
        (JMP, CALL) if ![HELPER, OWN].contains(&instruction.src_reg()) => Some("a function of the kernel"),
        (JMP | JMP32, JCOND) => Some("a jump of 6.9"),
        (JMP32, 0) => Some("a long jump of 6.6"),
        (class, DIV | MOD | MOV) if ALU.contains(&class) && off != 0 => Some("arithmetic with sign of 6.6"),
        (0x07, END) => Some("a swap of 6.6"),
        _ => None,
    }
}

#[test]
fn no_program_has_an_instruction_or_a_helper_that_linux_5_10_lacks() {
    let mut looked_at = 0;
    for (name, bytes) in OBJECTS {
        let object = Object::parse(bytes).unwrap();
        for function in object.functions.values() {
            for (place, instruction) in function.instructions.iter().enumerate() {
                let is_later = LATER.contains(&(function.name.as_str(), instruction.imm));
                let reason = newer(instruction).filter(|_| !is_later);
                assert_eq!(reason, None, "{name}: {} at {place}: {instruction:?}", function.name);
                looked_at += 1;
            }
        }
        for (map, made) in &object.maps {
            assert!(made.map_type() <= MAP_TYPE_LAST, "{name}: map {map}");
        }
    }
    assert!(looked_at > 5_000, "{looked_at} instructions are not all of the programs");
}

#[test]
fn what_linux_5_10_lacks_is_recognised() {
    let instruction = |code: u8, source: u8, off: i16, imm: i32| {
        let _bitfield_1 = bpf_insn::new_bitfield_1(0, source);
        newer(&bpf_insn { code, _bitfield_align_1: [], _bitfield_1, off, imm }).is_some()
    };
    // lock *(u64 *)(r1 + 8) += r2, and the same with BPF_FETCH, BPF_CMPXCHG.
    assert_eq!([0, 1, 0xf1].map(|imm| instruction(0xdb, 2, 8, imm)), [false, true, true]);
    // bpf_ktime_get_ns, bpf_task_storage_get, bpf_get_current_task_btf; a function of the kernel.
    assert_eq!([5, 156, 158].map(|helper| instruction(0x85, 0, 0, helper)), [false, true, false]);
    assert!(instruction(0x85, 2, 0, 1));
    // r1 = *(u8 *)(r2 + 0) and *(s8 *); r1 /= r2 and s/=.
    assert_eq!(
        [(0x71, 0), (0x91, 0), (0x3f, 0), (0x3f, 1)].map(|(code, off)| instruction(code, 2, off, 0)),
        [false, true, false, true]
    );
}
