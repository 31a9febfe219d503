/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Instructions, cycles and cache misses of watched tasks. The counters belong to the CPUs and count whatever runs there; they
 * are read when a watched task gets a CPU and when it leaves it. The difference lies next to the record of that time, in a ring
 * of the same size. Without counters the verifier removes all of this.
 */
#pragma once
#include "histograms.h"

/* Records that a CPU's ring holds: a power of two. */
const volatile u32 ring_stretches SECTION(".rodata") = 1024;
/* One bit for each counter that some CPU has. */
const volatile u32 counters SECTION(".rodata");
/* Whether they are read: set once some own work took too long. */
u32 counting SECTION(".bss.counting");

/* The opened counters of one kind, by CPU. */
#define COUNTER_MAP(name) \
	struct { \
		MAP_NUMBER(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY); \
		MAP_NUMBER(max_entries, 1); \
		MAP_TYPE(key, u32); \
		MAP_TYPE(value, u32); \
	} name SECTION(".maps")

COUNTER_MAP(instructions);
COUNTER_MAP(cycles);
COUNTER_MAP(cache_misses);

/* What they showed when they were read last, by CPU. */
struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_ARRAY);
	MAP_NUMBER(max_entries, 1);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, struct counts);
} cpu_counts SECTION(".maps");

/* Mapped by the loader: at the place of a record in `stretches`, what was counted in its time. */
struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_ARRAY);
	MAP_NUMBER(map_flags, BPF_F_MMAPABLE);
	MAP_NUMBER(max_entries, 1);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, struct stretch_counts);
} stretch_counts SECTION(".maps");

/* As the kernel's struct bpf_perf_event_value. */
struct counter_value {
	u64 count;
	u64 enabled_ns;
	u64 running_ns;
};

/* Where the record of that number lies in the rings. */
ALWAYS_INLINE u32 ring_place(u32 ring, u64 number)
{
	return (ring - 1) * ring_stretches + ((u32)number & (ring_stretches - 1));
}

ALWAYS_INLINE void read_counter(struct counts *counts, u32 kind, void *map, u32 cpu, u64 *readable, u64 *known)
{
	struct counter_value value = {};

	if (!(counters & 1u << kind) || bpf_perf_event_read_value(map, cpu, &value, sizeof(value)))
		return;
	u64 paused_ns = value.enabled_ns - value.running_ns;

	/* Where other events had its hardware for a while, it shows too little. One of a CPU that was offline has no time. */
	if (counts->readable & 1u << kind && paused_ns == counts->paused_ns[kind] &&
	    value.running_ns > counts->counted_ns[kind])
		*known |= 1u << kind;
	counts->last.values[kind] = value.count - counts->values[kind];
	counts->values[kind] = value.count;
	counts->counted_ns[kind] = value.running_ns;
	counts->paused_ns[kind] = paused_ns;
	*readable |= 1u << kind;
}

/* Reads the counters of this CPU: what they counted since they were read here last is kept. */
NEVER_INLINE int read_counters(u32 cpu)
{
	struct counts *counts = bpf_map_lookup_elem(&cpu_counts, &cpu);
	u64 readable = 0, known = 0;

	if (!counts)
		return 0;
	read_counter(counts, COUNTER_INSTRUCTIONS, &instructions, cpu, &readable, &known);
	read_counter(counts, COUNTER_CYCLES, &cycles, cpu, &readable, &known);
	read_counter(counts, COUNTER_CACHE_MISSES, &cache_misses, cpu, &readable, &known);
	counts->readable = readable;
	counts->last.known = known;
	return 0;
}

/* A watched task has left this CPU, which it had since `run_ns`; 0: that was not seen. The counters were read before. */
NEVER_INLINE int note_counts(u32 cpu, u32 place, u64 run_ns)
{
	struct stretch_counts *counted = bpf_map_lookup_elem(&stretch_counts, &place);
	struct counts *counts = bpf_map_lookup_elem(&cpu_counts, &cpu);

	if (!counted || !counts)
		return 0;
	*counted = counts->last;
	if (!run_ns)
		counted->known = 0;
	return 0;
}
