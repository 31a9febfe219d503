/* Three processes with a thread each, `first`, `middle` and `last`, connected by pipes. Arguments: how many messages of 10 ms,
 * and what happens to one in ten: `slow` (middle works for 6 ms), `overtake` (middle holds it back until the next one was
 * sent), `pool` (one of two threads `middle` works for 16 ms while the other one takes the next messages), `text` (as slow, with texts for trace_marker instead of calls), or `even` (nothing). `last` prints the latency of each message from
 * begin_frame() to end_frame(), in nanoseconds. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PERIOD_NS 10000000LL
#define MESSAGES_MAX 10000

struct message {
	long number;
	long long begin_ns;
};

static long messages;
static const char *why;
static int marker = -1;

static long long now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1000000000LL + time.tv_nsec;
}

static void wait_until(long long at_ns)
{
	struct timespec time = { at_ns / 1000000000LL, at_ns % 1000000000LL };

	clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, 0);
}

__attribute__((noinline)) void work(long long ns)
{
	for (long long end_ns = now() + ns; now() < end_ns;)
		;
}

static void say(const char *what, long number)
{
	char text[64];
	int length = snprintf(text, sizeof(text), "frame %s %ld", what, number);

	if (marker >= 0 && write(marker, text, length) != length)
		exit(4);
}

/* A frame begins; the second argument is its number. */
__attribute__((noinline)) long long begin_frame(void *unused, long number)
{
	long long begin_ns = now();

	say("in", number);
	__asm__ volatile("" ::"r"(unused), "r"(number) : "memory");
	return begin_ns;
}

__attribute__((noinline)) long long end_frame(long number)
{
	long long end_ns = now();

	say("out", number);
	__asm__ volatile("" ::"r"(number) : "memory");
	return end_ns;
}

static void become(const char *name)
{
	struct sched_param priority = { .sched_priority = 60 };

	prctl(PR_SET_NAME, name);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	mlockall(MCL_CURRENT);
	if (sched_setscheduler(0, SCHED_FIFO, &priority))
		exit(3);
}

static void first(int to)
{
	become("first");
	for (long number = 1; number <= messages; number++) {
		static long long at_ns;

		at_ns = at_ns ? at_ns + PERIOD_NS : now() + 50 * PERIOD_NS;
		wait_until(at_ns);
		struct message message = { .number = number, .begin_ns = begin_frame(0, number) };

		work(200000);
		if (write(to, &message, sizeof(message)) != sizeof(message))
			exit(4);
	}
	exit(0);
}

static void middle(int from, int to)
{
	struct message message, held = {};

	become("middle");
	while (read(from, &message, sizeof(message)) == sizeof(message)) {
		int is_tenth = message.number % 10 == 0 && strcmp(why, "even");

		if (is_tenth && !strcmp(why, "overtake")) {
			held = message;
			continue;
		}
		work(!is_tenth ? 300000 : strcmp(why, "pool") ? 6000000 : 16000000);
		if (write(to, &message, sizeof(message)) != sizeof(message))
			exit(4);
		if (held.number && write(to, &held, sizeof(held)) != sizeof(held))
			exit(4);
		held.number = 0;
	}
	exit(0);
}

static void last(int from)
{
	static long long took_ns[MESSAGES_MAX];
	struct message message;
	long count = 0;

	become("last");
	while (read(from, &message, sizeof(message)) == sizeof(message)) {
		took_ns[count++ % MESSAGES_MAX] = end_frame(message.number) - message.begin_ns;
		work(100000);
	}
	for (long nth = 0; nth < count; nth++)
		printf("%lld\n", took_ns[nth]);
	fflush(stdout);
	exit(0);
}

int main(int count, char **arguments)
{
	int one[2], other[2], failure = 0, status;

	messages = count > 1 ? atol(arguments[1]) : 100;
	why = count > 2 ? arguments[2] : "slow";
	if (!strcmp(why, "text"))
		marker = open("/sys/kernel/tracing/trace_marker", O_WRONLY);
	if (pipe(one) || pipe(other))
		return 4;
	for (int nth = 0; nth < (strcmp(why, "pool") ? 3 : 4); nth++) {
		if (fork())
			continue;
		if (nth == 2) {
			close(one[0]);
			close(one[1]);
			close(other[1]);
			last(other[0]);
		}
		close(other[0]);
		if (nth == 1 || nth == 3) {
			close(one[1]);
			middle(one[0], other[1]);
		}
		close(one[0]);
		close(other[1]);
		first(one[1]);
	}
	close(one[0]);
	close(one[1]);
	close(other[0]);
	close(other[1]);
	while (wait(&status) > 0)
		if (WIFEXITED(status) && WEXITSTATUS(status))
			failure = WEXITSTATUS(status);
	return failure;
}
