// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * The programs for histograms and causes, one for each event of the kernel. `cargo xtask bpf` compiles them into
 * ../objects.
 */
#include "audit.h"
#include "marks.h"
#include "origin.h"
#include "trigger.h"

/* A timer is set. */
SECTION("tp_btf/hrtimer_start")
int timer_start(u64 *ctx)
{
	struct hrtimer *timer = (void *)ctx[0];
	s64 expires_ns = timer->node.expires - timer->base->offset, now_ns = bpf_ktime_get_ns();

	if (LIKELY(expires_ns > now_ns))
		return 0;
	struct cpu_state *state = state_of(bpf_get_smp_processor_id());

	if (!state)
		return 0;
	state->over_timer = (u64)timer;
	state->over_ns = now_ns;
	return 0;
}

/* A timer's handler begins: keep the programmed expiry, or the moment at which it was armed if that was later. */
SECTION("tp_btf/hrtimer_expire_entry")
int timer_entry(u64 *ctx)
{
	struct hrtimer *timer = (void *)ctx[0];
	struct cpu_state *state = state_of(bpf_get_smp_processor_id());

	if (!state)
		return 0;
	/* Converts the expiry from the timer's clock to CLOCK_MONOTONIC. */
	u64 expires_ns = timer->node.expires - timer->base->offset;

	if (UNLIKELY(state->over_timer == (u64)timer)) {
		state->over_timer = 0;
		if ((s64)expires_ns < (s64)state->over_ns)
			expires_ns = state->over_ns;
	}
	if (UNLIKELY(timer->is_soft)) {
		state->expires_soft_ns = expires_ns;
		state->soft_thread = (u32)bpf_get_current_pid_tgid();
		state->soft_function = (u64)timer->function;
	} else {
		state->expires_hard_ns = expires_ns;
		state->hard_function = (u64)timer->function;
	}
	return 0;
}

/* A timer's handler is over: later wake-ups do not belong to it. */
SECTION("tp_btf/hrtimer_expire_exit")
int timer_exit(u64 *ctx)
{
	struct cpu_state *state = state_of(bpf_get_smp_processor_id());

	if (!state)
		return 0;
	/* A hard interrupt may interrupt a softirq, never the other way round. */
	bool is_hard = state->expires_hard_ns;
	u64 start_ns = state->softirq_ns;

	if (LIKELY(is_hard)) {
		state->expires_hard_ns = 0;
		start_ns = state->vector_ns ? state->vector_ns : state->irq_ns;
	} else {
		state->expires_soft_ns = 0;
	}
	/* It is 0 on CPUs that are not watched. */
	if (start_ns)
		timer_called(state, is_hard, 0, start_ns);
	return 0;
}

/* Counts the time from a timer's expiry to the wake-up that is an extreme. */
NEVER_INLINE void count_extreme_offset(struct cpu_state *state, u32 cpu, struct task_struct *task, u64 expires_ns, u64 now_ns)
{
	u64 offset_ns = now_ns - expires_ns;

	state->countings++;
	count(state, cpu, MISSED_TIMER_OFFSETS, offset_ns);
	struct record *record = keep_extreme(state, cpu, MISSED_TIMER_OFFSETS, offset_ns);

	if (record) {
		set_parts(record, offset_ns, expires_ns, now_ns, now_ns, now_ns);
		name_task(record, task);
		name_previous(record, (void *)bpf_get_current_task());
	}
	state->countings++;
}

/* Counts that of an earlier wake-up. Interrupts are off. */
NEVER_INLINE void count_offset(struct cpu_state *state, u32 cpu)
{
	state->countings++;
	count(state, cpu, MISSED_TIMER_OFFSETS, state->offset_ns - 1);
	state->offset_ns = 0;
	state->countings++;
}

/* The programmed expiry of the timer whose handler runs, on CLOCK_MONOTONIC; 0 when none does. */
ALWAYS_INLINE u64 expiry_of(struct cpu_state *state, u64 now_ns)
{
	u64 expires_ns = state->expires_hard_ns;

	/* Real-time kernels run softirqs in threads, and another thread may run before the handler goes on. */
	if (UNLIKELY(!expires_ns && state->expires_soft_ns &&
		     state->soft_thread == (u32)bpf_get_current_pid_tgid()))
		expires_ns = state->expires_soft_ns;
	/* Timers may expire early by their slack: no latency. */
	return expires_ns > now_ns ? now_ns : expires_ns;
}

/* A task is about to be woken. */
ALWAYS_INLINE int on_waking(u64 *ctx, bool with_causes)
{
	struct task_struct *task = (void *)ctx[0];
	u32 cpu = bpf_get_smp_processor_id();
	struct cpu_state *state = state_of(cpu);

	if (!state || LIKELY(!priority_counts(state, task->prio)) || !task_counts(task))
		return 0;
	u64 now_ns = bpf_ktime_get_ns();
	u32 pid = task->pid;
	struct pending *pending = pending_of(pid);

	if (!pending)
		return 0;
	u64 expires_ns = expiry_of(state, now_ns);

	state->wakings++;
	if (with_causes && (u32)task->tgid == state->settings.process && now_ns >= state->settings.starts_ns)
		state->own_wakings++;
	if (UNLIKELY(pending->waking_ns)) {
		if (pending->pid == pid)
			state->without_switch++;
		else
			state->collisions++;
	}
	pending->pid = pid;
	pending->expires_ns = expires_ns;
	pending->waking_ns = now_ns;
	u32 ring = with_causes ? state->settings.ring : 0;

	if (ring) {
		state->is_waited = waiter_of(pid);
		pending->ran = 0;
		if (HELPER_EXISTS(get_current_task_btf)) {
			struct task_struct *current = bpf_get_current_task_btf();

			pending->ran = current->pid;
			pending->ran_prio = current->prio;
		}
	}
	if (!expires_ns)
		return 0;
	if (is_enabled(state->settings.enabled, MISSED_TIMER_OFFSETS)) {
		if (UNLIKELY(state->offset_ns))
			count_offset(state, cpu);
		if (UNLIKELY(is_extreme(state, MISSED_TIMER_OFFSETS, now_ns - expires_ns)))
			count_extreme_offset(state, cpu, task, expires_ns, now_ns);
		else
			state->offset_ns = 1 + now_ns - expires_ns;
	}
	if (ring)
		note_timer(ctx, state, ring, expires_ns, now_ns, task,
			   is_unusual(state, &state->timer_bound_ns, now_ns - expires_ns, RARITY_OF_PROBES));
	return 0;
}

