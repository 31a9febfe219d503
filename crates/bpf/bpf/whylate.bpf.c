// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * The programs, one for each event of the kernel. `cargo xtask bpf` compiles them into ../objects.
 */
#include "histograms.h"

/* The kernel offers what these programs call to programs under a licence that is compatible with the GPL. */
char programs_license[] SECTION("license") = "Dual MIT/GPL";

/* What this was compiled from and by, for the check that the object that is kept belongs to the sources. */
#ifdef ORIGIN
const char compiled_from[] SECTION("origin") = ORIGIN;
#endif

/* A timer's handler begins: from when on should it have? */
SECTION("tp_btf/hrtimer_expire_entry")
int timer_entry(u64 *ctx)
{
	struct hrtimer *timer = (void *)ctx[0];
	struct cpu_state *state = state_of(bpf_get_smp_processor_id());

	if (!state)
		return 0;
	/* An expiry of clocks other than CLOCK_MONOTONIC is brought to it by the clock's offset. */
	u64 expires_ns = timer->node.expires - timer->base->offset;

	if (UNLIKELY(timer->is_soft)) {
		state->expires_soft_ns = expires_ns;
		state->soft_thread = (u32)bpf_get_current_pid_tgid();
	} else {
		state->expires_hard_ns = expires_ns;
	}
	return 0;
}

/* A timer's handler is over: what is woken from here on was not woken by it. */
SECTION("tp_btf/hrtimer_expire_exit")
int timer_exit(u64 *ctx)
{
	struct cpu_state *state = state_of(bpf_get_smp_processor_id());

	if (!state)
		return 0;
	/* A hard interrupt may come into a softirq, never the other way round. */
	if (LIKELY(state->expires_hard_ns))
		state->expires_hard_ns = 0;
	else
		state->expires_soft_ns = 0;
	return 0;
}

ALWAYS_INLINE void count_offset(u32 cpu, struct task_struct *task, u64 expires_ns, u64 now_ns)
{
	struct histogram *histogram;
	struct task_struct *current;
	u64 offset_ns = now_ns - expires_ns;

	histogram = histogram_of(cpu, MISSED_TIMER_OFFSETS);
	if (!histogram || LIKELY(!count(histogram, offset_ns)))
		return;
	set_parts(&histogram->record, offset_ns, expires_ns, now_ns, now_ns, now_ns);
	name_task(&histogram->record, task);
	if (HELPER_EXISTS(get_current_task_btf)) {
		current = bpf_get_current_task_btf();
		name_previous(&histogram->record, current->pid, current->prio, current->comm);
	}
}

/* A task is about to be woken. */
SECTION("tp_btf/sched_waking")
int waking(u64 *ctx)
{
	struct task_struct *task = (void *)ctx[0];
	s32 prio = task->prio;

	if (LIKELY(!priority_counts(prio)) || !task_counts(task))
		return 0;
	u64 now_ns = bpf_ktime_get_ns();
	u32 cpu = bpf_get_smp_processor_id();
	struct cpu_state *state = state_of(cpu);
	u32 pid = task->pid;
	struct pending *pending = pending_of(pid);

	if (!state || !pending)
		return 0;
	u64 expires_ns = state->expires_hard_ns;

	/* Real-time kernels run softirqs in threads, and another thread may run before the handler goes on. */
	if (UNLIKELY(!expires_ns && state->expires_soft_ns &&
		     state->soft_thread == (u32)bpf_get_current_pid_tgid()))
		expires_ns = state->expires_soft_ns;
	/* Timers may expire early by their slack, which is no lateness. */
	if (expires_ns > now_ns)
		expires_ns = now_ns;
	state->counters.wakings++;
	if (UNLIKELY(pending->waking_ns)) {
		if (pending->pid == pid)
			state->counters.without_switch++;
		else
			state->counters.collisions++;
	}
	pending->pid = pid;
	pending->expires_ns = expires_ns;
	pending->waking_ns = now_ns;
	if (expires_ns && is_enabled(config.enabled[cpu & (CPUS_MAX - 1)], MISSED_TIMER_OFFSETS))
		count_offset(cpu, task, expires_ns, now_ns);
	return 0;
}

/* A latency that ends with the decision to run the task. */
ALWAYS_INLINE void count_decided(u32 cpu, enum kind kind, u64 latency_ns, const struct pending *pending,
				 u64 now_ns, struct task_struct *previous, struct task_struct *next)
{
	struct histogram *histogram = histogram_of(cpu, kind);

	if (!histogram || LIKELY(!count(histogram, latency_ns)))
		return;
	set_parts(&histogram->record, latency_ns, pending->expires_ns, pending->waking_ns, now_ns, now_ns);
	name_task(&histogram->record, next);
	name_previous(&histogram->record, previous->pid, previous->prio, previous->comm);
}

