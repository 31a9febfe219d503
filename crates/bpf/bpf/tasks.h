/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Watched tasks: one record each time such a task leaves a CPU. It says how the task got there (woken, by whom, or preempted
 * before) and why it left (preempted, by whom, or asleep, in which system call, on which futex). The records lie in a ring
 * for each CPU that has a ring of segments. For a task that is not watched a program ends after one comparison.
 */
#pragma once
#include "calls.h"
#include "counters.h"

struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_ARRAY);
	MAP_NUMBER(max_entries, 1);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, struct task_place);
} task_places SECTION(".maps");

struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_ARRAY);
	MAP_NUMBER(max_entries, 1);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, struct task_slot);
} task_slots SECTION(".maps");

/* Mapped by the loader. */
struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_ARRAY);
	MAP_NUMBER(map_flags, BPF_F_MMAPABLE);
	MAP_NUMBER(max_entries, 1);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, struct stretch);
} stretches SECTION(".maps");

struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_ARRAY);
	MAP_NUMBER(max_entries, 1);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, struct task_losses);
} task_losses SECTION(".maps");

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct cfs_rq {
	int throttle_count;
};

struct sched_entity___group {
	struct cfs_rq *cfs_rq;
};

struct task_struct___group {
	struct sched_entity___group se;
};

/* Kernels from 6.18 on throttle tasks one by one. */
struct task_struct___throttled {
	bool throttled;
};

struct sched_dl_entity {
	s64 runtime;
};

struct task_struct___deadline {
	struct sched_dl_entity dl;
};

/* Only kernels with a real-time runtime of control groups have these. */
struct rt_rq {
	int rt_throttled;
};

struct sched_rt_entity___group {
	struct rt_rq *rt_rq;
};

struct task_struct___real_time {
	struct sched_rt_entity___group rt;
};

struct pt_regs___futex_x86 {
	unsigned long di;
	unsigned long si;
	unsigned long dx;
};

struct pt_regs___stack_x86 {
	unsigned long sp;
};

/* The stack pointer has the same name there, but another place. */
struct pt_regs___futex_arm64 {
	u64 regs[31];
	u64 sp;
	u64 orig_x0;
};

struct mm_struct {
	unsigned long start_code;
	unsigned long end_code;
};

struct task_struct___memory {
	struct mm_struct *mm;
};

typedef struct {
	int counter;
} atomic_t;

struct signal_struct {
	atomic_t live;
};

struct task_struct___process {
	struct signal_struct *signal;
};

#pragma clang attribute pop

/* The system call futex, and the commands that wait for a lock. */
#define FUTEX_X86 202
#define FUTEX_ARM64 98
#define FUTEX_COMMAND_MASK 0x7f
/* No other process has the lock. */
#define FUTEX_PRIVATE 0x80
#define FUTEX_WAIT 0
#define FUTEX_LOCK_PI 6
#define FUTEX_WAIT_BITSET 9
#define FUTEX_LOCK_PI2 13
/* The value that a waiter for a mutex expects: "locked, and others wait" in glibc, Rust and Go. */
#define FUTEX_CONTENDED 2
/* The same for a robust mutex, whose word also has the thread id of its owner. */
#define FUTEX_WAITERS 0x80000000
/* Where glibc's pthread_mutex_t keeps the thread id of its owner. */
#define GLIBC_OWNER_OFFSET 8

ALWAYS_INLINE void count_loss(u64 offset)
{
	u32 zero = 0;
	struct task_losses *losses = bpf_map_lookup_elem(&task_losses, &zero);

	if (losses)
		__sync_fetch_and_add(offset ? &losses->collisions : &losses->events, 1);
}

ALWAYS_INLINE struct task_place *place_of(u32 thread)
{
	u32 number = thread & (TASK_SLOTS - 1);

	return bpf_map_lookup_elem(&task_places, &number);
}

/* Whether a thread has a slot and this flag. */
ALWAYS_INLINE bool has_flag(u32 thread, u32 flag)
{
	struct task_place *place = place_of(thread);

	return place && place->thread == thread && place->flags & flag;
}

/* The slot of a watched task; 0 for others. */
ALWAYS_INLINE struct task_slot *slot_of(u32 thread)
{
	u32 number = thread & (TASK_SLOTS - 1);

	return UNLIKELY(has_flag(thread, SLOT_WATCHED)) ? bpf_map_lookup_elem(&task_slots, &number) : 0;
}

