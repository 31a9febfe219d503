/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What the programs and their loader share: the counterpart of src/layout.rs, which asserts the same sizes and whose
 * tests compare the enumerations and constants.
 */
#pragma once
#include "kernel.h"

/* The bucket layout of every histogram: 256 exact values, then 128 buckets in each octave. */
#define BUCKETS (256 + 56 * 128)
#define OCTAVE_BITS 7
#define COMMAND_BYTES 16
/* The most CPUs to which requests are recorded if the kernel has no events for them. */
#define WATCHED_MAX 64

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

/* The loader writes it, before anything runs. */
struct config {
	/* Only this thread or process; 0 for all. */
	u32 pid;
	/* Whether only tasks of that name count. */
	u32 has_command;
	u8 command[COMMAND_BYTES];
	/* The process that measures: interrupts that it sends are counted as its own; 0 for none. */
	u32 own_process;
	u32 watched_count;
	/* The first CPUs that have a ring. */
	u16 watched[WATCHED_MAX];
};
_Static_assert(sizeof(struct config) == 32 + 2 * WATCHED_MAX, "layout.rs");

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
	struct record record;
	u64 buckets[BUCKETS];
};
_Static_assert(sizeof(struct histogram) == 104 + 8 * BUCKETS, "layout.rs");

/* A wake-up whose task does not run yet. */
struct pending {
	u32 pid;
	/* The thread that ran when it was woken, and its priority then; 0: not known. */
	u32 ran;
	/* 0: none. */
	u64 waking_ns;
	/* The programmed expiry of the timer that woke it, on CLOCK_MONOTONIC; 0 when it was no timer. */
	u64 expires_ns;
	s32 ran_prio;
	u32 unused;
};
_Static_assert(sizeof(struct pending) == 32, "");
#define PENDING_SLOTS 32768

#define SOFTIRQS_LEFT_MAX 4

/* A softirq in whose middle another thread got the CPU. */
struct left_softirq {
	/* Who runs it; 0: this place is free. */
	u32 thread;
	u32 number;
};

/* What the loader sets for one CPU, which may change at any time. */
struct settings {
	/* Which tasks count, as in task_struct: -1 deadline, 0..98 real time (99 - priority), 100.. others. */
	s32 prio_min;
	s32 prio_max;
	/* 1 + the number of the CPU's ring of segments; 0: it has none. */
	u32 ring;
	/* The process that is measured there: its page faults are causes; 0 for none. */
	u32 process;
	/* The moment from which samples of that process count; wake-ups before it are its warm-up. */
	u64 starts_ns;
	/* The latency above which a stack is recorded; 0: never. */
	u32 late_ns;
	/* One bit for each kind of histogram that is on. */
	u32 enabled;
};
_Static_assert(sizeof(struct settings) == 32, "layout.rs");

/*
 * The activity of one CPU, and the common data of its histograms, by cache lines: after some idle time, each cache line that
 * a program needs costs more than its instructions.
 */
struct cpu_state {
	/* What a wake-up needs. No program writes the settings. */
	struct settings settings;
	/* Programmed expiry of the timer whose handler runs in a hard interrupt; 0 for none. */
	u64 expires_hard_ns;
	/* 1 + the time from a timer's expiry to the last wake-up here, if it is not counted yet; 0: it is. */
	u64 offset_ns;
	/* Wake-ups of tasks that pass the filter of the configuration. */
	u64 wakings;
	/* Wake-ups of the threads of the process that measures on the CPU, since its samples count; wraps around. */
	u32 own_wakings;
	/* Whether the task that has the CPU waited for one that it could not preempt. */
	u32 is_shared;

	/*
	 * The wake-up of the counted task that has the CPU: its expiry and wake-up (0: none), the decision for it, the end of the
	 * switch (0: not seen). decided_ns is 0 where there is no such task or its wake-up is counted already.
	 */
	u64 expires_ns;
	u64 waking_ns;
	u64 decided_ns;
	u64 ended_ns;
	/* The task that had the CPU before it. */
	u64 previous;
	/* Goes up before and after latencies are counted: odd meanwhile. */
	u64 countings;
	/* The timer that was set here last when its moment was over, and when that was: it expires at once, and is not late by more. */
	u64 over_timer;
	u64 over_ns;

