//! Treatments on real kernels: a CPU switched off with what is bound to it, and kills at different moments.

use std::time::Duration;
use whylate_lab::suite::LabTest;
use whylate_lab::{Guest, Kernel, LabError, Machine, Profile};

/// How many times each treatment is killed.
const KILLS: u32 = 6;

pub(crate) fn tests() -> Vec<LabTest> {
    let machine = |kernel| Machine::new(Profile::Threads, kernel);
    let test = |kernel| LabTest::new("treat_restores_a_killed_cpu_hotplug", machine(kernel), hotplug);
    Kernel::ALL.into_iter().map(test).collect()
}

/// Everything that may change: interrupts, CPUs, a sysctl, and a task that is bound to the CPU that goes.
const SNAPSHOT: &str = "snapshot() {
    grep -H . /proc/irq/*/smp_affinity_list /proc/irq/default_smp_affinity /proc/sys/vm/stat_interval \\
        /sys/devices/system/cpu/online /sys/devices/system/cpu/cpu1/online
    grep Cpus_allowed_list /proc/$bound/status
}";

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
# The last CPU stays on, and says so.
whylate treat apply sysfs '/sys/devices/system/cpu/cpu{{cpu}}/online' 0 --cpus 0-1; [ $? = 69 ] || exit 17
snapshot | diff /tmp/before - || exit 18
kill $bound"
    );
    let output = guest.start(&script)?.wait(Duration::from_secs(300))?;
    assert_eq!(output.status, 0, "{}\n{}", output.stdout, output.stderr);
    let restored = output.stdout.lines().filter(|line| *line == "restored").count();
    assert_eq!(restored, KILLS as usize, "{}", output.stdout);
    Ok(())
}
