/*
 * How much CPU time each wake-up of a task takes: an ordinary thread on that CPU reads the clock in a loop and records each gap in which
 * another task ran. Between two readings it may walk through memory, so that what is interrupted and what interrupts find
 * their cache lines gone. Prints, of each tenth of a second, how many gaps there were, and their median in nanoseconds: a virtual machine's CPU is slower for seconds while its host is busy.
 *
 *   cc -O2 -o /tmp/gap_peer benches/gap_peer.c
 *   /tmp/gap_peer 1 4 0                    # CPU, seconds, KiB of memory (0: none)
 */
#define _GNU_SOURCE
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>

#define GAPS_MAX 100000
#define WINDOW_NS 100000000LL
/* Shorter ones have no switch to a task and back. */
#define GAP_MIN_NS 500
#define LINE 64

static uint32_t gaps[GAPS_MAX];

static int64_t now_ns(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1000000000LL + time.tv_nsec;
}

/* How often this task was preempted. */
static long switches(void)
{
	struct rusage usage;
	getrusage(RUSAGE_THREAD, &usage);
	return usage.ru_nivcsw;
}

static int compare(const void *one, const void *other)
{
	uint32_t a = *(const uint32_t *)one, b = *(const uint32_t *)other;
	return (a > b) - (a < b);
}

int main(int argc, char **argv)
{
	if (argc != 4) {
		fprintf(stderr, "usage: gap_peer CPU SECONDS KIB\n");
		return 2;
	}
	cpu_set_t set;
	CPU_ZERO(&set);
	CPU_SET(atoi(argv[1]), &set);
	if (sched_setaffinity(0, sizeof(set), &set)) {
		perror("pinning");
		return 1;
	}
	size_t size = (size_t)atol(argv[3]) * 1024, at = 0;
	volatile char *memory = size ? malloc(size) : NULL;
	for (size_t byte = 0; byte < size; byte += LINE)
		memory[byte] = 1;
	long last = switches();
	for (long window = 0; window < 10 * atol(argv[2]); window++) {
		size_t count = 0;
		int64_t before = now_ns(), end = before + WINDOW_NS;
		while (before < end && count < GAPS_MAX) {
			if (size) {
				memory[at]++;
				at = at + LINE < size ? at + LINE : 0;
			}
			int64_t now = now_ns();
			if (now - before >= GAP_MIN_NS) {
				/* Interrupts of this machine and of its host take the CPU without a switch. */
				long switched = switches();
				if (switched == last + 1)
					gaps[count++] = now - before > UINT32_MAX ? UINT32_MAX : (uint32_t)(now - before);
				last = switched;
				now = now_ns();
			}
			before = now;
		}
		qsort(gaps, count, sizeof(*gaps), compare);
		if (count)
			printf("%zu %u\n", count, gaps[count / 2]);
	}
	return 0;
}
