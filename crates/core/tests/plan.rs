//! Plans as users write them, right and wrong.

use proptest::prelude::*;
use whylate_core::plan::{
    LoadKind, MemoryAccess, Pace, Plan, Policy, ProbePlan, SeriesStatistic, Source, TracePlan, TraceProfile,
    TreatmentKind,
};
use whylate_core::units::{BytesPerSec, Nanos};
use whylate_testing::says;

const PLAN: &str = r#"name = "memory-load"
duration = "60s"
repeats = 3
limit = "100us"
[target]
cpus = "last"
[[probe]]
kind = "timer"
interval = "200us"
priority = 95
[[load]]
name = "l3"
kind = "memory"
working_set = "l3/2"
cpus = "target"
[[load]]
name = "noise"
kind = "exec"
command = ["stress-ng", "--cpu", "1"]
[[cell]]
loads = ["l3"]
"#;

fn parse(text: &str) -> Result<Plan, String> {
    parse_with(text, &[])
}

fn parse_with(text: &str, overrides: &[&str]) -> Result<Plan, String> {
    let overrides: Vec<String> = overrides.iter().map(|text| (*text).to_owned()).collect();
    Plan::parse(&Source { name: "plan.toml", text }, &overrides).map_err(|error| error.to_string())
}

fn error(text: &str) -> String {
    parse(text).expect_err("the plan is wrong")
}

#[test]
fn a_plan_as_in_the_design() {
    let plan = parse(PLAN).unwrap();
    assert_eq!(plan.duration, Nanos::from_secs(60));
    assert_eq!(plan.limit, Some(Nanos::from_micros(100)));
    let ProbePlan::Timer(timer) = &plan.probe[0] else { panic!("not a timer") };
    assert_eq!(timer.interval, Nanos::from_micros(200));
    let LoadKind::Memory(memory) = &plan.load[0].kind else { panic!("not a memory load") };
    assert_eq!(memory.access, MemoryAccess::Copy);
    assert_eq!(plan.cell.len(), 1);
    assert_eq!(plan.cell[0].name(), "l3");
}

#[test]
fn plans_survive_json() {
    let plan = parse(PLAN).unwrap();
    let text = serde_json::to_string(&plan).unwrap();
    assert_eq!(serde_json::from_str::<Plan>(&text).unwrap(), plan);
}

#[test]
fn without_cells_there_is_idle_and_each_load_alone() {
    let plan = parse(&PLAN.replace("[[cell]]\nloads = [\"l3\"]\n", "")).unwrap();
    let names: Vec<String> = plan.cell.iter().map(|cell| cell.name()).collect();
    assert_eq!(names, ["idle", "l3", "noise"]);
}

#[test]
fn a_matrix_is_every_combination() {
    let matrix = "[matrix]\nloads = [[], [\"l3\"], [\"l3\", \"noise\"]]\n";
    let plan = parse(&PLAN.replace("[[cell]]\nloads = [\"l3\"]\n", matrix)).unwrap();
    let names: Vec<String> = plan.cell.iter().map(|cell| cell.name()).collect();
    assert_eq!(names, ["idle", "l3", "l3+noise"]);
    assert!(error(&format!("{PLAN}{matrix}")).contains("either [[cell]] or [matrix]"));
}

