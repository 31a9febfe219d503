//! The kernel's latency histograms on real-time and plain kernels, from BPF programs and from a trace buffer.

use serde_json::Value;
use whylate_lab::suite::{self, LabTest};
use whylate_lab::{Guest, Kernel, LabError, Machine, Profile};

pub(crate) fn tests() -> Vec<LabTest> {
    // Two CPUs would do, but QEMU's threads lose what is written into code that runs, which this does again and again.
    let machines = suite::kernels_and_arm64_unless_brief(&Kernel::NEEDED)
        .into_iter()
        .map(|kernel| Machine::new(Profile::Counted, kernel));
    let accounted =
        machines.map(|machine| LabTest::new("histograms_account_for_every_wakeup", machine, accounted));
    let refused = suite::kernels(&[Kernel::RealTime, Kernel::RealTimeNew])
        .into_iter()
        .filter(|kernel| kernel.is_realtime());
    let refused = refused.map(|kernel| {
        let threads = Machine::new(Profile::Threads, kernel);
        LabTest::new("histograms_are_refused_while_no_grace_period_ends", threads, refused_at_once)
    });
    accounted.chain(refused.filter(|_| !suite::is_brief())).collect()
}

/// A loop above the thread that ends grace periods: a process that loads a program then waits in the kernel for ever.
fn refused_at_once(guest: &mut Guest) -> Result<(), LabError> {
    let output = guest.start(
        "taskset -pc 0 $$ >/dev/null\ntaskset -c 1 chrt -f 60 sh -c 'while :; do :; done' & loop=$!\nsleep 2\n\
         whylate histograms -D 1s --json -q; status=$?\nkill $loop\nwait $loop\n\
         whylate histograms -D 1s --json -q >/dev/null || exit 20\nexit $status",
    )?;
    let output = output.wait(std::time::Duration::from_secs(60))?;
    assert_eq!(output.status, 69, "{}", output.stderr);
    let said = output.stderr.trim();
    assert!(
        said.contains("rcuc/1 could not run, because sh (thread ") && said.contains("`chrt -f -p 61 "),
        "{said}"
    );
    Ok(())
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
        // It also works if the kernel has no event for the end of a switch.
        assert_eq!(samples("switchoff") > 0, source == "bpf", "{source}: {document}");
        assert!(ended <= count("seen") + lost && ended + 100 + lost > count("seen"), "{source}: {document}");
        let rest = guest.ok("ls /sys/kernel/tracing/instances 2>/dev/null | wc -l")?;
        assert_eq!(rest.trim(), "0", "the trace buffer is gone");
    }
    Ok(())
}
