/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Records what takes the watched CPUs, with start and end, in a ring for each CPU. The loader reads the ring after a probe
 * has seen a spike: the programs send nothing and wake no one. On other CPUs a program ends after one comparison.
 */
#pragma once
#include "histograms.h"

/* Segments that a CPU's ring holds: a power of two. */
const volatile u32 ring_segments SECTION(".rodata") = 16384;
/* Stacks that a CPU's ring holds: a power of two. */
const volatile u32 ring_stacks SECTION(".rodata") = 64;

/* The loader maps it: reading tens of thousands of segments by system calls would take longer than a spike. */
struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_ARRAY);
	MAP_NUMBER(map_flags, BPF_F_MMAPABLE);
	MAP_NUMBER(max_entries, 1);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, struct segment);
} segments SECTION(".maps");

struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_STACK_TRACE);
	MAP_NUMBER(max_entries, 1);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, u64[SENDER_STACK_DEPTH]);
} sender_stacks SECTION(".maps");

struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_ARRAY);
	MAP_NUMBER(max_entries, 1);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, struct stack);
} late_stacks SECTION(".maps");

struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_ARRAY);
	MAP_NUMBER(max_entries, SENDERS);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, struct sender);
} senders SECTION(".maps");

struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_HASH);
	MAP_NUMBER(max_entries, 1);
	MAP_TYPE(key, struct ipi_key);
	MAP_TYPE(value, struct ipi_count);
} ipis SECTION(".maps");

/* 1 + the number of a CPU's ring; 0: it is not watched. */
ALWAYS_INLINE u32 ring_of(u32 cpu)
{
	struct cpu_state *state = state_of(cpu);

	return state ? state->settings.ring : 0;
}

/* The state of this CPU, if it is watched. */
ALWAYS_INLINE struct cpu_state *watched(u32 *ring)
{
	struct cpu_state *state = state_of(bpf_get_smp_processor_id());

	if (!state)
		return 0;
	*ring = state->settings.ring;
	return LIKELY(*ring) ? state : 0;
}

/*
 * Reserves a place for a segment; complete() makes it valid. An interrupt may reserve the next place in between. From
 * the count the loader knows that the former content of the place is being overwritten.
 */
ALWAYS_INLINE struct segment *begin(struct cpu_state *state, u32 ring, u64 *number)
{
	*number = take_number(&state->segments);
	if (UNLIKELY(*number == NO_NUMBER))
		return 0;
	u32 place = (ring - 1) * ring_segments + ((u32)*number & (ring_segments - 1));

	return bpf_map_lookup_elem(&segments, &place);
}

/* Call it after all other members of the segment are written. */
ALWAYS_INLINE void complete(struct segment *segment, enum segment_kind kind, u64 start_ns, u64 end_ns, u64 number)
{
	segment->start_ns = start_ns;
	segment->end_ns = end_ns;
	segment->kind = kind;
	BARRIER();
	segment->number = number + 1;
}

/* Writes a segment that has only `field` in addition to its times. */
#define NOTE(state, ring, segment_kind, begin_ns, finish_ns, field, value)			\
	do {											\
		u64 place_, finish_ns_ = (finish_ns);						\
		struct segment *segment_ = begin(state, ring, &place_);				\
												\
		if (segment_) {									\
			segment_->field = (value);						\
			complete(segment_, segment_kind, begin_ns, finish_ns_, place_);		\
		}										\
	} while (0)

/* One in 130 latencies of a probe, which keeps many spikes. */
#define RARITY_OF_PROBES 10
/* One in 1,000 of a watched task: a stack is recorded before the task runs, and must not change the task's p99. */
#define RARITY_OF_TASKS 13
/* A stack takes no more than a 25th of this. */
#define LATE_ENOUGH_NS 500000

