/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The steps of a dispatch: when the timer or the interrupt that woke a measured thread was entered, and when it woke the
 * thread. The thread maps the table, writes its id there and reads the times when it runs again, without a system call. It is
 * in an object of its own, so that no other program has to run for it.
 */
#pragma once
#include "kernel.h"

#define DISPATCH_SLOTS 1024

/* A measured thread, at the place of its id; the counterpart is in src/dispatch.rs. */
struct dispatch_slot {
	/* Written by the thread; 0: the slot is free. */
	u64 thread;
	/* The number of wake-ups; written last. */
	u64 number;
	/* When the handler that woke it was entered, on CLOCK_MONOTONIC; 0: no handler woke it. */
	u64 entry_ns;
	u64 waking_ns;
	/* One cache line for each slot. */
	u64 unused[4];
};
_Static_assert(sizeof(struct dispatch_slot) == 64, "dispatch.rs");

struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_ARRAY);
	MAP_NUMBER(map_flags, BPF_F_MMAPABLE);
	MAP_NUMBER(max_entries, DISPATCH_SLOTS);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, struct dispatch_slot);
} dispatch_slots SECTION(".maps");

/* Which handlers a CPU is in: a hard timer may interrupt all others, an interrupt a soft timer. */
struct dispatch_cpu {
	u64 hard_entry_ns;
	u64 soft_entry_ns;
	/* In which thread a soft timer's handler runs. */
	u64 soft_thread;
	u64 irq_entry_ns;
	u64 unused[4];
};

struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_ARRAY);
	MAP_NUMBER(max_entries, 1);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, struct dispatch_cpu);
} dispatch_cpus SECTION(".maps");

ALWAYS_INLINE struct dispatch_cpu *dispatch_here(void)
{
	u32 cpu = bpf_get_smp_processor_id();

	return bpf_map_lookup_elem(&dispatch_cpus, &cpu);
}

SECTION("tp_btf/hrtimer_expire_entry")
int dispatch_timer_entry(u64 *ctx)
{
	/* Read first: the time of this program belongs to the part after the entry. */
	u64 now_ns = bpf_ktime_get_ns();
	struct hrtimer *timer = (void *)ctx[0];
	struct dispatch_cpu *here = dispatch_here();

	if (!here)
		return 0;
	if (UNLIKELY(timer->is_soft)) {
		here->soft_thread = (u32)bpf_get_current_pid_tgid();
		here->soft_entry_ns = now_ns;
	} else {
		here->hard_entry_ns = now_ns;
	}
	return 0;
}

SECTION("tp_btf/hrtimer_expire_exit")
int dispatch_timer_exit(u64 *ctx)
{
	struct dispatch_cpu *here = dispatch_here();

	if (!here)
		return 0;
	if (LIKELY(here->hard_entry_ns))
		here->hard_entry_ns = 0;
	else
		here->soft_entry_ns = 0;
	return 0;
}

SECTION("tp_btf/irq_handler_entry")
int dispatch_irq_entry(u64 *ctx)
{
	u64 now_ns = bpf_ktime_get_ns();
	struct dispatch_cpu *here = dispatch_here();

	if (here)
		here->irq_entry_ns = now_ns;
	return 0;
}

SECTION("tp_btf/irq_handler_exit")
int dispatch_irq_exit(u64 *ctx)
{
	struct dispatch_cpu *here = dispatch_here();

	if (here)
		here->irq_entry_ns = 0;
	return 0;
}

SECTION("tp_btf/sched_waking")
int dispatch_waking(u64 *ctx)
{
	struct task_struct *task = (void *)ctx[0];
	u32 thread = task->pid;
	u32 place = thread & (DISPATCH_SLOTS - 1);
	struct dispatch_slot *slot = bpf_map_lookup_elem(&dispatch_slots, &place);

	if (!slot || LIKELY(slot->thread != thread))
		return 0;
	struct dispatch_cpu *here = dispatch_here();
	u64 entry_ns = 0;

	if (!here)
		return 0;
	if (here->hard_entry_ns)
		entry_ns = here->hard_entry_ns;
	else if (here->irq_entry_ns)
		entry_ns = here->irq_entry_ns;
	/* Real-time kernels run softirqs in threads, and another thread may run before the handler goes on. */
	else if (here->soft_entry_ns && here->soft_thread == (u32)bpf_get_current_pid_tgid())
		entry_ns = here->soft_entry_ns;
	slot->entry_ns = entry_ns;
	slot->waking_ns = bpf_ktime_get_ns();
	BARRIER();
	slot->number++;
	return 0;
}
