//! Treatments on real kernels: kills at different moments, what has to be refused, programs that write the settings
//! back, and hotplug with what is bound to a CPU.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use whylate_core::CpuId;
use whylate_lab::suite::{self, LabTest};
use whylate_lab::{Device, Guest, Kernel, LabError, Machine, Profile};
use whylate_sys::schedule;

/// How many times each kind of hotplug is killed.
const KILLS: u32 = 4;

/// Ends at random moments (benches/treat_crashes_lab.sh does many): of `apply`, a cell, `restore`; by signals, Ctrl-C twice, a
/// terminal that closes, or for want of memory.
const RANDOM_ENDS: u32 = 6;
/// After this number of times all of them have been done, each in each way.
const ALL_ENDS: u32 = 126;
/// Full folders and damaged journals.
const STATES: u32 = 4;

const LIMIT: Duration = Duration::from_secs(600);

pub(crate) fn tests() -> Vec<LabTest> {
    let machine = |kernel| Machine::new(Profile::Threads, kernel);
    let mut tests = Vec::new();
    for kernel in suite::kernels_and_arm64_unless_brief(&Kernel::NEEDED) {
        tests.extend([
            LabTest::new("treat_restores_a_killed_cpu_hotplug", machine(kernel), hotplug),
            LabTest::new("treat_restores_after_ends_at_random_moments", machine(kernel), random_ends),
            LabTest::new("treat_and_who_moves_interrupts_back", machine(kernel), balancers),
        ]);
    }
    // Elsewhere the first CPU may go, too.
    for kernel in suite::kernels_unless_brief(&Kernel::NEEDED) {
        let test = LabTest::new("treat_refuses_in_one_line_and_changes_nothing", machine(kernel), refusals);
        tests.push(test);
    }
    for kernel in suite::kernels_unless_brief(&[Kernel::Plain, Kernel::RealTimeNew]) {
        tests.push(LabTest::new("treat_limits_what_a_program_uses", machine(kernel), quota));
    }
    for kernel in suite::kernels_unless_brief(&[Kernel::Plain, Kernel::RealTimeNew]) {
        tests.push(LabTest::new("treat_walks_over_the_settings_of_the_kernel", machine(kernel), walk));
    }
    let siblings = machine(Kernel::Plain).with(&[Device::Siblings]);
    tests.push(LabTest::new("treat_takes_the_other_thread_of_a_core_offline", siblings, smt));
    tests
}