	/* The extremes of each histogram since its last reset; what is longer than 4 s counts as that. */
	u32 max_ns[KINDS_STRIDE];
	u32 min_ns[KINDS_STRIDE];

	/* The sums of the latencies of each histogram. */
	u64 sum_ns[KINDS];
	/*
	 * Since when the watched task that has the CPU runs, less its earlier runs since its last sleep; 0: none has it. And how long it
	 * usually runs without a sleep; 0: not known.
	 */
	u64 runs_since_ns;
	u64 usual_run_ns;

	/* What every event of a watched CPU needs: how many segments were written, and when what runs now began. */
	u64 segments;
	u64 irq_ns;
	u64 vector_ns;
	u64 softirq_ns;
	u64 function_ns;
	u64 idle_ns;
	u64 thread_ns;
	u32 idle_state;
	/* The counted task that was last woken or preempted here and has not run since, by waiter_of(); 0: none. */
	u8 is_waited;
	/* Whether there was a switch since thread_ns whose time was not read: see skips_clock(). */
	u8 has_switched;
	/* Whether an ordinary thread runs since it was chosen in place of a real-time one: see is_throttling(). */
	u8 is_throttled;
	/* How many of `left_softirqs` are in use. */
	u8 softirqs_left;

	/* How many records of watched tasks were written. */
	u64 stretches;
	/* See is_unusual(). */
	u64 timer_bound_ns;
	u64 switch_bound_ns;
	/* The run time of the current thread at the last switch whose time was not read. */
	u64 runtime_ns;
	u64 lock_ns;
	u64 lock;
	u32 lock_flags;
	u32 lock_thread;
	/* The softirq that began at softirq_ns. */
	u32 softirq;
	/* How many stacks were recorded. */
	u32 stacks;

	/* Rare counts. Wake-ups of tasks that were still running, which have no latency. */
	u64 without_switch;
	/* Wake-ups that were lost because another task's took their slot. */
	u64 collisions;
	/* Wake-ups that ended on a CPU where nothing is measured. */
	u64 elsewhere;
	/* Switches to a counted task whose end was not seen: the first one of a new thread. */
	u64 unfinished;
	/* Programmed expiry of the timer whose handler runs in a softirq, and the thread that runs it. */
	u64 expires_soft_ns;
	u32 soft_thread;
	/* Sent interrupts for which the table had no room. */
	u32 ipis_lost;
	/* Functions that other CPUs asked for, and how many of them this CPU was interrupted for: see calls.h. */
	u64 calls_asked;
	u64 calls_taken;

	/* A real-time kernel preempts softirqs, and other threads may run further ones meanwhile. */
	struct left_softirq left_softirqs[SOFTIRQS_LEFT_MAX];
	/* What runs now: the function of a timer in a hard interrupt, that of one in a softirq with its timer. */
	u64 hard_function;
	u64 soft_function;
	u64 soft_timer;
	/* When a worker began the work item that runs; 0: none, or it was not seen. */
	u64 work_ns;

	/* When the last function of a timer ended here, in a hard interrupt and in a softirq. */
	u64 hard_called_ns;
	u64 soft_called_ns;
	u64 unused[6];
};
_Static_assert(sizeof(struct cpu_state) == 576, "layout.rs");
_Static_assert(__builtin_offsetof(struct cpu_state, max_ns) == 128, "layout.rs");
_Static_assert(__builtin_offsetof(struct cpu_state, sum_ns) == 192, "layout.rs");
_Static_assert(__builtin_offsetof(struct cpu_state, segments) == 256, "layout.rs");
_Static_assert(__builtin_offsetof(struct cpu_state, stretches) == 320, "layout.rs");
_Static_assert(__builtin_offsetof(struct cpu_state, without_switch) == 384, "layout.rs");