/*
 * Whether to record a stack, which takes 3 us, or 8 to 20 us with cold caches. It is recorded if the latency is above the
 * threshold of the loader (a probe on this CPU would keep the spike) and so long that the time for a stack hardly matters, or
 * if it is above `bound`. About one latency in 2^rarity / 8 exceeds the bound: in a virtual machine nearly everything is
 * late. The bound rises by an eighth with each latency above it, and falls by a part in 2^rarity with each other one.
 */
ALWAYS_INLINE bool is_unusual(struct cpu_state *state, u64 *bound_ns, u64 late_ns, u32 rarity)
{
	u32 least_ns = state->settings.late_ns;

	if (!least_ns)
		return 0;
	u64 bound = *bound_ns;

	if (LIKELY(late_ns <= bound)) {
		*bound_ns = bound - (bound >> rarity);
		return UNLIKELY(late_ns >= LATE_ENOUGH_NS) && late_ns >= least_ns;
	}
	*bound_ns = bound ? bound + (bound >> 3) : least_ns;
	return late_ns >= least_ns;
}

/* The task's name, by two plain loads: the helper that copies memory takes about 30 ns more. */
ALWAYS_INLINE void copy_name(u8 *to, struct task_struct *task)
{
	u64 *from = (u64 *)__builtin_preserve_access_index(&task->comm);

	((u64 *)to)[0] = from[0];
	((u64 *)to)[1] = from[1];
}

/* Records the current stack; returns 1 + its number, or 0. */
ALWAYS_INLINE u32 keep_stack(void *ctx, struct cpu_state *state, u32 ring)
{
	u32 number = state->stacks++;
	u32 place = (ring - 1) * ring_stacks + (number & (ring_stacks - 1));
	struct stack *stack = bpf_map_lookup_elem(&late_stacks, &place);

	if (!stack)
		return 0;
	stack->number = 0;
	BARRIER();
	long bytes = bpf_get_stack(ctx, stack->addresses, sizeof(stack->addresses), 0);

	if (bytes < 0)
		return 0;
	stack->bytes = bytes;
	BARRIER();
	stack->number = 1 + (u64)number;
	return 1 + number;
}

/* From a timer's expiry to the wake-up of its thread; with the current stack when that was late. */
ALWAYS_INLINE void note_timer(void *ctx, struct cpu_state *state, u32 ring, u64 expires_ns, u64 now_ns,
			      struct task_struct *woken, bool with_stack)
{
	u64 number;
	struct segment *segment = begin(state, ring, &number);

	if (!segment)
		return;
	segment->timer.thread = woken->pid;
	segment->timer.process = woken->tgid;
	segment->timer.stack = UNLIKELY(with_stack) ? keep_stack(ctx, state, ring) : 0;
	complete(segment, SEGMENT_TIMER, expires_ns, now_ns, number);
}

/*
 * From the wake-up of a thread to the switch to it, with the stack of the previous thread when that was late. `previous_prio`: the
 * highest priority of the previous thread that is known from this time.
 */
ALWAYS_INLINE void note_wakeup(void *ctx, struct cpu_state *state, u32 ring, u64 waking_ns, u64 now_ns,
			       struct task_struct *woken, struct task_struct *previous, s32 previous_prio, bool with_stack)
{
	u64 number;
	struct segment *segment = begin(state, ring, &number);

	if (!segment)
		return;
	segment->wakeup.thread = woken->pid;
	segment->wakeup.process = woken->tgid;
	segment->wakeup.stack = 0;
	if (UNLIKELY(with_stack)) {
		segment->wakeup.stack = keep_stack(ctx, state, ring);
		copy_name(segment->wakeup.previous_command, previous);
	}
	segment->wakeup.previous = previous->pid;
	segment->wakeup.previous_prio = previous_prio;
	complete(segment, SEGMENT_WAKEUP, waking_ns, now_ns, number);
}

/* Whether the task was still runnable. */
ALWAYS_INLINE bool is_running(struct task_struct *task)
{
	if (FIELD_EXISTS(((struct task_struct___new *)0)->__state))
		return !((struct task_struct___new *)(void *)task)->__state;
	return !((struct task_struct___old *)(void *)task)->state;
}

