//! The kernel's latency histograms on real-time and plain kernels, from BPF programs and from a trace buffer.

use serde_json::Value;
use whylate_lab::suite::{self, LabTest};
use whylate_lab::{Guest, Kernel, LabError, Machine, Profile};

pub(crate) fn tests() -> Vec<LabTest> {
    // Two CPUs would do, but QEMU's threads lose what is written into code that runs, which this does again and again.
    let machines = suite::kernels_and_arm64_unless_brief(&Kernel::NEEDED)
        .into_iter()
        .map(|kernel| Machine::new(Profile::Counted, kernel));
    machines.map(|machine| LabTest::new("histograms_account_for_every_wakeup", machine, accounted)).collect()
}

/// A periodic task under the histograms of each source; the guest does nothing else.
fn accounted(guest: &mut Guest) -> Result<(), LabError> {
    for source in ["bpf", "tracefs"] {
        let text = guest.ok(&format!(
            "whylate measure timer --cpu 0 -i 5ms -D 60 --quiet >/dev/null 2>&1 & probe=$!; sleep 2\n\
             whylate histograms -D 5s --json --quiet --source {source}; kill $probe"
        ))?;
        let document: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
        assert_eq!(document["source"], source);
        let samples = |kind: &str| -> u64 {
            let cpus = document["cpus"].as_array().into_iter().flatten();
            let all = cpus.flat_map(|cpu| cpu["histograms"].as_array().into_iter().flatten());
            all.filter(|one| one["kind"] == kind).filter_map(|one| one["samples"].as_u64()).sum()
        };
        let count = |key: &str| document["wakeups"][key].as_u64().unwrap_or(0);
        let ended = samples("wakeup") + samples("sharedprio") + count("without_switch") + count("elsewhere");
        let lost = document["lost"].as_u64().unwrap_or(0);
        assert!(count("seen") > 0 && samples("timerwakeupswitch") > 0, "{source}: {document}");
        // Also where the kernel has no event for the end of a switch.
        assert_eq!(samples("switchoff") > 0, source == "bpf", "{source}: {document}");
        assert!(ended <= count("seen") + lost && ended + 100 + lost > count("seen"), "{source}: {document}");
        let rest = guest.ok("ls /sys/kernel/tracing/instances 2>/dev/null | wc -l")?;
        assert_eq!(rest.trim(), "0", "the trace buffer is gone");
    }
    Ok(())
}
