/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The latency histograms: from the programmed expiry of a timer to the wake-up to the task that runs.
 *
 * Each program reads the clock at most once, and not at all for tasks that are not counted. Pending wake-ups are in a table
 * indexed by the thread id: this costs an addition and a comparison instead of the call that a hash map needs.
 */
#pragma once
#include "layout.h"

/* All zeros until the loader has written it, so that the object need not hold it. */
struct config config SECTION(".bss.config");

/* Whether all tasks of the configured priorities are watched: see tasks.h. */
const volatile u32 watches_priorities SECTION(".rodata");

/* Whether the end of a switch can be seen: by the kernel's event, or by a probe. */
const volatile u32 sees_switch_end SECTION(".rodata");

struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_ARRAY);
	MAP_NUMBER(max_entries, 1);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, struct histogram);
} histograms SECTION(".maps");

/* Mapped by the loader. */
struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_ARRAY);
	MAP_NUMBER(map_flags, BPF_F_MMAPABLE);
	MAP_NUMBER(max_entries, 1);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, struct cpu_state);
} cpu_states SECTION(".maps");

struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_ARRAY);
	MAP_NUMBER(max_entries, PENDING_SLOTS);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, struct pending);
} pending_wakeups SECTION(".maps");

ALWAYS_INLINE struct cpu_state *state_of(u32 cpu)
{
	return bpf_map_lookup_elem(&cpu_states, &cpu);
}

ALWAYS_INLINE struct pending *pending_of(u32 pid)
{
	u32 slot = pid & (PENDING_SLOTS - 1);

	return bpf_map_lookup_elem(&pending_wakeups, &slot);
}

ALWAYS_INLINE bool priority_counts(struct cpu_state *state, s32 prio)
{
	return prio >= state->settings.prio_min && prio <= state->settings.prio_max;
}

/* Whether it is the name of the configuration. */
ALWAYS_INLINE bool is_command(const u8 *name)
{
	/* The last byte is always 0; bytes after an earlier 0 are not part of the name. */
	for (int i = 0; i < COMMAND_BYTES; i++) {
		if (name[i] != config.command[i])
			return 0;
		if (!name[i])
			break;
	}
	return 1;
}

/* Whether the task passes the filter by thread, process and name. */
ALWAYS_INLINE bool task_counts(struct task_struct *task)
{
	if (LIKELY(!config.pid && !config.has_command))
		return 1;
	if (config.pid && config.pid != (u32)task->pid && config.pid != (u32)task->tgid)
		return 0;
	if (config.has_command) {
		u64 name[2] = {};

		bpf_probe_read_kernel(name, sizeof(name), task->comm);
		return is_command((u8 *)name);
	}
	return 1;
}

/* Position of the highest bit set, of a value that is not 0. */
ALWAYS_INLINE u32 highest_bit(u64 value)
{
	u32 bit = 0;

	if (UNLIKELY(value >> 32)) {
		value >>= 32;
		bit = 32;
	}
	if (value >> 16) {
		value >>= 16;
		bit += 16;
	}
	if (value >> 8) {
		value >>= 8;
		bit += 8;
	}
	if (value >> 4) {
		value >>= 4;
		bit += 4;
	}
	if (value >> 2) {
		value >>= 2;
		bit += 2;
	}
	return bit + (u32)(value >> 1);
}

ALWAYS_INLINE u32 bucket_of(u64 value)
{
	u32 shift = highest_bit(value | (1 << OCTAVE_BITS)) - OCTAVE_BITS;

	return (shift << OCTAVE_BITS) + (u32)(value >> shift);
}

ALWAYS_INLINE bool is_enabled(u32 enabled, enum kind kind)
{
	return enabled & (1u << kind);
}

/* Whether a histogram is on that needs the end of a switch. */
ALWAYS_INLINE bool needs_switch_end(u32 enabled)
{
	return sees_switch_end && (enabled & (1u << SWITCH_OFF | 1u << TIMER_WAKEUP_SWITCH));
}

/* Counts a latency, but for its extremes: see is_extreme(). */
ALWAYS_INLINE void count(struct cpu_state *state, u32 cpu, u32 kind, u64 latency_ns)
{
	u32 key = cpu * KINDS_STRIDE + kind, bucket = bucket_of(latency_ns);
	struct histogram *histogram = bpf_map_lookup_elem(&histograms, &key);

	if (!histogram || kind >= KINDS || bucket >= BUCKETS)
		return;
	histogram->buckets[bucket]++;
	state->sum_ns[kind] += latency_ns;
}

/*
 * Whether a latency is the longest or the shortest since the last reset. An extreme is counted at once: counted later, it
 * might be from before a reset.
 */