SECTION("tp_btf/sched_waking")
int waking(u64 *ctx)
{
	return on_waking(ctx, 0);
}

/* The variant for watched CPUs. */
SECTION("tp_btf/sched_waking")
int waking_watched(u64 *ctx)
{
	return on_waking(ctx, 1);
}

/* The histograms in which the wake-up of the task that has the CPU counts, as bits. */
ALWAYS_INLINE u32 kinds_of(struct cpu_state *state)
{
	u32 kinds = 0;

	if (state->waking_ns && state->is_shared) {
		kinds = 1u << SHARED_PRIORITY;
	} else if (state->waking_ns) {
		kinds = 1u << WAKEUP;
		if (state->expires_ns)
			kinds |= 1u << TIMER_AND_WAKEUP;
		if (state->expires_ns && (state->ended_ns || !sees_switch_end))
			kinds |= 1u << TIMER_WAKEUP_SWITCH;
	}
	if (state->ended_ns)
		kinds |= 1u << SWITCH_OFF;
	return kinds & state->settings.enabled;
}

/* When the latency of a kind ended, and how long it was. */
ALWAYS_INLINE u64 end_of(struct cpu_state *state, u32 kind)
{
	bool has_end = kind == SWITCH_OFF || kind == TIMER_WAKEUP_SWITCH;

	return has_end && state->ended_ns ? state->ended_ns : state->decided_ns;
}

ALWAYS_INLINE u64 latency_of(struct cpu_state *state, u32 kind)
{
	u64 end_ns = end_of(state, kind);

	if (kind == SWITCH_OFF)
		return end_ns - state->decided_ns;
	return end_ns - (kind == WAKEUP || kind == SHARED_PRIORITY ? state->waking_ns : state->expires_ns);
}

/* Whether one of its latencies is an extreme. */
ALWAYS_INLINE bool has_extreme(struct cpu_state *state)
{
	u32 kinds = kinds_of(state);

	for (u32 kind = WAKEUP; kind < KINDS; kind++) {
		if (kinds & 1u << kind && is_extreme(state, kind, latency_of(state, kind)))
			return 1;
	}
	return 0;
}

/* Counts the wake-up of the task that has the CPU. */
GLOBAL int count_wakeup(u32 cpu)
{
	struct cpu_state *state = state_of(cpu);

	if (!state)
		return 0;
	u32 kinds = kinds_of(state);
	u64 latencies_ns[KINDS] = {};

	for (u32 kind = WAKEUP; kind < KINDS; kind++)
		latencies_ns[kind] = latency_of(state, kind);
	/* It stays a loop in machine code, too, so that its instructions are fetched once. */
#pragma clang loop unroll(disable)
	for (u32 kind = WAKEUP; kind < KINDS; kind++) {
		if (kinds & 1u << kind)
			count(state, cpu, kind, latencies_ns[kind]);
	}
	state->decided_ns = 0;
	return 0;
}

/*
 * Counts it at once, since it has an extreme, with the late task: `woken`, or the running task if that is 0. All others are
 * counted when their task leaves the CPU again, which does not delay its work.
 */
ALWAYS_INLINE void count_extreme(struct cpu_state *state, u32 cpu, struct task_struct *woken)
{
	u32 kinds = kinds_of(state);

	state->countings++;
	for (u32 kind = WAKEUP; kind < KINDS; kind++) {
		u64 latency_ns = latency_of(state, kind);
		struct record *record = kinds & 1u << kind ? keep_extreme(state, cpu, kind, latency_ns) : 0;

		if (!record)
			continue;
		set_parts(record, latency_ns, state->expires_ns, state->waking_ns, state->decided_ns,
			  end_of(state, kind));
		if (woken)
			name_task(record, woken);
		else
			name_current(record);
		/* Its memory is still valid: the kernel frees a task after a grace period. */
		name_previous(record, (void *)state->previous);
	}
	count_wakeup(cpu);
	state->countings++;
}

/* A counted task leaves: a wake-up while it was still running has no latency. */
ALWAYS_INLINE void leaves(struct cpu_state *state, struct task_struct *previous)
{
	u32 pid = previous->pid;
	struct pending *pending = pending_of(pid);

	if (pending && UNLIKELY(pending->waking_ns) && pending->pid == pid) {
		pending->waking_ns = 0;
		state->without_switch++;
	}
}