/* Whether there is a slot, as a number: the verifier allows no arithmetic with pointers, which the compiler likes. */
ALWAYS_INLINE bool is_there(struct task_slot *slot)
{
	u32 there = 0;

	if (slot)
		there = 1;
	__asm__ volatile("" : "+r"(there));
	return there;
}

/* Reserves a record on this CPU; complete_stretch() makes it valid. */
ALWAYS_INLINE struct stretch *begin_stretch(struct cpu_state *state, u64 *number)
{
	u32 ring = state->settings.ring;

	if (!ring)
		return 0;
	*number = take_number(&state->stretches);
	if (UNLIKELY(*number == NO_NUMBER))
		return 0;
	u32 place = ring_place(ring, *number);

	return bpf_map_lookup_elem(&stretches, &place);
}

ALWAYS_INLINE void complete_stretch(struct stretch *stretch, u32 kind, u64 end_ns, u64 number)
{
	stretch->kind = kind;
	stretch->end_ns = end_ns;
	BARRIER();
	stretch->number = number + 1;
}

/* Reports to the loader that a task is watched from now on. */
ALWAYS_INLINE void tell_new(struct task_struct *task, u32 parent)
{
	u64 number;
	struct cpu_state *state = state_of(bpf_get_smp_processor_id());
	struct stretch *stretch = state ? begin_stretch(state, &number) : 0;

	if (!stretch) {
		count_loss(0);
		return;
	}
	stretch->thread = task->pid;
	stretch->process = task->tgid;
	stretch->prio = task->prio;
	stretch->waker = parent;
	copy_name(stretch->command, task);
	complete_stretch(stretch, TASK_NEW, bpf_ktime_get_ns(), number);
}

/* Watches a task from now on. */
NEVER_INLINE struct task_slot *claim(struct task_struct *task, u32 flags, u32 parent)
{
	u32 thread = task->pid, number = thread & (TASK_SLOTS - 1);
	struct task_place *place = place_of(thread);
	struct task_slot *slot = bpf_map_lookup_elem(&task_slots, &number);

	if (!place || !slot || !thread)
		return 0;
	if (place->thread && place->thread != thread) {
		count_loss(1);
		return 0;
	}
	place->flags = 0;
	slot->waking_ns = 0;
	slot->left_ns = 0;
	slot->run_ns = 0;
	slot->ready_ns = 0;
	slot->moved_ns = 0;
	slot->fault_ns = 0;
	slot->call_ns = 0;
	slot->in_fault_ns = 0;
	slot->faults_took_ns = 0;
	slot->calls_took_ns = 0;
	slot->place = 0;
	slot->ran_ns = 0;
	slot->usual_run_ns = 0;
	slot->runs = 0;
	slot->audit_ns = 0;
	slot->faults = 0;
	slot->lost = 0;
	slot->was_runnable = 0;
	place->thread = thread;
	BARRIER();
	place->flags = flags;
	tell_new(task, parent);
	return slot;
}

/* Threads of its process that do not exit yet; -1: not known. */
ALWAYS_INLINE s32 threads_left(struct task_struct *task)
{
	struct task_struct___process *known = (void *)task;

	if (!FIELD_EXISTS(known->signal) || !FIELD_EXISTS(((struct signal_struct *)0)->live) || !known->signal)
		return -1;
	return known->signal->live.counter;
}

/* What is known of a watched task since it got the CPU, or was woken. */
ALWAYS_INLINE void note_since(struct stretch *stretch, const struct task_slot *slot, u64 now_ns)
{
	u64 in_faults_ns = slot->faults_took_ns;

	if (UNLIKELY(slot->in_fault_ns)) {
		u64 from_ns = slot->in_fault_ns < slot->run_ns ? slot->run_ns : slot->in_fault_ns;

		if (now_ns > from_ns)
			in_faults_ns += now_ns - from_ns;
	}
	stretch->faults_took_ns = in_faults_ns;
	stretch->calls_took_ns = slot->calls_took_ns;
	stretch->ready_ns = slot->ready_ns;
	stretch->expires_ns = slot->woken.expires_ns;
	stretch->run_ns = slot->run_ns;
	stretch->moved_ns = slot->moved_ns;
	stretch->moved_from = slot->moved_from;
	stretch->fault_ns = slot->fault_ns;
	stretch->faults = slot->faults;
	stretch->lost = slot->lost;
	stretch->budget_before = slot->budget;
	stretch->waker_kind = slot->woken.waker_kind;
	stretch->waker = slot->woken.waker;
	stretch->waker_prio = slot->woken.waker_prio;
	stretch->previous = slot->previous;
	stretch->previous_prio = slot->previous_prio;
	((u64 *)stretch->waker_command)[0] = ((u64 *)slot->woken.waker_command)[0];
	((u64 *)stretch->waker_command)[1] = ((u64 *)slot->woken.waker_command)[1];
	((u64 *)stretch->previous_command)[0] = ((u64 *)slot->previous_command)[0];
	((u64 *)stretch->previous_command)[1] = ((u64 *)slot->previous_command)[1];
}

