//! `whylate fix` finds the cure of what is planted, proves it, recommends nothing else, and restores the machine. One
//! cure needs a boot, which this program simulates.

use serde_json::Value;
use std::time::Duration;
use whylate_lab::suite::{self, LabTest};
use whylate_lab::{Device, Guest, Kernel, LOAD_PLANT, LabError, Machine, Profile};

/// A search of the two emulated CPUs; on a busy host counted time is several times as long as the host's.
const SEARCH: Duration = Duration::from_secs(2_400);
/// One boot of a campaign: its repeat, and what comes before and after it.
const BOOT: Duration = Duration::from_secs(240);
/// A campaign that is not over after this number of boots has not seen what is planted.
const BOOTS_MAX: u32 = 60;

/// The seed of a search, and more words for `whylate fix` (`--ignore-causes`), unless the variables say it.
const SEED_VARIABLE: &str = "WHYLATE_FIX_SEED";
const WORDS_VARIABLE: &str = "WHYLATE_FIX_WORDS";
/// A folder that gets the values of twelve treatments instead of a search (for benches/fix_ablation.py), and how many of each.
const ARMS_VARIABLE: &str = "WHYLATE_FIX_ARMS";
const ARM_REPEATS: u32 = 15;
const ARMS: Duration = Duration::from_secs(3_600);

/// What disturbs the task is planted on its CPU. What else a treatment does, to the median too, is not noise in
/// counted time: only what is larger than the margin counts.
fn plan(cpu: u32, probe: &str) -> String {
    format!(
        "name = \"planted\"\nduration = \"2s\"\nsettle = \"100ms\"\nwarmup = \"20ms\"\nnoise_floor = \"0s\"\nmargin = \"25%\"\n\
         [target]\ncpus = \"{cpu}\"\n[[probe]]\n{probe}"
    )
}

const MEASURE_ARMS: &str = include_str!("../../../benches/fix_arms_guest.py");

/// What is planted, and what cures it.
struct Trouble {
    name: &'static str,
    /// The CPU of the task.
    cpu: u32,
    /// What the machine has in addition to the usual.
    devices: &'static [Device],
    /// The probe of the plan.
    probe: &'static str,
    goal: &'static str,
    /// What may be tried.
    treatments: &'static str,
    /// Begins what is planted in the background; `$planter` are its processes, `undo` restores the rest.
    plant: &'static str,
    /// Each of these alone cures it; a name that ends in `-` stands for all that begin like this.
    cures: &'static [&'static str],
    /// What is checked once the search is over, while what is planted is still there; fails if it is not as before.
    after: &'static str,
    /// A text of the file that installs the cure.
    installs: Option<&'static str>,
}

/// What most of them have: a task on CPU 1, every treatment that is proposed.
const USUAL: Trouble = Trouble {
    name: "",
    cpu: 1,
    devices: &[],
    probe: TIMER,
    goal: GOAL,
    treatments: "all",
    plant: "",
    cures: &[],
    after: ":",
    installs: None,
};

/// The planted 60 ms are above it. Once that is reached the search stops, which saves half of the repeats.
const GOAL: &str = "timer p99 < 30ms";

const TIMER: &str = "kind = \"timer\"\ninterval = \"20ms\"\n";

/// A program above the task, which has the CPU for 60 of 260 ms.
const THREAD: Trouble = Trouble {
    name: "fix_moves_a_thread_of_a_higher_priority",
    plant: "ln -sf $(command -v python3) /tmp/planter\n\
            taskset -c 1 chrt -f 98 /tmp/planter -c 'import time\nwhile True:\n    end = time.monotonic() + 0.06\n    while time.monotonic() < end: pass\n    time.sleep(0.2)' & planter=$!\n",
    cures: &["affinity-planter", "priority-planter"],
    ..USUAL
};