/* Priorities from this one on are those of ordinary threads; below 0 is SCHED_DEADLINE, which has a budget of its own. */
#define ORDINARY_PRIO 100

/*
 * Real-time throttling, or the fair server: a runnable real-time thread gives way to an ordinary one. From then on every
 * switch is recorded until a real-time thread runs, so that a thread woken meanwhile is known to wait for the same reason.
 */
ALWAYS_INLINE bool is_throttling(struct cpu_state *state, struct task_struct *previous, struct task_struct *next,
				 bool is_runnable)
{
	s32 prio = previous->prio;
	bool was = state->is_throttled, begins = is_runnable && prio >= 0 && prio < ORDINARY_PRIO;

	if (LIKELY(!was && !begins))
		return 0;
	bool is_on = next->prio >= ORDINARY_PRIO;

	state->is_throttled = is_on;
	return was || is_on;
}

/* Each switch has a record: what is late may be any thread, as in a chain. */
const volatile u32 every_switch SECTION(".rodata") = 0;

/*
 * Skips the clock read, which is most of the cost, when one thread follows another and no counted task is waiting. The
 * time of the switch is calculated later from the run time of the new thread.
 */
ALWAYS_INLINE bool skips_clock(struct cpu_state *state, struct task_struct *previous, struct task_struct *next)
{
	/* The kernel does not count the idle task's run time. */
	if (every_switch || state->is_waited || !previous->pid || !next->pid)
		return 0;
	state->has_switched = 1;
	state->work_ns = 0;
	state->runtime_ns = next->se.sum_exec_runtime;
	return 1;
}

/* Where the sender of a request is kept. */
ALWAYS_INLINE struct sender *sender_of(u64 request)
{
	u32 place = (u32)(request >> 5) & (SENDERS - 1);

	return bpf_map_lookup_elem(&senders, &place);
}

/* A function that another CPU requested, or that this CPU called, with the caller if known. */
ALWAYS_INLINE void note_function(struct cpu_state *state, u32 ring, enum segment_kind kind, u64 start_ns, u64 end_ns,
				 u64 function, u64 request)
{
	u64 number;
	struct segment *segment = begin(state, ring, &number);

	if (!segment)
		return;
	struct sender *sender = sender_of(request);

	segment->function.function = function;
	segment->function.has_sender = 0;
	if (request && sender && sender->request == request) {
		segment->function.has_sender = 1;
		segment->function.sender_cpu = sender->cpu;
		segment->function.sender_thread = sender->thread;
		segment->function.sender_process = sender->process;
		__builtin_memcpy(segment->function.sender_command, sender->command, COMMAND_BYTES);
	}
	complete(segment, kind, start_ns, end_ns, number);
}

/* Shorter functions explain nothing. */
#define CALLED_LEAST_NS 2000

/*
 * A timer's function is over. It began when the previous one ended, or with the interrupt or the softirq: another reading of
 * the clock would delay the threads that the timer wakes.
 */
NEVER_INLINE void timer_called(struct cpu_state *state, bool is_hard, u64 timer, u64 start_ns)
{
	u32 ring = state->settings.ring;
	u64 now_ns = bpf_ktime_get_ns(), called_ns = is_hard ? state->hard_called_ns : state->soft_called_ns;
	u64 function = is_hard ? state->hard_function : state->soft_function;

	if (is_hard)
		state->hard_called_ns = now_ns;
	else
		state->soft_called_ns = now_ns;
	if (start_ns < called_ns)
		start_ns = called_ns;
	if (LIKELY(now_ns < start_ns + CALLED_LEAST_NS))
		return;
	note_function(state, ring, SEGMENT_CALLED, start_ns, now_ns, function, timer);
}