/* A counted task gets the CPU. The clock is read here if the caller has not done so. */
ALWAYS_INLINE void comes(void *ctx, u32 cpu, u32 ring, struct cpu_state *state, u64 now_ns,
			 struct task_struct *previous, struct task_struct *next)
{
	u32 enabled = state->settings.enabled;
	u32 pid = next->pid;
	struct pending *pending = pending_of(pid);

	if (!pending)
		return;
	bool was_woken = pending->waking_ns && pending->pid == pid;

	if (!was_woken && (!is_enabled(enabled, SWITCH_OFF) || !task_counts(next)))
		return;
	if (!now_ns)
		now_ns = bpf_ktime_get_ns();
	if (enabled) {
		state->waking_ns = was_woken ? pending->waking_ns : 0;
		state->expires_ns = was_woken ? pending->expires_ns : 0;
		state->decided_ns = now_ns;
		state->ended_ns = 0;
		/* It waited for a task that it could not preempt. The idle task has the priority of nice 0. */
		state->is_shared = previous->pid && previous->prio <= next->prio;
		state->previous = (u64)previous;
		if (!needs_switch_end(enabled) && has_extreme(state))
			count_extreme(state, cpu, next);
	} else if (was_woken) {
		state->elsewhere++;
	}
	if (!was_woken)
		return;
	/* It may have run with a priority of its own until now, and have lowered it. */
	bool was_higher = pending->ran == (u32)previous->pid && pending->ran_prio < previous->prio;

	if (ring)
		note_wakeup(ctx, state, ring, pending->waking_ns, now_ns, next, previous,
			    was_higher ? pending->ran_prio : previous->prio,
			    is_unusual(state, &state->switch_bound_ns, now_ns - pending->waking_ns, RARITY_OF_PROBES) &&
				    previous->pid);
	pending->waking_ns = 0;
}

/* The task that has the CPU leaves it, and its wake-up is not counted yet. */
ALWAYS_INLINE void count_pending(struct cpu_state *state, u32 cpu)
{
	if (UNLIKELY(!state->ended_ns && needs_switch_end(state->settings.enabled)))
		state->unfinished++;
	/* Not at the end of a switch, where a timer's interrupt may come first. */
	if (state->offset_ns)
		count_offset(state, cpu);
	state->countings++;
	count_wakeup(cpu);
	state->countings++;
}

/* The scheduler has decided which task runs next. */
ALWAYS_INLINE int on_switch(u64 *ctx, bool with_causes)
{
	bool is_preempted = ctx[0];
	struct task_struct *previous = (void *)ctx[1], *next = (void *)ctx[2];
	u32 cpu = bpf_get_smp_processor_id();
	struct cpu_state *state = state_of(cpu);

	if (!state)
		return 0;
	bool previous_counts = priority_counts(state, previous->prio);
	bool next_counts = priority_counts(state, next->prio);
	u32 ring = with_causes ? state->settings.ring : 0;

	if (LIKELY(!previous_counts && !next_counts && !ring))
		return 0;
	u64 now_ns = 0;

	if (ring && !threads_switch(state, ring, &now_ns, previous, next, is_preempted || is_running(previous),
				    previous_counts, next_counts))
		return 0;
	if (state->decided_ns)
		count_pending(state, cpu);
	if (previous_counts)
		leaves(state, previous);
	if (next_counts)
		comes(ctx, cpu, ring, state, now_ns, previous, next);
	return 0;
}

SECTION("tp_btf/sched_switch")
int task_switch(u64 *ctx)
{
	return on_switch(ctx, 0);
}

/* As waking_watched. */
SECTION("tp_btf/sched_switch")
int task_switch_watched(u64 *ctx)
{
	return on_switch(ctx, 1);
}

ALWAYS_INLINE int on_switch_end(void)
{
	u32 cpu = bpf_get_smp_processor_id();
	struct cpu_state *state = state_of(cpu);

	if (!state || LIKELY(!state->decided_ns || state->ended_ns))
		return 0;
	state->ended_ns = bpf_ktime_get_ns();
	if (UNLIKELY(has_extreme(state)))
		count_extreme(state, cpu, 0);
	return 0;
}

/* A call of the scheduler is over: from here on the new task runs. */
SECTION("tp_btf/sched_exit_tp")
int switch_end(u64 *ctx)
{
	return on_switch_end();
}

/*
 * Kernels before 6.14 have no such event: this uses the function that the new task runs first. The function's own work is not
 * counted then, above all the release of the other task's memory.
 */
SECTION("kprobe/finish_task_switch")
int switch_end_probed(struct pt_regs *ctx)
{
	return on_switch_end();
}

/* ---- What takes a CPU ---- */

SECTION("tp_btf/irq_handler_entry")
int irq_entry(u64 *ctx)
{
	u32 ring;
	struct cpu_state *state = watched(&ring);

	if (state)
		state->irq_ns = bpf_ktime_get_ns();
	return 0;
}

SECTION("tp_btf/irq_handler_exit")
int irq_exit(u64 *ctx)
{
	u32 ring;
	struct cpu_state *state = watched(&ring);

	if (!state || !state->irq_ns)
		return 0;
	NOTE(state, ring, SEGMENT_IRQ, state->irq_ns, bpf_ktime_get_ns(), irq.line, (u32)ctx[0]);
	state->irq_ns = 0;
	return 0;
}

/* For each interrupt that has a vector of its own: attached to several events. */
SECTION("raw_tp/vector_entry")
int vector_entry(u64 *ctx)
{
	u32 ring;
	struct cpu_state *state = watched(&ring);

	if (state)
		state->vector_ns = bpf_ktime_get_ns();
	return 0;
}