/// The interrupts of a timer with a line of its own, sent to the CPU of the task, of which some take long. On these kernels handlers
/// are threads. Counted time waits for no disk of the host; it does for this device.
const INTERRUPTS: Trouble = Trouble {
    name: "fix_moves_interrupts_that_take_long",
    // HPET_IRQFREQ and HPET_IE_ON of include/uapi/linux/hpet.h.
    plant: "python3 -c 'import fcntl, os\ntimer = os.open(\"/dev/hpet\", os.O_RDONLY)\n\
            fcntl.ioctl(timer, 0x40086806, 20)\nfcntl.ioctl(timer, 0x6801)\nwhile True: os.read(timer, 8)' & planter=$!\n\
            for try in $(seq 100); do\n\
            line=$(sed -n 's/^ *\\([0-9]*\\):.*hpet[0-9].*/\\1/p' /proc/interrupts | head -n 1)\n\
            [ -z \"$line\" ] || break; sleep 0.1; done\n\
            echo 1 >/proc/irq/$line/smp_affinity_list || { kill $planter; exit 7; }\n\
            sh -c 'while :; do echo \"irq-off-in 60ms in=irq_default_primary_handler cpu=1\" >/proc/plant; sleep 0.2; done' 2>/dev/null & planter=\"$planter $!\"\n",
    // A shield sends the interrupts of devices to the other CPUs, too.
    cures: &["irq-affinity-", "irq-affinity", "shield"],
    ..USUAL
};

/// A program whose threads use both CPUs and whose memory comes and goes: each flush interrupts the other CPU.
const FLUSHES: Trouble = Trouble {
    name: "fix_keeps_flushes_from_another_cpu_away",
    plant: "ln -sf $(command -v python3) /tmp/flusher\n\
            taskset -c 0-1 /tmp/flusher -c 'import mmap, os, threading, time\ndef spin():\n    os.sched_setaffinity(0, {1})\n    while True:\n        end = time.monotonic() + 0.005\n        while time.monotonic() < end: pass\n        time.sleep(0.015)\n\
            threading.Thread(target=spin, daemon=True).start()\nos.sched_setaffinity(0, {0})\nsize = 8 << 20\n\
            while True:\n    memory = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)\n    for at in range(0, size, 1 << 18): memory[at] = 1\n    memory.close()\n    time.sleep(0.05)' & planter=$!\n\
            sh -c 'while :; do echo \"irq-off-in 60ms in=flush_tlb_func cpu=1\" >/proc/plant; sleep 0.2; done' 2>/dev/null & planter=\"$planter $!\"\n",
    cures: &["shield", "affinity-flusher"],
    ..USUAL
};

/// Work that has no CPU of its own, which a mask sends to the CPU of the task: what is written to a terminal.
const WORK: Trouble = Trouble {
    name: "fix_sends_work_items_elsewhere",
    plant: "mask=$(cat /sys/devices/virtual/workqueue/cpumask)\n\
            undo() { echo $mask >/sys/devices/virtual/workqueue/cpumask; }\n\
            echo 2 >/sys/devices/virtual/workqueue/cpumask || exit 7\n\
            python3 -c 'import os, time\nreader, writer = os.openpty()\nwhile True:\n    os.write(writer, b\"x\")\n    os.read(reader, 1)\n    time.sleep(0.05)' & planter=$!\n\
            sh -c 'while :; do echo \"irq-off-in 60ms in=flush_to_ldisc cpu=1\" >/proc/plant; sleep 0.2; done' 2>/dev/null & planter=\"$planter $!\"\n",
    // A shield sends such work to the other CPUs, too.
    cures: &["workqueue-mask", "shield"],
    ..USUAL
};

/// What the other thread of the core does to this one. Threads of the emulator share no core: what the other one's
/// work does is planted, and is over when that CPU is off. Other treatments are not tried, since they would move
/// everything in this guest to the CPU that is at fault.
const SIBLING: Trouble = Trouble {
    name: "fix_switches_off_the_other_thread_of_the_core",
    cpu: 0,
    devices: &[Device::Siblings],
    treatments: "smt-off,vm-stat-interval",
    plant: "sh -c 'while :; do echo \"ipi 60ms cpu=0 from=1\" >/proc/plant; sleep 0.2; done' 2>/dev/null & planter=$!\n",
    cures: &["smt-off"],
    ..USUAL
};