ALWAYS_INLINE bool is_extreme(struct cpu_state *state, u32 kind, u64 latency_ns)
{
	return latency_ns > state->max_ns[kind] || latency_ns < state->min_ns[kind];
}

/* Keeps the extremes; the record to be filled where it is the longest. */
ALWAYS_INLINE struct record *keep_extreme(struct cpu_state *state, u32 cpu, u32 kind, u64 latency_ns)
{
	u32 key = cpu * KINDS_STRIDE + kind, short_ns = latency_ns < ~0u ? (u32)latency_ns : ~0u;
	u32 max_ns = state->max_ns[kind];
	struct histogram *histogram = bpf_map_lookup_elem(&histograms, &key);

	if (short_ns < state->min_ns[kind])
		state->min_ns[kind] = short_ns;
	/* Latencies beyond the range of this field are in the record. */
	if (!histogram || latency_ns <= (max_ns == ~0u ? histogram->record.latency_ns : max_ns))
		return 0;
	state->max_ns[kind] = short_ns;
	return &histogram->record;
}

/* Kernel stacks of x86-64, and what lies at the top of one, before Linux 5.15. */
#define X86_STACK_BYTES 16384
#define X86_REGISTERS_BYTES 168

#define KNOWS_REGISTERS (HELPER_EXISTS(task_pt_regs) || FIELD_EXISTS(((struct pt_regs___x86 *)0)->orig_ax))

/* The task's registers when it entered the kernel; 0 if not known. */
ALWAYS_INLINE void *registers_of(struct task_struct *task)
{
	if (HELPER_EXISTS(task_pt_regs))
		return bpf_task_pt_regs(task);
	/* Kernels before 5.15 have no helper for it. */
	if (FIELD_EXISTS(((struct pt_regs___x86 *)0)->orig_ax))
		return task->stack + X86_STACK_BYTES - X86_REGISTERS_BYTES;
	return 0;
}

/* The system call that the task entered the kernel by; -1 for none or not known. */
ALWAYS_INLINE s64 syscall_of(struct task_struct *task)
{
	if (task->flags & PF_KTHREAD)
		return -1;
	void *regs = registers_of(task);

	if (FIELD_EXISTS(((struct pt_regs___x86 *)0)->orig_ax)) {
		u64 number = 0;

		bpf_probe_read_kernel(&number, sizeof(number), &((struct pt_regs___x86 *)regs)->orig_ax);
		return (s64)number;
	}
	if (FIELD_EXISTS(((struct pt_regs___arm64 *)0)->syscallno)) {
		s32 number = -1;

		bpf_probe_read_kernel(&number, sizeof(number), &((struct pt_regs___arm64 *)regs)->syscallno);
		return number;
	}
	return -1;
}

/* Who was late, in the record of a maximum. */
ALWAYS_INLINE void name_task(struct record *record, struct task_struct *task)
{
	record->pid = task->pid;
	record->prio = task->prio;
	record->syscall = syscall_of(task);
	bpf_probe_read_kernel(record->command, COMMAND_BYTES, task->comm);
}

/* The same of the task that runs now. */
ALWAYS_INLINE void name_current(struct record *record)
{
	if (HELPER_EXISTS(get_current_task_btf)) {
		name_task(record, bpf_get_current_task_btf());
		return;
	}
	struct task_struct *task = (void *)bpf_get_current_task();

	record->pid = (u32)bpf_get_current_pid_tgid();
	bpf_probe_read_kernel(&record->prio, sizeof(record->prio), &task->prio);
	record->syscall = -1;
	bpf_probe_read_kernel(record->command, COMMAND_BYTES, &task->comm);
}

/* Who ran before, in the record of a maximum: the memory of that task is still valid, but may no longer belong to the program. */
ALWAYS_INLINE void name_previous(struct record *record, struct task_struct *previous)
{
	bpf_probe_read_kernel(&record->previous_pid, sizeof(record->previous_pid), &previous->pid);
	bpf_probe_read_kernel(&record->previous_prio, sizeof(record->previous_prio), &previous->prio);
	bpf_probe_read_kernel(record->previous_command, COMMAND_BYTES, &previous->comm);
}

ALWAYS_INLINE void set_parts(struct record *record, u64 latency_ns, u64 expires_ns, u64 waking_ns,
			     u64 running_ns, u64 at_ns)
{
	record->latency_ns = latency_ns;
	record->at_ns = at_ns;
	record->is_timer = expires_ns != 0;
	record->timer_offset_ns = expires_ns ? waking_ns - expires_ns : 0;
	record->wakeup_ns = waking_ns ? running_ns - waking_ns : 0;
	record->switch_ns = at_ns - running_ns;
}
