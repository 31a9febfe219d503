//! The cases: the built-in plans find what is planted, and what loads draw over is restored.

use crate::causes::{plant_during, vgem_interrupts_no_cpu};
use crate::tracing::needs;
use serde_json::Value;
use std::collections::BTreeSet;
use std::time::Duration;
use whylate_lab::suite::{self, LabTest};
use whylate_lab::{Device, Guest, Kernel, LOAD_PLANT, LabError, Machine, Profile, Stall};

/// How often each cause is planted while a loop runs.
const PLANTED: u64 = 10;
/// What the driver of virtio-gpu does in the thread of its interrupt.
const DRIVER_FUNCTION: &str = "virtio_gpu_ctrl_ack";
/// How long interrupts are disabled there.
const DRIVER_STALL_NS: u64 = 150_000_000;

pub(crate) fn tests() -> Vec<LabTest> {
    let mut tests = Vec::new();
    for kernel in suite::kernels(&[Kernel::RealTime]) {
        let threads = Machine::new(Profile::Threads, kernel);
        let screen = threads.clone().with(&[Device::VesaFramebuffer]);
        tests.extend([
            LabTest::new("cases_buffers_that_are_made_anew_flush_a_shielded_cpu", threads.clone(), buffers),
            LabTest::new("cases_what_delays_during_drawing_is_named", threads, drawing),
            LabTest::new("cases_a_screen_has_its_contents_back", screen, screen_is_given_back),
        ]);
    }
    for kernel in suite::kernels(&[Kernel::RealTime]) {
        let threads = Machine::new(Profile::Threads, kernel);
        let siblings = threads.clone().with(&[Device::Siblings]);
        tests.extend([
            LabTest::new("cases_hwlat_finds_the_way_to_write_that_stalls", threads, stalling_way),
            LabTest::new("cases_the_firmware_is_counted", siblings.clone(), firmware),
            LabTest::new("cases_the_other_thread_of_a_core_goes_and_comes_back", siblings, sibling),
        ]);
    }
    for kernel in suite::kernels_unless_brief(&[Kernel::RealTime, Kernel::RealTimeNew]) {
        let threads = Machine::new(Profile::Threads, kernel);
        tests.push(LabTest::new("cases_only_proven_memory_is_chosen", threads, memory_types));
    }
    for kernel in suite::kernels(&[Kernel::RealTime, Kernel::RealTimeNew]) {
        let threads = Machine::new(Profile::Threads, kernel);
        let with_card = threads.clone().with(&[Device::VirtioGpu]);
        tests.extend([
            LabTest::new("cases_what_interrupts_a_loop_adds_up", threads, accounted),
            LabTest::new(
                "cases_a_stall_in_the_graphics_interrupt_is_named",
                with_card,
                stall_in_interrupt_thread,
            ),
        ]);
    }
    tests
}

/// Each type of memory that the module and vgem map is in the table as it is mapped; since an emulated machine has none but
/// write-back memory, the answer names rows of that alone.
fn memory_types(guest: &mut Guest) -> Result<(), LabError> {
    let before = "[ -e /dev/whylate_memtype ] || insmod /lab/whylate_memtype.ko\nmodprobe vgem";
    let sets = [
        "cell=[{loads=[]},{loads=[\"memcpy\"]},{loads=[\"non-temporal\"]}]",
        "duration=1s",
        "load.memcpy.rate=20MB/s",
        "load.non-temporal.rate=20MB/s",
    ];
    let result = run(guest, "cache-modes", before, &sets)?;
    let rows = list(&result["copies"]["rows"]);
    let mapped = |backend: &str| -> BTreeSet<(&str, &str)> {
        let of = rows.iter().filter(|row| row["backend"] == backend);
        of.filter_map(|row| Some((row["requested"].as_str()?, row["mapped"].as_str()?))).collect()
    };
    assert_eq!(mapped("memtype"), [("uc", "uc"), ("uc-", "uc-"), ("wc", "wc"), ("wt", "wt")].into());
    assert!(mapped("dumb").contains(&("wc", "wc")), "{rows:#?}");
    let is_measured =
        |row: &Value| list(&row["blocks"]).iter().all(|block| block["bytes_per_s"].as_f64() > Some(0.0));
    assert!(rows.iter().all(|row| is_measured(row) && !list(&row["blocks"]).is_empty()), "{rows:#?}");
    let warned = list(&result["warnings"]).iter().any(|it| it["code"] == "memory-mode-not-effective");
    let choice = list(&result["answers"])
        .iter()
        .find(|it| it["question"].as_str().is_some_and(|it| it.starts_with("Which method copies")));
    let sentence = choice.and_then(|choice| choice["sentence"].as_str()).unwrap_or_default();
    // The rows' names begin with their types.
    let names_others =
        ["wc-", "uc-", "wt-", "-wc/", "-uc/", "-wt/"].iter().any(|name| sentence.contains(name));
    assert!(warned && !sentence.is_empty() && !names_others, "{sentence}; {:#}", result["warnings"]);
    assert_eq!(result["restored"], true, "{}", result["warnings"]);
    Ok(())
}

