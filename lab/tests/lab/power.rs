//! The power goes at random moments of `treat apply`, `run` and `restore`; state and results are on a disk of the
//! machine.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use whylate_lab::suite::{self, LabTest};
use whylate_lab::{Device, Guest, Kernel, LabError, Machine, Profile};

/// How often, unless `WHYLATE_POWER_CUTS` says it.
const CUTS: u64 = 2;
/// What is cut.
const ACTIONS: [&str; 3] = ["apply", "run", "restore"];
/// Both CPUs of the guest are busy.
const LIMIT: Duration = Duration::from_secs(240);

pub(crate) fn tests() -> Vec<LabTest> {
    let machine = |kernel| Machine::new(Profile::Threads, kernel).with(&[Device::SecondDisk]);
    let kernels = suite::kernels(&[Kernel::RealTime]).into_iter();
    kernels.map(|kernel| LabTest::new("power_is_cut_at_random_moments", machine(kernel), cuts)).collect()
}

/// Mounts the disk; every setting that a treatment here may change; and the plan.
const BEGIN: &str = r#"
mkdir -p /mnt
mountpoint -q /mnt || mount /dev/vdc /mnt || exit 10
export WHYLATE_STATE_DIR=/mnt/state
snapshot() {
    grep -sH . /proc/irq/*/smp_affinity_list /proc/irq/default_smp_affinity /proc/sys/kernel/watchdog_cpumask \
        /proc/sys/vm/stat_interval /sys/devices/virtual/workqueue/cpumask /sys/devices/system/cpu/online \
        /sys/fs/cgroup/cgroup.subtree_control
    find /sys/fs/cgroup -mindepth 1 -type d
}
action() {
    case $1 in
    apply) whylate treat apply shield --cpus 1 ;;
    run) whylate run /mnt/plan.toml -o /mnt/run -q --json ;;
    restore) whylate treat restore ;;
    esac
}
"#;

/// Once: a file system, and how long each action takes undisturbed, in milliseconds.
const FIRST: &str = r#"
now_ms() { date +%s%3N; }
mke2fs -q -t ext4 /dev/vdc || exit 9
begin_lab
printf 'name = "power"\nduration = "1s"\nrepeats = 4\nsettle = "1ms"\nwarmup = "1ms"\nnoise_floor = "1ms"\ninterval = "100ms"\n[target]\ncpus = "1"\n[[probe]]\nkind = "timer"\ninterval = "5ms"\n[[treatment]]\nname = "statistics"\nkind = "sysctl"\nkey = "vm.stat_interval"\nvalue = "7"\n[matrix]\ntreatments = [["statistics"]]\n' >/mnt/plan.toml
for name in apply restore run; do
    from=$(now_ms)
    action $name >/mnt/said 2>&1 || { cat /mnt/said; exit 11; }
    echo $name $(($(now_ms) - from))
done
rm -r /mnt/run
sync
"#;

/// After a cut: nothing is undone, since no setting outlives the power; the journal reads and is finished; the run reads.
const AFTER: &str = r#"
begin_lab
snapshot >/tmp/before
whylate treat status --json >/tmp/status || exit 20
whylate treat restore >/tmp/said 2>&1 || { cat /tmp/said; exit 21; }
snapshot | diff /tmp/before - || { cat /tmp/said; exit 22; }
whylate treat status --json | grep '"treatment":' && exit 23
whylate treat apply sysctl vm.stat_interval 9 >/tmp/said 2>&1 && whylate treat restore >>/tmp/said 2>&1 || { cat /tmp/said; exit 24; }
snapshot | diff /tmp/before - || { cat /tmp/said; exit 25; }
segments=$(find /mnt/run -name '*.parquet' 2>/dev/null | wc -l)
if [ -s /mnt/run/run.json ]; then
    whylate report /mnt/run --json >/tmp/report 2>/tmp/said
    status=$?
    [ $status -le 2 ] || { cat /tmp/said; exit 26; }
    [ $status != 1 ] || grep -q '^whylate: ' /tmp/said || { cat /tmp/said; exit 27; }
    echo report $status segments $segments
    cat /tmp/said
fi
echo changes $(grep -c '"treatment":' /tmp/status)
rm -rf /mnt/run
sync
"#;

fn script(part: &str) -> String {
    format!("begin_lab() {{ {BEGIN} }}\n{part}")
}

#[allow(clippy::print_stdout, reason = "what was cut, for the record")]
fn cuts(guest: &mut Guest) -> Result<(), LabError> {
    let count = std::env::var("WHYLATE_POWER_CUTS").ok().and_then(|count| count.parse().ok()).unwrap_or(CUTS);
    let lengths = guest.ok(&script(FIRST))?;
    let length_ms = |action: &str| -> u64 {
        let mut rows = lengths.lines().filter_map(|line| line.split_once(' '));
        rows.find(|(name, _)| *name == action).and_then(|(_, length)| length.parse().ok()).unwrap_or_default()
    };
    let mut random = SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |now| now.as_nanos() as u64);
    let first = random % 3;
    for cut in 0..count {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let action = ACTIONS[((first + cut) % 3) as usize];
        let length = length_ms(action);
        assert!(length > 0, "{action}: {lengths}");
        let moment = Duration::from_millis((random >> 33) % length);
        let begun = guest.share().join("begun");
        // The mark may be there from the cut before.
        let _ = std::fs::remove_file(&begun);
        let before = if action == "restore" { "action apply >/dev/null 2>&1 || exit 12\nsync" } else { "" };
        let act = format!("begin_lab 2>/dev/null\n{before}\ntouch /lab/begun\naction {action}\nsleep 60");
        let mut running = guest.start(&script(&act))?;
        let deadline = Instant::now() + LIMIT;
        while !begun.exists() {
            assert!(!running.is_done_within(Duration::from_millis(20))?, "it ended before it began");
            assert!(Instant::now() < deadline, "it does not begin");
        }
        std::thread::sleep(moment);
        running.guest().cut_power()?;
        let output = guest.start(&script(AFTER))?.wait(LIMIT)?;
        let printed = output.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(output.status, 0, "cut {cut} of {action} after {moment:?}: {printed}\n{}", output.stderr);
        println!("         cut {cut}: {action} after {} of {length} ms: {printed}", moment.as_millis());
    }
    Ok(())
}
