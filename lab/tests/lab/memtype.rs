//! Memory of a chosen type: the module's pages, what the page table says of them and of a driver's, and what is left
//! when their owner is killed. A guest without KVM models no memory types: by timing, all memory is write-back there.

use whylate_lab::suite::{self, LabTest};
use whylate_lab::{Device, Guest, Kernel, LabError, Machine, Profile};

/// Loads the module, and makes it possible to ask how many pages it holds.
const LOAD: &str = "[ -e /dev/whylate_memtype ] || insmod /lab/whylate_memtype.ko || exit 1\n\
                    pages=/sys/module/whylate_memtype/parameters/pages\n";

/// Maps pages of a type, writes, asks for the types of both mappings, and then waits, ends, or drops them.
const HOLDER: &str = r#"cat >/tmp/hold <<'END'
import ctypes, fcntl, mmap, os, random, struct, sys, time
MODES = ["wb", "wt", "wc", "uc-", "uc"]
def hold(mode, count):
    file = os.open("/dev/whylate_memtype", os.O_RDWR)
    fcntl.ioctl(file, 0x40105760, struct.pack("QII", count * 4096, mode, 0))
    memory = mmap.mmap(file, count * 4096, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
    memory[0] = 7
    memory[count * 4096 - 1] = 8
    return file, memory
def types(file, memory, at=0):
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory)) + at
    answer = bytearray(struct.pack("QII", address, 0, 0))
    fcntl.ioctl(file, 0xc0105761, answer)
    name = lambda number: MODES[number] if number < 5 else "none"
    return " ".join(name(number) for number in struct.unpack("QII", answer)[1:])