/* The kind of a segment; the counterpart is `What` in layout.rs, and a test compares them. */
enum segment_kind {
	SEGMENT_NONE,
	/* A device's interrupt handler. */
	SEGMENT_IRQ,
	/* An interrupt that has a vector of its own. */
	SEGMENT_VECTOR,
	SEGMENT_SOFTIRQ,
	/* One handler of non-maskable interrupts. */
	SEGMENT_NMI,
	/* A function that another CPU asked for. */
	SEGMENT_FUNCTION,
	/* A thread that has left the CPU. */
	SEGMENT_THREAD,
	SEGMENT_IDLE,
	/* A thread waited for a lock. */
	SEGMENT_LOCK,
	/* A thread of the measured process touched memory that was not mapped; start and end are the same. */
	SEGMENT_PAGE_FAULT,
	/* From the programmed expiry of a timer to the wake-up of the thread that waited for it. */
	SEGMENT_TIMER,
	/* From the wake-up of a thread to the switch to it. */
	SEGMENT_WAKEUP,
	/* A thread of the measured process was moved to another CPU; start and end are the same. */
	SEGMENT_MIGRATION,
	/*
	 * Where tasks are watched: this CPU woke a thread, watched or not. From the programmed expiry of the timer that did it;
	 * start and end are the same where none did.
	 */
	SEGMENT_WAKING,
	/* A function that a timer's interrupt, a softirq or a worker of a workqueue called; with the member of SEGMENT_FUNCTION. */
	SEGMENT_CALLED,
};

/* A task's name, copied as two words. */
#define COMMAND(name) u8 name[COMMAND_BYTES] __attribute__((aligned(8)))

/* What took a CPU, from when to when. */
struct segment {
	u64 start_ns;
	u64 end_ns;
	/* 1 + its number, written last. */
	u64 number;
	/* Its content: the member of its kind. Each begins with the kind. */
	union {
		u8 kind;
		struct {
			u8 kind;
			u32 line;
		} irq;
		struct {
			u8 kind;
			u32 vector;
		} vector;
		struct {
			u8 kind;
			u32 number;
		} softirq;
		struct {
			u8 kind;
			u64 handler;
		} nmi;
		struct {
			u8 kind;
			/* Whether the sender is known. */
			bool has_sender;
			u16 sender_cpu;
			u32 sender_thread;
			u64 function;
			u32 sender_process;
			COMMAND(sender_command);
		} function;
		struct {
			u8 kind;
			/* Whether it was still runnable. */
			bool was_runnable;
			u32 thread;
			u32 process;
			s32 prio;
			/* The priority of the thread that ran next. */
			s32 next_prio;
			/* Not written for the idle task. */
			COMMAND(command);
		} thread;
		struct {
			u8 kind;
			u32 state;
		} idle;
		struct {
			u8 kind;
			u32 thread;
			u32 process;
			/* The kernel's flags for the type of lock. */
			u32 flags;
		} lock;
		struct {
			u8 kind;
			u32 thread;
			u64 address;
		} page_fault;
		struct {
			u8 kind;
			u32 thread;
			u32 process;
			/* 1 + the number of the stack of the wake-up; 0: none. */
			u32 stack;
		} timer;
		struct {
			u8 kind;
			u32 thread;
			u32 process;
			/* 1 + the number of the stack of the previous thread; 0: none. */
			u32 stack;
			/* The thread that had the CPU before. */
			u32 previous;
			s32 previous_prio;
			/* Written only with a stack. */
			COMMAND(previous_command);
		} wakeup;
		struct {
			u8 kind;
			u32 thread;
			u32 process;
			u32 to_cpu;
		} migration;
		struct {
			u8 kind;
			/* enum waker */
			u8 by;
			u32 thread;
			/* The thread that ran; it is the waker only if no interrupt did it. */
			u32 waker;
			u32 waker_process;
			COMMAND(waker_command);
		} waking;
	};
};
_Static_assert(sizeof(struct segment) == 64, "layout.rs");
_Static_assert(__builtin_offsetof(struct segment, kind) == 24, "layout.rs");
_Static_assert(__builtin_offsetof(struct segment, function.sender_command) == 48, "layout.rs");
_Static_assert(__builtin_offsetof(struct segment, thread.command) == 48, "layout.rs");
_Static_assert(__builtin_offsetof(struct segment, wakeup.previous_command) == 48, "layout.rs");
_Static_assert(__builtin_offsetof(struct segment, waking.waker_command) == 40, "layout.rs");

