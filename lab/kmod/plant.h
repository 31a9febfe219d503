/* SPDX-License-Identifier: GPL-2.0 */
/* plant: causes stalls of known length from functions of known name. */
#ifndef PLANT_H
#define PLANT_H

#include <linux/hrtimer.h>
#include <linux/ktime.h>
#include <linux/timekeeping.h>
#include <linux/types.h>
#include <linux/version.h>

/* What was asked for, as one line written to /proc/plant. */
struct plant_request {
	const struct plant_cause *cause;
	int cpu;		/* the CPU that is to be late */
	int from;		/* the CPU that does it, for causes that come from another one */
	u64 length_ns;		/* of each stall */
	u64 after_ns;		/* before the first stall */
	u64 every_ns;		/* between the stalls */
	unsigned int count;	/* of stalls */
	int priority;		/* SCHED_FIFO priority of the thread that acts */
	const char *in;		/* the function in which it shall happen; NULL for the cause's own */
};

/* One way to be late. */
struct plant_cause {
	const char *name;
	const char *function;	/* that stands in traces and logs */
	bool needs_other_cpu;	/* `from` has to be given */
	bool acts_on_other_cpu;	/* the acting thread runs on `from`, not on `cpu` */
	int priority;		/* if none was asked for */
	/* Stalls once. Runs in a thread that may sleep; logs what it did. */
	int (*stall)(const struct plant_request *request);
	/* Called when the module is loaded and unloaded; may be NULL. */
	int (*load)(void);
	void (*unload)(void);
};

/* CLOCK_MONOTONIC, also in NMI context. */
static __always_inline u64 plant_now(void)
{
	return ktime_get_mono_fast_ns();
}

/* Keeps the CPU busy; inlined, so that the caller's name is the one that traces show. */
static __always_inline void plant_spin_until(u64 end_ns)
{
	while (plant_now() < end_ns)
		cpu_relax();
}

/* A timer on the stack, not started yet. */
static __always_inline void plant_timer_init(struct hrtimer *timer, enum hrtimer_restart (*function)(struct hrtimer *),
					     enum hrtimer_mode mode)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 13, 0)
	hrtimer_setup_on_stack(timer, function, CLOCK_MONOTONIC, mode);
#else
	hrtimer_init_on_stack(timer, CLOCK_MONOTONIC, mode);
	timer->function = function;
#endif
}

/* Notes what happened; from any context. @events: interrupts, flushes or changes in that time. */
void plant_log(const struct plant_request *request, u64 begin_ns, u64 end_ns, unsigned int events);

/* Starts a FIFO thread that is bound to a CPU. Returns the thread, with a reference, or an error. */
struct task_struct *plant_thread(int (*body)(void *), void *data, int cpu, int priority, const char *name);

/* Tables of causes, each ended by an entry without a name. */
extern const struct plant_cause plant_local_causes[];
extern const struct plant_cause plant_remote_causes[];
extern const struct plant_cause plant_thread_causes[];
extern const struct plant_cause plant_timer_causes[];
extern const struct plant_cause plant_power_causes[];
extern const struct plant_cause plant_probe_causes[];

/* The file /proc/plant_memory_type. */
#ifdef CONFIG_X86
int plant_memory_load(void);
void plant_memory_unload(void);
#else
static inline int plant_memory_load(void)
{
	return 0;
}
static inline void plant_memory_unload(void)
{
}
#endif

#endif