/* The task that was woken gets its CPU. */
ALWAYS_INLINE void woken_runs(u32 cpu, u32 enabled, struct cpu_state *state, const struct pending *pending,
			      u64 now_ns, struct task_struct *previous, struct task_struct *next)
{
	u64 wakeup_ns = now_ns - pending->waking_ns;

	state->waking_ns = pending->waking_ns;
	state->expires_ns = pending->expires_ns;
	/* It waited for a task that it could not have preempted. The idle task has the number of nice 0. */
	state->is_shared = previous->pid && previous->prio <= next->prio;
	if (state->is_shared) {
		if (is_enabled(enabled, SHARED_PRIORITY))
			count_decided(cpu, SHARED_PRIORITY, wakeup_ns, pending, now_ns, previous, next);
		return;
	}
	if (is_enabled(enabled, WAKEUP))
		count_decided(cpu, WAKEUP, wakeup_ns, pending, now_ns, previous, next);
	if (!pending->expires_ns)
		return;
	if (is_enabled(enabled, TIMER_AND_WAKEUP))
		count_decided(cpu, TIMER_AND_WAKEUP, now_ns - pending->expires_ns, pending, now_ns, previous,
			      next);
	if (!sees_switch_end && is_enabled(enabled, TIMER_WAKEUP_SWITCH))
		count_decided(cpu, TIMER_WAKEUP_SWITCH, now_ns - pending->expires_ns, pending, now_ns, previous,
			      next);
}

/* The scheduler has decided which task runs next. */
SECTION("tp_btf/sched_switch")
int task_switch(u64 *ctx)
{
	struct task_struct *previous = (void *)ctx[1], *next = (void *)ctx[2];
	bool previous_counts = priority_counts(previous->prio), next_counts = priority_counts(next->prio);

	if (LIKELY(!previous_counts && !next_counts))
		return 0;
	u32 cpu = bpf_get_smp_processor_id();
	struct cpu_state *state = state_of(cpu);

	if (!state)
		return 0;
	if (UNLIKELY(state->switch_ns)) {
		state->counters.unfinished++;
		state->switch_ns = 0;
	}
	if (previous_counts) {
		u32 pid = previous->pid;
		struct pending *pending = pending_of(pid);

		if (pending && UNLIKELY(pending->waking_ns) && pending->pid == pid) {
			pending->waking_ns = 0;
			state->counters.without_switch++;
		}
	}
	if (!next_counts)
		return 0;
	u32 enabled = config.enabled[cpu & (CPUS_MAX - 1)];
	u32 pid = next->pid;
	struct pending *pending = pending_of(pid);

	if (!pending)
		return 0;
	bool was_woken = pending->waking_ns && pending->pid == pid;

	if (!enabled) {
		if (was_woken) {
			state->counters.elsewhere++;
			pending->waking_ns = 0;
		}
		return 0;
	}
	if (!was_woken && (!is_enabled(enabled, SWITCH_OFF) || !task_counts(next)))
		return 0;
	u64 now_ns = bpf_ktime_get_ns();

	state->waking_ns = 0;
	state->expires_ns = 0;
	state->is_shared = 0;
	if (was_woken) {
		woken_runs(cpu, enabled, state, pending, now_ns, previous, next);
		pending->waking_ns = 0;
	}
	if (sees_switch_end) {
		state->previous = (u64)previous;
		state->previous_pid = previous->pid;
		state->previous_prio = previous->prio;
		state->switch_ns = now_ns;
	}
	return 0;
}

/* A latency that ends with the task that runs. */
ALWAYS_INLINE void count_finished(u32 cpu, enum kind kind, u64 latency_ns, const struct cpu_state *state,
				  u64 now_ns)
{
	struct histogram *histogram = histogram_of(cpu, kind);

	if (!histogram || LIKELY(!count(histogram, latency_ns)))
		return;
	set_parts(&histogram->record, latency_ns, state->expires_ns, state->waking_ns, state->switch_ns, now_ns);
	if (HELPER_EXISTS(get_current_task_btf))
		name_task(&histogram->record, bpf_get_current_task_btf());
	/* Its memory outlives the switch: the kernel frees a task's after a grace period. */
	struct task_struct *previous = (void *)state->previous;

	name_previous(&histogram->record, state->previous_pid, state->previous_prio, &previous->comm);
}

/* A call of the scheduler is over: from here on the new task runs. */
SECTION("tp_btf/sched_exit_tp")
int switch_end(u64 *ctx)
{
	u32 cpu = bpf_get_smp_processor_id();
	struct cpu_state *state = state_of(cpu);

	if (!state || LIKELY(!state->switch_ns))
		return 0;
	u64 now_ns = bpf_ktime_get_ns();
	u32 enabled = config.enabled[cpu & (CPUS_MAX - 1)];

	if (is_enabled(enabled, SWITCH_OFF))
		count_finished(cpu, SWITCH_OFF, now_ns - state->switch_ns, state, now_ns);
	if (state->expires_ns && !state->is_shared && is_enabled(enabled, TIMER_WAKEUP_SWITCH))
		count_finished(cpu, TIMER_WAKEUP_SWITCH, now_ns - state->expires_ns, state, now_ns);
	state->switch_ns = 0;
	return 0;
}
