// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * A thread that works in cycles of 5 ms and in one of ten takes 6 ms longer, in one function. It says how often it did.
 *
 *   step CYCLES
 */
#define _GNU_SOURCE
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>

#define PERIOD_NS 5000000
#define ORDINARY_NS 200000
#define LONGER_NS 6000000
#define NOINLINE __attribute__((noinline, noclone))

static volatile uint64_t value;

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000ull + now.tv_nsec;
}

NOINLINE static void filter_samples(uint64_t ns)
{
	uint64_t end = now_ns() + ns;

	while (now_ns() < end) {
		for (int i = 0; i < 20000; i++)
			value = value * 6364136223846793005ull + 1;
	}
	value++;
}

NOINLINE static void plan_again(uint64_t ns)
{
	uint64_t end = now_ns() + ns;

	while (now_ns() < end) {
		for (int i = 0; i < 20000; i++)
			value = value * 2862933555777941757ull + 3;
	}
	value++;
}

NOINLINE static void control_cycle(int nth)
{
	filter_samples(ORDINARY_NS);
	if (nth % 10 == 9)
		plan_again(LONGER_NS);
	value++;
}

int main(int count, char **words)
{
	int cycles = count > 1 ? atoi(words[1]) : 400;
	struct sched_param high = { .sched_priority = 50 };
	struct timespec next;

	prctl(PR_SET_NAME, "victim");
	sched_setscheduler(0, SCHED_FIFO, &high);
	clock_gettime(CLOCK_MONOTONIC, &next);
	for (int i = 0; i < cycles; i++) {
		uint64_t due = next.tv_sec * 1000000000ull + next.tv_nsec + PERIOD_NS;

		/* Never behind its time. */
		if (due < now_ns())
			due = now_ns() + PERIOD_NS;
		next.tv_sec = due / 1000000000;
		next.tv_nsec = due % 1000000000;
		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &next, 0);
		control_cycle(i);
	}
	printf("%d\n", cycles / 10);
	return 0;
}
