/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What programs and loader share: the counterpart of src/layout.rs, which asserts the same sizes.
 */
#pragma once
#include "kernel.h"

/* The bucket layout of every histogram: 256 exact values, then 128 buckets in each octave. */
#define BUCKETS (256 + 56 * 128)
#define OCTAVE_BITS 7
#define CPUS_MAX 8192
#define COMMAND_BYTES 16

enum kind {
	MISSED_TIMER_OFFSETS,
	WAKEUP,
	TIMER_AND_WAKEUP,
	SWITCH_OFF,
	TIMER_WAKEUP_SWITCH,
	SHARED_PRIORITY,
	KINDS,
};
/* Histograms lie in strides of a power of two in their map. */
#define KINDS_STRIDE 8

/* The loader writes it; it may change at any time. */
struct config {
	/* Which tasks count, as in task_struct: -1 deadline, 0..98 real time (99 - priority), 100.. others. */
	s32 prio_min;
	s32 prio_max;
	/* Only this thread or process; 0 for all. */
	u32 pid;
	/* Whether only tasks of that name count. */
	u32 has_command;
	u8 command[COMMAND_BYTES];
	/* Goes up by one with each reset of the kind. */
	u32 epochs[KINDS_STRIDE];
	/* Per CPU, one bit for each kind that counts there. */
	u8 enabled[CPUS_MAX];
};
_Static_assert(sizeof(struct config) == 64 + CPUS_MAX, "layout.rs");

/* The largest latency since the last reset. */
struct record {
	u64 latency_ns;
	u64 at_ns;
	/* Parts: programmed expiry to wake-up, wake-up to switch, switch to running. */
	u64 timer_offset_ns;
	u64 wakeup_ns;
	u64 switch_ns;
	/* Number of the system call that the task was in; -1 for none or not known. */
	s64 syscall;
	s32 pid;
	s32 prio;
	s32 previous_pid;
	s32 previous_prio;
	u8 command[COMMAND_BYTES];
	u8 previous_command[COMMAND_BYTES];
	/* Whether a timer woke the task. */
	u32 is_timer;
	u32 unused;
};
_Static_assert(sizeof(struct record) == 104, "layout.rs");

/* One histogram of one CPU; written only on that CPU, with interrupts off. */
struct histogram {
	u32 epoch;
	u32 unused;
	u64 samples;
	u64 sum_ns;
	u64 min_ns;
	u64 max_ns;
	struct record record;
	u64 buckets[BUCKETS];
};
_Static_assert(sizeof(struct histogram) == 40 + 104 + 8 * BUCKETS, "layout.rs");

/* A wake-up that waits for its task to run. */
struct pending {
	u32 pid;
	u32 unused;
	/* 0: none. */
	u64 waking_ns;
	/* The programmed expiry of the timer that woke it, on CLOCK_MONOTONIC; 0 when it was no timer. */
	u64 expires_ns;
	u64 unused_end;
};
_Static_assert(sizeof(struct pending) == 32, "");
#define PENDING_SLOTS 32768

/* Counts of one CPU that the loader reads. */
struct counters {
	/* Wake-ups of tasks that count. */
	u64 wakings;
	/* Wake-ups of tasks that went on running: there was nothing to wait for. */
	u64 without_switch;
	/* Wake-ups that were forgotten because another task's took their slot. */
	u64 collisions;
	/* Wake-ups that ended on a CPU where nothing counts. */
	u64 elsewhere;
	/* Switches to a task that counts whose end was not seen: the first one of a new thread. */
	u64 unfinished;
};
_Static_assert(sizeof(struct counters) == 40, "layout.rs");

/* What one CPU is in the middle of. */
struct cpu_state {
	struct counters counters;
	/* Programmed expiry of the timer whose handler runs: in a hard interrupt, in a softirq; 0 for none. */
	u64 expires_hard_ns;
	u64 expires_soft_ns;
	/* The switch to a task that counts, from its decision to its end; switch_ns 0: none. */
	u64 switch_ns;
	u64 waking_ns;
	u64 expires_ns;
	u64 previous;
	s32 previous_pid;
	s32 previous_prio;
	u32 is_shared;
	/* The thread in which a timer's softirq handler runs. */
	u32 soft_thread;
	u64 padding[3];
};
_Static_assert(sizeof(struct cpu_state) == 128, "layout.rs");