SECTION("raw_tp/vector_exit")
int vector_exit(u64 *ctx)
{
	u32 ring;
	struct cpu_state *state = watched(&ring);

	if (!state || !state->vector_ns)
		return 0;
	u64 now_ns = bpf_ktime_get_ns();

	NOTE(state, ring, SEGMENT_VECTOR, state->vector_ns, now_ns, vector.vector, (u32)ctx[0]);
	if (!tells_functions)
		note_sent(state, ring, (u32)ctx[0], state->vector_ns, now_ns);
	state->vector_ns = 0;
	return 0;
}

SECTION("tp_btf/softirq_entry")
int softirq_entry(u64 *ctx)
{
	u32 ring;
	struct cpu_state *state = watched(&ring);

	if (!state)
		return 0;
	state->softirq = (u32)ctx[0];
	state->softirq_ns = bpf_ktime_get_ns();
	return 0;
}

SECTION("tp_btf/softirq_exit")
int softirq_exit(u64 *ctx)
{
	u32 ring;
	struct cpu_state *state = watched(&ring);

	if (!state || !state->softirq_ns)
		return 0;
	NOTE(state, ring, SEGMENT_SOFTIRQ, state->softirq_ns, bpf_ktime_get_ns(), softirq.number, (u32)ctx[0]);
	state->softirq_ns = 0;
	return 0;
}

/* One event after each handler, with how long it took. */
SECTION("tp_btf/nmi_handler")
int nmi_handler(u64 *ctx)
{
	u32 ring;
	struct cpu_state *state = watched(&ring);

	if (!state)
		return 0;
	u64 now_ns = bpf_ktime_get_ns();

	NOTE(state, ring, SEGMENT_NMI, now_ns - ctx[1], now_ns, nmi.handler, ctx[0]);
	return 0;
}

SECTION("tp_btf/cpu_idle")
int idle(u64 *ctx)
{
	u32 ring, idle_state = (u32)ctx[0];
	struct cpu_state *state = watched(&ring);

	if (!state)
		return 0;
	u64 now_ns = bpf_ktime_get_ns();

	if (idle_state != (u32)-1) {
		state->idle_ns = now_ns;
		state->idle_state = idle_state;
	} else if (state->idle_ns) {
		NOTE(state, ring, SEGMENT_IDLE, state->idle_ns, now_ns, idle.state, state->idle_state);
		state->idle_ns = 0;
	}
	return 0;
}

/* The process that is measured touches memory that is not mapped. */
ALWAYS_INLINE int page_fault(u64 address)
{
	u64 number;
	u32 ring;
	struct cpu_state *state = watched(&ring);

	if (!state)
		return 0;
	u64 task = bpf_get_current_pid_tgid();
	u32 process = task >> 32;

	if (!process || process != state->settings.process)
		return 0;
	struct segment *segment = begin(state, ring, &number);

	if (!segment)
		return 0;
	u64 now_ns = bpf_ktime_get_ns();

	segment->page_fault.thread = (u32)task;
	segment->page_fault.address = address;
	complete(segment, SEGMENT_PAGE_FAULT, now_ns, now_ns, number);
	return 0;
}

SECTION("tp_btf/page_fault_user")
int page_fault_user(u64 *ctx)
{
	return page_fault(ctx[0]);
}

SECTION("tp_btf/page_fault_kernel")
int page_fault_kernel(u64 *ctx)
{
	return page_fault(ctx[0]);
}

/*
 * arm64 has no events for page faults, but a function for them, of user space and of the kernel. Bit 55 marks the kernel's
 * addresses; those of user space may have a tag above it.
 */
#define KERNEL_ADDRESS (1ull << 55)
#define ADDRESS_BITS (KERNEL_ADDRESS - 1)

SECTION("fentry/do_mem_abort")
int page_fault_entered(u64 *ctx)
{
	return ctx[0] & KERNEL_ADDRESS ? 0 : page_fault(ctx[0] & ADDRESS_BITS);
}

/* A measured task is moved to another CPU. This runs on the CPU that it leaves. */
SECTION("tp_btf/sched_migrate_task")
int migration(u64 *ctx)
{
	u64 number;
	u32 ring;
	struct task_struct *task = (void *)ctx[0];
	struct cpu_state *state = watched(&ring);

	if (!state || (u32)task->tgid != state->settings.process)
		return 0;
	struct segment *segment = begin(state, ring, &number);

	if (!segment)
		return 0;
	u64 now_ns = bpf_ktime_get_ns();

	segment->migration.thread = task->pid;
	segment->migration.process = task->tgid;
	segment->migration.to_cpu = (u32)ctx[1];
	complete(segment, SEGMENT_MIGRATION, now_ns, now_ns, number);
	return 0;
}

/* A task has to wait for a lock. */
SECTION("tp_btf/contention_begin")
int lock_wait(u64 *ctx)
{
	u32 ring;
	struct cpu_state *state = watched(&ring);

	if (!state)
		return 0;
	state->lock_ns = bpf_ktime_get_ns();
	state->lock = ctx[0];
	state->lock_flags = (u32)ctx[1];
	state->lock_thread = (u32)bpf_get_current_pid_tgid();
	return 0;
}