/* Stops watching a task. `ends`: it has the CPU, and its last stretch has no other record. */
NEVER_INLINE int let_go(struct task_struct *task, bool ends)
{
	u64 number;
	u32 slot_number = task->pid & (TASK_SLOTS - 1);
	struct task_place *place = place_of(task->pid);
	struct task_slot *slot = bpf_map_lookup_elem(&task_slots, &slot_number);
	struct cpu_state *state = state_of(bpf_get_smp_processor_id());

	if (!place || !slot)
		return 0;
	place->flags = 0;
	place->thread = 0;
	struct stretch *stretch = state ? begin_stretch(state, &number) : 0;

	if (!stretch) {
		count_loss(0);
		return 0;
	}
	u64 now_ns = bpf_ktime_get_ns();

	note_since(stretch, slot, now_ns);
	if (!ends)
		stretch->run_ns = 0;
	stretch->thread = task->pid;
	stretch->process = task->tgid;
	stretch->prio = task->prio;
	stretch->began = slot->began;
	stretch->threads_left = threads_left(task);
	stretch->runs = slot->runs;
	stretch->arguments[0] = 0;
	stretch->arguments[1] = 0;
	stretch->caller = 0;
	stretch->state = 0;
	stretch->syscall = SYSCALL_NOT_KNOWN;
	stretch->futex_command = 0;
	stretch->futex_value = 0;
	stretch->futex_word = 0;
	stretch->futex_owner = 0;
	stretch->next = 0;
	stretch->next_prio = 0;
	stretch->is_runnable = 0;
	stretch->budget = BUDGET_LEFT;
	copy_name(stretch->command, task);
	((u64 *)stretch->next_command)[0] = 0;
	((u64 *)stretch->next_command)[1] = 0;
	complete_stretch(stretch, TASK_GONE, now_ns, number);
	return 0;
}

/* The CPU that a task had last, or waits for. The kernel sets it whenever it gives a task a CPU, after the event of a move. */
ALWAYS_INLINE u32 last_cpu(struct task_struct *task)
{
	struct task_struct___smp *placed = (void *)task;

	return FIELD_EXISTS(placed->wake_cpu) ? (u32)placed->wake_cpu : (u32)-1;
}

/* A watched task waits for a CPU, which is often not the one that wakes it: every switch there is recorded until it runs. */
ALWAYS_INLINE void waits_on(u32 cpu, u32 thread)
{
	struct cpu_state *state = state_of(cpu);

	if (state)
		state->is_waited = waiter_of(thread);
}

/* Whether the task is in the priority range of the configuration. */
ALWAYS_INLINE bool is_chosen(struct cpu_state *state, struct task_struct *task)
{
	return watches_priorities && priority_counts(state, task->prio) && (u32)task->tgid != config.own_process;
}

/* The softirq that delivers packets, and the system calls in which a datagram to the own machine is delivered at once. */
#define NET_RX 3
#define SENDTO_X86 44
#define SENDMSG_X86 46
#define SENDMMSG_X86 307
#define SENDTO_ARM64 206
#define SENDMSG_ARM64 211
#define SENDMMSG_ARM64 269

/* Whether the thread that runs is in a system call that sends. */
NEVER_INLINE bool is_sending(void)
{
	if (!KNOWS_REGISTERS || !HELPER_EXISTS(get_current_task_btf))
		return 0;
	s64 call = syscall_of(bpf_get_current_task_btf());

	if (FIELD_EXISTS(((struct pt_regs___x86 *)0)->orig_ax))
		return call == SENDTO_X86 || call == SENDMSG_X86 || call == SENDMMSG_X86;
	return call == SENDTO_ARM64 || call == SENDMSG_ARM64 || call == SENDMMSG_ARM64;
}