/// Everything that may change: interrupts, CPUs, a sysctl, and a task that is bound to the CPU that goes.
const SNAPSHOT: &str = "snapshot() {
    grep -H . /proc/irq/*/smp_affinity_list /proc/irq/default_smp_affinity /proc/sys/vm/stat_interval \\
        /sys/devices/system/cpu/online /sys/devices/system/cpu/cpu1/online
    grep Cpus_allowed_list /proc/$bound/status
}";

/// Runs a script that has to end with status 0.
fn succeed(guest: &mut Guest, script: &str) -> Result<String, LabError> {
    let output = guest.start(script)?.wait(LIMIT)?;
    assert_eq!(output.status, 0, "{}\n{}", output.stdout, output.stderr);
    Ok(output.stdout)
}

fn hotplug(guest: &mut Guest) -> Result<(), LabError> {
    let script = format!(
        "export WHYLATE_STATE_DIR=/tmp/state
sleep 600 & bound=$!
taskset -p -c 1 $bound >/dev/null || exit 9
{SNAPSHOT}
snapshot >/tmp/before
# Undisturbed: the CPU goes, the task moves, and both come back.
whylate treat apply sysfs /sys/devices/system/cpu/cpu1/online 0 || exit 10
grep -q '^0$' /sys/devices/system/cpu/online || exit 11
whylate treat apply sysctl vm.stat_interval 7 || exit 12
whylate treat restore || exit 13
snapshot >/tmp/after
diff /tmp/before /tmp/after || exit 14
for kill in $(seq {KILLS}); do
    whylate treat apply sysfs /sys/devices/system/cpu/cpu1/online 0 >/dev/null &
    sleep 0.$((kill * 7 % 10)); kill -9 $! 2>/dev/null; wait $!
    whylate treat restore || exit 15
    snapshot >/tmp/after
    diff /tmp/before /tmp/after || exit 16
    echo restored
done
kill $bound"
    );
    let stdout = succeed(guest, &script)?;
    let restored = stdout.lines().filter(|line| *line == "restored").count();
    assert_eq!(restored, KILLS as usize, "{stdout}");
    Ok(())
}

/// The number of settings of a walk. A fixed seed chooses the same ones each time; `WHYLATE_WALK=1` takes all, and
/// `WHYLATE_WALK=/sys/block,/proc/sys/vm` those below these.
const WALKED: u32 = 16;
/// How many settings one script of a walk over all has: a guest that QEMU keeps at one instruction costs one script, and the next
/// guest goes on there.
const STEP: u32 = 100;

/// What the steps of a walk have found together.
#[derive(Clone, Default, Debug)]
struct Walked {
    tried: u64,
    changed: u64,
    refused: u64,
    holes: u64,
    /// The last setting that was tried.
    last: String,
}

/// For each version of the kernel: it outlasts a guest.
static WALKED_SO_FAR: Mutex<BTreeMap<String, Walked>> = Mutex::new(BTreeMap::new());

fn walk(guest: &mut Guest) -> Result<(), LabError> {
    let walk = include_str!("walk.py");
    let Ok(of) = std::env::var("WHYLATE_WALK") else {
        let script = format!("COUNT={WALKED} SEED=1 python3 - <<'PYTHON'\n{walk}\nPYTHON\n");
        let output = guest.start(&script)?.wait(LIMIT)?;
        let _ = writeln!(std::io::stderr(), "{}", output.stdout.trim_end());
        assert_eq!(output.status, 0, "{}\n{}", output.stdout, output.stderr);
        return Ok(());
    };
    let of = if of == "1" { "/" } else { &of };
    let cpus = schedule::allowed_of_this_thread().map_err(|error| LabError::not_there(error.to_string()))?;
    guest.tie_to(cpus.iter().last().unwrap_or(CpuId(0)));
    let version = guest.kernel_version().to_owned();
    let so_far = || WALKED_SO_FAR.lock().unwrap_or_else(PoisonError::into_inner);
    let mut walked = so_far().get(&version).cloned().unwrap_or_default();
    loop {
        let after = &walked.last;
        let script = format!("OF='{of}' STEP={STEP} AFTER='{after}' python3 - <<'PYTHON'\n{walk}\nPYTHON\n");
        let output = guest.start(&script)?.wait(LIMIT * 3)?;
        let _ = writeln!(std::io::stderr(), "{}", output.stdout.trim_end());
        let found = output.json("walk.json")?;
        let figure = |name: &str| found[name].as_u64().unwrap_or_else(|| panic!("{name}: {found}"));
        let last = found["last"].as_str().unwrap_or_default().to_owned();
        walked = Walked {
            tried: walked.tried + figure("tried"),
            changed: walked.changed + figure("changed"),
            refused: walked.refused + figure("refused"),
            holes: walked.holes + figure("holes"),
            last,
        };
        so_far().insert(version.clone(), walked.clone());
        if figure("left") == 0 {
            let settings = figure("settings");
            let _ = writeln!(std::io::stderr(), "walked over {version}, {settings} settings: {walked:?}");
            assert!(of != "/" || walked.tried >= settings, "{} of {settings} were tried", walked.tried);
            break;
        }
    }
    assert_eq!(walked.holes, 0, "see above");
    Ok(())
}

fn random_ends(guest: &mut Guest) -> Result<(), LabError> {
    let script = include_str!("../../../benches/treat_crashes_guest.sh");
    let seed = std::process::id();
    let first = seed % ALL_ENDS;
    let stdout =
        succeed(guest, &format!("FIRST={first} COUNT={RANDOM_ENDS} STATES={STATES} SEED={seed}\n{script}"))?;
    let count = |word: &str| stdout.lines().filter(|line| line.starts_with(word)).count();
    assert_eq!((count("restored "), count("state ")), (RANDOM_ENDS as usize, STATES as usize), "{stdout}");
    Ok(())
}

/// `refuse STATUS TEXT COMMAND…`: the command has to end with that status and one line that has the text, and change
/// nothing.
const REFUSE: &str = r#"
refuse() {
    expected=$1 text=$2; shift 2
    "$@" >/tmp/out 2>/tmp/said; status=$?
    [ $status = $expected ] || { echo "$*: exit $status: $(cat /tmp/out /tmp/said)"; exit 20; }
    [ "$(grep -c '^whylate: ' /tmp/said)" = 1 ] || { echo "$*: not one line: $(cat /tmp/said)"; exit 21; }
    grep -q "$text" /tmp/said || { echo "$*: does not say $text: $(cat /tmp/said)"; exit 22; }
    snapshot | diff /tmp/before - || { echo "$*: changed something"; exit 23; }
    echo refused
}
"#;

fn refusals(guest: &mut Guest) -> Result<(), LabError> {
    let script = format!(
        "export WHYLATE_STATE_DIR=/tmp/state
sleep 600 & bound=$!
{SNAPSHOT}{REFUSE}
snapshot >/tmp/before
cpu=/sys/devices/system/cpu
refuse 69 'cpu' whylate treat apply sysfs \"$cpu/cpu{{cpu}}/online\" 0 --cpus 0-1
refuse 69 'cpu0/online' whylate treat apply sysfs $cpu/cpu0/online 0
refuse 1 'leave at least one' whylate treat apply shield --cpus 0-1
refuse 69 'CPU 7 does not exist' whylate treat apply shield --cpus 7
refuse 69 'no interrupt is called' whylate treat apply irq-affinity 4711 --cpus 0
managed=$(sed -n 's/ *\\([0-9]*\\):.*virtio[0-9]*-req\\..*/\\1/p' /proc/interrupts | head -n 1)
[ -n \"$managed\" ] || exit 29
elsewhere=1
[ \"$(cat /proc/irq/$managed/smp_affinity_list)\" != 1 ] || elsewhere=0
refuse 69 'the kernel manages these' whylate treat apply irq-affinity \"$managed\" --cpus $elsewhere
refuse 69 'cannot partition caches' whylate treat apply cache-partition --cpus 1
refuse 69 'no SMT' whylate treat apply smt-off
echo 0 >$cpu/cpu1/online; snapshot >/tmp/before
refuse 69 'CPU 1 is offline' whylate treat apply shield --cpus 1
echo 1 >$cpu/cpu1/online; sleep 1; snapshot >/tmp/before
mount -o remount,ro /sys || exit 30
refuse 69 'read-only' whylate treat apply sysfs $cpu/cpu1/online 0
mount -o remount,rw /sys || exit 31
mkdir /tmp/empty && mount --bind /tmp/empty /sys/fs/cgroup || exit 32
refuse 69 'no cpuset controller' whylate treat apply shield --cpus 1 --method cpuset
umount /sys/fs/cgroup || exit 33
# A second whylate names the holder of the treatments; measuring and loading stay possible.
printf 'name = \"held\"\\nduration = \"20s\"\\nrepeats = 1\\n[[probe]]\\nkind = \"timer\"\\ninterval = \"10ms\"\\n[[treatment]]\\nname = \"t\"\\nkind = \"sysctl\"\\nkey = \"vm.stat_interval\"\\nvalue = \"7\"\\n[matrix]\\ntreatments = [[\"t\"]]\\n' >/tmp/plan.toml
whylate run /tmp/plan.toml -o /tmp/held -q >/tmp/held.said 2>&1 & run=$!
for try in $(seq 300); do grep -q 7 /proc/sys/vm/stat_interval && break; sleep 0.2; done
grep -q 7 /proc/sys/vm/stat_interval || {{ cat /tmp/held.said; exit 37; }}
snapshot >/tmp/before
refuse 1 'settings are already changed by' whylate treat apply sysctl vm.stat_interval 9
whylate measure timer --cpu 1 -D 200ms -i 10ms -q >/dev/null || exit 34
whylate load memory --cpus 1 -D 200ms -q >/dev/null || exit 35
kill -INT $run; wait $run
grep -q 7 /proc/sys/vm/stat_interval && exit 36
kill $bound; exit 0"
    );
    let stdout = succeed(guest, &script)?;
    assert_eq!(stdout.lines().filter(|line| *line == "refused").count(), 12, "{stdout}");
    Ok(())
}