/* A worker of a workqueue leaves the CPU in the middle of a work item; it got the CPU at `start_ns`. */
NEVER_INLINE void work_leaves(struct cpu_state *state, u32 ring, u64 start_ns, u64 now_ns, struct task_struct *task)
{
	struct kthread *thread = 0;
	struct worker *worker = 0;
	u64 function = 0, work = 0;

	if (start_ns < state->work_ns)
		start_ns = state->work_ns;
	state->work_ns = 0;
	if (FIELD_EXISTS(((struct task_struct___kthread *)0)->worker_private))
		bpf_probe_read_kernel(&thread, sizeof(thread), &((struct task_struct___kthread *)(void *)task)->worker_private);
	else
		bpf_probe_read_kernel(&thread, sizeof(thread), &((struct task_struct___child *)(void *)task)->set_child_tid);
	bpf_probe_read_kernel(&worker, sizeof(worker), &thread->data);
	bpf_probe_read_kernel(&function, sizeof(function), &worker->current_func);
	bpf_probe_read_kernel(&work, sizeof(work), &worker->current_work);
	if (function && now_ns >= start_ns + CALLED_LEAST_NS)
		note_function(state, ring, SEGMENT_CALLED, start_ns, now_ns, function, work);
}

/* A thread leaves a watched CPU. */
ALWAYS_INLINE void note_thread(struct cpu_state *state, u32 ring, u64 now_ns, struct task_struct *previous,
			       struct task_struct *next, bool is_runnable)
{
	u64 number;
	u64 start_ns = state->thread_ns;

	state->thread_ns = now_ns;
	if (UNLIKELY(!start_ns))
		return;
	if (state->has_switched) {
		u64 came_ns = now_ns - (previous->se.sum_exec_runtime - state->runtime_ns);

		state->has_switched = 0;
		if (came_ns > start_ns && came_ns <= now_ns)
			start_ns = came_ns;
	}
	if (UNLIKELY(previous->flags & PF_WQ_WORKER))
		work_leaves(state, ring, start_ns, now_ns, previous);
	struct segment *segment = begin(state, ring, &number);

	if (!segment)
		return;
	segment->thread.was_runnable = is_runnable;
	segment->thread.thread = previous->pid;
	segment->thread.process = previous->tgid;
	segment->thread.prio = previous->prio;
	segment->thread.next_prio = next->prio;
	/* The loader knows the idle task's name. */
	if (previous->pid)
		copy_name(segment->thread.command, previous);
	complete(segment, SEGMENT_THREAD, start_ns, now_ns, number);
}

/* Counts an interrupt that this CPU sends to another one, by function, caller and sender. */
ALWAYS_INLINE void count_ipi(void *ctx, u32 cpu, u64 function, u64 call_site)
{
	struct ipi_key key = { .function = function, .call_site = call_site, .cpu = cpu };
	struct ipi_count *found, fresh = { .count = 1 };

	key.from_cpu = bpf_get_smp_processor_id();
	/* A reschedule may come from any interrupt: the interrupted thread is not its sender. */
	if (function) {
		if (UNLIKELY((u32)(bpf_get_current_pid_tgid() >> 32) == config.own_process))
			key.is_own = 1;
		else
			bpf_get_current_comm(key.command, COMMAND_BYTES);
	}
	found = bpf_map_lookup_elem(&ipis, &key);
	if (LIKELY(found)) {
		/* Only this CPU adds to it, but its interrupts may do so in between. */
		__sync_fetch_and_add(&found->count, 1);
		return;
	}
	fresh.stack = bpf_get_stackid(ctx, &sender_stacks, 0);
	if (bpf_map_update_elem(&ipis, &key, &fresh, BPF_NOEXIST)) {
		struct cpu_state *state = state_of(key.from_cpu);

		if (state)
			state->ipis_lost++;
	}
}

/* A CPU is asked to run a function. */
ALWAYS_INLINE void note_sender(u64 request)
{
	struct sender *sender = sender_of(request);

	if (!sender)
		return;
	u64 task = bpf_get_current_pid_tgid();

	sender->request = request;
	sender->thread = (u32)task;
	sender->process = task >> 32;
	sender->cpu = bpf_get_smp_processor_id();
	bpf_get_current_comm(sender->command, COMMAND_BYTES);
}