/* The waker of a task: this CPU's present activity. An interrupted task is not the waker. */
ALWAYS_INLINE u32 waker_kind(struct cpu_state *state, u64 expires_ns)
{
	if (expires_ns)
		return WAKER_TIMER;
	if (state->irq_ns)
		return WAKER_IRQ;
	if (state->vector_ns)
		return WAKER_VECTOR;
	if (state->softirq_ns)
		return state->softirq == NET_RX && is_sending() ? WAKER_SENDER : WAKER_SOFTIRQ;
	return WAKER_THREAD;
}

/* The name of the thread that runs. */
ALWAYS_INLINE void copy_own_name(u8 *to)
{
	if (HELPER_EXISTS(get_current_task_btf))
		copy_name(to, bpf_get_current_task_btf());
	else
		bpf_get_current_comm(to, COMMAND_BYTES);
}

/* This CPU wakes a thread: a link of the chain that leads to the wake-up of a watched one. */
NEVER_INLINE void note_waking(struct cpu_state *state, struct task_struct *task, u64 expires_ns, u64 now_ns)
{
	u64 number, waker = bpf_get_current_pid_tgid();
	struct segment *segment = state->settings.ring ? begin(state, state->settings.ring, &number) : 0;

	if (!segment)
		return;
	segment->waking.by = waker_kind(state, expires_ns);
	segment->waking.thread = task->pid;
	segment->waking.waker = (u32)waker;
	segment->waking.waker_process = waker >> 32;
	copy_own_name(segment->waking.waker_command);
	complete(segment, SEGMENT_WAKING, expires_ns ? expires_ns : now_ns, now_ns, number);
}

/* Which budget of a task is used up. */
ALWAYS_INLINE u8 used_up(struct task_struct *task)
{
	if (task->prio < 0) {
		struct task_struct___deadline *known = (void *)task;

		return FIELD_EXISTS(known->dl) && known->dl.runtime <= 0 ? BUDGET_RUNTIME : BUDGET_LEFT;
	}
	/* The common budget of a CPU's real-time tasks is seen in another way: by the ordinary task that runs. */
	if (task->prio < ORDINARY_PRIO) {
		if (!FIELD_EXISTS(((struct sched_rt_entity___group *)0)->rt_rq))
			return BUDGET_LEFT;
		struct rt_rq *queue = ((struct task_struct___real_time *)(void *)task)->rt.rt_rq;

		return queue && queue->rt_throttled ? BUDGET_GROUP_RUNTIME : BUDGET_LEFT;
	}
	if (FIELD_EXISTS(((struct task_struct___throttled *)0)->throttled) &&
	    ((struct task_struct___throttled *)(void *)task)->throttled)
		return BUDGET_QUOTA;
	if (!FIELD_EXISTS(((struct cfs_rq *)0)->throttle_count))
		return BUDGET_LEFT;
	struct cfs_rq *queue = ((struct task_struct___group *)(void *)task)->se.cfs_rq;

	return queue && queue->throttle_count > 0 ? BUDGET_QUOTA : BUDGET_LEFT;
}

ALWAYS_INLINE void task_woken(struct cpu_state *state, struct task_slot *slot, struct task_struct *task, u64 expires_ns,
			      u64 now_ns)
{
	slot->waking_ns = now_ns;
	slot->waking.expires_ns = expires_ns;
	slot->waking.waker_kind = waker_kind(state, expires_ns);
	slot->waking.waker = (u32)bpf_get_current_pid_tgid();
	copy_own_name(slot->waking.waker_command);
	slot->waking.waker_prio = HELPER_EXISTS(get_current_task_btf) ? bpf_get_current_task_btf()->prio : ORDINARY_PRIO + 20;
	slot->budget = used_up(task);
}

/* A watched task gets a CPU. */
ALWAYS_INLINE void task_comes(void *ctx, struct cpu_state *state, struct task_slot *slot, u64 now_ns,
			      struct task_struct *previous, struct task_struct *next)
{
	u64 left_ns = slot->left_ns, waking_ns = slot->waking_ns;
	u32 ring = state->settings.ring;