SECTION("tp_btf/contention_end")
int lock_taken(u64 *ctx)
{
	u64 number;
	u32 ring;
	struct cpu_state *state = watched(&ring);

	if (!state || !state->lock_ns || state->lock != ctx[0])
		return 0;
	struct segment *segment = begin(state, ring, &number);

	if (!segment)
		return 0;
	segment->lock.thread = state->lock_thread;
	segment->lock.process = bpf_get_current_pid_tgid() >> 32;
	segment->lock.flags = state->lock_flags;
	complete(segment, SEGMENT_LOCK, state->lock_ns, bpf_ktime_get_ns(), number);
	state->lock_ns = 0;
	return 0;
}

/*
 * ---- Interrupts from other CPUs ----
 *
 * Raw tracepoints, whose arguments are plain numbers: the verifier refuses pointers to functions in typed ones, or
 * arithmetic with them without a helper call.
 */

/* This CPU asks another one to run a function. */
SECTION("raw_tp/csd_queue_cpu")
int function_asked(u64 *ctx)
{
	u32 cpu = (u32)ctx[0];

	if (LIKELY(!ring_of(cpu)))
		return 0;
	note_sender(ctx[3]);
	count_ipi(ctx, cpu, ctx[2], ctx[1]);
	return 0;
}

/* This CPU sends an interrupt; those that ask for a function are counted above. */
SECTION("raw_tp/ipi_send_cpu")
int ipi_sent(u64 *ctx)
{
	u32 cpu = (u32)ctx[0];

	if (LIKELY(!ring_of(cpu)) || ctx[2])
		return 0;
	count_ipi(ctx, cpu, 0, ctx[1]);
	return 0;
}

/* As function_asked(), of one CPU, on kernels without that event. */
SECTION("kprobe/__smp_call_single_queue")
int single_asked(struct pt_regs *ctx)
{
	struct pt_regs___call *registers = (void *)ctx;
	u32 cpu = (u32)registers->di, flags = 0;
	u32 ring = ring_of(cpu);

	if (LIKELY(!ring))
		return 0;
	struct __call_single_data *request = (void *)registers->si;
	u64 function = 0;

	bpf_probe_read_kernel(&flags, sizeof(flags), &request->node.u_flags);
	if ((flags & CSD_TYPE_MASK) > CSD_TYPE_SYNC)
		return 0;
	bpf_probe_read_kernel(&function, sizeof(function), &request->func);
	note_call(cpu, ring, function, 0, 0, bpf_get_stackid(ctx, &sender_stacks, 0));
	return 0;
}

/* As function_asked(), of several CPUs, on kernels without that event. */
SECTION("kprobe/smp_call_function_many_cond")
int several_asked(struct pt_regs *ctx)
{
	struct pt_regs___call *registers = (void *)ctx;
	u64 mask = registers->di, function = registers->si;
	bool is_conditional = registers->r8;
	s64 stack = 0;

	for (u32 i = 0; i < WATCHED_MAX && i < config.watched_count; i++) {
		u32 cpu = config.watched[i];
		u32 ring = ring_of(cpu);
		u64 word = 0;

		if (!ring || cpu == bpf_get_smp_processor_id())
			continue;
		bpf_probe_read_kernel(&word, sizeof(word), (void *)(mask + cpu / 64 * 8));
		if (!(word >> (cpu & 63) & 1))
			continue;
		if (!stack)
			stack = bpf_get_stackid(ctx, &sender_stacks, 0);
		note_call(cpu, ring, function, 1, is_conditional, stack);
	}
	return 0;
}

/*
 * This CPU runs a function that another one requested. A CPU that asks all CPUs also runs the function itself: that call has
 * no request, and is its own work.
 */
SECTION("tp_btf/csd_function_entry")
int function_entry(u64 *ctx)
{
	u32 ring;
	struct cpu_state *state = watched(&ring);

	if (state && ctx[1])
		state->function_ns = bpf_ktime_get_ns();
	return 0;
}

SECTION("raw_tp/csd_function_exit")
int function_exit(u64 *ctx)
{
	u32 ring;
	struct cpu_state *state = watched(&ring);

	if (!state || !state->function_ns)
		return 0;
	note_function(state, ring, SEGMENT_FUNCTION, state->function_ns, bpf_ktime_get_ns(), ctx[0], ctx[1]);
	state->function_ns = 0;
	return 0;
}

/* ---- Timers and work items ---- */

/* A timer of the timer wheel is set. A raw tracepoint: its address is taken as a number. */
SECTION("raw_tp/timer_start")
int wheel_set(u64 *ctx)
{
	u32 flags = 0;

	bpf_probe_read_kernel(&flags, sizeof(flags), &((struct timer_list *)ctx[0])->flags);
	if (LIKELY(!ring_of(flags & TIMER_CPUMASK)))
		return 0;
	note_asked(ctx[0]);
	return 0;
}

/* The function of such a timer begins, in a softirq. */
SECTION("tp_btf/timer_expire_entry")
int wheel_entry(u64 *ctx)
{
	u32 ring;
	struct timer_list *timer = (void *)ctx[0];
	struct cpu_state *state = watched(&ring);

	if (!state)
		return 0;
	state->soft_function = (u64)timer->function;
	state->soft_timer = (u64)timer;
	return 0;
}

SECTION("raw_tp/timer_expire_exit")
int wheel_exit(u64 *ctx)
{
	u32 ring;
	struct cpu_state *state = watched(&ring);

	if (!state)
		return 0;
	state->soft_timer = 0;
	if (state->softirq_ns)
		timer_called(state, 0, ctx[0], state->softirq_ns);
	return 0;
}

