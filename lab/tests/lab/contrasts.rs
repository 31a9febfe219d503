//! A cause that a load adds is named despite stalls by the host of ten times its length, and one that a treatment
//! takes away is, too.

use crate::causes::PATIENCE;
use serde_json::Value;
use std::time::{Duration, Instant};
use whylate_core::CpuId;
use whylate_lab::host_stall::Thief;
use whylate_lab::suite::{self, LabTest};
use whylate_lab::{Guest, Kernel, LOAD_PLANT, LabError, Machine, Profile};
use whylate_sys::schedule;

/// What the loads take at a time, of 50 to 500 us; the host takes 0.5 to 20 ms.
const LENGTH_US: u32 = 500;
/// Stalls by the host, about six a second: enough for the whole run.
const STALLS: usize = 2_000;
/// The thread that plants, whether its function is in the row or not.
const PLANTER: &str = "plant-irq-off";
/// Causes that accuse no code of the guest.
const HOST: [&str; 5] = ["host stall", "steal", "timer late", "not explained", "others"];
const THREAD: &str = "thief";

pub(crate) fn tests() -> Vec<LabTest> {
    let test = |kernel| {
        let threads = Machine::new(Profile::Threads, kernel);
        LabTest::new("contrasts_name_what_a_load_adds_despite_stalls_by_the_host", threads, planted)
    };
    suite::kernels_unless_brief(&[Kernel::RealTime]).into_iter().map(test).collect()
}

/// A thread of a higher priority runs in all cells, a treatment moves it away, and a load keeps interrupts disabled in
/// the kernel.
fn plan() -> String {
    let driver = format!(
        "while True: open('/proc/plant', 'w').write('irq-off {LENGTH_US}us cpu=1 count=20 every=43ms')"
    );
    format!(
        "name = \"planted\"\nduration = \"2s\"\nrepeats = 8\nsettle = \"1s\"\nwarmup = \"50ms\"\nnoise_floor = \"0s\"\n\
         primary = \"timer p99\"\ncauses = true\n[target]\ncpus = \"1\"\n[[probe]]\nkind = \"timer\"\ninterval = \"1ms\"\npriority = 95\n\
         [[load]]\nname = \"driver\"\nkind = \"exec\"\ncpus = \"others\"\ncommand = [\"python3\", \"-c\", \"{driver}\"]\n\
         [[treatment]]\nname = \"away\"\nkind = \"affinity\"\nprocess = \"{THREAD}\"\ncpus = \"0\"\n\
         [[cell]]\nname = \"as-is\"\n[[cell]]\nname = \"driver\"\nloads = [\"driver\"]\n\
         [[cell]]\nname = \"away\"\ntreatments = [\"away\"]\n"
    )
}

/// Shell commands that begin the thread.
fn thief() -> String {
    format!(
        "ln -sf $(command -v python3) /tmp/{THREAD}\ntaskset -c 1 chrt -f 98 /tmp/{THREAD} -c 'import random, time\nwhile True:\n    \
         time.sleep(random.uniform(0.02, 0.06))\n    end = time.monotonic() + {LENGTH_US}e-6\n    while time.monotonic() < end: pass' & thief=$!\n"
    )
}

fn planted(guest: &mut Guest) -> Result<(), LabError> {
    let cpus = schedule::allowed_of_this_thread().map_err(|error| LabError::not_there(error.to_string()))?;
    let host_cpu = cpus.iter().last().unwrap_or(CpuId(0));
    guest.tie_to(host_cpu);
    let script = format!(
        "set -e\ntaskset -pc 0 $$ >/dev/null\n{}{LOAD_PLANT}echo clear >/proc/plant\ncat >/tmp/planted.toml <<'END'\n{}END\n\
         touch $OUT/begun\nstatus=0\ntaskset -c 0-1 whylate run /tmp/planted.toml --trust-plan -o /tmp/planted --json -q >$OUT/result.json || status=$?\n\
         kill $thief\nrm -rf /tmp/planted\n[ $status -le 1 ]",
        thief(),
        plan()
    );
    let mut running = guest.start(&script)?;
    let deadline = Instant::now() + PATIENCE;
    while !running.has_file("begun") && !running.is_done_within(Duration::from_millis(50))? {
        assert!(Instant::now() < deadline, "the run does not begin");
    }
    let thief = Thief::start(host_cpu, STALLS);
    let output = running.wait(4 * PATIENCE)?;
    thief.stop()?;
    assert_eq!(output.status, 0, "{}", output.stderr);
    judge(guest, &output.json("result.json")?);
    Ok(())
}

#[allow(clippy::print_stdout, reason = "a row for the record")]
fn judge(guest: &Guest, result: &Value) {
    let rows = result["cause_contrasts"].as_array().cloned().unwrap_or_default();
    let claims = |side: &str, base: &str| -> Vec<(String, String)> {
        let is_claim = |row: &&Value| {
            row["side"] == side
                && row["baseline"] == base
                && !matches!(row["change"].as_str(), Some("same" | "cannot_tell"))
        };
        let text = |row: &Value, key: &str| row[key].as_str().unwrap_or_default().to_owned();
        rows.iter().filter(is_claim).map(|row| (text(row, "cause"), text(row, "change"))).collect()
    };
    let contrasts =
        [("driver", "as-is", PLANTER, ["new", "more"]), ("away", "as-is", THREAD, ["gone", "less"])];
    let (mut others, mut missing) = (0, Vec::new());
    for (side, base, name, changes) in contrasts {
        let claimed = claims(side, base);
        let is_right =
            |(cause, change): &&(String, String)| cause.contains(name) && changes.contains(&change.as_str());
        let right = claimed.iter().filter(is_right).count();
        // A guest that does more is stopped more often: the two CPUs share one of the host.
        let is_of_host = |(cause, _): &&(String, String)| HOST.iter().any(|kind| cause.starts_with(kind));
        others += claimed.iter().filter(|claim| !is_right(claim) && !is_of_host(claim)).count();
        println!("         {} | {side} vs {base} | {claimed:?}", guest.kernel_version());
        missing.extend((right == 0).then(|| format!("{side} vs {base}")));
    }
    let cells = result["cells"].as_array().cloned().unwrap_or_default();
    let repeats = cells.iter().flat_map(|cell| cell["repeats"].as_array().cloned().unwrap_or_default());
    let errors: Vec<Value> =
        repeats.map(|repeat| repeat["error"].clone()).filter(|it| !it.is_null()).collect();
    let skipped: Vec<&Value> = cells.iter().map(|cell| &cell["skipped"]).filter(|it| !it.is_null()).collect();
    assert!(missing.is_empty(), "{missing:?}, skipped {skipped:?}, {errors:?}\n{rows:#?}");
    // Each contrast may have a false claim in 1 of 20 runs.
    assert!(others <= 1, "{rows:#?}");
}