/* Who asked a CPU to run a function, by the address of the request: of a call, a timer or a work item. */
struct sender {
	u64 request;
	u32 thread;
	u32 process;
	u32 cpu;
	COMMAND(command);
};
#define SENDERS 4096

/* A function that another CPU asked for. */
struct call {
	/* 1 + its number, written last. */
	u64 number;
	u64 at_ns;
	u64 function;
	/* The sender's stack; negative: not known. */
	s64 stack;
	u32 thread;
	u32 process;
	u32 cpu;
	/* Whether the CPU runs it only if it meets a condition. */
	u8 is_conditional;
	/* Whether several CPUs may have been asked for it at once. */
	u8 is_for_several;
	u8 unused[2];
	COMMAND(command);
};
_Static_assert(sizeof(struct call) == 64, "");
/* Requests that a CPU's ring holds: a power of two. */
#define RING_CALLS 16

/* Interrupts that other CPUs were sent. */
struct ipi_key {
	/* 0: the interrupt that makes a CPU look for a task to run (reschedule). */
	u64 function;
	u64 call_site;
	u16 cpu;
	/* NO_CPU: not known. */
	u16 from_cpu;
	/* Whether the process that measures sent it. */
	u32 is_own;
	/* The thread that sent it; empty for a reschedule, and for what the measuring process sent. */
	u8 command[COMMAND_BYTES];
};
_Static_assert(sizeof(struct ipi_key) == 40, "layout.rs");
#define NO_CPU 0xffff

struct ipi_count {
	u64 count;
	/* The sender's stack when this was first seen; negative: not known. */
	s64 stack;
};
_Static_assert(sizeof(struct ipi_count) == 16, "layout.rs");

#define SENDER_STACK_DEPTH 127

/* A stack, recorded when something was late. */
#define STACK_DEPTH 46
struct stack {
	/* 1 + its number on its CPU, written last. */
	u64 number;
	/* How many bytes of addresses are valid. */
	u64 bytes;
	u64 addresses[STACK_DEPTH];
};
_Static_assert(sizeof(struct stack) == 384, "layout.rs");

/* ---- Watched tasks ---- */

/* The id of a thread gives its slot. */
#define TASK_SLOTS 65536
/* A thread that is watched. */
#define SLOT_WATCHED 1
/* The threads and processes that it starts are watched, too. */
#define SLOT_INHERITS 2
/* How long before a task left its CPU another one may have woken it for its next run. */
#define WAKING_RACE_NS 50000
#define SYSCALL_NOT_KNOWN -2

/* What a record describes; the counterpart is `TaskEvent` in layout/tasks.rs, and a test compares them. */
enum task_event {
	TASK_NONE,
	/* A watched task had a CPU, from one switch to the next. */
	TASK_STRETCH,
	/* A task is watched from now on: it was forked by a watched one, got the name or has the priority. */
	TASK_NEW,
	/* A watched task ended, with the stretch until then; or it has another name now, and no `run_ns`. */
	TASK_GONE,
	/* A watched task passed the mark at which its activations begin, or end; only its identity and `end_ns` are set. */
	TASK_BEGIN,
	TASK_END,
	/* No task: the clock of the CPU `next` has `waker` kHz from now on. */
	TASK_FREQUENCY,
	/* A watched task ran in the system call `syscall` from `ready_ns` on; `futex_owner` is the owner of a futex. */
	TASK_CALL,
	/* A sample of a watched task that runs: its `stack`. */
	TASK_SAMPLE,
	/* A watched task left an audited system call that took longer than all before: `audited_stack` and what follows. */
	TASK_AUDITED,
	/* The trigger `waker` came, for the `ready_ns`-th time: of the rest only the thread and `end_ns` are set. */
	TASK_TRIGGER,
	/* A piece of the program's stack, of the sample that follows. */
	TASK_STACK,
	/* A thread, watched or not, passed the end of a chain with the rule `waker`: `pass_value` and what follows. */
	TASK_PASS,
};