/// The kernel's detector of lockups; each of its checks keeps interrupts disabled.
const WATCHDOG: Trouble = Trouble {
    name: "fix_switches_off_a_watchdog_that_takes_long",
    goal: "timer p99",
    plant: "echo 1 >/proc/sys/kernel/watchdog_thresh\n\
            sh -c 'while :; do echo \"irq-off-in 60ms in=watchdog_timer_fn cpu=1\" >/proc/plant; done' 2>/dev/null & planter=$!\n",
    // A shield takes its CPUs out of the detector's mask.
    cures: &["watchdog", "shield"],
    ..USUAL
};

/// A loop that never sleeps loses the CPU so that ordinary tasks get their part.
const THROTTLED: Trouble = Trouble {
    name: "fix_lets_a_loop_run_that_is_throttled",
    probe: "kind = \"stall\"\nthreshold = \"20ms\"\npolicy = \"fifo\"\n",
    goal: "stall max < 30ms",
    plant: "taskset -c 1 sh -c 'while :; do :; done' & planter=$!\n",
    cures: &["rt-throttling", "fair-server"],
    ..USUAL
};

/// The same if a server of the scheduler gives ordinary tasks their part while a real-time task runs: the task waits
/// for it, too. The maximum of `stall` does not include what that server takes, so a timer measures it.
const SERVED: Trouble = Trouble {
    name: "fix_lets_a_task_run_that_waits_for_the_fair_server",
    // Its turns leave the CPU to the kernel's threads of the same priority. With SCHED_FIFO, rcuc/1 would never run:
    // no grace period would end, and a thread that waits for one, for example to load programs into the kernel, would
    // wait for ever.
    plant: "taskset -c 1 chrt -r 1 sh -c 'while :; do :; done' & planter=$!\n\
            taskset -c 1 sh -c 'while :; do :; done' & planter=\"$planter $!\"\n",
    cures: &["fair-server"],
    ..USUAL
};

/// A service of ordinary programs that take most of a CPU from an ordinary task: by its weight ten times as much as
/// that gets. Half of what it uses while no other task wants the CPU is less than that. Where they run is not for this
/// search to say.
const SERVICE: Trouble = Trouble {
    name: "fix_gives_a_service_a_quota",
    probe: "kind = \"stall\"\nthreshold = \"1ms\"\npolicy = \"other\"\n",
    goal: "stall lost_share",
    treatments: "quota-hog,vm-stat-interval",
    plant: "ln -sf $(command -v python3) /tmp/hog\n\
            slice=/sys/fs/cgroup/system.slice; service=$slice/hog.service\n\
            echo +cpu >/sys/fs/cgroup/cgroup.subtree_control\n\
            mkdir -p $service && echo 1000 >$slice/cpu.weight && echo +cpu >$slice/cgroup.subtree_control || exit 8\n\
            planter=; for nth in 1 2 3 4; do\n\
            sh -c 'echo $$ >/sys/fs/cgroup/system.slice/hog.service/cgroup.procs\n\
            exec taskset -c 1 /tmp/hog -c \"while True: pass\"' & planter=\"$planter $!\"; done\n\
            undo() { rmdir $service $slice; echo -cpu >/sys/fs/cgroup/cgroup.subtree_control; }\n",
    cures: &["quota-hog"],
    after: "[ \"$(cat $service/cpu.max)\" = 'max 100000' ] && [ \"$(cat $slice/cpu.weight)\" = 1000 ]",
    installs: Some("[Service]\nCPUQuota="),
    ..USUAL
};

type Body = fn(&mut Guest) -> Result<(), LabError>;