#[test]
fn errors_say_where_and_what_would_be_right() {
    for (from, to, expected) in [
        (
            "repeats = 3",
            "repeats = 3\ncauses_from = \"tracefs\"",
            "plan.toml:4:15: causes_from: has no effect without causes; add `causes = true`",
        ),
        (
            "interval = \"200us\"",
            "intervall = \"200us\"",
            "plan.toml:9:1: probe[0].intervall: unknown key `intervall`; did you mean `interval`?",
        ),
        (
            "interval = \"200us\"",
            "interval = 200",
            "plan.toml:9:12: probe[0].interval: `200` has no unit; write for example `200us`",
        ),
        (
            "interval = \"200us\"",
            "interval = \"200 lightyears\"",
            "plan.toml:9:12: probe[0].interval: `200 lightyears`: unknown unit `lightyears`; the units are ns, us, ms, s, m, h, d",
        ),
        (
            "kind = \"timer\"\ninterval = \"200us\"",
            "kind = \"dispatch\"\nsource = \"uio0\"",
            "plan.toml:7:1: probe[0].interval: the probe cannot know how often uio0 interrupts; give the device's period with `interval`, for example `1ms`",
        ),
        (
            "kind = \"timer\"\ninterval = \"200us\"",
            "kind = \"dispatch\"\nsource = \"timer\"",
            "plan.toml:9:10: probe[0].source: `timer` is not a source of interrupts; choose timerfd, nanosleep, rtc, rtc-update, hpet or uio0",
        ),
        (
            "kind = \"timer\"\ninterval = \"200us\"",
            "kind = \"roundtrip\"\ncpus = \"1\"",
            "plan.toml:9:8: probe[0].cpus: `1` is not two CPUs; write the sender first, for example `1,2`",
        ),
        (
            "kind = \"timer\"\ninterval = \"200us\"",
            "kind = \"roundtrip\"\ncpus = \"1,1\"\nmethod = \"spin\"",
            "plan.toml:10:10: probe[0].method: spin needs two CPUs: on one CPU the waiting loop keeps the answering loop from running",
        ),
        (
            "priority = 95",
            "priority = 100",
            "plan.toml:10:12: probe[0].priority: 100 is out of range; a real-time priority is 1 to 99",
        ),
        (
            "loads = [\"l3\"]",
            "loads = [\"l4\"]",
            "plan.toml:21:10: cell[0].loads[0]: unknown load `l4`; choose from l3, noise",
        ),
        (
            "kind = \"timer\"",
            "kind = \"tmer\"",
            "plan.toml:8:8: probe[0].kind: unknown kind `tmer`; did you mean `timer`?",
        ),
        ("repeats = 3", "repeat = 3", "plan.toml:3:1: repeat: unknown key `repeat`; did you mean `repeats`?"),
        (
            "[[load]]\nname = \"l3\"",
            "[[loads]]\nname = \"l3\"",
            "plan.toml:11:3: loads: unknown key `loads`; did you mean `load`?",
        ),
        (
            "cpus = \"last\"",
            "cpus = \"lasst\"",
            "plan.toml:6:8: target.cpus: `lasst` is not a CPU list; write for example `1,3-5`, or `all`, `isolated`, `housekeeping`, `last`",
        ),
        ("working_set = \"l3/2\"\n", "", "plan.toml:11:1: load[0]: has no `working_set`, which is required"),
        (
            "name = \"noise\"",
            "name = \"l3\"",
            "plan.toml:17:8: load[1].name: there is another load or treatment named `l3`",
        ),
        (
            "command = [\"stress-ng\", \"--cpu\", \"1\"]",
            "command = []",
            "plan.toml:19:11: load[1].command: is empty; write for example `command = [\"stress-ng\", \"--cpu\", \"1\"]`",
        ),
        (
            "[[cell]]",
            "[[treatment]]\nname = \"s\"\n[[cell]]",
            "plan.toml:20:1: treatment[0]: has no `kind`; the kinds are shield, irq-affinity, affinity, cgroup, cpu-quota, priority, workqueue, fair-server, network, ethtool, governor, smt-off, idle, cache-partition, gpu-power, pci-power, thp, ksm, numa-balancing, watchdog, rt-throttling, sysfs, sysctl, module-parameter, boot",
        ),
        (
            "[[cell]]",
            "[[treatment]]\nname = \"s\"\nkind = \"governer\"\n[[cell]]",
            "plan.toml:22:8: treatment[0].kind: unknown kind `governer`; did you mean `governor`?",
        ),
        (
            "[[cell]]",
            "[[treatment]]\nkind = \"thp\"\n[[cell]]",
            "plan.toml:20:1: treatment[0]: has no `name`; add a name, so that cells can list it",
        ),
        (
            "[[cell]]",
            "[[treatment]]\nname = \"s\"\nkind = \"idle\"\nexit_latency = \"1us\"\n[[cell]]",
            "plan.toml:23:1: treatment[0].exit_latency: unknown key `exit_latency`; did you mean `exit_latency_max`?",
        ),
        (
            "[[cell]]",
            "[[treatment]]\nname = \"s\"\nkind = \"governor\"\nmin = 2400\n[[cell]]",
            "plan.toml:23:7: treatment[0].min: `2400` has no unit; write for example `2.4GHz`",
        ),
        (
            "[[cell]]",
            "[[treatment]]\nname = \"s\"\nkind = \"governor\"\n[[cell]]",
            "plan.toml:20:1: treatment[0]: sets nothing; give `governor`, `min`, `max`, `energy_preference` or `turbo`",
        ),
        (
            "[[cell]]",
            "[[treatment]]\nname = \"l3\"\nkind = \"ksm\"\n[[cell]]",
            "plan.toml:21:8: treatment[0].name: there is another load or treatment named `l3`",
        ),
        (
            "loads = [\"l3\"]",
            "loads = [\"l3\"]\ntreatments = [\"quiet\"]",
            "plan.toml:22:15: cell[0].treatments[0]: unknown treatment `quiet`; none is defined",
        ),
    ] {
        assert!(PLAN.contains(from), "{from}");
        assert_eq!(error(&PLAN.replacen(from, to, 1)), expected);
    }
}

