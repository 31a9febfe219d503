//! Records one planted cause in a guest.

use super::recipe::{Planter, Recipe, Recording};
use crate::error::LabError;
use crate::guest::Guest;
use crate::host;
use crate::machine::Kernel;
use crate::output::Output;
use crate::plant::{LOAD_PLANT, Stall};
use std::path::Path;
use std::time::{Duration, Instant};
use whylate_core::plan::TraceProfile;

/// The events in addition to those of the light profile of `whylate trace record`: of the systems that it records
/// whole.
const EVENTS: [&str; 4] = [
    "irq_vectors/local_timer_entry",
    "irq_vectors/local_timer_exit",
    "ipi/ipi_send_cpu",
    "csd/csd_function_entry",
];
/// The functions that are traced: those of the planter, and those around it that a person would choose. If all of them
/// were traced, an emulated CPU would do nothing else.
const FUNCTIONS: &str = ":mod:plant schedule __schedule hrtimer_interrupt __hrtimer_run_queues hrtimer_wakeup \
    try_to_wake_up do_idle __x64_sys_* do_nanosleep kthread rt_mutex_* __rt_mutex_* rt_spin_lock rt_spin_unlock \
    irq_thread irq_thread_fn irq_forced_thread_fn __do_softirq run_ksoftirqd tasklet_action* handle_softirqs \
    irq_enter_rcu irq_exit_rcu sysvec_* __sysvec_* *smp_call_function* handle_mm_fault handle_userfault \
    exc_page_fault _raw_spin_lock* _raw_spin_unlock*";
/// Interrupts of which every event is recorded.
const VECTORS: [&str; 5] =
    ["reschedule", "call_function", "call_function_single", "irq_work", "x86_platform_ipi"];
/// A file of the shared folder that says that the machine may be stopped.
const BEGUN: &str = "corpus-begun";
/// A recording may take this long.
const LIMIT: Duration = Duration::from_secs(240);

#[derive(Debug)]
pub(super) struct Recorded {
    pub(super) output: Output,
    /// What the planter says that it did.
    pub(super) stalls: Vec<Stall>,
    /// Name of the planted interrupt's thread; if interrupts are threaded by force, of the second one, which the
    /// planter gave.
    pub(super) irq_thread: String,
}

/// All events, as `system/name`.
fn events() -> Vec<String> {
    let vectors =
        VECTORS.iter().flat_map(|name| ["entry", "exit"].map(|end| format!("irq_vectors/{name}_{end}")));
    let events = TraceProfile::EVENTS.into_iter().chain(EVENTS).map(str::to_owned);
    events.chain(vectors).collect()
}

/// Copies out the constant parts: formats and symbols. Sets the buffer up.
pub(super) fn prepare(guest: &mut Guest, kernel: Kernel) -> Result<Output, LabError> {
    let events = events().join(" ");
    let script = format!(
        "set -e\n{LOAD_PLANT}\
         trace=/sys/kernel/tracing/instances/corpus; mkdir -p $trace; cd $trace\n\
         echo 0 >tracing_on; echo mono >trace_clock; echo 6144 >buffer_size_kb\n\
         for event in {events}; do\n\
             [ -d events/$event ] || continue\n\
             echo 1 >events/$event/enable\n\
             mkdir -p $OUT/formats/${{event%/*}}\n\
             cat events/$event/format >$OUT/formats/$event\n\
         done\n\
         mkdir -p $OUT/formats/ftrace\n\
         for format in /sys/kernel/tracing/events/ftrace/*/format; do\n\
             name=${{format%/format}}; cat $format >$OUT/formats/ftrace/${{name##*/}}\n\
         done\n\
         for name in header_page header_event; do\n\
             dd if=/sys/kernel/tracing/events/$name of=$OUT/$name bs=64k count=1 2>/dev/null\n\
         done\n\
         awk '$2 ~ /^[tTwW]$/' /proc/kallsyms >$OUT/kallsyms\n"
    );
    let output = guest.run(&script)?;
    if output.status == 0 {
        return Ok(output);
    }
    let what = format!("the tracer of {} ({})", kernel.name(), output.stderr);
    Err(LabError::Form { what: "the setup of a trace buffer", text: what })
}

