//! Tests that run in guests: `cargo xtask lab test [NAME…]`.

use whylate_lab::suite;

mod arm64;
mod boot;
mod cases;
mod causes;
mod devices;
mod fix;
mod histograms;
mod hotplug;
mod measure;
mod memtype;
mod packages;
mod plant;
mod power;
mod series;
mod shield;
mod trace;
mod tracing;
mod treat;
mod watch;

fn main() -> std::process::ExitCode {
    let mut tests = boot::tests();
    tests.extend(plant::machines().iter().flat_map(plant::tests));
    tests.extend(measure::tests());
    tests.extend(histograms::tests());
    tests.extend(hotplug::tests());
    tests.extend(causes::tests());
    tests.extend(cases::tests());
    tests.extend(devices::tests());
    tests.extend(memtype::tests());
    tests.extend(treat::tests());
    tests.extend(power::tests());
    tests.extend(shield::tests());
    tests.extend(fix::tests());
    tests.extend(series::tests());
    tests.extend(packages::tests());
    tests.extend(tracing::tests());
    tests.extend(watch::tests());
    tests.extend(arm64::tests());
    suite::run(tests)
}