	if (left_ns && slot->was_runnable) {
		slot->began = BEGAN_PREEMPTED;
		slot->ready_ns = left_ns;
	} else if (waking_ns > left_ns) {
		slot->began = BEGAN_WOKEN;
		slot->ready_ns = waking_ns;
		/* The record of the stretch has the same information except the stack. */
		if (ring && is_unusual(state, &state->switch_bound_ns, now_ns - waking_ns, RARITY_OF_TASKS) && previous->pid)
			note_wakeup(ctx, state, ring, waking_ns, now_ns, next, previous, previous->prio, 1);
	} else if (left_ns && waking_ns + WAKING_RACE_NS > left_ns) {
		/* Another CPU woke it while it left. */
		slot->began = BEGAN_WOKEN;
		slot->ready_ns = left_ns;
	} else {
		slot->began = BEGAN_UNKNOWN;
		slot->ready_ns = 0;
	}
	slot->woken = slot->waking;
	/* One wake-up begins one run: if the next wake-up is not shown, this one must not be taken for it. */
	slot->waking_ns = 0;
	slot->run_ns = now_ns;
	state->runs_since_ns = now_ns - slot->ran_ns;
	state->usual_run_ns = slot->usual_run_ns;
	slot->previous = previous->pid;
	slot->previous_prio = previous->prio;
	copy_name(slot->previous_command, previous);
}

/* The registers of a program in a system call, in x86's order: one read takes all of them. */
struct entered {
	u64 third;
	u64 second;
	u64 first;
	u64 call;
	u64 others[3];
	u64 stack;
};

ALWAYS_INLINE void read_entered(struct entered *entered, struct task_struct *task)
{
	void *registers = registers_of(task);

	if (FIELD_EXISTS(((struct pt_regs___futex_x86 *)0)->di)) {
		bpf_probe_read_kernel(entered, sizeof(*entered), &((struct pt_regs___futex_x86 *)registers)->dx);
	} else if (FIELD_EXISTS(((struct pt_regs___futex_arm64 *)0)->orig_x0)) {
		struct pt_regs___futex_arm64 *known = registers;

		entered->call = syscall_of(task);
		bpf_probe_read_kernel(&entered->first, 8, &known->orig_x0);
		bpf_probe_read_kernel(&entered->second, 8, &known->regs[1]);
		bpf_probe_read_kernel(&entered->third, 8, &known->regs[2]);
		bpf_probe_read_kernel(&entered->stack, 8, &known->sp);
	}
}

/* The system call in which the task falls asleep, its first arguments, and for a futex the owner of the lock. */
ALWAYS_INLINE void note_call_slept_in(struct stretch *stretch, const struct entered *entered)
{
	const s32 futex = FIELD_EXISTS(((struct pt_regs___futex_x86 *)0)->di) ? FUTEX_X86 : FUTEX_ARM64;
	u64 address = entered->first, third = entered->third;

	stretch->syscall = (s32)entered->call;
	stretch->arguments[0] = address;
	stretch->arguments[1] = entered->second;
	if (stretch->syscall != futex)
		return;
	u32 command = (u32)stretch->arguments[1] & FUTEX_COMMAND_MASK;
	bool is_contended = (u32)third == FUTEX_CONTENDED || (u32)third & FUTEX_WAITERS;
	bool is_plain = (command == FUTEX_WAIT || command == FUTEX_WAIT_BITSET) && is_contended;

	stretch->futex = address;
	stretch->futex_command = (u32)stretch->arguments[1] & (FUTEX_COMMAND_MASK | FUTEX_PRIVATE);
	stretch->futex_value = third;
	if (is_plain)
		bpf_probe_read_user(&stretch->futex_owner, 4, (void *)(address + GLIBC_OWNER_OFFSET));
	else if (command == FUTEX_LOCK_PI || command == FUTEX_LOCK_PI2)
		bpf_probe_read_user(&stretch->futex_word, 4, (void *)address);
}

/* The words of the program's stack that are searched. */
#define CALLER_WORDS 24

/* The stack pointer of the program in a system call. */
ALWAYS_INLINE u64 user_stack(struct task_struct *task)
{
	void *registers = registers_of(task);
	u64 stack = 0;

	if (FIELD_EXISTS(((struct pt_regs___futex_x86 *)0)->di))
		bpf_probe_read_kernel(&stack, 8, &((struct pt_regs___stack_x86 *)registers)->sp);
	else if (FIELD_EXISTS(((struct pt_regs___futex_arm64 *)0)->orig_x0))
		bpf_probe_read_kernel(&stack, 8, &((struct pt_regs___futex_arm64 *)registers)->sp);
	return stack;
}

