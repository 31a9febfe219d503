/* A periodic real-time thread with habits that an audit finds. Arguments: a log file, and how many cycles. It prints what it
 * did, for comparison. With a third argument it does nothing wrong. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int log_file;
static long lines, maps;

__attribute__((noinline)) void log_line(int cycle)
{
	char text[32];
	int length = snprintf(text, sizeof(text), "%d\n", cycle);

	if (write(log_file, text, length) != length)
		abort();
	lines++;
}

__attribute__((noinline)) void grow(void)
{
	const size_t bytes = 1 << 18;
	char *memory = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	for (size_t at = 0; at < bytes; at += 4096)
		memory[at] = 1;
	munmap(memory, bytes);
	maps++;
}

__attribute__((noinline)) void update(int cycle)
{
	if (cycle % 25 == 0)
		log_line(cycle);
	if (cycle % 50 == 0)
		grow();
	if (cycle % 7 == 0) {
		pthread_mutex_lock(&lock);
		pthread_mutex_unlock(&lock);
	}
}

static void *hold(void *unused)
{
	struct timespec pause = { 0, 4000000 };

	prctl(PR_SET_NAME, "holder");
	for (;;) {
		pthread_mutex_lock(&lock);
		for (volatile int turn = 0; turn < 400000; turn++)
			;
		pthread_mutex_unlock(&lock);
		nanosleep(&pause, 0);
	}
	return unused;
}

int main(int count, char **words)
{
	int cycles = count > 2 ? atoi(words[2]) : 1000, is_good = count > 3;
	struct sched_param priority = { .sched_priority = 20 };
	struct timespec next;
	pthread_t holder;

	log_file = open(words[1], O_CREAT | O_WRONLY | O_TRUNC, 0600);
	if (is_good)
		mlockall(MCL_CURRENT | MCL_FUTURE);
	else
		pthread_create(&holder, 0, hold, 0);
	if (sched_setscheduler(0, SCHED_FIFO, &priority))
		return 3;
	clock_gettime(CLOCK_MONOTONIC, &next);
	for (int cycle = 1; cycle <= cycles; cycle++) {
		next.tv_nsec += 2000000;
		if (next.tv_nsec >= 1000000000) {
			next.tv_nsec -= 1000000000;
			next.tv_sec++;
		}
		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &next, 0);
		if (!is_good)
			update(cycle);
	}
	/* The buffer of printf takes memory. */
	if (!is_good)
		printf("%ld %ld\n", lines, maps);
	return 0;
}
