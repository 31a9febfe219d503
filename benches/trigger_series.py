#!/usr/bin/env python3
"""A series of triggers under `whylate watch`, judged by the program's own log.

    benches/trigger_series.py [--whylate target/release/whylate] [--triggers 1000] [--wakeups 5000]

Thread `control` (SCHED_FIFO 50) works each 10 ms, and for 4 ms in each tenth cycle; then it calls report(). Two more threads wake up `--wakeups`
times a second, one on each of two CPUs. Counts triggers that are lost or come twice, explanations that do not have the late activation of `control`, and
what is named first. Needs root and a C compiler.
"""
import argparse
import collections
import json
import os
import subprocess
import tempfile

PROGRAM = r"""
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>
#define PERIOD_NS 10000000ull
#define MOST 100000
static uint64_t begin_ns, at_ns[MOST], due_ns[MOST], between_ns;
static volatile int is_over;
static uint64_t now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ull + t.tv_nsec;
}
static void sleep_until(uint64_t ns)
{
	struct timespec t = { ns / 1000000000, ns % 1000000000 };
	clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, 0);
}
static void begin(const char *name, int priority, int cpu)
{
	struct sched_param high = { .sched_priority = priority };
	cpu_set_t set;
	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	prctl(PR_SET_NAME, name);
	if (sched_setaffinity(0, sizeof(set), &set) || sched_setscheduler(0, SCHED_FIFO, &high))
		exit(3);
}
__attribute__((noinline)) void burn(uint64_t ns)
{
	for (uint64_t end = now() + ns; now() < end;)
		;
}
__attribute__((noinline)) void report(long number)
{
	__asm__ volatile("" ::"r"(number) : "memory");
}
static void *fast(void *cpu)
{
	begin(cpu ? "fast1" : "fast0", 40, cpu != 0);
	for (uint64_t at = begin_ns; !is_over; at += between_ns)
		sleep_until(at);
	return 0;
}
static void *control(void *wanted)
{
	long count = (long)wanted, found = 0;
	begin("control", 50, 1);
	for (long cycle = 1; found < count; cycle++) {
		uint64_t due = begin_ns + cycle * PERIOD_NS;
		sleep_until(due);
		burn(cycle % 10 ? 100000 : 4000000);
		if (cycle % 10)
			continue;
		due_ns[found] = due;
		at_ns[found] = now();
		report(found++);
	}
	is_over = 1;
	return 0;
}
int main(int count, char **words)
{
	pthread_t threads[3];
	mlockall(MCL_CURRENT | MCL_FUTURE);
	between_ns = 1000000000ull / atol(words[2]);
	begin_ns = now() + 500000000;
	pthread_create(&threads[0], 0, fast, 0);
	pthread_create(&threads[1], 0, fast, (void *)1);
	pthread_create(&threads[2], 0, control, (void *)atol(words[1]));
	for (int nth = 0; nth < 3; nth++)
		pthread_join(threads[nth], 0);
	for (long nth = 0; nth < atol(words[1]); nth++)
		printf("at %llu %llu\n", (unsigned long long)at_ns[nth], (unsigned long long)due_ns[nth]);
	return 0;
}
"""
NEAR_NS = 1_000_000


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--whylate", default="target/release/whylate")
    arguments.add_argument("--triggers", type=int, default=1000)
    arguments.add_argument("--wakeups", type=int, default=5000)
    options = arguments.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o700)
        source, program = os.path.join(folder, "late.c"), os.path.join(folder, "late")
        with open(source, "w", encoding="ascii") as file:
            file.write(PROGRAM)
        subprocess.run(["cc", "-O1", "-g", "-pthread", "-o", program, source], check=True)
        words = [options.whylate, "watch", "-q", "--json", "-o", os.path.join(folder, "run"), "--trigger", f"{program}:report", "--"]
        words += [program, str(options.triggers), str(options.wakeups)]
        environment = dict(os.environ, WHYLATE_STATE_DIR=folder)
        said = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, check=False)
    lines = said.stdout.splitlines()
    log = [tuple(int(word) for word in line.split()[1:]) for line in lines if line.startswith("at ")]
    result = json.loads(lines[-1])
    trigger = result["cells"][0]["probes"][0]["triggers"][0]
    moments = sorted(trigger["moments"], key=lambda it: it["at_ns"])
    print(f"log {len(log)}, counted {trigger['count']}, explained {len(moments)}, shared {trigger.get('shared')}, without an explanation {trigger.get('unexplained')}")
    if not log or not moments:
        raise SystemExit(said.stderr)
    # The moments are on the time axis of the run, the log is on that of the kernel: the first moment joins them.
    offset = moments[0]["at_ns"] - log[0][0]
    near = collections.Counter()
    first, has_late = collections.Counter(), 0
    for moment in moments:
        nth = min(range(len(log)), key=lambda nth: abs(log[nth][0] + offset - moment["at_ns"]))
        if abs(log[nth][0] + offset - moment["at_ns"]) <= NEAR_NS:
            near[nth] += 1
        due_ns = log[nth][1] + offset
        late = [it for it in moment["threads"] if it["thread"].startswith("control") and abs(it["due_ns"] - due_ns) <= NEAR_NS]
        has_late += bool(late)
        thread = moment["threads"][0] if moment["threads"] else None
        cause = thread["causes"][0] if thread and thread["causes"] else {}
        first[f"{thread and thread['thread']}: {cause.get('kind')} {cause.get('function', '')}"] += 1
    twice = sum(count > 1 for count in near.values())
    print(f"moments at the log's within 1 ms: {len(near)} of {len(log)}, twice: {twice}; with the late activation of control: {has_late} of {len(moments)}")
    for text, count in first.most_common():
        print(f"  {count} × {text}")


if __name__ == "__main__":
    main()