/*
 * Where the program called the library whose system call the running thread is in: the innermost word of its stack that is an
 * address in its executable. `words`: a place for the stack. A thread mostly sleeps where it slept before: one word shows it.
 */
NEVER_INLINE u64 caller_of(struct task_struct *task, struct task_slot *slot, u64 stack, u64 *words)
{
	u64 word = 0;

	if (!words || !FIELD_EXISTS(((struct task_struct___memory *)0)->mm) || !FIELD_EXISTS(((struct mm_struct *)0)->start_code))
		return 0;
	if (slot && slot->place && slot->place_stack == stack &&
	    !bpf_probe_read_user(&word, 8, (void *)(stack + 8 * slot->place_word)) && word == slot->place)
		return word;
	struct mm_struct *memory = ((struct task_struct___memory *)(void *)task)->mm;

	if (!memory)
		return 0;
	u64 from = memory->start_code, bytes = memory->end_code - from;

	if (bpf_probe_read_user(words, 8 * CALLER_WORDS, (void *)stack))
		return 0;
	for (u32 i = 0; i < CALLER_WORDS; i++) {
		if (words[i] - from >= bytes)
			continue;
		if (slot) {
			slot->place = words[i];
			slot->place_stack = stack;
			slot->place_word = i;
		}
		return words[i];
	}
	return 0;
}

/* Shorter times in a system call are counted, but have no record. */
#define CALL_LEAST_NS 10000

/* A running watched task has been in a system call since it got the CPU or since the call began. */
NEVER_INLINE int note_in_call(struct cpu_state *state, struct task_slot *slot, struct task_struct *task, u64 now_ns)
{
	u64 number, from_ns = slot->call_ns;

	if (from_ns < slot->run_ns)
		from_ns = slot->run_ns;
	if (now_ns <= from_ns)
		return 0;
	slot->calls_took_ns += now_ns - from_ns;
	if (now_ns < from_ns + CALL_LEAST_NS)
		return 0;
	struct stretch *stretch = begin_stretch(state, &number);

	if (!stretch)
		return 0;
	stretch->ready_ns = from_ns;
	stretch->thread = task->pid;
	stretch->process = task->tgid;
	stretch->prio = task->prio;
	stretch->syscall = syscall_of(task);
	stretch->futex_owner = slot->call_owner;
	stretch->lost = 0;
	copy_name(stretch->command, task);
	complete_stretch(stretch, TASK_CALL, now_ns, number);
	return 0;
}

/* The first two arguments of the system call that has these registers. */
ALWAYS_INLINE void first_arguments(void *registers, u64 *first, u64 *second)
{
	if (FIELD_EXISTS(((struct pt_regs___futex_x86 *)0)->di)) {
		bpf_probe_read_kernel(first, 8, &((struct pt_regs___futex_x86 *)registers)->di);
		bpf_probe_read_kernel(second, 8, &((struct pt_regs___futex_x86 *)registers)->si);
	} else if (FIELD_EXISTS(((struct pt_regs___futex_arm64 *)0)->orig_x0)) {
		bpf_probe_read_kernel(first, 8, &((struct pt_regs___futex_arm64 *)registers)->orig_x0);
		bpf_probe_read_kernel(second, 8, &((struct pt_regs___futex_arm64 *)registers)->regs[1]);
	}
}

/* The running thread enters futex(2): the owner, if it requests a lock with priority inheritance. */
NEVER_INLINE int note_owner(struct task_slot *slot, void *registers)
{
	u64 word = 0, command = 0;

	first_arguments(registers, &word, &command);
	command &= FUTEX_COMMAND_MASK;
	if (slot && (command == FUTEX_LOCK_PI || command == FUTEX_LOCK_PI2))
		bpf_probe_read_user(&slot->call_owner, 4, (void *)word);
	return 0;
}

ALWAYS_INLINE u32 state_bits(struct task_struct *task)
{
	if (FIELD_EXISTS(((struct task_struct___new *)0)->__state))
		return ((struct task_struct___new *)(void *)task)->__state;
	return ((struct task_struct___old *)(void *)task)->state;
}

/* The usual run rises by an eighth with each longer one and falls by a 32nd with each other one: a fifth are longer. */
#define USUAL_FALL 5