/// What is planted, and on which kernels.
const TROUBLES: [(&Trouble, Body, &[Kernel]); 9] = [
    (&THREAD, |guest| search(guest, &THREAD), &BOTH),
    (&INTERRUPTS, |guest| search(guest, &INTERRUPTS), &BOTH),
    (&FLUSHES, |guest| search(guest, &FLUSHES), &BOTH),
    (&WORK, |guest| search(guest, &WORK), &BOTH),
    (&SIBLING, |guest| search(guest, &SIBLING), &BOTH),
    (&WATCHDOG, |guest| search(guest, &WATCHDOG), &BOTH),
    (&THROTTLED, |guest| search(guest, &THROTTLED), &[Kernel::RealTime]),
    (&SERVED, |guest| search(guest, &SERVED), &[Kernel::RealTimeNew]),
    // Before Linux 6.18, PREEMPT_RT has no safe quota, and it is refused.
    (&SERVICE, |guest| search(guest, &SERVICE), &[Kernel::RealTimeNew]),
];

const BOTH: [Kernel; 2] = [Kernel::RealTime, Kernel::RealTimeNew];

pub(crate) fn tests() -> Vec<LabTest> {
    // A search takes minutes of two emulated CPUs.
    if suite::is_brief() {
        return Vec::new();
    }
    let of_kernel = |kernel| {
        // In counted time the search never takes the host's work for an effect; a search takes longer there.
        let is_newest = kernel == Kernel::RealTimeNew;
        let profile = if is_newest { Profile::CountedPair } else { Profile::Threads };
        // On any other kernel, the search is that of the older one.
        let like = if BOTH.contains(&kernel) { kernel } else { Kernel::RealTime };
        let searched = TROUBLES.iter().filter(move |(_, _, kernels)| kernels.contains(&like));
        searched.map(move |(trouble, body, _)| {
            LabTest::new(trouble.name, Machine::new(profile, kernel).with(trouble.devices), *body)
        })
    };
    let campaigns = suite::kernels(&[Kernel::RealTime]).into_iter().map(|kernel| {
        let machine = Machine::new(Profile::Threads, kernel).with(&[Device::SecondDisk]);
        LabTest::new("fix_proves_a_word_of_the_command_line", machine, campaign)
    });
    let kernels = suite::kernels(&BOTH);
    kernels.into_iter().flat_map(of_kernel).chain(campaigns).collect()
}

fn list(value: &Value) -> Vec<&str> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

/// What is planted ends with the search, even if that fails.
fn search(guest: &mut Guest, trouble: &Trouble) -> Result<(), LabError> {
    let Trouble { cpu, probe, goal, treatments, plant, cures, after, installs, .. } = trouble;
    let plan = plan(*cpu, probe);
    let variable = |name: &str| std::env::var(name).ok();
    let seed = variable(SEED_VARIABLE).unwrap_or_else(|| "1".to_owned());
    let words = variable(WORDS_VARIABLE).unwrap_or_default();
    let script = |what: &str| {
        format!(
            "taskset -pc 0 $$ >/dev/null\nundo() {{ :; }}\n{LOAD_PLANT}cat >/tmp/plan.toml <<'END'\n{plan}END\n{plant}\
             taskset -c 0-1 {what}\nstatus=$?\n{after} || status=30\nkill $planter\nwait $planter\nundo\nrm -rf /tmp/fix\nexit $status"
        )
    };
    if let Some(folder) = variable(ARMS_VARIABLE) {
        let cures = cures.join(" ");
        let what = format!(
            "python3 - /tmp/plan.toml '{goal}' {ARM_REPEATS} {cures} >$OUT/arms.txt <<'END'\n{MEASURE_ARMS}END"
        );
        let output = guest.start(&script(&what))?.wait(ARMS)?;
        assert_eq!(output.status, 0, "{}", output.stderr);
        let path = format!("{folder}/{}.txt", trouble.name);
        std::fs::copy(output.files.join("arms.txt"), path).unwrap();
        return Ok(());
    }
    let search = format!(
        "whylate fix /tmp/plan.toml --goal '{goal}' --yes {treatments} --budget 15m --seed {seed} {words} -o /tmp/fix --json -q >$OUT/result.json"
    );
    let output = guest.start(&script(&search))?.wait(SEARCH)?;
    assert!(output.status <= 1, "{}", output.stderr);
    let result = output.json("result.json")?;
    proves(&result, cures);
    let texts = result["files"].as_array().into_iter().flatten().filter_map(|file| file["text"].as_str());
    let is_installed = installs.is_none_or(|line| texts.clone().any(|text| text.contains(line)));
    assert!(is_installed, "{:#}", result["files"]);
    Ok(())
}