/* A work item is queued; the caller is not kept if it is for no particular CPU. */
SECTION("raw_tp/workqueue_queue_work")
int work_queued(u64 *ctx)
{
	struct worker_pool *pool = 0;
	s32 cpu = -1;

	bpf_probe_read_kernel(&pool, sizeof(pool), &((struct pool_workqueue *)ctx[1])->pool);
	bpf_probe_read_kernel(&cpu, sizeof(cpu), &pool->cpu);
	if (LIKELY(cpu < 0 || !ring_of(cpu)))
		return 0;
	note_asked(ctx[2]);
	return 0;
}

SECTION("tp_btf/workqueue_execute_start")
int work_begins(u64 *ctx)
{
	u32 ring;
	struct cpu_state *state = watched(&ring);

	if (state)
		state->work_ns = bpf_ktime_get_ns();
	return 0;
}

SECTION("raw_tp/workqueue_execute_end")
int work_ends(u64 *ctx)
{
	u32 ring;
	struct cpu_state *state = watched(&ring);

	if (!state)
		return 0;
	/* It began before the worker was preempted or slept: count from when it got the CPU again. */
	u64 start_ns = state->work_ns ? state->work_ns : state->has_switched ? 0 : state->thread_ns;
	u64 now_ns = bpf_ktime_get_ns();

	state->work_ns = 0;
	if (start_ns && now_ns >= start_ns + CALLED_LEAST_NS)
		note_function(state, ring, SEGMENT_CALLED, start_ns, now_ns, ctx[1], ctx[0]);
	return 0;
}

/* ---- Watched tasks ---- */

/* Any task is woken: a watched one, or one that may wake a watched one. */
SECTION("tp_btf/sched_waking")
int waking_tasks(u64 *ctx)
{
	struct task_struct *task = (void *)ctx[0];
	u32 cpu = bpf_get_smp_processor_id();
	struct cpu_state *state = state_of(cpu);
	struct task_slot *slot = slot_of(task->pid);

	if (!state)
		return 0;
	if (!slot && UNLIKELY(is_chosen(state, task)))
		slot = claim(task, SLOT_WATCHED, 0);
	u64 now_ns = bpf_ktime_get_ns();
	u64 expires_ns = expiry_of(state, now_ns);
	u32 ring = state->settings.ring;

	if (slot) {
		task_woken(state, slot, task, expires_ns, now_ns);
		waits_on(last_cpu(task), task->pid);
	}
	if (UNLIKELY(!ring))
		return 0;
	/* The record of a timer has the same information. */
	if (slot && expires_ns)
		note_timer(ctx, state, ring, expires_ns, now_ns, task,
			   is_unusual(state, &state->timer_bound_ns, now_ns - expires_ns, RARITY_OF_TASKS));
	else
		note_waking(state, task, expires_ns, now_ns);
	return 0;
}

/* A task follows another one: either may be watched. */
SECTION("tp_btf/sched_switch")
int task_switch_tasks(u64 *ctx)
{
	struct task_struct *previous = (void *)ctx[1], *next = (void *)ctx[2];
	u32 cpu = bpf_get_smp_processor_id();
	struct cpu_state *state = state_of(cpu);
	struct task_slot *left = slot_of(previous->pid), *came = slot_of(next->pid);
	u64 now_ns = 0;

	if (!state)
		return 0;
	if (counters && counting && left)
		read_counters(cpu);
	bool is_runnable = ctx[0] || is_running(previous);
	u32 ring = state->settings.ring;

	if (ring && !threads_switch(state, ring, &now_ns, previous, next, is_runnable, is_there(left), is_there(came)))
		return 0;
	if (!now_ns)
		now_ns = bpf_ktime_get_ns();
	if (left)
		task_leaves(state, left, now_ns, previous, next, is_runnable);
	else if (UNLIKELY(state->runs_since_ns))
		/* It is watched no more. */
		state->runs_since_ns = 0;
	if (came)
		task_comes(ctx, state, came, now_ns, previous, next);
	/* Where one watched task follows another, they were just read. */
	if (counters && counting && came && !left)
		read_counters(cpu);
	return 0;
}

/* Tasks that a watched task starts are watched as well, and tasks with the name. */
SECTION("tp_btf/sched_process_fork")
int task_forked(u64 *ctx)
{
	struct task_struct *parent = (void *)ctx[0], *child = (void *)ctx[1];

	if (UNLIKELY(has_flag(parent->pid, SLOT_INHERITS)))
		claim(child, SLOT_WATCHED | SLOT_INHERITS, parent->pid);
	else if (UNLIKELY(config.has_command) && task_counts(child))
		claim(child, SLOT_WATCHED, parent->pid);
	return 0;
}

/* A task gets another name, also by executing a program. */
SECTION("tp_btf/task_rename")
int task_renamed(u64 *ctx)
{
	struct task_struct *task = (void *)ctx[0];
	u8 name[COMMAND_BYTES] = {};

	if (LIKELY(!config.has_command))
		return 0;
	bpf_probe_read_kernel_str(name, sizeof(name), (void *)ctx[1]);
	bool is_watched = has_flag(task->pid, SLOT_WATCHED), has_name = is_command(name);

	if (has_name && !is_watched)
		claim(task, SLOT_WATCHED, 0);
	else if (!has_name && is_watched)
		let_go(task, 0);
	return 0;
}

SECTION("tp_btf/sched_process_exit")
int task_ended(u64 *ctx)
{
	struct task_struct *task = (void *)ctx[0];

	return LIKELY(!has_flag(task->pid, SLOT_WATCHED)) ? 0 : let_go(task, 1);
}