/* How a stretch began; the counterpart is `Began` in layout/tasks.rs. */
enum began {
	BEGAN_UNKNOWN,
	BEGAN_WOKEN,
	BEGAN_PREEMPTED,
};

/* A budget of CPU time that is used up; the counterpart is `Budget` in recording.rs of whylate-core. */
enum budget {
	BUDGET_LEFT,
	BUDGET_QUOTA,
	BUDGET_RUNTIME,
	BUDGET_GROUP_RUNTIME,
};

/* What woke a task; the counterpart is `Waker` in layout/tasks.rs. */
enum waker {
	WAKER_THREAD,
	WAKER_TIMER,
	WAKER_IRQ,
	WAKER_VECTOR,
	WAKER_SOFTIRQ,
	/* A thread that sends a datagram to its own machine: the softirq that delivers it runs in its system call. */
	WAKER_SENDER,
};

/* A wake-up of a task. */
struct woken {
	u64 expires_ns;
	u32 waker;
	u32 waker_kind;
	COMMAND(waker_command);
	/* The priority of the thread that ran then, whether it is the waker or not. */
	s32 waker_prio;
	u32 unused;
};

/*
 * Which thread has a slot. These are in a table of their own: for most threads, one read of a cache line that threads of
 * about the same age share shows that they are not watched.
 */
struct task_place {
	/* 0: free. */
	u32 thread;
	u32 flags;
};
_Static_assert(sizeof(struct task_place) == 8, "layout.rs");

/* What is in progress for one watched task. */
struct task_slot {
	u64 waking_ns;
	u64 left_ns;
	u64 run_ns;
	u64 ready_ns;
	u64 moved_ns;
	u64 fault_ns;
	/* Since when it is in a system call whose time is counted; 0: in none. */
	u64 call_ns;
	/* When the page fault began that it is in; 0: in none. */
	u64 in_fault_ns;
	/* How long it ran in page faults, and in system calls, since it got the CPU. */
	u64 faults_took_ns;
	u64 calls_took_ns;
	/* How long it ran since its last sleep, before it came to the CPU that it has. */
	u64 ran_ns;
	/* About a fifth of its runs from sleep to sleep are longer; 0: none was seen. */
	u64 usual_run_ns;
	/* Its runs that ended with a sleep. */
	u64 runs;
	/* Where it called the library in which it last slept, and its stack pointer then; 0: not known. */
	u64 place;
	u64 place_stack;
	/* When it entered the audited system call that it is in, which one, and what distinguishes it; 0: in none. */
	u64 audit_ns;
	u32 audit_call;
	u32 audit_detail;
	u32 began;
	u32 faults;
	u32 lost;
	u32 previous;
	s32 previous_prio;
	u8 was_runnable;
	/* Which budget was used up when it was woken: enum budget. */
	u8 budget;
	/* The CPU that it was on before it was last moved, and 1; 0: not known. */
	u8 moved_from;
	/* The word of the stack that had `place`. */
	u8 place_word;
	/* The owner of the lock that the system call waits for; 0: none. */
	u32 call_owner;
	u32 unused_end;
	COMMAND(previous_command);
	/* The last wake-up, and the one after which it runs: a task may be woken while it runs. */
	struct woken waking;
	struct woken woken;
};
_Static_assert(sizeof(struct task_slot) == 264, "layout.rs");

/* Return addresses of a program that a sample has. */
#define SAMPLE_DEPTH 26
/* The same of an audited system call. */
#define AUDIT_DEPTH 23

/* The pieces of a program's stack that come before a sample, and the words of each. */
#define STACK_PIECES 8
#define STACK_WORDS 22

/* One more than the bytes that are kept of a text after the part that is compared: a power of two. */
#define PASS_TEXT_BYTES 32