/// Without causes it is not known, and raw figures do not pass for it.
#[test]
fn the_own_latency_needs_causes() {
    let with = |primary: &str, causes: bool| {
        let head = format!("primary = \"{primary}\"\ncauses = {causes}\nduration");
        parse(&PLAN.replacen("duration", &head, 1))
    };
    for own in ["timer own max", "timer own_max", "timer own p99", "timer own p99.9"] {
        let plan = with(own, true).unwrap();
        let primary = plan.primary_statistic().unwrap();
        assert!(primary.series == "timer" && primary.statistic.is_own(), "{primary}");
        assert_eq!(primary.to_string().parse::<SeriesStatistic>().unwrap(), primary);
        let refused = with(own, false).unwrap_err();
        assert!(refused.contains("plan.toml:2:") && refused.contains("causes = true"), "{refused}");
        assert!(refused.contains("p99.9") && !refused.contains("one of own"), "{refused}");
    }
    let unknown = with("timer own p98", true).unwrap_err();
    assert!(unknown.contains("own_max"), "{unknown}");
    let stall = PLAN.replace("kind = \"timer\"\ninterval = \"200us\"\npriority = 95", "kind = \"stall\"");
    let of_stall = stall.replacen("duration", "primary = \"stall own max\"\ncauses = true\nduration", 1);
    assert!(parse(&of_stall).unwrap_err().contains("timer"), "it is known of `timer` alone");
}

#[test]
fn what_is_not_toml_says_where_it_stops_being_so() {
    let message = error("name = \"x\"\nduration = = 3\n");
    assert!(message.starts_with("plan.toml:2:"), "{message}");
    assert!(!message.contains('\n'), "{message}");
}

#[test]
fn overrides_reach_every_value() {
    let plan = parse_with(
        PLAN,
        &[
            "duration=5s",
            "repeats=2",
            "probe.timer.interval=1ms",
            "probe.0.priority=80",
            "load.l3.rate=25%",
            "load.l3.access=read",
            "target.cpus=1",
        ],
    )
    .unwrap();
    assert_eq!((plan.duration, plan.repeats), (Nanos::from_secs(5), 2));
    let ProbePlan::Timer(timer) = &plan.probe[0] else { panic!("not a timer") };
    assert_eq!((timer.interval, timer.priority), (Nanos::from_millis(1), 80));
    let LoadKind::Memory(memory) = &plan.load[0].kind else { panic!("not a memory load") };
    assert_eq!((memory.rate, memory.access), (Pace::DutyCycle(0.25), MemoryAccess::Read));
    assert_eq!(plan.target.cpus.to_string(), "1");
    let plan = parse_with(PLAN, &["load.l3.rate=500MB/s"]).unwrap();
    let LoadKind::Memory(memory) = &plan.load[0].kind else { panic!("not a memory load") };
    assert_eq!(memory.rate, Pace::Rate(BytesPerSec(5e8)));
}

#[test]
fn wrong_overrides_name_themselves() {
    for (text, expected) in [
        ("duration", "--set duration: has no `=`; write for example `--set duration=10s`"),
        ("duration=5", "--set duration=5: duration: `5` has no unit; write for example `200us`"),
        ("durration=5s", "--set durration=5s: durration: unknown key `durration`; did you mean `duration`?"),
        ("load.l5.rate=5%", "--set load.l5.rate=5%: load.l5.rate: no `l5` in `load`; choose from l3, noise"),
        ("name.x=5", "--set name.x=5: name.x: `name` is of type string, not a table"),
        (
            "probe.timer.priority=0",
            "--set probe.timer.priority=0: probe[0].priority: 0 is out of range; a real-time priority is 1 to 99",
        ),
    ] {
        assert_eq!(parse_with(PLAN, &[text]).expect_err("wrong"), expected);
    }
}

