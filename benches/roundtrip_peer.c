/*
 * A peer for `whylate measure roundtrip --method futex|pipe`: two pinned SCHED_FIFO threads, the same messages, written
 * without anything of whylate. Prints round trips, mean and median in nanoseconds.
 *
 *   cc -O2 -pthread -o /tmp/roundtrip_peer benches/roundtrip_peer.c
 *   /tmp/roundtrip_peer futex 1 0 2        # method, asking CPU, answering CPU, seconds
 */
#define _GNU_SOURCE
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define SAMPLES_MAX 4000000
#define STOP UINT32_MAX

static _Alignas(128) _Atomic uint32_t there;
static _Alignas(128) _Atomic uint32_t back;
static int pipes[2][2];
static int uses_pipe, answering_cpu;
static uint32_t samples[SAMPLES_MAX];

static int64_t now_ns(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1000000000LL + time.tv_nsec;
}

static void settle_on(int cpu)
{
	cpu_set_t set;
	struct sched_param parameters = { .sched_priority = 95 };
	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set) || sched_setscheduler(0, SCHED_FIFO, &parameters))
		perror("pinning or SCHED_FIFO");
}

static void futex_send(_Atomic uint32_t *word, uint32_t value)
{
	atomic_store(word, value);
	syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

static uint32_t futex_receive(_Atomic uint32_t *word, uint32_t last)
{
	uint32_t value;
	while ((value = atomic_load(word)) == last)
		syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, last, NULL, NULL, 0);
	return value;
}

static void tell(int direction, uint32_t value)
{
	uint64_t message = value;
	if (!uses_pipe)
		futex_send(direction ? &back : &there, value);
	else if (write(pipes[direction][1], &message, 8) != 8)
		exit(1);
}

static uint32_t hear(int direction, uint32_t last)
{
	uint64_t message;
	if (!uses_pipe)
		return futex_receive(direction ? &back : &there, last);
	if (read(pipes[direction][0], &message, 8) != 8)
		exit(1);
	return message;
}

static void *answer(void *unused)
{
	uint32_t question = 0;
	settle_on(answering_cpu);
	while ((question = hear(0, question)) != STOP)
		tell(1, question);
	return unused;
}

static int ascending(const void *a, const void *b)
{
	uint32_t left = *(const uint32_t *)a, right = *(const uint32_t *)b;
	return (left > right) - (left < right);
}

int main(int count, char **arguments)
{
	pthread_t thread;
	uint32_t question = 0, taken = 0;
	double sum = 0;
	if (count != 5)
		return fprintf(stderr, "usage: roundtrip_peer futex|pipe FROM TO SECONDS\n"), 2;
	uses_pipe = !strcmp(arguments[1], "pipe");
	answering_cpu = atoi(arguments[3]);
	if (pipe(pipes[0]) || pipe(pipes[1]) || mlockall(MCL_CURRENT | MCL_FUTURE))
		perror("setting up");
	pthread_create(&thread, NULL, answer, NULL);
	settle_on(atoi(arguments[2]));
	int64_t begin = now_ns(), end = begin + atof(arguments[4]) * 1e9, before, after = begin;
	while (after < end && taken < SAMPLES_MAX) {
		before = now_ns();
		tell(0, ++question);
		hear(1, question - 1);
		after = now_ns();
		/* The first 50 ms are warm-up. */
		if (after > begin + 50000000)
			samples[taken++] = after - before;
	}
	tell(0, STOP);
	pthread_join(thread, NULL);
	qsort(samples, taken, sizeof(*samples), ascending);
	for (uint32_t i = 0; i < taken; i++)
		sum += samples[i];
	printf("{\"samples\":%u,\"mean_ns\":%.1f,\"p50_ns\":%u,\"p99_ns\":%u}\n", taken, sum / taken, samples[taken / 2],
	       samples[taken / 100 * 99]);
	return 0;
}
