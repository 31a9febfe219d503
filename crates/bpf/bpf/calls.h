/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Functions requested by other CPUs, on kernels before 6.5, which have no events for them. Probes on the kernel functions
 * that send a request show the sender, and the last request is assigned to the interrupt that follows.
 */
#pragma once
#include "causes.h"

/* Whether this kernel has the events: then none of this is used. */
const volatile u32 tells_functions SECTION(".rodata");

/* Vectors of x86. */
#define CALL_FUNCTION_SINGLE_VECTOR 0xfb
#define CALL_FUNCTION_VECTOR 0xfc
#define RESCHEDULE_VECTOR 0xfd

/*
 * A request belongs to the next interrupt if it is not older than this. A CPU that polls while it is idle takes requests
 * without an interrupt, and whether a CPU met a request's condition is not known here.
 */
#define SURE_NS 10000000
#define UNSURE_NS 200000
/* The same request is seen again at most this much later. */
#define REPEATED_NS 20000

struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_ARRAY);
	MAP_NUMBER(max_entries, 1);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, struct call);
} calls SECTION(".maps");

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct pt_regs___call {
	unsigned long di;
	unsigned long si;
	unsigned long r8;
};

struct __call_single_node {
	unsigned int u_flags;
};

struct __call_single_data {
	struct __call_single_node node;
	void *func;
};

#pragma clang attribute pop

/* The kernel's types of requests: the first two request a function. */
#define CSD_TYPE_MASK 0xf0
#define CSD_TYPE_SYNC 0x10

/* This CPU asks a watched one, which has this ring, to run a function. */
ALWAYS_INLINE void note_call(u32 cpu, u32 ring, u64 function, bool is_for_several, bool is_conditional, s64 stack)
{
	struct cpu_state *state = state_of(cpu);

	if (!state)
		return;
	u64 number = take_number(&state->calls_asked);

	if (UNLIKELY(number == NO_NUMBER)) {
		__sync_fetch_and_add(&state->ipis_lost, 1);
		return;
	}
	u32 place = (ring - 1) * RING_CALLS + ((u32)number & (RING_CALLS - 1));
	struct call *call = bpf_map_lookup_elem(&calls, &place);

	if (!call)
		return;
	u64 task = bpf_get_current_pid_tgid();

	call->number = 0;
	BARRIER();
	call->at_ns = bpf_ktime_get_ns();
	call->function = function;
	call->stack = stack;
	call->thread = (u32)task;
	call->process = task >> 32;
	call->cpu = bpf_get_smp_processor_id();
	call->is_conditional = is_conditional;
	call->is_for_several = is_for_several;
	bpf_get_current_comm(call->command, COMMAND_BYTES);
	BARRIER();
	call->number = 1 + number;
	BARRIER();
	/* A later one was written and taken meanwhile. */
	if (UNLIKELY(state->calls_taken > number))
		__sync_fetch_and_add(&state->ipis_lost, 1);
}

/* Counts one request on the CPU that handles it. */
ALWAYS_INLINE void count_call(struct cpu_state *state, u32 cpu, struct call *call)
{
	struct ipi_key key = { .function = call->function, .cpu = cpu, .from_cpu = call->cpu };
	struct ipi_count *found, fresh = { .count = 1, .stack = call->stack };

	/* Distinguishes callers: the number of the stack stands for the place of the call. */
	key.call_site = call->stack;
	if (call->process == config.own_process)
		key.is_own = 1;
	else
		__builtin_memcpy(key.command, call->command, COMMAND_BYTES);
	found = bpf_map_lookup_elem(&ipis, &key);
	if (LIKELY(found))
		__sync_fetch_and_add(&found->count, 1);
	else if (bpf_map_update_elem(&ipis, &key, &fresh, BPF_NOEXIST))
		state->ipis_lost++;
}

/* Counts an interrupt that asks for a look at the tasks; its sender is not known. */
ALWAYS_INLINE void count_reschedule(struct cpu_state *state, u32 cpu)
{
	struct ipi_key key = { .cpu = cpu, .from_cpu = NO_CPU };
	struct ipi_count *found, fresh = { .count = 1, .stack = -1 };

	found = bpf_map_lookup_elem(&ipis, &key);
	if (LIKELY(found))
		__sync_fetch_and_add(&found->count, 1);
	else if (bpf_map_update_elem(&ipis, &key, &fresh, BPF_NOEXIST))
		state->ipis_lost++;
}

/*
 * Whether it is the previous request, seen a second time: before 5.12 the kernel's function for several CPUs calls the one
 * for a single CPU if there is only one.
 */
ALWAYS_INLINE bool is_repeated(struct call *call, struct call *before)
{
	return before->is_for_several && !call->is_for_several && call->function == before->function &&
	       call->thread == before->thread && call->cpu == before->cpu &&
	       call->at_ns - before->at_ns < REPEATED_NS;
}

/* An interrupt for functions is over: it handled the requests since the last one. */
ALWAYS_INLINE void take_calls(struct cpu_state *state, u32 ring, u64 start_ns, u64 end_ns)
{
	u32 cpu = bpf_get_smp_processor_id();
	u64 asked = state->calls_asked, taken = state->calls_taken, function = 0;
	struct call *counted = 0;
	bool are_several = 0;

	if (asked - taken > RING_CALLS) {
		state->ipis_lost += asked - taken - RING_CALLS;
		taken = asked - RING_CALLS;
	}
	u64 first = taken;

	for (u32 i = 0; i < RING_CALLS && first + i < asked; i++) {
		u32 place = (ring - 1) * RING_CALLS + ((u32)(first + i) & (RING_CALLS - 1));
		struct call *call = bpf_map_lookup_elem(&calls, &place);

		if (!call)
			break;
		/* The number was given up, or the request is being written and its interrupt is still to come. */
		if (call->number != first + i + 1)
			continue;
		if (call->at_ns > end_ns)
			break;
		taken = first + i + 1;
		if (start_ns > call->at_ns + (call->is_conditional ? UNSURE_NS : SURE_NS))
			continue;
		if (counted && is_repeated(call, counted))
			continue;
		count_call(state, cpu, call);
		are_several |= counted && call->function != function;
		counted = call;
		function = call->function;
	}
	state->calls_taken = taken;
	/* With several functions it is not known which one took the time. */
	if (!counted || are_several)
		return;
	u64 number;
	struct segment *segment = begin(state, ring, &number);

	if (!segment)
		return;
	segment->function.function = function;
	segment->function.has_sender = 1;
	segment->function.sender_cpu = counted->cpu;
	segment->function.sender_thread = counted->thread;
	segment->function.sender_process = counted->process;
	__builtin_memcpy(segment->function.sender_command, counted->command, COMMAND_BYTES);
	complete(segment, SEGMENT_FUNCTION, start_ns, end_ns, number);
}

/* The end of an interrupt with a vector of its own. */
ALWAYS_INLINE void note_sent(struct cpu_state *state, u32 ring, u32 vector, u64 start_ns, u64 end_ns)
{
	if (vector == CALL_FUNCTION_SINGLE_VECTOR || vector == CALL_FUNCTION_VECTOR)
		take_calls(state, ring, start_ns, end_ns);
	else if (vector == RESCHEDULE_VECTOR)
		count_reschedule(state, bpf_get_smp_processor_id());
}
