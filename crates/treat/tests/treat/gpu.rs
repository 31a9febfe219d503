//! The clock of NVIDIA's devices, with a stand-in for its tool.

use crate::machine::Machine;
use std::path::Path;
use whylate_core::plan::GpuPowerPlan;
use whylate_treat::{Change, Fate, Planned, Planner, Target, restore};

const FILES: &str = "\
== proc/driver/nvidia/gpus/0000:01:00.0/information := x
== sys/bus/pci/devices/0000:01:00.0/power/control := auto
== run/.keep := x
== usr/bin/.keep := x
";

/// What the clock of the device is locked to, and whether whylate has noted that.
fn clock(machine: &Machine) -> (Option<String>, bool) {
    let text = std::fs::read_to_string(machine.path("/gpu-clock")).ok();
    (text.map(|text| text.trim().to_owned()), machine.path("/run/whylate-gpu-clock-0000:01:00.0").exists())
}

fn machine() -> Machine {
    let machine = Machine::new(FILES);
    let tool = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/treat/nvidia-smi");
    // A link: a script that was just written cannot be started while another thread starts a program.
    std::os::unix::fs::symlink(tool, machine.path("/usr/bin/nvidia-smi")).unwrap();
    machine
}

fn planned(machine: &Machine) -> Planned {
    let plan = GpuPowerPlan { devices: vec!["all".to_owned()], fixed_clock: true };
    plan.plan(&machine.surroundings(None)).unwrap()
}

#[test]
fn the_clock_is_locked_and_unlocked() {
    let machine = machine();
    let planned = planned(&machine);
    assert_eq!(planned.warnings, []);
    let mut guard = machine.guard(true).unwrap();
    assert_eq!(guard.apply("gpu-power", &planned.changes).unwrap(), []);
    assert_eq!(clock(&machine), (Some("1980,1980".to_owned()), true));
    guard.keep().unwrap();
    let report = restore(&machine.place(), &machine.root).unwrap();
    assert!(report.is_complete() && report.outcomes.len() == 2, "{report:?}");
    assert_eq!(clock(&machine), (None, false));
}

#[test]
fn a_kill_before_the_clock_was_locked_is_undone_too() {
    let machine = machine();
    let target = Target::GpuClock { address: "0000:01:00.0".to_owned() };
    let mut guard = machine.guard(true).unwrap();
    guard.apply("gpu-power", &[Change::required(target, "1980,1980", "test")]).unwrap();
    guard.keep().unwrap();
    // As a kill between the note and the tool leaves it.
    std::fs::remove_file(machine.path("/gpu-clock")).unwrap();
    let report = restore(&machine.place(), &machine.root).unwrap();
    assert_eq!(report.outcomes[0].fate, Fate::Restored, "{report:?}");
    assert_eq!(clock(&machine), (None, false));
}

#[test]
fn a_device_that_cannot_lock_its_clock_is_a_warning_and_nothing_is_left() {
    let machine = machine();
    machine.set("/gpu-clock-unsupported", "x");
    let planned = planned(&machine);
    let mut guard = machine.guard(false).unwrap();
    let warnings = guard.apply("gpu-power", &planned.changes).unwrap();
    assert!(warnings.len() == 1 && warnings[0].text.contains("not supported"), "{warnings:?}");
    assert_eq!(clock(&machine), (None, false));
    assert!(guard.undo().is_complete());
    assert_eq!(machine.text("/sys/bus/pci/devices/0000:01:00.0/power/control").trim(), "auto");
}

#[test]
fn a_clock_that_was_locked_without_an_answer_is_unlocked() {
    let machine = machine();
    machine.set("/gpu-clock-unanswered", "x");
    let target = Target::GpuClock { address: "0000:01:00.0".to_owned() };
    let mut guard = machine.guard(false).unwrap();
    let warnings = guard.apply("gpu-power", &[Change::optional(target, "1980,1980", "test")]).unwrap();
    assert!(warnings.len() == 1 && warnings[0].text.contains("signal: 9"), "{warnings:?}");
    assert_eq!(clock(&machine), (None, false), "what may have been done is undone at once");
    assert!(guard.undo().is_complete());
}
