/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Audit: the system calls of watched tasks that a real-time thread should not make. They are counted per thread, and the
 * stack of the longest goes to the ring of the watched tasks.
 */
#pragma once
#include "tasks.h"

/* Which calls are audited: enum detail, by their number. */
struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_ARRAY);
	MAP_NUMBER(max_entries, AUDIT_CALLS);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, u32);
} audit_calls SECTION(".maps");

struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_HASH);
	MAP_NUMBER(max_entries, 1);
	MAP_TYPE(key, struct audit_key);
	MAP_TYPE(value, struct audit_count);
} audited SECTION(".maps");

/* The running thread enters an audited system call: what distinguishes it from others of its number. */
ALWAYS_INLINE u32 audit_detail(void *registers, u32 kind)
{
	u64 first = 0, second = 0;

	if (kind == DETAIL_NONE)
		return 0;
	first_arguments(registers, &first, &second);
	return kind == DETAIL_FILE ? (u32)first : ((u32)second << 16) | ((u32)first & 0xffff);
}

/* An audited call was the longest so far: who made it, and where. */
NEVER_INLINE int note_audited(void *ctx, struct task_slot *slot, u64 now_ns)
{
	u64 number, task = bpf_get_current_pid_tgid();
	struct cpu_state *state = state_of(bpf_get_smp_processor_id());
	struct stretch *stretch = state && slot ? begin_stretch(state, &number) : 0;

	if (!stretch || !HELPER_EXISTS(get_current_task_btf))
		return 0;
	struct task_struct *current = bpf_get_current_task_btf();

	/* The buffer is that of the stack, which comes later. */
	u64 caller = caller_of(current, slot, user_stack(current), stretch->audited_stack);

	stretch->thread = (u32)task;
	stretch->process = task >> 32;
	stretch->prio = current->prio;
	stretch->audited_caller = caller;
	stretch->audited_took_ns = now_ns - slot->audit_ns;
	stretch->audited_call = slot->audit_call;
	stretch->audited_detail = slot->audit_detail;
	stretch->audited_stack_bytes =
		bpf_get_stack(ctx, stretch->audited_stack, sizeof(stretch->audited_stack), BPF_F_USER_STACK);
	complete_stretch(stretch, TASK_AUDITED, now_ns, number);
	return 0;
}

/* The running thread leaves the audited system call that it is in. */
ALWAYS_INLINE void count_audited(void *ctx, struct task_slot *slot, u64 now_ns)
{
	u64 took_ns = now_ns - slot->audit_ns;
	struct audit_key key = { .thread = (u32)bpf_get_current_pid_tgid(), .call = slot->audit_call,
				 .detail = slot->audit_detail };
	struct audit_count *count = bpf_map_lookup_elem(&audited, &key);

	if (UNLIKELY(!count)) {
		struct audit_count fresh = {};

		bpf_map_update_elem(&audited, &key, &fresh, BPF_NOEXIST);
		count = bpf_map_lookup_elem(&audited, &key);
		if (!count) {
			u32 zero = 0;
			struct task_losses *losses = bpf_map_lookup_elem(&task_losses, &zero);

			if (losses)
				__sync_fetch_and_add(&losses->unaudited, 1);
			return;
		}
	}
	/* A thread is on one CPU at a time: nothing else writes this. */
	count->calls++;
	count->took_ns += took_ns;
	if (count->last_run != slot->runs + 1) {
		count->last_run = slot->runs + 1;
		count->runs++;
	}
	if (UNLIKELY(took_ns > count->longest_ns)) {
		bool is_notable = took_ns > count->longest_ns + (count->longest_ns >> 3);

		count->longest_ns = took_ns;
		if (is_notable)
			note_audited(ctx, slot, now_ns);
	}
}
