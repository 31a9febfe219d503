// SPDX-License-Identifier: GPL-2.0
/*
 * plant: an idle state that takes long to leave, and a clock frequency that can be set. QEMU's machines have neither; here a
 * driver of each stands in for the hardware.
 */
#include <linux/cpufreq.h>
#include <linux/cpuidle.h>
#include <linux/delay.h>
#include <linux/irqflags.h>
#include <linux/module.h>
#include <trace/events/power.h>

#include "plant.h"

static const struct plant_request *idle_request;

/* Sleeps until an interrupt; where a stall is asked for, what follows takes long, with interrupts off. */
static int plant_idle_enter(struct cpuidle_device *device, struct cpuidle_driver *driver, int index)
{
	const struct plant_request *request;
	u64 begin;

	raw_safe_halt();
	raw_local_irq_disable();
	request = READ_ONCE(idle_request);
	if (request && device->cpu == request->cpu && cmpxchg(&idle_request, request, NULL) == request) {
		begin = plant_now();
		plant_spin_until(begin + request->length_ns);
		plant_log(request, begin, plant_now(), 1);
	}
	return index;
}

static struct cpuidle_driver idle_driver = {
	.name = "plant",
	.owner = THIS_MODULE,
	.states = { { .name = "plant", .desc = "slow to leave", .exit_latency = 1, .target_residency = 1,
		      .enter = plant_idle_enter } },
	.state_count = 1,
};
static bool has_idle_driver;

static int idle_exit(const struct plant_request *request)
{
	int error = has_idle_driver ? 0 : cpuidle_register(&idle_driver, NULL);

	if (error)
		return error;
	has_idle_driver = true;
	WRITE_ONCE(idle_request, request);
	/* The CPU is idle meanwhile, and others wake up there. */
	while (READ_ONCE(idle_request))
		usleep_range(5000, 5001);
	return 0;
}

static void unload_idle(void)
{
	if (has_idle_driver)
		cpuidle_unregister(&idle_driver);
}

/* What a CPU has that does nothing but to save power, and a fast one, in kHz. */
static struct cpufreq_frequency_table frequencies[] = {
	{ .frequency = 500000 }, { .frequency = 2500000 }, { .frequency = CPUFREQ_TABLE_END },
};
static bool has_frequency_driver;

static int set_frequency(struct cpufreq_policy *policy, unsigned int index)
{
	unsigned int cpu;

	policy->cur = frequencies[index].frequency;
	for_each_cpu(cpu, policy->cpus)
		trace_cpu_frequency(policy->cur, cpu);
	return 0;
}

static int begin_policy(struct cpufreq_policy *policy)
{
	cpufreq_generic_init(policy, frequencies, 1000);
	policy->cur = frequencies[1].frequency;
	return 0;
}

/* The event comes from here: the kernel's own notice would change its clock on processors without a constant one. */
static struct cpufreq_driver frequency_driver = {
	.name = "plant",
	.flags = CPUFREQ_ASYNC_NOTIFICATION,
	.init = begin_policy,
	.verify = cpufreq_generic_frequency_table_verify,
	.target_index = set_frequency,
};

/* Not a stall: from now on the frequency can be set in sysfs. */
static int frequency(const struct plant_request *request)
{
	int error = has_frequency_driver ? 0 : cpufreq_register_driver(&frequency_driver);

	has_frequency_driver = !error;
	return error;
}

static void unload_frequency(void)
{
	if (has_frequency_driver)
		cpufreq_unregister_driver(&frequency_driver);
}

const struct plant_cause plant_power_causes[] = {
	{ .name = "idle-exit", .function = "plant_idle_enter", .stall = idle_exit, .unload = unload_idle },
	{ .name = "frequency", .function = "set_frequency", .stall = frequency, .unload = unload_frequency },
	{ }
};
