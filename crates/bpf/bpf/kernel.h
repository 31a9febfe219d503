/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What the programs use of the kernel's types: the members that they read and nothing else.
 *
 * `preserve_access_index` makes the compiler note each access, and the loader puts in the offset that the running kernel's
 * BTF gives. Order and size here mean nothing. A name with an ending such as ___name is the same type, with members that only
 * some kernels or architectures have.
 */
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef int s32;
typedef long long s64;
typedef _Bool bool;

#define SECTION(name) __attribute__((section(name), used))
#define ALWAYS_INLINE static inline __attribute__((always_inline))
#define NEVER_INLINE static __attribute__((noinline))
/* A function that the verifier checks once, whatever its callers; it takes only numbers (before Linux 5.12). */
#define GLOBAL __attribute__((noinline))
#define UNLIKELY(condition) __builtin_expect(!!(condition), 0)
#define LIKELY(condition) __builtin_expect(!!(condition), 1)
/* Keeps the compiler from moving memory accesses across it. */
#define BARRIER() __asm__ volatile("" ::: "memory")

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct sched_entity {
	u64 sum_exec_runtime;
};

struct task_struct {
	void *stack;
	struct sched_entity se;
	int pid;
	int tgid;
	int prio;
	unsigned int flags;
	char comm[16];
};

struct task_struct___old {
	long state;
};

struct task_struct___new {
	unsigned int __state;
};

struct task_struct___smp {
	int wake_cpu;
};

/* Only real-time kernels have it. */
struct task_struct___realtime {
	int softirq_disable_cnt;
};

struct rb_node {
	unsigned long __rb_parent_color;
};

struct timerqueue_node {
	struct rb_node node;
	s64 expires;
};

struct hrtimer_clock_base {
	s64 offset;
};

struct hrtimer {
	struct timerqueue_node node;
	struct hrtimer_clock_base *base;
	u8 is_soft;
	void *function;
};

struct timer_list {
	void *function;
	u32 flags;
};

struct work_struct {
	void *func;
};

struct worker_pool {
	int cpu;
};

struct pool_workqueue {
	struct worker_pool *pool;
};

/* A worker of a workqueue is the data of its thread. */
struct worker {
	void *current_func;
	struct work_struct *current_work;
};

struct kthread {
	void *data;
};

struct task_struct___kthread {
	struct kthread *worker_private;
};

/* Before Linux 5.17. */
struct task_struct___child {
	struct kthread *set_child_tid;
};

struct pt_regs;

struct pt_regs___x86 {
	unsigned long orig_ax;
};

struct pt_regs___arm64 {
	u64 pstate;
	s32 syscallno;
};

#pragma clang attribute pop

/* Numbers of the kernel's helper functions, as in its uapi/linux/bpf.h. */
enum bpf_func_id {
	BPF_FUNC_get_current_task_btf = 158,
	BPF_FUNC_task_pt_regs = 175,
};

static void *(*bpf_map_lookup_elem)(void *map, const void *key) = (void *)1;
static long (*bpf_map_delete_elem)(void *map, const void *key) = (void *)3;
static u64 (*bpf_ktime_get_ns)(void) = (void *)5;
static u32 (*bpf_get_smp_processor_id)(void) = (void *)8;
static u64 (*bpf_get_current_pid_tgid)(void) = (void *)14;
static u64 (*bpf_get_current_task)(void) = (void *)35;
static long (*bpf_probe_read_user)(void *to, u32 size, const void *from) = (void *)112;
static long (*bpf_probe_read_kernel)(void *to, u32 size, const void *from) = (void *)113;
static long (*bpf_probe_read_kernel_str)(void *to, u32 size, const void *from) = (void *)115;
static long (*bpf_map_update_elem)(void *map, const void *key, const void *value, u64 flags) = (void *)2;
static long (*bpf_get_current_comm)(void *to, u32 size) = (void *)16;
static long (*bpf_get_stackid)(void *ctx, void *map, u64 flags) = (void *)27;
static long (*bpf_get_stack)(void *ctx, void *to, u32 size, u64 flags) = (void *)67;
static long (*bpf_perf_event_read_value)(void *map, u64 flags, void *to, u32 size) = (void *)55;
static struct task_struct *(*bpf_get_current_task_btf)(void) = (void *)158;
static u64 (*bpf_get_attach_cookie)(void *ctx) = (void *)174;
static struct pt_regs *(*bpf_task_pt_regs)(struct task_struct *task) = (void *)175;

/* take_number() failed. */
#define NO_NUMBER (~0ull)
/* How often taking a number is tried if others change the count between its two reads each time. */
#define NUMBER_TRIES 32

/*
 * Takes the next number of a count that this CPU's interrupts (NMIs, too), other tasks and other CPUs may raise at any
 * moment. An atomic addition that returns the previous value needs Linux 5.12. This needs only what every kernel has: an
 * atomic addition that returns nothing, and two reads of the count.
 *
 * A number is never given twice: the count only rises, each time by one addition of 1, so exactly one addition raised it from
 * n to n + 1. If the count was n before this addition and n + 1 after it, n belongs to this caller alone. If another addition
 * came in between, the owners of the numbers are unknown: this caller gives its number up and takes another one. A number may
 * therefore have no record; readers skip it like a record that is being written.
 */
ALWAYS_INLINE bool tries_number(volatile u64 *count, u64 *number)
{
	*number = *count;
	BARRIER();
	__sync_fetch_and_add(count, 1);
	BARRIER();
	return LIKELY(*count == *number + 1);
}

/* A separate function, because it is hardly ever needed. */
NEVER_INLINE u64 take_another_number(volatile u64 *count)
{
	u64 number;

	for (int i = 0; i < NUMBER_TRIES; i++) {
		if (tries_number(count, &number))
			return number;
	}
	return NO_NUMBER;
}

/* NO_NUMBER if another addition came in between each time. */
ALWAYS_INLINE u64 take_number(u64 *count)
{
	u64 number;

	return tries_number(count, &number) ? number : take_another_number(count);
}

#define FIELD_EXISTS(field) __builtin_preserve_field_info(field, 2)
#define HELPER_EXISTS(name) \
	__builtin_preserve_enum_value(*(typeof(enum bpf_func_id) *)BPF_FUNC_##name, 0)

#define PF_KTHREAD 0x00200000
#define PF_WQ_WORKER 0x00000020
/* The CPU of a timer in its flags. */
#define TIMER_CPUMASK 0x0003ffff

/* Whether another thread may get the CPU in the middle of a softirq. */
#define PREEMPTS_SOFTIRQS FIELD_EXISTS(((struct task_struct___realtime *)0)->softirq_disable_cnt)

/* Maps are described by a structure whose members' types carry the numbers. */
#define MAP_NUMBER(name, value) int(*name)[value]
#define MAP_TYPE(name, type) typeof(type) *name
#define BPF_MAP_TYPE_HASH 1
#define BPF_MAP_TYPE_ARRAY 2
#define BPF_MAP_TYPE_PERF_EVENT_ARRAY 4
#define BPF_MAP_TYPE_STACK_TRACE 7
#define BPF_ANY 0
#define BPF_NOEXIST 1
#define BPF_F_MMAPABLE 1024
#define BPF_F_USER_STACK 256