pub(super) fn record(
    guest: &mut Guest,
    recipe: &Recipe,
    recording: Recording,
    length_us: u64,
) -> Result<Recorded, LabError> {
    let begun = guest.share().join(BEGUN);
    // It exists if something was recorded before.
    let _ = std::fs::remove_file(&begun);
    let mut running = guest.start(&script(recipe, recording, length_us))?;
    if let Planter::Freeze(_) = recipe.planter {
        let deadline = Instant::now() + LIMIT;
        while !begun.exists() && Instant::now() < deadline && !running.is_done_within(POLL)? {}
        std::thread::sleep(Duration::from_millis(300));
        running.guest().freeze(Duration::from_micros(length_us))?;
    }
    let output = running.wait(LIMIT)?;
    if output.status != 0 {
        let Output { status, stdout, stderr, .. } = output;
        return Err(LabError::Script { status, stdout, stderr });
    }
    let text = |name: &str| host::read_text(&output.files.join(name));
    Ok(Recorded {
        stalls: Stall::read(&text("truth")?)?,
        irq_thread: text("irq_thread")?.trim().to_owned(),
        output,
    })
}

const POLL: Duration = Duration::from_millis(100);

fn script(recipe: &Recipe, recording: Recording, length_us: u64) -> String {
    let (us, ms) = (length_us.to_string(), length_us.div_ceil(1000).to_string());
    let cpu = recipe.cpu;
    let filled =
        |text: &str| text.replace("LENGTH", &format!("{us}us")).replace("MS", &ms).replace("US", &us);
    // Everything that follows the cause fills the buffer: nothing is started before tracing is off.
    let (plant, truth) = match recipe.planter {
        Planter::Module(command) => (format!("echo {} >/proc/plant", filled(command)), "cat /proc/plant"),
        Planter::Program(command) => (format!("{} >/tmp/truth", filled(command)), "cat /tmp/truth"),
        Planter::Freeze(command) => {
            (format!("BEGUN=/lab/{BEGUN} {} >/tmp/truth", filled(command)), "cat /tmp/truth")
        }
        Planter::Nothing(command) => (command.to_owned(), ":"),
    };
    let victim = recipe.priority.map_or(String::new(), |priority| {
        let cpus = recipe.profile.cpus();
        let threads = if cpus > 1 { format!("-t{cpus} -a0-{}", cpus - 1) } else { format!("-t1 -a{cpu}") };
        format!(
            "cyclictest -q -m {threads} -p{priority} -i1000 -d0 -D120 >/dev/null &\n\
             until [ $(ls /proc/$!/task | wc -l) -gt {cpus} ]; do sleep 0.05; done\n"
        )
    });
    let (tracer, functions) =
        if recording == Recording::Functions { ("function", FUNCTIONS) } else { ("nop", "") };
    let with_stacks = recipe.stacks && recording == Recording::Events;
    let stacks = if with_stacks { "stacktrace" } else { "!stacktrace" };
    // The text first: reading the pages empties the buffer.
    let text = if recording == Recording::Events { "cat $trace/trace >$OUT/trace\n" } else { "" };
    let collect = "for pages in $trace/per_cpu/cpu*/trace_pipe_raw; do\n\
         cpu=${pages%/*}; cpu=${cpu##*/}\n\
         dd if=$pages of=$OUT/$cpu bs=4096 iflag=nonblock conv=sync 2>/dev/null || true\ndone\n\
         cat /sys/kernel/tracing/saved_cmdlines >$OUT/commands\n";
    format!(
        "set -ef\ntrace=/sys/kernel/tracing/instances/corpus\nexport TRACING_ON=$trace/tracing_on\n\
         taskset -pc 0 $$ >/dev/null\n\
         [ $(cat $trace/current_tracer) = {tracer} ] || {{\n\
             for function in {functions}; do echo $function >>$trace/set_ftrace_filter || true; done\n\
             echo {tracer} >$trace/current_tracer\n\
         }}\n\
         echo '{stacks}' >$trace/events/irq_vectors/local_timer_entry/trigger || true\n\
         echo clear >/proc/plant\nsysctl -q kernel.sched_rt_runtime_us=950000\n{prepare}\n{victim}set +f\n\
         cat /proc/[0-9]*/comm 2>/dev/null | grep '^irq/.*-plant$' | sort | tail -1 >$OUT/irq_thread\n\
         echo >$trace/trace\necho 1 >$trace/tracing_on\n{plant}\n\
         echo 0 >$trace/tracing_on\n{truth} >$OUT/truth\n{text}{collect}",
        prepare = filled(recipe.prepare),
    )
}

/// The pages of each CPU, in the place to which they were copied.
pub(super) fn pages(folder: &Path, cpus: u32) -> Result<Vec<Vec<u8>>, LabError> {
    let read = |cpu: u32| {
        let path = folder.join(format!("cpu{cpu}"));
        std::fs::read(&path).map_err(LabError::file("read", &path))
    };
    (0..cpus).map(read).collect()
}