/// Writes again and again where an interrupt goes: under the name of irqbalance, and under another one.
fn balancers(guest: &mut Guest) -> Result<(), LabError> {
    let script = r#"export WHYLATE_STATE_DIR=/tmp/state
line=$(sed -n 's/ *\([0-9]*\):.*rtc.*/\1/p' /proc/interrupts | head -n 1)
[ -n "$line" ] || exit 10
file=/proc/irq/$line/smp_affinity_list
printf '#!/bin/sh\nwhile :; do echo 1 >%s; sleep 0.1; done\n' "$file" >/tmp/irqbalance
cp /tmp/irqbalance /tmp/mover; chmod +x /tmp/irqbalance /tmp/mover
/tmp/irqbalance & balancer=$!
sleep 1
[ "$(cat $file)" = 1 ] || exit 11
state() { cut -d' ' -f3 /proc/$1/stat; }
whylate treat apply irq-affinity $line --cpus 0 || exit 12
[ "$(state $balancer)" = T ] || exit 13
sleep 1
[ "$(cat $file)" = 0 ] || exit 14
whylate treat restore || exit 15
[ "$(state $balancer)" != T ] || exit 16
sleep 0.5; [ "$(cat $file)" = 1 ] || exit 17
kill -KILL $balancer; wait $balancer
# One with an unknown name: what it did is left alone, and said.
whylate treat apply irq-affinity $line --cpus 0 || exit 18
echo 0-1 >$file
whylate treat restore >/tmp/said 2>&1; [ $? = 3 ] || exit 19
grep -q "$line" /tmp/said || { cat /tmp/said; exit 20; }
[ "$(cat $file)" = 0-1 ] || exit 21
# One that writes it back at once: whether the value is found or not, the line says what happened.
/tmp/mover & mover=$!
sleep 0.5
whylate treat apply irq-affinity $line --cpus 0 >/tmp/said 2>&1; status=$?
sleep 0.5
whylate treat restore >>/tmp/said 2>&1; restored=$?
kill -KILL $mover
{ [ $status = 0 ] && [ $restored = 0 ]; } || grep -q "$line" /tmp/said || { cat /tmp/said; exit 22; }
"#;
    succeed(guest, script).map(drop)
}

