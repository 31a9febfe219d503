/* A periodic real-time thread that says when it was late. Arguments: how many cycles of 5 ms, and why some are late: `thief`
 * (a thread of higher priority takes 4 ms each 200 ms), `own` (it works for 4 ms itself), `storm` (it says so a thousand
 * times at once), or `never`. The last lines on standard error are how many steps took more than 2 ms, and how often it
 * said that it was late. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#define PERIOD_NS 5000000LL
#define CYCLES_PER_THEFT 40

static long cycles, said, slow_steps;
static const char *why;
static long long begin_ns;
static int marker;

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

static void work(long long ns)
{
	for (long long end_ns = now() + ns; now() < end_ns;)
		;
}

__attribute__((noinline)) void step(long long ns)
{
	work(ns);
}

/* A function with a result, and in it a static tracepoint as <sys/sdt.h> makes it. */
__attribute__((noinline)) int report(long long late_ns)
{
#ifdef __x86_64__
	__asm__ volatile("990: nop\n"
			 ".pushsection .note.stapsdt,\"?\",\"note\"\n"
			 ".balign 4\n.4byte 992f-991f, 994f-993f, 3\n"
			 "991: .asciz \"stapsdt\"\n992: .balign 4\n"
			 "993: .8byte 990b\n.8byte _.stapsdt.base\n.8byte 0\n"
			 ".asciz \"app\"\n.asciz \"late\"\n.asciz \"-8@%0\"\n994: .balign 4\n.popsection\n"
			 ".ifndef _.stapsdt.base\n"
			 ".pushsection .stapsdt.base,\"aG\",\"progbits\",.stapsdt.base,comdat\n"
			 ".weak _.stapsdt.base\n.hidden _.stapsdt.base\n_.stapsdt.base: .space 1\n"
			 ".size _.stapsdt.base, 1\n.popsection\n.endif\n"
			 :
			 : "r"(late_ns));
#endif
	return late_ns > 2500000 ? -1 : 0;
}

static void *steal(void *unused)
{
	prctl(PR_SET_NAME, "thief");
	for (long nth = 1; nth * CYCLES_PER_THEFT < cycles; nth++) {
		wait_until(begin_ns + nth * CYCLES_PER_THEFT * PERIOD_NS - 500000);
		work(4000000);
	}
	return unused;
}

static void *control(void *unused)
{
	prctl(PR_SET_NAME, "control");
	for (long cycle = 1; cycle <= cycles; cycle++) {
		long long due_ns = begin_ns + cycle * PERIOD_NS;

		wait_until(due_ns);
		long long from_ns = now();
		step(!strcmp(why, "own") && cycle % CYCLES_PER_THEFT == 0 ? 4000000 : 200000);
		slow_steps += now() - from_ns > 2000000;
		for (int times = !strcmp(why, "storm") && cycle == cycles / 2 ? 1000 : 0; times > 0; times--)
			said++, printf("late, %d to come\n", times);
		long long late_ns = now() - due_ns;
		if (!strcmp(why, "own") || !strcmp(why, "thief"))
			if (report(late_ns) < 0) {
				said++, printf("late by %lld ns at %lld\n", late_ns, due_ns);
				if (marker >= 0 && write(marker, "late: control", 13) < 0)
					marker = -1;
			}
		fflush(stdout);
	}
	return unused;
}

static void start(pthread_t *thread, void *(*run)(void *), int priority, int cpu)
{
	struct sched_param param = { .sched_priority = priority };
	pthread_attr_t attributes;
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	pthread_attr_init(&attributes);
	pthread_attr_setinheritsched(&attributes, PTHREAD_EXPLICIT_SCHED);
	pthread_attr_setschedpolicy(&attributes, SCHED_FIFO);
	pthread_attr_setschedparam(&attributes, &param);
	pthread_attr_setaffinity_np(&attributes, sizeof(set), &set);
	if (pthread_create(thread, &attributes, run, 0))
		exit(3);
}

int main(int count, char **words)
{
	pthread_t worker, thief;
	cpu_set_t allowed;
	int cpu = 0;

	if (count < 3)
		return 4;
	cycles = atol(words[1]), why = words[2];
	sched_getaffinity(0, sizeof(allowed), &allowed);
	for (int one = 0; one < CPU_SETSIZE; one++)
		if (CPU_ISSET(one, &allowed))
			cpu = one;
	marker = open("/sys/kernel/tracing/trace_marker", O_WRONLY);
	mlockall(MCL_CURRENT | MCL_FUTURE);
	begin_ns = now() + 20000000;
	if (!strcmp(why, "thief"))
		start(&thief, steal, 30, cpu);
	start(&worker, control, 20, cpu);
	pthread_join(worker, 0);
	fprintf(stderr, "steps of more than 2 ms: %ld\n%ld\n", slow_steps, said);
	return 0;
}