#[test]
fn loads_of_single_acts_have_defaults_and_errors_with_their_place() {
    let with =
        |load: &str| PLAN.replace("kind = \"memory\"\nworking_set = \"l3/2\"\ncpus = \"target\"", load);
    let plan = parse(&with("kind = \"tlb\"\nrate = \"1000/s\"")).unwrap();
    let LoadKind::Tlb(tlb) = &plan.load[0].kind else { panic!("not a tlb load") };
    assert_eq!((tlb.cpus.to_string(), tlb.victims.to_string()), ("others".to_owned(), "target".to_owned()));
    assert_eq!(tlb.rate.to_string(), "1000/s");
    for kind in ["ipi", "pageattr", "softirq", "irq-thread"] {
        assert_eq!(parse(&with(&format!("kind = \"{kind}\""))).unwrap().load[0].kind.kind(), kind);
    }
    assert!(says("plan-toml-load-rate", error(&with("kind = \"softirq\"\nrate = 1000"))));
    assert!(says("plan-toml-load-source", error(&with("kind = \"irq-thread\"\nsource = \"gpu\""))));
}

#[test]
fn the_schema_knows_every_key_of_a_plan() {
    let schema = whylate_core::schema::schema("plan").unwrap();
    let text = serde_json::to_string(&schema).unwrap();
    for key in
        ["duration", "working_set", "rate_pattern", "hold_cpu_dma_latency", "threshold", "non-temporal-write"]
    {
        assert!(text.contains(&format!("\"{key}\"")), "{key}");
    }
}

proptest! {
    #[test]
    fn no_text_panics(text in "\\PC*") {
        let _ = parse(&text);
    }

    #[test]
    fn no_mutation_of_a_plan_panics(at in 0..PLAN.len(), replacement in "[\\[\\]\"=a-z0-9.\n]{0,4}") {
        let mut text = PLAN.to_owned();
        text.replace_range(at..at + 1, &replacement);
        if let Err(message) = parse(&text) {
            prop_assert!(!message.contains('\n'), "{}", message);
            prop_assert!(message.starts_with("plan.toml:"), "{}", message);
        }
    }

    #[test]
    fn no_override_panics(text in "[a-z0-9.=\\[\\]\"]{0,20}") {
        let _ = parse_with(PLAN, &[&text]);
    }
}

#[test]
fn treatments_are_an_axis_of_the_matrix() {
    let matrix = "[[treatment]]\nname = \"quiet\"\nkind = \"irq-affinity\"\n[[treatment]]\nname = \"awake\"\nkind = \"idle\"\n[matrix]\nloads = [[], [\"l3\"]]\ntreatments = [[], [\"quiet\"], [\"quiet\", \"awake\"]]\n";
    let plan = parse(&PLAN.replacen("[[cell]]\nloads = [\"l3\"]\n", matrix, 1)).unwrap();
    let names: Vec<String> = plan.cell.iter().map(|cell| cell.name()).collect();
    assert_eq!(names, ["idle", "l3", "quiet", "l3+quiet", "quiet+awake", "l3+quiet+awake"]);
    let treatment = plan.treatment("quiet").unwrap();
    assert_eq!(treatment.kind.kind(), "irq-affinity");
    assert!(plan.treatment("loud").is_none());
    let text = serde_json::to_string(&plan).unwrap();
    assert_eq!(serde_json::from_str::<Plan>(&text).unwrap(), plan, "a stored plan reads back");
}

/// The keys that a kind requires.
fn required(kind: &str) -> &'static str {
    match kind {
        "task" => "command = [\"true\"]\n",
        "tracer" => "tracer = \"hwlat\"\n",
        "memory" => "working_set = \"1MiB\"\n",
        "exec" => "command = [\"true\"]\n",
        "cgroup" => "group = \"system.slice\"\n",
        "priority" => "thread = \"x\"\npolicy = \"idle\"\n",
        "affinity" => "process = \"Xorg\"\n",
        "cpu-quota" => "process = \"cc\"\npercent = 25\n",
        "governor" => "governor = \"performance\"\n",
        "sysfs" => "path = \"/sys/a\"\nvalue = \"1\"\n",
        "sysctl" => "key = \"vm.swappiness\"\nvalue = \"1\"\n",
        "ethtool" => "delay = \"0s\"\n",
        "boot" => "append = \"isolcpus=1\"\n",
        "module-parameter" => "module = \"m\"\nparameter = \"p\"\nvalue = \"1\"\n",
        _ => "",
    }
}

