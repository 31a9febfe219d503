// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * A thread of high priority that takes one CPU now and then.
 *
 *   thief PRIORITY CPU PERIOD_MS BUSY_MS COUNT
 */
#define _GNU_SOURCE
#include <sched.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>

static long long now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000LL + now.tv_nsec;
}

int main(int count, char **words)
{
	struct sched_param high = { .sched_priority = count > 5 ? atoi(words[1]) : 0 };
	cpu_set_t cpus;

	if (count < 6)
		return 2;
	CPU_ZERO(&cpus);
	CPU_SET(atoi(words[2]), &cpus);
	prctl(PR_SET_NAME, "thief");
	if (sched_setaffinity(0, sizeof(cpus), &cpus) || sched_setscheduler(0, SCHED_FIFO, &high))
		return 3;
	for (int i = 0; i < atoi(words[5]); i++) {
		struct timespec period = { 0, atoi(words[3]) * 1000000L };
		long long end_ns;

		nanosleep(&period, 0);
		end_ns = now_ns() + atoi(words[4]) * 1000000LL;
		while (now_ns() < end_ns)
			;
	}
	return 0;
}
