//! Whether QEMU keeps a CPU of a guest at one instruction for ever.
//!
//! With a thread for each CPU, QEMU sometimes loses what one CPU writes into the code that another one is about to
//! run: a tracepoint, a static key, the entry of a traced function. That CPU then comes back to the same instruction
//! again and again, interrupts aside. It is recognised by registers that do not change. Most loops of the kernel
//! change some. A loop that does not either waits for another CPU to run a function, and that CPU never got the
//! interrupt or is itself at one instruction. A loop of a program is not at an address of the kernel.

use std::time::Duration;

/// How often registers are read, and how many readings have to be the same.
const LOOKS: usize = 8;
const SAME_MIN: usize = 6;
/// Time between two looks.
const PAUSE: Duration = Duration::from_millis(150);
/// The start of the kernel's addresses.
const KERNEL_MIN: u64 = 0xffff_8000_0000_0000;

/// Registers of one CPU, and where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Registers {
    cpu: u32,
    text: String,
    instruction: u64,
    is_halted: bool,
}

/// Reads the registers of all CPUs, as `info registers -a` of the monitor prints them, and says which CPU is stuck and
/// at which address.
pub(crate) fn stuck_cpu<E>(mut look: impl FnMut() -> Result<String, E>) -> Result<Option<(u32, u64)>, E> {
    let mut looks = Vec::new();
    for _ in 0..LOOKS {
        looks.push(read(&look()?));
        std::thread::sleep(PAUSE);
    }
    Ok(judge(&looks))
}

fn judge(looks: &[Vec<Registers>]) -> Option<(u32, u64)> {
    let all = || looks.iter().flatten();
    let is_stuck = |one: &&Registers| {
        let same = all().filter(|other| other == one).count();
        !one.is_halted && one.instruction >= KERNEL_MIN && same >= SAME_MIN
    };
    all().find(is_stuck).map(|one| (one.cpu, one.instruction))
}

fn read(answer: &str) -> Vec<Registers> {
    answer
        .split("CPU#")
        .skip(1)
        .filter_map(|part| {
            let (cpu, rest) = part.split_once(['\r', '\n'])?;
            // The general registers, the address and the flags; what follows are segments and the like.
            let (text, rest) = rest.split_once(" HLT=")?;
            let instruction = text.split_once("RIP=")?.1.get(..16)?;
            Some(Registers {
                cpu: cpu.trim().parse().ok()?,
                text: text.to_owned(),
                instruction: u64::from_str_radix(instruction, 16).ok()?,
                is_halted: !rest.starts_with('0'),
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(counter: u64, address: u64, halted: u32) -> String {
        format!(
            "info registers -a\r\n\r\nCPU#0\r\nRAX=0000000000000001 RBX={counter:016x}\r\nRIP=ffffffff81000000 RFL=00000246 \
             [---Z-P-] CPL=0 II=0 A20=1 SMM=0 HLT=1\r\nES =0000\r\n\r\nCPU#1\r\nRAX=0000000000000002 RBX={counter:016x}\r\n\
             RIP={address:016x} RFL=00000046 [---Z-P-] CPL=0 II=0 A20=1 SMM=0 HLT={halted}\r\nES =0000\r\n(qemu) "
        )
    }

    fn judged(answers: impl IntoIterator<Item = String>) -> Option<(u32, u64)> {
        judge(&answers.into_iter().map(|answer| read(&answer)).collect::<Vec<_>>())
    }

    #[test]
    fn a_cpu_is_stuck_whose_registers_stay_in_the_kernel() {
        const KERNEL: u64 = 0xffff_ffff_8123_4560;
        assert_eq!(judged((0..8).map(|_| answer(7, KERNEL, 0))), Some((1, KERNEL)));
        // Interrupts come in between.
        assert_eq!(
            judged((0..8).map(|look| answer(if look < 2 { look } else { 7 }, KERNEL, 0))),
            Some((1, KERNEL))
        );
        // A loop that counts, a halted CPU, and a loop of a program.
        assert_eq!(judged((0..8).map(|look| answer(look, KERNEL, 0))), None);
        assert_eq!(judged((0..8).map(|_| answer(7, KERNEL, 1))), None);
        assert_eq!(judged((0..8).map(|_| answer(7, 0x5555_0000, 0))), None);
        assert_eq!(judged((0..8).map(|_| "(qemu) ".to_owned())), None);
    }
}