/*
 * A timer is armed or a work item queued for a watched CPU. In an interrupt the running thread is not the caller; a timer's
 * function that queues a work item does it for the thread that armed the timer.
 */
NEVER_INLINE void note_asked(u64 request)
{
	struct cpu_state *state = state_of(bpf_get_smp_processor_id());

	if (!state)
		return;
	bool in_softirq = state->softirq_ns;

	if (LIKELY(!in_softirq && !state->irq_ns && !state->vector_ns)) {
		note_sender(request);
		return;
	}
	struct sender *sender = sender_of(request), *setter = sender_of(state->soft_timer);

	if (!sender)
		return;
	if (sender->request == request)
		sender->request = 0;
	if (in_softirq && state->soft_timer && setter && setter->request == state->soft_timer) {
		__builtin_memcpy(sender, setter, sizeof(*sender));
		sender->request = request;
	}
}

/*
 * Another thread gets the CPU, and one of the two is in the middle of a softirq, as on real-time kernels: a softirq is
 * recorded with the time in which its thread ran. Otherwise the softirq would seem to have the CPU while its thread waits,
 * and the start of one softirq would be taken as that of another.
 */
NEVER_INLINE void softirq_switches(struct cpu_state *state, u32 ring, u64 now_ns, u32 previous, u32 next)
{
	struct left_softirq *left = state->left_softirqs;

	if (state->softirq_ns) {
		NOTE(state, ring, SEGMENT_SOFTIRQ, state->softirq_ns, now_ns, softirq.number, state->softirq);
		state->softirq_ns = 0;
		for (u32 i = 0; i < SOFTIRQS_LEFT_MAX; i++) {
			if (left[i].thread)
				continue;
			left[i].thread = previous;
			left[i].number = state->softirq;
			state->softirqs_left++;
			break;
		}
	}
	for (u32 i = 0; i < SOFTIRQS_LEFT_MAX; i++) {
		if (!next || left[i].thread != next)
			continue;
		left[i].thread = 0;
		state->softirqs_left--;
		state->softirq = left[i].number;
		state->softirq_ns = now_ns;
		break;
	}
}

/* What is kept of the task that waits for a CPU: a part of its id, which is enough to see that it is the one that comes. */
ALWAYS_INLINE u8 waiter_of(u32 thread)
{
	return 0x80 | (thread & 0x7f);
}

/*
 * A switch on a CPU that has a ring. `left_counts` and `came_counts`: whether the waits of the two tasks are recorded.
 * Returns whether the time was read, into `now_ns`; otherwise the switch needs nothing more.
 */
ALWAYS_INLINE bool threads_switch(struct cpu_state *state, u32 ring, u64 *now_ns, struct task_struct *previous,
				  struct task_struct *next, bool is_runnable, bool left_counts, bool came_counts)
{
	bool is_throttled = is_throttling(state, previous, next, is_runnable);

	/*
	 * No interrupt is in progress when threads change. Some guests do not show every end of an interrupt, and later
	 * wake-ups would be attributed to it.
	 */
	state->irq_ns = 0;
	state->vector_ns = 0;
	if (!PREEMPTS_SOFTIRQS)
		state->softirq_ns = 0;
	bool in_softirq = PREEMPTS_SOFTIRQS && (state->softirq_ns || state->softirqs_left);

	/* A counted thread in between, such as the one that moves tasks, does not end the wait of another one. */
	if (left_counts && is_runnable)
		state->is_waited = waiter_of(previous->pid);
	else if (!next->pid || (came_counts && state->is_waited == waiter_of(next->pid)))
		state->is_waited = 0;
	if (!came_counts && !left_counts && LIKELY(!is_throttled && !in_softirq && skips_clock(state, previous, next)))
		return 0;
	*now_ns = bpf_ktime_get_ns();
	if (UNLIKELY(in_softirq))
		softirq_switches(state, ring, *now_ns, previous->pid, next->pid);
	note_thread(state, ring, *now_ns, previous, next, is_runnable);
	return 1;
}