/// One of the cures is recommended, nothing else is, and the machine is as before.
#[allow(clippy::print_stdout, reason = "what the search took, for the record")]
fn proves(result: &Value, cures: &[&str]) {
    let recommended = list(&result["recommended"]);
    println!("         {recommended:?} after {} repeats; causes {}", result["repeats"], result["causes"]);
    let is_cure = |one: &str| cures.iter().any(|it| *it == one || it.ends_with('-') && one.starts_with(it));
    assert!(
        matches!(recommended[..], [one] if is_cure(one)),
        "{recommended:?}; causes {:#}; claims {:#}; left out {:#}",
        result["causes"],
        result["claims"],
        result["left_out"]
    );
    assert_eq!((&result["state"], &result["restored"]), (&Value::from("complete"), &Value::from(true)));
}

/// The boot loader: the harness reads what the next boot should have.
const LOADER: &str = r#"#!/bin/sh
case $1 in
once) printf '%s' "$WHYLATE_BOOT_APPEND" >/lab/next ;;
forget) rm -f /lab/next ;;
reboot) sync; touch /lab/reboot ;;
esac
"#;

/// Interrupts are disabled for long on CPU 1, unless the command line has the word that cures it.
const BOOTED: &str = r#"
mkdir -p /mnt
mountpoint -q /mnt || mount /dev/vdc /mnt || exit 10
export WHYLATE_STATE_DIR=/mnt/state
taskset -pc 0 $$ >/dev/null
grep -q planted=off /proc/cmdline || { sh -c 'while :; do echo "irq-off 60ms cpu=1 count=1" >/proc/plant; sleep 0.2; done' & planter=$!; }
"#;

fn campaign(guest: &mut Guest) -> Result<(), LabError> {
    let plan = plan(1, TIMER);
    let first = format!(
        "mke2fs -q -t ext4 /dev/vdc || exit 9\n{LOAD_PLANT}{BOOTED}cat >/mnt/plan.toml <<'END'\n{plan}END\n\
         cat >/mnt/loader <<'END'\n{LOADER}END\nchmod +x /mnt/loader\nuname -r\n\
         taskset -c 0-1 whylate fix /mnt/plan.toml --goal 'timer p99' --campaign /mnt/campaign --boot planted=off --boot useless=1 \
         --boot-loader /mnt/loader --yes all --budget 1h --seed 1 -q"
    );
    let goes_on = format!(
        "{LOAD_PLANT}{BOOTED}taskset -c 0-1 whylate fix --campaign /mnt/campaign --continue --json -q >$OUT/result.json"
    );
    let mut script = first;
    for boot in 1..=BOOTS_MAX {
        let output = guest.start(&script)?.wait(BOOT)?;
        assert_eq!(output.status, 0, "boot {boot}: {}{}", output.stdout, output.stderr);
        let asked = guest.share().join("next");
        let is_asked = std::fs::remove_file(guest.share().join("reboot")).is_ok();
        assert!(is_asked, "boot {boot} asks for no other one: {}{}", output.stdout, output.stderr);
        match std::fs::read_to_string(&asked) {
            Ok(words) => guest.cut_power_and_boot(&words)?,
            // It boots its default entry: the campaign is over.
            Err(_) => {
                proves(&output.json("result.json")?, &["planted=off"]);
                return Ok(());
            }
        }
        script.clone_from(&goes_on);
    }
    panic!("it is not over after {BOOTS_MAX} boots")
}