#[test]
fn every_kind_is_read_as_itself_from_its_least_keys() {
    let section = |family: &str, kind: &str| {
        let name = if family == "probe" { "" } else { "name = \"x\"\n" };
        let probe = if family == "probe" { "" } else { "[[probe]]\nkind = \"timer\"\n" };
        let keys = required(kind);
        parse(&format!("name = \"t\"\n{probe}[[{family}]]\n{name}kind = \"{kind}\"\n{keys}")).unwrap()
    };
    for kind in ProbePlan::KINDS {
        let plan = section("probe", kind);
        assert_eq!(plan.probe[0].kind(), kind);
        for series in plan.probe[0].series_names() {
            let facts = whylate_core::SeriesName::of(&series).facts().unwrap();
            assert!(facts.name == kind && !facts.meaning.is_empty(), "{series}");
        }
    }
    for kind in LoadKind::KINDS {
        assert_eq!(section("load", kind).load[0].kind.kind(), kind);
    }
    for kind in TreatmentKind::KINDS {
        assert_eq!(section("treatment", kind).treatment[0].kind.kind(), kind);
    }
}

#[test]
fn traces_are_asked_for_by_a_word_or_a_section() {
    let off = parse(PLAN).unwrap();
    assert_eq!(off.trace, None);
    let word = parse(&format!("trace = \"on-spike\"\n{PLAN}")).unwrap();
    let trace = word.trace.clone().unwrap();
    assert_eq!(trace, TracePlan::default());
    assert_eq!((trace.above(word.limit), trace.buffer().0), (Nanos::from_micros(100), 4 << 20));
    assert_eq!(TracePlan::default().above(Some(Nanos(7))), Nanos(7));
    let section = format!(
        "{PLAN}[trace]\nprofile = \"functions\"\nworst = 7\nabove = \"50us\"\nevents = [\"raw_syscalls/sys_enter\"]\n"
    );
    let section = parse(&section).unwrap();
    let trace = section.trace.clone().unwrap();
    assert_eq!((trace.profile, trace.worst, trace.buffer().0), (TraceProfile::Functions, 7, 16 << 20));
    assert_eq!(trace.above(section.limit), Nanos::from_micros(50));
    for plan in [&word, &section] {
        let text = serde_json::to_string(plan).unwrap();
        assert_eq!(serde_json::from_str::<Plan>(&text).unwrap(), *plan);
    }
}

#[test]
fn traces_can_be_asked_for_and_refused_by_overrides() {
    let with = |overrides: &[&str]| parse_with(PLAN, overrides).unwrap().trace;
    assert_eq!(with(&["trace=on-spike"]), Some(TracePlan::default()));
    assert_eq!(with(&["trace.profile=functions"]).unwrap().profile, TraceProfile::Functions);
    assert_eq!(with(&["trace=on-spike", "trace=off"]), None);
    for (text, expected) in [
        ("trace=always", "--set trace=always: trace: unknown value `always`; choose from on-spike, off"),
        ("trace.worst=0", "trace.worst: must be 1 to 1000"),
        ("trace.profil=light", "trace.profil: unknown key `profil`; did you mean `profile`?"),
        ("trace.above=0s", "trace.above: must be above 0s"),
        ("trace.events=[\"sys_enter\"]", "`sys_enter` is not an event; write for example"),
    ] {
        let error = parse_with(PLAN, &[text]).unwrap_err();
        assert!(error.contains(expected), "{text}: {error}");
    }
}

