//! The cases: the built-in plans find what is planted, and what loads draw over is written back.

use serde_json::Value;
use std::time::Duration;
use whylate_lab::suite::{self, LabTest};
use whylate_lab::{Device, Guest, Kernel, LOAD_PLANT, LabError, Machine, Profile};

pub(crate) fn tests() -> Vec<LabTest> {
    let mut tests = Vec::new();
    for kernel in suite::kernels(&[Kernel::RealTime]) {
        let threads = Machine::new(Profile::Threads, kernel);
        let screen = threads.clone().with(&[Device::VesaFramebuffer]);
        tests.extend([
            LabTest::new("cases_buffers_that_are_made_anew_flush_a_shielded_cpu", threads.clone(), buffers),
            LabTest::new("cases_what_delays_beside_drawing_is_named", threads, drawing),
            LabTest::new("cases_a_screen_has_its_contents_back", screen, screen_is_given_back),
        ]);
    }
    tests
}

/// Runs a built-in plan in its short form, one repeat of these cells, and returns its result.
fn run(guest: &mut Guest, plan: &str, before: &str, sets: &[&str]) -> Result<Value, LabError> {
    let sets: String = sets.iter().map(|set| format!(" --set '{set}'")).collect();
    let script = format!(
        "taskset -pc 0 $$ >/dev/null\n{before}\ntaskset -c 0-1 whylate run {plan} --short --set answer=[] --set repeats=1 --set noise_floor=0s{sets} \
         -o /tmp/{plan} --json -q >$OUT/result.json; status=$?\n[ -z \"$beside\" ] || kill $beside\nrm -rf /tmp/{plan}\nexit $status"
    );
    let output = guest.start(&script)?.wait(Duration::from_secs(300))?;
    assert_eq!(output.status, 0, "{}", output.stderr);
    output.json("result.json")
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn buffers(guest: &mut Guest) -> Result<(), LabError> {
    let sets = ["matrix.loads=[[\"churn\"],[\"reuse\"]]", "duration=1s", "load.pageattr.rate=50/s"];
    let result = run(guest, "gpu-buffers", "modprobe vgem", &sets)?;
    let flushes = |cell: &Value| -> u64 {
        let of_load = list(&cell["ipis"]).iter().filter(|ipi| {
            let is_flush = ipi["function"].as_str().is_some_and(|name| name.contains("flush"));
            is_flush && ipi["from_task"].as_str().is_some_and(|task| task.starts_with("pageattr"))
        });
        of_load.filter_map(|ipi| ipi["count"].as_u64()).sum()
    };
    let [churn, reuse] = list(&result["cells"]) else { panic!("{}", result["cells"]) };
    assert!(flushes(churn) >= 20, "{}", churn["ipis"]);
    assert_eq!(flushes(reuse), 0, "{}", reuse["ipis"]);
    // The cells run in an order drawn at random.
    let moments: Vec<&str> =
        list(&result["cpu_tables"]).iter().filter_map(|table| table["at"].as_str()).collect();
    assert!(matches!(moments[..], ["before", "churn+shield" | "reuse+shield", "after"]), "{moments:?}");
    let shielded = |table: usize| result["cpu_tables"][table]["cpus"][1]["shielding"]["processes"].clone();
    assert_eq!([shielded(0), shielded(1), shielded(2)].map(|is| is == true), [false, true, false]);
    assert_eq!(result["restored"], true, "{}", result["warnings"]);
    Ok(())
}

/// A thread of the kernel that keeps interrupts off where the task runs, while the CPU draws there.
fn drawing(guest: &mut Guest) -> Result<(), LabError> {
    let before = format!(
        "modprobe vgem\n{LOAD_PLANT}sh -c 'while :; do echo \"irq-off 60ms cpu=1 count=1\" >/proc/plant; sleep 0.3; done' & beside=$!"
    );
    let sets = ["cell=[{name=\"graphics\",loads=[\"graphics\"]}]", "duration=2s", "trace.above=30ms"];
    let result = run(guest, "graphics", &before, &sets)?;
    let cell = &result["cells"][0];
    assert!(cell["skipped"].is_null(), "{cell}");
    assert!(list(&cell["rates"]).iter().all(|rate| rate["mean"].as_f64() > Some(0.0)), "{}", cell["rates"]);
    let is_planted = |cause: &Value| {
        let mut names = list(&cause["callers"]).iter().chain([&cause["function"]]);
        cause["kind"] == "irqs_off" && names.any(|name| name == "plant_irq_off_stall")
    };
    let timer = |spike: &&Value| spike["probe"] == "timer";
    let spikes: Vec<&Value> = list(&cell["spikes"]).iter().filter(timer).collect();
    assert!(spikes.iter().any(|spike| is_planted(&spike["cause"])), "{spikes:#?}");
    let traced = list(&cell["traces"]).iter().flat_map(|trace| list(&trace["explained"]["spikes"]));
    assert!(traced.clone().count() > 0, "no trace was kept: {}", result["warnings"]);
    Ok(())
}

/// The framebuffer and the console have what they showed, also when whylate is killed.
fn screen_is_given_back(guest: &mut Guest) -> Result<(), LabError> {
    let refused = guest.run("whylate load framebuffer --device /dev/fb0 -D 1; whylate load console -D 1")?;
    assert_eq!(refused.stderr.matches("--yes-draw-on-my-screen").count(), 2, "{}", refused.stderr);
    let text = guest.ok(
        "chvt 1 2>/dev/null || true\necho 0 >/sys/class/graphics/fbcon/cursor_blink 2>/dev/null || true\n\
         before=$(md5sum </dev/fb0)\n\
         whylate load framebuffer --device /dev/fb0 --yes-draw-on-my-screen -D 1 --json >$OUT/load.json\n\
         [ \"$before\" = \"$(md5sum </dev/fb0)\" ] && echo drawn and given back\n\
         whylate load framebuffer --device /dev/fb0 --yes-draw-on-my-screen -D 60 >/dev/null 2>&1 & load=$!\n\
         for attempt in $(seq 300); do [ \"$before\" = \"$(md5sum </dev/fb0)\" ] || break; sleep 0.1; done\n\
         [ \"$before\" != \"$(md5sum </dev/fb0)\" ] && echo drawn\nkill -9 $load\n\
         for attempt in $(seq 300); do [ \"$before\" != \"$(md5sum </dev/fb0)\" ] || break; sleep 0.1; done\n\
         [ \"$before\" = \"$(md5sum </dev/fb0)\" ] && echo given back behind a kill\n\
         echo kept >/dev/tty1; screen=$(md5sum </dev/vcs1)\n\
         whylate load console --device /dev/tty1 --yes-draw-on-my-screen -D 1 >/dev/null\n\
         [ \"$screen\" = \"$(md5sum </dev/vcs1)\" ] && echo console given back",
    )?;
    assert_eq!(text, "drawn and given back\ndrawn\ngiven back behind a kill\nconsole given back");
    Ok(())
}
