//! Tests that run in guests: `cargo xtask lab test [NAME…]`.

use whylate_lab::suite;

mod arm64;
mod boot;
mod campaign;
mod cases;
mod causes;
mod contrasts;
mod devices;
mod fix;
mod histograms;
mod host;
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

/// Slow tests that show in a brief run little more than the same test on another machine; and stalls by the host,
/// which take a CPU of the host from everything else that runs at the same time.
const NOT_IN_BRIEF: [&str; 42] = [
    "contrasts_name_what_a_load_adds_despite_stalls_by_the_host [multi rt-6.1]",
    "host_stalls_are_not_laid_to_the_guest [multi rt-6.1]",
    "host_stalls_leave_what_the_guest_plants [multi rt-6.1]",
    "campaign_reboots_through_grub [multi rt-6.1 +grub]",
    "boot_is_the_machine_that_was_asked_for [icount-pair plain-6.1]",
    "boot_is_the_machine_that_was_asked_for [icount rt-6.12]",
    "boot_is_the_machine_that_was_asked_for [icount plain-new]",
    "plant_local_stalls_are_what_their_log_says [multi rt-6.1]",
    "plant_local_stalls_are_what_their_log_says [multi plain-6.1]",
    "plant_unloads_and_loads_again [multi plain-6.1]",
    "plant_irq_thread_storm_interrupts_as_often_as_it_logs [multi plain-6.1]",
    "plant_refuses_what_it_cannot_do [multi plain-6.1]",
    "plant_page_faults_happen [multi plain-6.1]",
    "plant_throttling_is_the_kernels [multi plain-6.1]",
    "plant_remote_stalls_are_what_their_log_says [multi plain-6.1]",
    "plant_flushes_interrupt_the_other_cpu [multi plain-6.1]",
    "plant_smi_is_counted_by_the_processor [multi plain-6.1]",
    "plant_unloads_and_loads_again [icount plain-6.1]",
    "plant_local_stalls_are_what_their_log_says [icount plain-6.1]",
    "plant_irq_thread_storm_interrupts_as_often_as_it_logs [icount plain-6.1]",
    "plant_refuses_what_it_cannot_do [icount plain-6.1]",
    "plant_page_faults_happen [icount plain-6.1]",
    "plant_throttling_is_the_kernels [icount plain-6.1]",
    "measure_run_quick_measures_all_cells [icount rt-6.1]",
    "causes_of_what_another_cpu_plants [multi plain-6.1]",
    "causes_of_a_storm_of_interrupt_threads [icount plain-6.1]",
    "causes_of_a_storm_of_interrupt_threads [icount plain-new]",
    "causes_of_a_stopped_and_a_throttled_loop [multi plain-6.1]",
    "causes_name_what_other_cpus_ask_for [multi plain-6.1]",
    "causes_name_what_other_cpus_ask_for [multi rt-6.1]",
    "causes_of_what_one_cpu_plants [icount plain-new]",
    "causes_of_a_storm_of_interrupt_threads [icount rt-new]",
    "cases_only_proven_memory_is_chosen [multi rt-new]",
    "cases_what_interrupts_a_loop_adds_up [multi rt-new]",
    "cases_a_stall_in_the_graphics_interrupt_is_named [multi rt-new +virtio-gpu]",
    "cases_hwlat_finds_the_way_to_write_that_stalls [multi rt-6.1]",
    "devices_xorg_draws [multi rt-6.1 graphics +bochs]",
    "memtype_pages_are_mapped_as_asked [multi rt-new]",
    "memtype_pages_are_gone_after_a_kill [multi rt-new]",
    "memtype_vgem_is_write_combining_until_a_kill [multi rt-new]",
    "memtype_a_thousand_buffers_leave_nothing [multi rt-new]",
    "treat_takes_the_other_thread_of_a_core_offline [multi plain-6.1 +smt]",
];

fn main() -> std::process::ExitCode {
    let mut tests = boot::tests();
    tests.extend(plant::machines().iter().flat_map(plant::tests));
    tests.extend(measure::tests());
    tests.extend(histograms::tests());
    tests.extend(hotplug::tests());
    tests.extend(causes::tests());
    tests.extend(host::tests());
    tests.extend(contrasts::tests());
    tests.extend(cases::tests());
    tests.extend(devices::tests());
    tests.extend(memtype::tests());
    tests.extend(treat::tests());
    tests.extend(power::tests());
    tests.extend(shield::tests());
    tests.extend(fix::tests());
    tests.extend(campaign::tests());
    tests.extend(series::tests());
    tests.extend(packages::tests());
    tests.extend(tracing::tests());
    tests.extend(watch::tests());
    tests.extend(arm64::tests());
    suite::run(suite::without(tests, &NOT_IN_BRIEF))
}