ALWAYS_INLINE int task_faults(void)
{
	struct task_slot *slot = slot_of((u32)bpf_get_current_pid_tgid());

	if (LIKELY(!slot))
		return 0;
	u64 now_ns = bpf_ktime_get_ns();

	slot->faults++;
	slot->fault_ns = now_ns;
	slot->in_fault_ns = now_ns;
	return 0;
}

SECTION("tp_btf/page_fault_user")
int task_fault(u64 *ctx)
{
	return task_faults();
}

/* As page_fault_entered(), of user space alone. */
#define PSTATE_MODE 0xf

SECTION("fentry/do_mem_abort")
int task_fault_entered(u64 *ctx)
{
	return ((struct pt_regs___arm64 *)ctx[2])->pstate & PSTATE_MODE ? 0 : task_faults();
}

/* Set for a fault of a program, and not of the kernel on its behalf. */
#define FAULT_FLAG_USER 0x40

/* A page fault is over, or begins anew after a sleep. */
SECTION("fexit/handle_mm_fault")
int task_fault_over(u64 *ctx)
{
	struct task_slot *slot = slot_of((u32)bpf_get_current_pid_tgid());

	if (LIKELY(!slot) || !((u32)ctx[2] & FAULT_FLAG_USER) || !slot->in_fault_ns)
		return 0;
	u64 from_ns = slot->in_fault_ns;

	if (from_ns < slot->run_ns)
		from_ns = slot->run_ns;
	slot->faults_took_ns += bpf_ktime_get_ns() - from_ns;
	slot->in_fault_ns = 0;
	return 0;
}

/* The running thread enters a system call. */
ALWAYS_INLINE void enters_call(u64 *ctx, struct task_slot *slot)
{
	slot->call_owner = 0;
	if ((u32)ctx[1] == FUTEX_X86 || (u32)ctx[1] == FUTEX_ARM64)
		note_owner(slot, (void *)ctx[0]);
	slot->call_ns = bpf_ktime_get_ns();
}

/* The running thread leaves a system call. */
ALWAYS_INLINE void leaves_call(struct task_slot *slot, u64 now_ns)
{
	struct cpu_state *state = state_of(bpf_get_smp_processor_id());

	if (slot->call_ns && state && HELPER_EXISTS(get_current_task_btf))
		note_in_call(state, slot, bpf_get_current_task_btf(), now_ns);
	slot->call_ns = 0;
}

/* A thread enters a system call, and leaves it. Attached only while parts of own work are recorded without an audit. */
SECTION("tp_btf/sys_enter")
int task_enters(u64 *ctx)
{
	struct task_slot *slot = slot_of((u32)bpf_get_current_pid_tgid());

	if (UNLIKELY(slot))
		enters_call(ctx, slot);
	return 0;
}

SECTION("tp_btf/sys_exit")
int task_exits(u64 *ctx)
{
	struct task_slot *slot = slot_of((u32)bpf_get_current_pid_tgid());

	if (UNLIKELY(slot))
		leaves_call(slot, bpf_ktime_get_ns());
	return 0;
}

/* The same for an audit, which records the parts of own work, too: one program for each event costs less than two. */
SECTION("tp_btf/sys_enter")
int audit_enters(u64 *ctx)
{
	struct task_slot *slot = slot_of((u32)bpf_get_current_pid_tgid());

	if (LIKELY(!slot))
		return 0;
	enters_call(ctx, slot);
	u32 call = (u32)ctx[1];
	u32 *kind = bpf_map_lookup_elem(&audit_calls, &call);

	slot->audit_ns = 0;
	if (!kind || LIKELY(*kind == DETAIL_NOT_AUDITED))
		return 0;
	slot->audit_call = call;
	slot->audit_detail = audit_detail((void *)ctx[0], *kind);
	slot->audit_ns = slot->call_ns;
	return 0;
}

SECTION("tp_btf/sys_exit")
int audit_exits(u64 *ctx)
{
	struct task_slot *slot = slot_of((u32)bpf_get_current_pid_tgid());

	if (LIKELY(!slot))
		return 0;
	u64 now_ns = bpf_ktime_get_ns();

	leaves_call(slot, now_ns);
	if (UNLIKELY(slot->audit_ns)) {
		count_audited(ctx, slot, now_ns);
		slot->audit_ns = 0;
	}
	return 0;
}

/* Where the registers of an interrupted thread tell whether it was in the kernel: the code segment of x86, the state of arm64. */
#define REGISTERS_SEGMENT_X86 136
#define REGISTERS_STATE_ARM64 264
#define SEGMENT_PRIVILEGE 3

/* The registers that a stack is unwound from: pt_regs of x86, user_pt_regs of arm64. */
#define REGISTER_FRAME_X86 32
#define REGISTER_INSTRUCTION_X86 128
#define REGISTER_FRAME_ARM64 232
#define REGISTER_LINK_ARM64 240
#define REGISTER_INSTRUCTION_ARM64 256

/*
 * Copies the innermost part of the program's stack, with its registers: where programs are built without frame pointers, the loader
 * finds the callers in it.
 */