fn smt(guest: &mut Guest) -> Result<(), LabError> {
    let script = r#"export WHYLATE_STATE_DIR=/tmp/state
cpu=/sys/devices/system/cpu
[ "$(cat $cpu/cpu0/topology/thread_siblings_list)" = 0-1 ] || exit 10
whylate treat apply smt-off || exit 11
[ "$(cat $cpu/online)" = 0 ] || exit 12
whylate treat restore || exit 13
[ "$(cat $cpu/online)" = 0-1 ] || exit 14
whylate treat apply smt-off >/dev/null & sleep 0.3; kill -9 $! 2>/dev/null; wait $!
whylate treat restore || exit 15
[ "$(cat $cpu/online)" = 0-1 ] || exit 16
"#;
    succeed(guest, script).map(drop)
}

/// A loop gets a fifth of a CPU, by a group that is made for it and goes again; on kernels where that may stop the machine it
/// is refused.
fn quota(guest: &mut Guest) -> Result<(), LabError> {
    let script = r#"export WHYLATE_STATE_DIR=/tmp/state
sh -c 'while :; do :; done' & loud=$!
sleep 600 & other=$!
group=/sys/fs/cgroup/whylate-quota
groups() { cat /proc/$loud/cgroup /proc/$other/cgroup /sys/fs/cgroup/cgroup.subtree_control; find /sys/fs/cgroup -mindepth 1 -type d; }
groups >/tmp/before
end() { kill $loud $other; exit $1; }
if ! whylate treat apply cpu-quota $loud --percent 20 >/tmp/said 2>&1; then
    cat /tmp/said
    grep -q 'PREEMPT_RT before Linux 6.18' /tmp/said || end 10
    groups | diff /tmp/before - || end 11
    end 0
fi
[ "$(cat $group/cpu.max)" = '20000 100000' ] || end 12
grep -q "^$loud$" $group/cgroup.procs || end 13
grep -q "^$other$" $group/cgroup.procs && end 14
throttled() { sed -n 's/^nr_throttled //p' $group/cpu.stat; }
for try in $(seq 200); do [ "$(throttled)" -ge 10 ] && break; sleep 0.1; done
[ "$(throttled)" -ge 10 ] || { cat $group/cpu.stat; end 15; }
whylate treat restore || end 16
groups | diff /tmp/before - || end 17
# Killed: its group is there, and goes with the rest.
for kill in 1 2 3; do
    whylate treat apply cpu-quota $loud --percent 20 >/dev/null 2>&1 & apply=$!
    sleep 0.$((kill * 3)); kill -9 $apply 2>/dev/null; wait $apply
    whylate treat restore || end 18
    groups | diff /tmp/before - || end 19
done
end 0
"#;
    succeed(guest, script).map(drop)
}