/* A watched task leaves its CPU: how long it ran. */
ALWAYS_INLINE void count_run(struct cpu_state *state, struct task_slot *slot, u64 now_ns, bool is_runnable)
{
	u64 usual_ns = slot->usual_run_ns;

	state->runs_since_ns = 0;
	if (LIKELY(slot->run_ns))
		slot->ran_ns += now_ns - slot->run_ns;
	if (is_runnable)
		return;
	slot->runs++;
	if (LIKELY(slot->ran_ns <= usual_ns))
		slot->usual_run_ns = usual_ns - (usual_ns >> USUAL_FALL);
	else
		slot->usual_run_ns = usual_ns ? usual_ns + (usual_ns >> 3) : slot->ran_ns;
	slot->ran_ns = 0;
}

/* A watched task leaves its CPU: the record of the time since it came. */
ALWAYS_INLINE void task_leaves(struct cpu_state *state, struct task_slot *slot, u64 now_ns,
			       struct task_struct *previous, struct task_struct *next, bool is_runnable)
{
	u64 number;
	/* Some guests do not show the switch to it: then its wake-up is known. */
	bool is_woken_unseen = UNLIKELY(!slot->run_ns) && !(slot->left_ns && slot->was_runnable) && slot->waking_ns > slot->left_ns;

	if (is_woken_unseen) {
		slot->ready_ns = slot->waking_ns;
		slot->woken = slot->waking;
		slot->waking_ns = 0;
		slot->previous = 0;
	}
	if (UNLIKELY(slot->call_ns))
		note_in_call(state, slot, previous, now_ns);
	count_run(state, slot, now_ns, is_runnable);
	struct stretch *stretch = begin_stretch(state, &number);

	slot->left_ns = now_ns;
	slot->was_runnable = is_runnable;
	if (!stretch) {
		slot->lost++;
		return;
	}
	/* Before its other members are written. */
	bool is_in_call = !is_runnable && KNOWS_REGISTERS && !(previous->flags & PF_KTHREAD);
	struct entered entered = {};
	u64 caller = 0;

	if (is_in_call) {
		read_entered(&entered, previous);
		caller = caller_of(previous, slot, entered.stack, &stretch->ready_ns);
	}
	note_since(stretch, slot, now_ns);
	stretch->caller = caller;
	stretch->began = slot->run_ns ? slot->began : is_woken_unseen ? BEGAN_WOKEN : BEGAN_UNKNOWN;
	stretch->thread = previous->pid;
	stretch->process = previous->tgid;
	stretch->prio = previous->prio;
	stretch->is_runnable = is_runnable;
	stretch->budget = is_runnable ? used_up(previous) : BUDGET_LEFT;
	stretch->state = is_runnable ? 0 : state_bits(previous);
	stretch->futex = 0;
	stretch->futex_command = 0;
	stretch->futex_value = 0;
	stretch->futex_word = 0;
	stretch->futex_owner = 0;
	stretch->arguments[0] = 0;
	stretch->arguments[1] = 0;
	stretch->syscall = SYSCALL_NOT_KNOWN;
	if (is_in_call)
		note_call_slept_in(stretch, &entered);
	else if (!is_runnable && KNOWS_REGISTERS)
		stretch->syscall = -1;
	stretch->next = next->pid;
	stretch->next_prio = next->prio;
	copy_name(stretch->command, previous);
	copy_name(stretch->next_command, next);
	if (counters && counting)
		note_counts(bpf_get_smp_processor_id(), ring_place(state->settings.ring, number), slot->run_ns);
	complete_stretch(stretch, TASK_STRETCH, now_ns, number);
	slot->faults = 0;
	slot->fault_ns = 0;
	slot->faults_took_ns = 0;
	slot->calls_took_ns = 0;
	slot->moved_ns = 0;
	slot->lost = 0;
	slot->run_ns = 0;
	slot->budget = BUDGET_LEFT;
}

/* The running thread passes a mark. */
ALWAYS_INLINE void note_mark(u32 kind)
{
	u64 number, task = bpf_get_current_pid_tgid();
	struct task_slot *slot = slot_of((u32)task);

	if (LIKELY(!slot))
		return;
	u64 now_ns = bpf_ktime_get_ns();
	struct cpu_state *state = state_of(bpf_get_smp_processor_id());
	struct stretch *stretch = state ? begin_stretch(state, &number) : 0;

	if (!stretch) {
		slot->lost++;
		return;
	}
	stretch->thread = (u32)task;
	stretch->process = task >> 32;
	stretch->lost = 0;
	bpf_get_current_comm(stretch->command, COMMAND_BYTES);
	complete_stretch(stretch, kind, now_ns, number);
}