def frames(memory):
    begin = ctypes.addressof(ctypes.c_char.from_buffer(memory)) // 4096
    with open("/proc/self/pagemap", "rb") as file:
        file.seek(begin * 8)
        words = file.read(len(memory) // 4096 * 8)
    return {word & (1 << 55) - 1 for word, in struct.iter_unpack("Q", words)}
END
"#;

pub(crate) fn tests() -> Vec<LabTest> {
    let mut tests = Vec::new();
    for kernel in suite::kernels_unless_brief(&[Kernel::RealTime, Kernel::Plain, Kernel::RealTimeNew]) {
        let machine = Machine::new(Profile::Threads, kernel);
        tests.push(LabTest::new("memtype_pages_are_mapped_as_asked", machine.clone(), mapped));
        tests.push(LabTest::new("memtype_pages_are_gone_after_a_kill", machine.clone(), killed));
        tests.push(LabTest::new(
            "memtype_vgem_is_write_combining_until_a_kill",
            machine.clone(),
            dumb_killed,
        ));
        tests.push(LabTest::new("memtype_a_thousand_buffers_leave_nothing", machine, many));
    }
    let machine = Machine::new(Profile::Threads, Kernel::RealTime);
    tests.push(LabTest::new("memtype_what_makes_no_sense_is_refused", machine.clone(), refused));
    tests.push(LabTest::new("memtype_a_false_type_is_caught", machine.clone(), caught));
    let with_displays = machine.with(&[Device::BochsDisplay, Device::SharedMemoryBar]);
    tests.push(LabTest::new("memtype_drivers_map_as_they_like", with_displays, drivers));
    tests
}

fn mapped(guest: &mut Guest) -> Result<(), LabError> {
    // The direct mapping has no write-through for RAM: those pages leave the caches there.
    for (mode, expected) in ["wb wb", "wt uc-", "wc wc", "uc- uc-", "uc uc-"].into_iter().enumerate() {
        let script = format!(
            "{LOAD}{HOLDER}cat >>/tmp/hold <<'END'\nfile, memory = hold({mode}, 16)\nprint(types(file, memory), \
             open(\"/sys/module/whylate_memtype/parameters/pages\").read(), flush=True)\nos._exit(0)\nEND\npython3 /tmp/hold\ncat $pages"
        );
        let words = guest.ok(&script)?;
        let words: Vec<&str> = words.split_whitespace().collect();
        assert_eq!(words.join(" "), format!("{expected} 16 0"));
    }
    Ok(())
}

/// Afterwards pages are taken until some of those that were held come again: the kernel's own mapping of each must be
/// write-back.
const LOOKER: &str = r#"cat >/tmp/look <<'END'
exec(open("/tmp/hold-functions").read())
held = set(map(int, open("/tmp/said").read().split()[1:]))
seen, found, kept = set(), set(), []
for turn in range(300):
    file, memory = hold(0, 64)
    kept.append((file, memory))
    for at in range(0, len(memory), 4096):
        memory[at] = 1
        found.add(types(file, memory, at))
    seen |= frames(memory)
    if len(seen & held) > len(held) // 2:
        break
print("again" if seen & held else "other", *sorted(found), flush=True)
os._exit(0)
END
cp /tmp/hold /tmp/hold-functions
"#;

/// What holds `buffers`, says which frames they have, and waits to be killed; on one CPU, whose lists of free pages the frames go
/// to and come from.
const WAIT_FOR_A_KILL: &str = r#"
for file, memory in buffers:
    for at in range(0, len(memory), 4096):
        memory[at] = 1
print("held", *set().union(*(frames(memory) for file, memory in buffers)), flush=True)
time.sleep(600)
END
taskset -c 0 python3 /tmp/hold >/tmp/said & holder=$!
for attempt in $(seq 600); do ! grep -q held /tmp/said || break; kill -0 $holder || exit 1; sleep 0.2; done
cat $pages
kill -9 $holder
wait $holder || true
cat $pages
taskset -c 0 python3 /tmp/look || exit 1
"#;

fn killed(guest: &mut Guest) -> Result<(), LabError> {
    let script = format!(
        "{LOAD}{HOLDER}{LOOKER}cat >>/tmp/hold <<'END'\nbuffers = [hold(mode, 64) for mode in range(5)]\n\
         {WAIT_FOR_A_KILL}rmmod whylate_memtype && echo gone"
    );
    let words = guest.ok(&script)?;
    assert_eq!(words.split_whitespace().collect::<Vec<_>>(), ["320", "0", "again", "wb", "wb", "gone"]);
    Ok(())
}

/// Makes dumb buffers of the card of vgem; the module only tells the types of the mappings.
const DUMB_BUFFERS: &str = r#"cat >>/tmp/hold <<'END'
cards = [name for name in os.listdir("/sys/class/drm") if name.startswith("card")]
card = next(name for name in cards if "/vgem/" in os.path.realpath("/sys/class/drm/" + name))
card = os.open("/dev/dri/" + card, os.O_RDWR)
def dumb():
    request = bytearray(struct.pack("IIIIIIQ", 64, 1024, 32, 0, 0, 0, 0))
    fcntl.ioctl(card, 0xc02064b2, request)
    handle, pitch, size = struct.unpack("IIIIIIQ", request)[4:7]
    request = bytearray(struct.pack("IIQ", handle, 0, 0))
    fcntl.ioctl(card, 0xc01064b3, request)
    at = struct.unpack("IIQ", request)[2]
    return mmap.mmap(card, size, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE, offset=at)
file = os.open("/dev/whylate_memtype", os.O_RDWR)
buffers = [(file, dumb()) for count in range(5)]
for file, memory in buffers:
    memory[0] = 1
print("types", *{types(file, memory) for file, memory in buffers}, file=open("/tmp/types", "w"), flush=True)
"#;

/// Takes three quarters of what is free, pages that were just freed first: the kernel's own mapping of each must be
/// write-back. (Which frames a driver's mapping had, /proc/self/pagemap does not tell.)
const LOOK_AT_FREE_MEMORY: &str = r#"cat >/tmp/look <<'END'
exec(open("/tmp/hold-functions").read())
free = next(int(line.split()[1]) for line in open("/proc/meminfo") if line.startswith("MemFree"))
file = os.open("/dev/whylate_memtype", os.O_RDWR)
memory = mmap.mmap(-1, free * 3 // 16 * 4096, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE)
for at in range(0, len(memory), 4096):
    memory[at] = 1
print(*sorted({types(file, memory, at) for at in range(0, len(memory), 4096)}), flush=True)
os._exit(0)
END
cp /tmp/hold /tmp/hold-functions
"#;

fn dumb_killed(guest: &mut Guest) -> Result<(), LabError> {
    let script = format!(
        "{LOAD}modprobe vgem\n{HOLDER}{LOOK_AT_FREE_MEMORY}{DUMB_BUFFERS}{WAIT_FOR_A_KILL}cat /tmp/types\nrmmod vgem && echo gone"
    );
    let words = guest.ok(&script)?;
    // None of the pages are the module's. By vgem the kernel's own mapping of them changes too, and changes back; that of
    // Linux 5.10 changes only the mapping of the process.
    let kernels_own = if guest.kernel_version().starts_with("5.10.") { "wb" } else { "wc" };
    assert_eq!(
        words.split_whitespace().collect::<Vec<_>>(),
        ["0", "0", "wb", "wb", "types", "wc", kernels_own, "gone"]
    );
    Ok(())
}

fn many(guest: &mut Guest) -> Result<(), LabError> {
    // Fifty children with twenty buffers each; every second one is killed at a moment of its own.
    let script = format!(
        "{LOAD}{HOLDER}cat >>/tmp/hold <<'END'\nrandom.seed(18)\ncount = 0\nfor child in range(50):\n    pid = os.fork()\n    \
         if pid == 0:\n        random.seed(child)\n        kept = []\n        for turn in range(20):\n            \
         kept.append(hold(random.randrange(5), random.randrange(1, 40)))\n            if random.random() < 0.5:\n                \
         file, memory = kept.pop(random.randrange(len(kept)))\n                random.choice([memory.close, lambda: os.close(file)])()\n        \
         os._exit(0)\n    if child % 2:\n        time.sleep(random.random() / 4)\n        os.kill(pid, 9)\n    os.waitpid(pid, 0)\n\
         END\npython3 /tmp/hold && cat $pages && rmmod whylate_memtype && echo gone"
    );
    let words = guest.ok(&script)?;
    assert_eq!(words.split_whitespace().collect::<Vec<_>>(), ["0", "gone"]);
    Ok(())
}

fn refused(guest: &mut Guest) -> Result<(), LabError> {
    let script = format!(
        "{LOAD}{HOLDER}cat >>/tmp/hold <<'END'\ndef refuses(act):\n    try:\n        act()\n        print(\"taken\")\n    \
         except OSError as error:\n        print(error.errno)\n\
         file = os.open(\"/dev/whylate_memtype\", os.O_RDWR)\nallocate = lambda *words: fcntl.ioctl(file, 0x40105760, \
         struct.pack(\"QII\", *words))\nrefuses(lambda: allocate(0, 0, 0))\nrefuses(lambda: allocate(100, 0, 0))\n\
         refuses(lambda: allocate(4096, 5, 0))\nrefuses(lambda: allocate(1 << 40, 2, 0))\nallocate(4096, 2, 0)\n\
         refuses(lambda: allocate(4096, 2, 0))\nrefuses(lambda: mmap.mmap(file, 4096, mmap.MAP_PRIVATE))\n\
         refuses(lambda: mmap.mmap(file, 8192, mmap.MAP_SHARED))\nos.setuid(65534)\n\
         refuses(lambda: os.open(\"/dev/whylate_memtype\", os.O_RDWR))\nEND\npython3 /tmp/hold"
    );
    // EINVAL, EINVAL, EINVAL, ENOSPC; EBUSY; EINVAL twice; EACCES.
    let words = guest.ok(&script)?;
    assert_eq!(
        words.split_whitespace().collect::<Vec<_>>(),
        ["22", "22", "22", "28", "16", "22", "22", "13"]
    );
    Ok(())
}

fn caught(guest: &mut Guest) -> Result<(), LabError> {
    let script = format!(
        "{LOAD}whylate copy --from wc --backend memtype --method memcpy --block 4KiB --trials 3 --json"
    );
    let text = guest.ok(&script)?;
    let result: serde_json::Value = serde_json::from_str(&text).unwrap();
    let row = &result["rows"][0];
    assert_eq!(
        (&row["requested"], &row["mapped"], &row["effective"]),
        (&"wc".into(), &"wc".into(), &"wb".into()),
        "{row}"
    );
    let codes: Vec<&str> =
        result["warnings"].as_array().into_iter().flatten().filter_map(|it| it["code"].as_str()).collect();
    assert!(codes.contains(&"memory-mode-not-effective"), "{codes:?}");
    // The rate is one of write-back memory, and a person reads so.
    let shown =
        guest.ok("whylate copy --from wc --backend memtype --method memcpy --block 4KiB --trials 3")?;
    assert!(shown.contains("wb (requested: wc)"), "{shown}");
    Ok(())
}

fn drivers(guest: &mut Guest) -> Result<(), LabError> {
    let script = format!(
        "{LOAD}modprobe vgem; modprobe bochs\nfor d in /sys/bus/pci/devices/*; do [ $(cat $d/device) != 0x1110 ] || echo 1 >$d/enable; done\n\
         whylate copy --from wc --method memcpy --block 4KiB --trials 3 --json"
    );
    let text = guest.ok(&script)?;
    let result: serde_json::Value = serde_json::from_str(&text).unwrap();
    let mapped = |backend: &str| -> Vec<String> {
        let rows = result["rows"].as_array().into_iter().flatten();
        let of = rows.filter(|row| row["backend"] == backend);
        of.map(|row| row["mapped"].as_str().unwrap_or("unknown").to_owned()).collect()
    };
    // vgem changes the attributes of its pages; bochs maps its memory write-back whatever is hoped for.
    let mut dumb = mapped("dumb");
    dumb.sort();
    assert_eq!(dumb, ["wb", "wc"], "{text}");
    assert_eq!(mapped("pci"), ["wc"], "{text}");
    assert_eq!(mapped("memtype"), ["wc"], "{text}");
    Ok(())
}