/* A watched task had a CPU: from one switch to the next. */
struct stretch {
	/* 1 + its number, written last. */
	u64 number;
	u64 end_ns;
	u32 kind;
	u32 thread;
	u32 process;
	s32 prio;
	u32 began;
	u32 waker_kind;
	union {
		/* Of TASK_SAMPLE: the stack of the program, innermost first; negative bytes: none. */
		struct {
			u64 stack[SAMPLE_DEPTH];
			s32 stack_bytes;
			u32 is_in_kernel;
		};
		/* TASK_STACK: a piece of the stack, the address where it begins, and the registers of the program. */
		struct {
			u64 piece[STACK_WORDS];
			u64 piece_at;
			u64 instruction;
			u64 frame;
			u64 link;
		};
		/* TASK_AUDITED has the same stack, and where the program called the library that made the call; 0: not known. */
		struct {
			u64 audited_stack[AUDIT_DEPTH];
			u64 audited_caller;
			u64 audited_took_ns;
			s32 audited_stack_bytes;
			u32 audited_call;
			u32 audited_detail;
			u32 audited_unused;
		};
		/* TASK_PASS has the operand's value, whether there is one, which pass of its rule it is, and what follows the text. */
		struct {
			s64 pass_value;
			u64 pass_has_value;
			u64 pass_number;
			u64 pass_text[PASS_TEXT_BYTES / 8];
		};
		/* Of all others, which leave the members above this as they are or write them. */
		struct {
			/* When it could run: woken, or preempted; 0: not known. */
			u64 ready_ns;
			/* The programmed expiry of the timer that woke it; 0: no timer. */
			u64 expires_ns;
			u64 run_ns;
			/* When it was last moved to another CPU, before it ran; 0: it was not. */
			u64 moved_ns;
			/* Its last page fault; 0: none. */
			u64 fault_ns;
			union {
				/* The address of the futex in whose system call it fell asleep. */
				u64 futex;
				/* Only in TASK_GONE: its runs that ended with a sleep. */
				u64 runs;
			};
			/* The first arguments of the system call in which it fell asleep. */
			u64 arguments[2];
			/* Where its program made that call: the innermost return address into the executable; 0: not known. */
			u64 caller;
			/* How long it ran in its page faults, and in system calls. */
			u64 faults_took_ns;
			u64 calls_took_ns;
			/* The state bits of a task that fell asleep. */
			u32 state;
			/* The system call in which it fell asleep; -1: none, SYSCALL_NOT_KNOWN. */
			s32 syscall;
			u32 futex_command;
			u32 futex_value;
			/* The word of a futex with priority inheritance: it has the owner. */
			u32 futex_word;
			/* The word after the futex in glibc's mutexes. */
			u32 futex_owner;
			u32 faults;
			/* Records of it that were lost for lack of room before this one. */
			u32 lost;
			u32 waker;
			u32 next;
			s32 next_prio;
			/* The thread that had the CPU before. */
			u32 previous;
			s32 previous_prio;
			s32 waker_prio;
			/* Only in TASK_GONE: threads of its process that do not exit yet; -1: not known. */
			s32 threads_left;
			bool is_runnable;
			/* Which budget was used up when it left the CPU, and when it was woken: enum budget. */
			u8 budget;
			u8 budget_before;
			/* The CPU that it was on before it was last moved, and 1; 0: not known. */
			u8 moved_from;
			COMMAND(command);
			COMMAND(waker_command);
			COMMAND(next_command);
			COMMAND(previous_command);
		};
	};
};
_Static_assert(sizeof(struct stretch) == 256, "layout.rs");
_Static_assert(__builtin_offsetof(struct stretch, ready_ns) == 40, "layout.rs");
_Static_assert(__builtin_offsetof(struct stretch, command) == 192, "layout.rs");

/* System calls whose numbers are at least this large are not audited. */
#define AUDIT_CALLS 512

/* What distinguishes calls of one number; the counterpart is `Detail` in layout/tasks.rs. */
enum detail {
	DETAIL_NOT_AUDITED,
	DETAIL_NONE,
	/* The first argument, a file descriptor. */
	DETAIL_FILE,
	/* The first two arguments: a clock, and flags in the upper half. */
	DETAIL_CLOCK,
};