/// Runs a built-in plan in its short form, one repeat of these cells, and returns its result.
fn run(guest: &mut Guest, plan: &str, before: &str, sets: &[&str]) -> Result<Value, LabError> {
    let sets: String = sets.iter().map(|set| format!(" --set '{set}'")).collect();
    let script = format!(
        "taskset -pc 0 $$ >/dev/null\n{before}\ntaskset -c 0-1 whylate run {plan} --short --set answer=[] --set repeats=1 --set noise_floor=0s{sets} \
         -o /tmp/{plan} --json -q >$OUT/result.json; status=$?\n[ -z \"$background\" ] || kill $background\nrm -rf /tmp/{plan}\nexit $status"
    );
    let output = guest.start(&script)?.wait(Duration::from_secs(300))?;
    if output.status == 0 {
        return output.json("result.json");
    }
    if vgem_interrupts_no_cpu(guest, &output.stderr) {
        return Err(LabError::not_there(output.stderr));
    }
    let result = output.json("result.json").unwrap_or_default();
    let repeats = list(&result["cells"]).iter().flat_map(|cell| list(&cell["repeats"]));
    let whys: Vec<&Value> = repeats.map(|repeat| &repeat["error"]).filter(|why| !why.is_null()).collect();
    panic!("{plan} ended with {}: {whys:?}\n{}\n{:#}", output.status, output.stderr, result["warnings"]);
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

/// A thread of the kernel that keeps interrupts disabled where the task runs, while the CPU draws there.
fn drawing(guest: &mut Guest) -> Result<(), LabError> {
    let before = format!(
        "modprobe vgem\n{LOAD_PLANT}sh -c 'while :; do echo \"irq-off 150ms cpu=1 count=1\" >/proc/plant; sleep 0.3; done' & background=$!"
    );
    let sets = ["cell=[{name=\"graphics\",loads=[\"graphics\"]}]", "duration=2s", "trace.above=80ms"];
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

/// All sources together are the time that a loop lost; what another CPU does to it is named and counted.
fn accounted(guest: &mut Guest) -> Result<(), LabError> {
    let sets = ["cell=[{name=\"as-is\"},{name=\"without-causes\",causes=false}]", "duration=2s"];
    let result = run(guest, "interrupts", "", &sets)?;
    let cell =
        |name: &str| list(&result["cells"]).iter().find(|cell| cell["name"] == name).unwrap_or(&Value::Null);
    let looped = |cell: &Value| {
        let probe = list(&cell["probes"]).iter().find(|probe| probe["probe"] == "stall").cloned();
        probe.map(|probe| probe["cpus"][0].clone()).unwrap_or_default()
    };
    adds_up(&looped(cell("as-is")));
    let alone = looped(cell("without-causes"));
    assert!(number(&alone["lost_ns"]) > 0 && list(&alone["sources"]).is_empty(), "{alone}");
    let trips = list(&cell("as-is")["probes"]).iter().filter(|probe| probe["probe"] == "roundtrip");
    assert!(trips.flat_map(|probe| list(&probe["cpus"])).all(|cpu| number(&cpu["samples"]) > 0), "{result}");
    let commands =
        ["remote-nmi", "ipi"].map(|cause| format!("{cause} 40ms cpu=1 from=0 count={PLANTED} every=200ms"));
    let measure = "taskset -c 0-1 whylate measure stall --cpu 1 --duration 12s --spikes 1000";
    let (stalls, result) = plant_during(guest, &commands, measure)?;
    assert_eq!(stalls.len(), 2 * PLANTED as usize, "{stalls:?}");
    let looped = &result["cpus"][0];
    adds_up(looped);
    for kind in ["nmi", "ipi"] {
        let of_kind = list(&looped["sources"]).iter().filter(|source| source["kind"] == kind);
        let long = of_kind.filter(|source| number(&source["max_ns"]) >= 40_000_000);
        let counted: u64 = long.map(|source| number(&source["gaps"])).sum();
        // If the host stops a CPU meanwhile, that is the larger part of the gap.
        assert!(counted * 10 >= PLANTED * 7, "{counted} of {PLANTED} `{kind}`: {:#}", looped["sources"]);
    }
    Ok(())
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_default()
}

/// Whether the sources of a loop's gaps are the time that it lost, within one percent.
fn adds_up(looped: &Value) {
    let sum: u64 = list(&looped["sources"]).iter().map(|source| number(&source["total_ns"])).sum();
    let lost = number(&looped["lost_ns"]);
    assert!(lost > 0 && sum.abs_diff(lost) * 100 <= lost, "{sum} of {lost} ns: {:#}", looped["sources"]);
}

fn sibling(guest: &mut Guest) -> Result<(), LabError> {
    let sets = [
        "cell=[{name=\"as-is\"},{name=\"sibling-off\",treatments=[\"sibling-off\"]}]",
        "target.cpus=0",
        "probe=[{kind=\"stall\",threshold=\"1us\"}]",
    ];
    let result = run(guest, "interrupts", "", &sets)?;
    for cell in list(&result["cells"]) {
        let loops = list(&cell["probes"]).iter().filter(|probe| probe["probe"] == "stall");
        let samples: Vec<u64> = loops.filter_map(|probe| probe["cpus"][0]["samples"].as_u64()).collect();
        assert!(cell["skipped"].is_null() && samples.iter().sum::<u64>() > 0, "{cell}");
    }
    assert_eq!(result["restored"], true, "{}", result["warnings"]);
    assert_eq!(guest.ok("cat /sys/devices/system/cpu/online")?, "0-1");
    Ok(())
}

/// Calls of the firmware while a task is measured are counted as such. Such a guest's processor is one of Intel, which counts
/// them.
fn firmware(guest: &mut Guest) -> Result<(), LabError> {
    let before = "modprobe msr\nrm -f /tmp/smi\n/lab/smi 1000 0.1 >/tmp/smi & background=$!";
    let sets = [
        "cell=[{name=\"as-is\"}]",
        "probe=[{kind=\"timer\"}]",
        "primary=timer p99",
        "target.cpus=0",
        "duration=4s",
    ];
    let result = run(guest, "interrupts", before, &sets)?;
    let planted: u64 = Stall::read(&guest.ok("cat /tmp/smi")?)?.iter().map(|stall| stall.events).sum();
    let counted = result["cells"][0]["smis"].as_u64();
    assert!(
        counted.is_some_and(|counted| counted > 0 && counted <= planted),
        "{counted:?} of {planted}: {}",
        result["warnings"]
    );
    Ok(())
}

/// Frames are written in two ways, and with one of them a stall is planted: hwlat shows which one stalls another CPU.
fn stalling_way(guest: &mut Guest) -> Result<(), LabError> {
    needs(guest, "hwlat")?;
    let tracer = "cd /sys/kernel/tracing; cat current_tracer hwlat_detector/width hwlat_detector/window tracing_thresh";
    let as_before =
        guest.ok(&format!("mount -t tracefs none /sys/kernel/tracing 2>/dev/null || true\n{tracer}"))?;
    let planter = r#"import json, time
while True:
    try:
        cell = json.load(open("/tmp/framebuffer/run.json"))["executions"][-1]
    except (OSError, ValueError, LookupError):
        cell = {}
    if cell.get("state") == "running" and cell["cell"] == "as-is":
        open("/proc/plant", "w").write("remote-nmi 200ms cpu=1 from=0 count=2 every=350ms")
    time.sleep(0.05)
"#;
    let before = format!(
        "modprobe vgem\n{LOAD_PLANT}echo clear >/proc/plant\ncat >/tmp/planter <<'END'\n{planter}END\n\
         python3 /tmp/planter & background=$!"
    );
    let answer = "answer=[{question=\"fewer?\",between=[[\"as-is\"],[\"destination-flushed\"]],\
                  statistic=\"tracer/hwlat gaps_per_s\",matters=\"20%\",expect=\"lower\"}]";
    let sets = [
        "cell=[{loads=[\"as-is\"]},{loads=[\"destination-flushed\"]}]",
        "probe=[{kind=\"tracer\",tracer=\"hwlat\",width=\"950ms\",window=\"1s\",threshold=\"150ms\"}]",
        "repeats=8",
        "causes=false",
        "primary=tracer/hwlat gaps_per_s",
        answer,
    ];
    let result = run(guest, "framebuffer", &before, &sets)?;
    let answer = &result["answers"][0];
    assert_eq!(answer["outcome"], "yes", "{answer:#}\n{:#}", result["cells"]);
    let comparison = &answer["comparison"];
    assert!(comparison["ratio_high"].as_f64() < Some(0.8), "{comparison:#}");
    assert_eq!(guest.ok(tracer)?, as_before);
    Ok(())
}

/// The interrupt thread of a graphics device disables interrupts in a function of its driver: named with its callers where the
/// task runs on that CPU, live and in the kept trace; not there where the device interrupts the other CPU.
fn stall_in_interrupt_thread(guest: &mut Guest) -> Result<(), LabError> {
    let before = format!(
        "modprobe virtio_gpu 2>/dev/null || true\n{LOAD_PLANT}echo clear >/proc/plant\nsh -c 'while :; do \
         echo \"irq-off-in {DRIVER_STALL_NS}ns cpu=1 in={DRIVER_FUNCTION}\" >/proc/plant 2>/dev/null; sleep 0.3; done' & background=$!"
    );
    let load = |name: &str, cpus: &str| {
        format!(
            "{{name=\"{name}\",kind=\"graphics\",method=\"drm-flip\",cpus=\"{cpus}\",rate=\"20/s\",device=\"/dev/dri/card0\",yes_draw_on_my_screen=true}}"
        )
    };
    let loads = format!("load=[{},{}]", load("graphics", "target"), load("graphics-elsewhere", "others"));
    let sets = [
        loads.as_str(),
        "cell=[{name=\"graphics\",loads=[\"graphics\"],treatments=[\"interrupts-here\"]},\
         {name=\"graphics-elsewhere\",loads=[\"graphics-elsewhere\"],treatments=[\"interrupts-elsewhere\"]}]",
        "duration=4s",
        "trace.above=80ms",
    ];
    let result = run(guest, "graphics", &before, &sets)?;
    // Without PREEMPT_RT this thread does not exist: the driver works in the interrupt itself.
    let has_thread = guest.kernel_version().contains("-rt-");
    let is_planted = |spike: &Value| {
        let cause = &spike["cause"];
        let mut names = list(&cause["callers"]).iter().chain([&cause["function"]]);
        let is_of_card = cause["actor"].as_str().is_some_and(|actor| actor.contains("virtio"));
        match has_thread {
            true => cause["kind"] == "irqs_off" && names.any(|name| name == DRIVER_FUNCTION),
            false => cause["kind"] == "irq" && is_of_card && number(&spike["latency_ns"]) >= DRIVER_STALL_NS,
        }
    };
    let planted = |name: &str| {
        let cell = list(&result["cells"]).iter().find(|cell| cell["name"] == name).unwrap_or(&Value::Null);
        assert!(cell["skipped"].is_null() && !list(&cell["probes"]).is_empty(), "{cell}");
        let live = list(&cell["spikes"]).iter().filter(|spike| is_planted(spike)).count();
        let traced = list(&cell["traces"]).iter().flat_map(|trace| list(&trace["explained"]["spikes"]));
        let traced = traced.filter(|spike| is_planted(spike)).count();
        (live, traced, cell)
    };
    let (live, traced, cell) = planted("graphics");
    assert!(
        live > 0 && traced > 0,
        "{live} live, {traced} in traces: {:#}\n{:#}\n{:#}",
        cell["spikes"],
        cell["traces"],
        result["warnings"]
    );
    let (live, traced, cell) = planted("graphics-elsewhere");
    assert!(live == 0 && traced == 0, "{live} live, {traced} in traces: {:#}", cell["spikes"]);
    assert_eq!(result["restored"], true, "{}", result["warnings"]);
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