NEVER_INLINE int note_stack(struct cpu_state *state, u64 thread, struct task_struct *task, u64 now_ns)
{
	u64 instruction = 0, frame = 0, link = 0, at = user_stack(task), number;
	void *registers = registers_of(task);
	const bool is_x86 = FIELD_EXISTS(((struct pt_regs___x86 *)0)->orig_ax);

	if (!state || !registers)
		return 0;
	bpf_probe_read_kernel(&instruction, 8, registers + (is_x86 ? REGISTER_INSTRUCTION_X86 : REGISTER_INSTRUCTION_ARM64));
	bpf_probe_read_kernel(&frame, 8, registers + (is_x86 ? REGISTER_FRAME_X86 : REGISTER_FRAME_ARM64));
	if (!is_x86)
		bpf_probe_read_kernel(&link, 8, registers + REGISTER_LINK_ARM64);
	for (u32 i = 0; i < STACK_PIECES; i++) {
		struct stretch *stretch = begin_stretch(state, &number);

		if (!stretch)
			return 0;
		stretch->thread = (u32)thread;
		stretch->process = thread >> 32;
		stretch->piece_at = at;
		stretch->instruction = instruction;
		stretch->frame = frame;
		stretch->link = link;
		if (bpf_probe_read_user(stretch->piece, sizeof(stretch->piece), (void *)at))
			stretch->piece_at = 0;
		complete_stretch(stretch, TASK_STACK, now_ns, number);
		if (!stretch->piece_at)
			return 0;
		at += sizeof(stretch->piece);
	}
	return 0;
}

/* The clock that takes samples: it runs only while a watched task of its CPU has run for longer than usual. */
SECTION("perf_event")
int task_sample(void *ctx)
{
	u64 number, task = bpf_get_current_pid_tgid();

	if (!has_flag((u32)task, SLOT_WATCHED))
		return 0;
	struct cpu_state *state = state_of(bpf_get_smp_processor_id());
	u64 now_ns = bpf_ktime_get_ns();
	u32 is_in_kernel = 0;

	if (!state)
		return 0;
	if (FIELD_EXISTS(((struct pt_regs___x86 *)0)->orig_ax))
		is_in_kernel = !(*(volatile u64 *)(ctx + REGISTERS_SEGMENT_X86) & SEGMENT_PRIVILEGE);
	else if (FIELD_EXISTS(((struct pt_regs___arm64 *)0)->pstate))
		is_in_kernel = !!(*(volatile u64 *)(ctx + REGISTERS_STATE_ARM64) & PSTATE_MODE);
	if (HELPER_EXISTS(get_current_task_btf) && HELPER_EXISTS(task_pt_regs))
		note_stack(state, task, bpf_get_current_task_btf(), now_ns);
	struct stretch *stretch = begin_stretch(state, &number);

	if (!stretch)
		return 0;
	stretch->thread = (u32)task;
	stretch->process = task >> 32;
	stretch->is_in_kernel = is_in_kernel;
	stretch->stack_bytes = bpf_get_stack(ctx, stretch->stack, sizeof(stretch->stack), BPF_F_USER_STACK);
	complete_stretch(stretch, TASK_SAMPLE, now_ns, number);
	return 0;
}

/* A waiting watched task is moved to another CPU. */
SECTION("tp_btf/sched_migrate_task")
int task_moved(u64 *ctx)
{
	struct task_struct *task = (void *)ctx[0];
	struct task_slot *slot = slot_of(task->pid);

	if (LIKELY(!slot))
		return 0;
	u32 from = last_cpu(task);

	slot->moved_ns = bpf_ktime_get_ns();
	slot->moved_from = from < 255 ? 1 + (u8)from : 0;
	waits_on((u32)ctx[1], task->pid);
	return 0;
}

/* The clock of a CPU, mostly of this one, has another frequency from now on. */
SECTION("tp_btf/cpu_frequency")
int frequency(u64 *ctx)
{
	u64 number;
	struct cpu_state *state = state_of(bpf_get_smp_processor_id());
	struct stretch *stretch = state ? begin_stretch(state, &number) : 0;

	if (!stretch)
		return 0;
	stretch->waker = (u32)ctx[0];
	stretch->next = (u32)ctx[1];
	complete_stretch(stretch, TASK_FREQUENCY, bpf_ktime_get_ns(), number);
	return 0;
}

/* A watched thread passes the mark at which its activations begin. */
SECTION("uprobe")
int mark_begin(void *ctx)
{
	note_mark(TASK_BEGIN);
	return 0;
}

/* The same for their end. */
SECTION("uprobe")
int mark_end(void *ctx)
{
	note_mark(TASK_END);
	return 0;
}

/* A thread enters a system call: a watched one may write a text that is a mark. Attached only where marks are texts. */
SECTION("tp_btf/sys_enter")
int mark_written(u64 *ctx)
{
	struct written written = {};

	if (writes_text(ctx, &written))
		note_written(&written);
	return 0;
}

/* The same where texts are triggers. */
SECTION("tp_btf/sys_enter")
int trigger_written(u64 *ctx)
{
	struct written written = {};

	if (writes_text(ctx, &written))
		note_texts(&written);
	return 0;
}

/* The same where texts are ends of chains: any thread may write them. */
SECTION("tp_btf/sys_enter")
int pass_written(u64 *ctx)
{
	struct written written = {};

	if (writes_any_text(ctx, &written))
		note_passes(&written);
	return 0;
}

/* A thread enters a function that is a trigger or an end of a chain, and returns from it. */
SECTION("uprobe")
int trigger_enters(void *ctx)
{
	enter_trigger(ctx);
	return 0;
}

SECTION("uretprobe")
int trigger_leaves(void *ctx)
{
	leave_trigger(ctx);
	return 0;
}

/* A sound card's buffer ran empty, or full. */
SECTION("raw_tp/xrun")
int trigger_xrun(u64 *ctx)
{
	note_trigger(TRIGGER_XRUN);
	return 0;
}