struct audit_key {
	u32 thread;
	u32 call;
	u32 detail;
	u32 unused;
};
_Static_assert(sizeof(struct audit_key) == 16, "layout.rs");

struct audit_count {
	u64 calls;
	/* Runs with at least one of them, and 1 + the number of the last one. */
	u64 runs;
	u64 last_run;
	u64 took_ns;
	u64 longest_ns;
};
_Static_assert(sizeof(struct audit_count) == 40, "layout.rs");

/* The counters of a CPU that are read at switches of watched tasks: the counterpart is `COUNTERS` in layout/tasks.rs. */
enum counter {
	COUNTER_INSTRUCTIONS,
	COUNTER_CYCLES,
	COUNTER_CACHE_MISSES,
	COUNTERS,
};

/* What the counters of a CPU counted in the time that one record of a watched task covers. */
struct stretch_counts {
	u64 values[COUNTERS];
	/* One bit for each that counted all that time. */
	u64 known;
};
_Static_assert(sizeof(struct stretch_counts) == 32, "layout/tasks.rs");

/* What the counters of a CPU showed when they were read last. */
struct counts {
	u64 values[COUNTERS];
	/* How long each has counted, and how long it could not: other events had its hardware. */
	u64 counted_ns[COUNTERS];
	u64 paused_ns[COUNTERS];
	/* One bit for each that could be read. */
	u64 readable;
	/* Since the time before. */
	struct stretch_counts last;
};

/* What could not be recorded, on all CPUs. */
struct task_losses {
	/* Records of tasks that came and went. */
	u64 events;
	/* Tasks that are not watched because another one has their slot. */
	u64 collisions;
	/* Texts for trace_marker that could not be read: they were not in memory. */
	u64 unread_texts;
	/* Audited system calls that found no room. */
	u64 unaudited;
};
_Static_assert(sizeof(struct task_losses) == 32, "layout.rs");

/* One more than the number of bytes compared in a text for trace_marker. */
#define MARK_BYTES 64

/* The start of a text that is a mark. */
struct mark_text {
	/* Padded with zeros; it begins with a zero if no text is such a mark. */
	u64 text[MARK_BYTES / 8];
	/* All ones where it has a byte. */
	u64 mask[MARK_BYTES / 8];
};
_Static_assert(sizeof(struct mark_text) == 2 * MARK_BYTES, "layout.rs");

/* The most triggers that programs wait for; the last place is that of the sound driver's xrun. */
#define TRIGGERS 16
#define TRIGGER_XRUN 15
/* After a record of a trigger, further ones are only counted for this long. */
#define TRIGGER_REST_NS 500000
/* Passes of a chain's end have records up to this number in each of these times: more would push out all other records. */
#define PASSES_TIME_NS 10000000
#define PASSES_MAX 200

/* What a trigger compares; the counterpart is `Operand` in layout/triggers.rs. */
enum operand {
	OPERAND_NONE,
	/* The register at `offset` of those that the kernel saved. */
	OPERAND_REGISTER,
	/* What is at the address in that register, plus `displacement`. */
	OPERAND_MEMORY,
	/* `displacement`. */
	OPERAND_CONSTANT,
	/* How long the call took. */
	OPERAND_TOOK,
};

enum comparison {
	COMPARISON_ABOVE,
	COMPARISON_AT_LEAST,
	COMPARISON_BELOW,
	COMPARISON_AT_MOST,
	COMPARISON_EQUAL,
	COMPARISON_DIFFERENT,
};

struct trigger_rule {
	u64 count;
	/* When the last record was made; for an end of a chain, when the time of PASSES_MAX records began. */
	u64 noted_ns;
	/* What is compared; for an end of a chain, the passes in that time. */
	s64 value;
	s64 displacement;
	u32 operand;
	u32 comparison;
	u32 offset;
	/* Bytes of the value; 0: not known. */
	u16 width;
	u8 is_signed;
	/* It is an end of a chain: each pass has a record, up to PASSES_MAX. */
	u8 is_pass;
};
_Static_assert(sizeof(struct trigger_rule) == 48, "layout.rs");