#[test]
fn a_tracer_takes_what_it_has_a_use_for() {
    let probe = |text: &str| {
        parse(&format!("name = \"t\"\n[[probe]]\nkind = \"tracer\"\n{text}\n"))
            .map(|plan| plan.probe[0].clone())
    };
    let ProbePlan::Tracer(hwlat) = probe("tracer = \"hwlat\"").unwrap() else { panic!("no tracer") };
    assert_eq!((hwlat.width(), hwlat.window()), (Nanos::from_millis(950), Nanos::from_secs(1)));
    let all = "tracer = \"osnoise\"\nwidth = \"40ms\"\nwindow = \"50ms\"\nthreshold = \"5us\"\npriority = 80\ncpus = \"1\"";
    assert_eq!(probe(all).unwrap().scheduling(), (Policy::Fifo, 80));
    assert_eq!(probe("tracer = \"timerlat\"\nperiod = \"500us\"").unwrap().scheduling().0, Policy::Other);
    for (text, expected) in [
        ("", "has no `tracer`, which is required"),
        ("tracer = \"wakeup\"", "unknown value `wakeup`"),
        ("tracer = \"timerlat\"\nwidth = \"1ms\"", "probe[0].width: the timerlat tracer has no width"),
        ("tracer = \"osnoise\"\nperiod = \"1ms\"", "probe[0].period: the osnoise tracer has no period"),
        ("tracer = \"hwlat\"\nwidth = \"1s\"", "probe[0].width: must be below the window (1s)"),
        ("tracer = \"osnoise\"\nwidth = \"2s\"", "probe[0].width: must not be above the window (1s)"),
        ("tracer = \"timerlat\"\nperiod = \"50us\"", "probe[0].period: must be 100us to 1s"),
        ("tracer = \"hwlat\"\nthreshold = \"1ns\"", "probe[0].threshold: must be at least 1us"),
        ("tracer = \"timerlat\"\npriority = 100", "probe[0].priority: 100 is out of range"),
    ] {
        let error = probe(text).unwrap_err();
        assert!(error.contains(expected), "{text}: {error}");
    }
}

#[test]
fn the_histograms_probe_counts_all_real_time_tasks_by_default() {
    let parse = |probe: &str| {
        let text = format!("name = \"p\"\n[[probe]]\nkind = \"histograms\"\n{probe}");
        Plan::parse(&Source { name: "p.toml", text: &text }, &[])
    };
    let ProbePlan::Histograms(histograms) = parse("").unwrap().probe.remove(0) else {
        panic!("not histograms")
    };
    assert_eq!(histograms.kinds, whylate_core::result::HistogramKind::ALL);
    assert_eq!((histograms.priority_min, histograms.priority_max), (1, 100));
    let some = parse("kinds = [\"timerwakeupswitch\"]\ntask = \"control\"\nsource = \"tracefs\"").unwrap();
    assert_eq!(some.probe[0].kind(), "histograms");
    for (wrong, words) in [
        ("kinds = []", "is empty"),
        ("kinds = [\"switch\"]", "did you mean `switchoff`?"),
        ("priority_min = 5\npriority_max = 4", "is above priority_max"),
        ("interval = \"1ms\"", "interval"),
    ] {
        let error = parse(wrong).unwrap_err().to_string();
        assert!(error.contains(words), "{wrong}: {error}");
    }
}

#[test]
fn a_period_is_a_microsecond_to_an_hour_whatever_the_probe() {
    for kind in ["timer", "dispatch"] {
        let probe = |interval: &str| {
            parse(&format!("name = \"p\"\n[[probe]]\nkind = \"{kind}\"\ninterval = \"{interval}\"\n"))
        };
        assert!(probe("1us").is_ok() && probe("1h").is_ok(), "{kind}");
        for interval in ["0s", "999ns", "3601s"] {
            let error = probe(interval).unwrap_err();
            let expected = "is out of range; a period is 1us to 1h";
            assert!(error.contains("probe[0].interval: ") && error.contains(expected), "{kind}: {error}");
        }
    }
}

#[test]
fn the_plans_for_a_real_card_are_plans_also_in_their_short_form() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../benches/real_card");
    let mut count = 0;
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let name = entry.file_name().into_string().unwrap();
        if !name.ends_with(".toml") {
            continue;
        }
        let text = std::fs::read_to_string(entry.path()).unwrap();
        let source = Source { name: &name, text: &text };
        let plan = Plan::parse(&source, &[]).unwrap();
        let short = Plan::parse_short(&source, &[]).unwrap();
        assert_eq!(plan.name, name.trim_end_matches(".toml"));
        let length = |plan: &Plan| plan.repeat_duration().0 * u64::from(plan.repeats);
        assert!(length(&short) < length(&plan), "{name}");
        count += 1;
    }
    assert_eq!(count, 6);
}
