#!/usr/bin/env python3
"""What `whylate watch` costs a thread's own work: system calls with an audit, and late activations that are sampled.

    benches/own_cost.py [WHYLATE] [ROUNDS]

Three programs, each of which times itself:

- calls: a SCHED_FIFO thread makes 200,000 short system calls (getppid) in an activation, 10 activations.
- others: the same, while another program is watched.
- late: a SCHED_FIFO thread works 5 ms in each period of 20 ms, a fixed number of steps, without system calls. Each tenth activation is four times
  as long, so that it is sampled.

The variants (nothing, watch, watch --audit; for `late` also perf record) take turns. Prints the median over the rounds, and the range, of what each variant
adds: ns for each system call, or per cent of the work. Needs root and a C compiler; perf if it is installed.
"""
import os
import shutil
import statistics
import subprocess
import sys
import tempfile

PROGRAM = r"""
#define _GNU_SOURCE
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#define CALLS 200000
#define STEPS 4000000ull
static volatile uint64_t value;
static uint64_t now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ull + t.tv_nsec;
}
static int order(const void *a, const void *b)
{
	uint64_t x = *(uint64_t *)a, y = *(uint64_t *)b;
	return (x > y) - (x < y);
}
__attribute__((noinline)) static void work(uint64_t steps)
{
	uint64_t one = value;
	while (steps--)
		one = one * 2862933555777941757ull + 3;
	value = one;
}
int main(int count, char **words)
{
	static uint64_t took[1000];
	struct sched_param high = { .sched_priority = 50 };
	int is_late = !strcmp(words[1], "late"), cycles = is_late ? 150 : 10, found = 0;
	cpu_set_t set;
	CPU_ZERO(&set);
	CPU_SET(1, &set);
	sched_setaffinity(0, sizeof(set), &set);
	sched_setscheduler(0, SCHED_FIFO, &high);
	prctl(PR_SET_NAME, words[2]);
	mlockall(MCL_CURRENT | MCL_FUTURE);
	sleep(2);
	for (int cycle = 0; cycle < cycles; cycle++) {
		int is_long = is_late && cycle % 10 == 9 && cycle > 100;
		usleep(is_late ? 15000 : 100000);
		uint64_t from = now();
		if (is_late)
			work(is_long ? STEPS * 4 : STEPS);
		else
			for (int call = 0; call < CALLS; call++)
				syscall(SYS_getppid);
		if (!is_late || is_long)
			took[found++] = now() - from;
	}
	qsort(took, found, 8, order);
	printf("took %llu\n", (unsigned long long)took[found / 4]);
	return 0;
}
"""
CALLS = 200_000


def took(process):
    for line in process.communicate()[0].splitlines():
        if line.startswith("took "):
            return int(line.split()[1])
    raise SystemExit("own_cost: the program printed no time")


def main():
    whylate = sys.argv[1] if len(sys.argv) > 1 else "target/release/whylate"
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 7
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o700)
        source, program = os.path.join(folder, "own.c"), os.path.join(folder, "own")
        with open(source, "w", encoding="ascii") as file:
            file.write(PROGRAM)
        subprocess.run(["cc", "-O1", "-o", program, source], check=True)
        environment = dict(os.environ, WHYLATE_STATE_DIR=folder)
        runs = iter(range(10_000))

        def start(words):
            return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment)

        def watch(*flags):
            output = os.path.join(folder, f"run{next(runs)}")
            return [whylate, "watch", "-q", "-o", output, *flags]

        def of_itself(what, *flags):
            return lambda: took(start([*watch(*flags), "--", program, what, "control"]))

        def beside(what, *flags):
            def measured():
                watching = start([*watch(*flags), "--task", "other", "-D", "60s"])
                other = start([program, "late", "other"])
                try:
                    return took(start([program, what, "control"]))
                finally:
                    other.kill()
                    watching.send_signal(2)
                    watching.wait()
                    other.wait()
            return measured

        def beside_nothing(what):
            def measured():
                other = start([program, "late", "other"])
                try:
                    return took(start([program, what, "control"]))
                finally:
                    other.kill()
                    other.wait()
            return measured

        def alone(what):
            return lambda: took(start([program, what, "control"]))

        perf = os.path.join(folder, "perf.data")
        series = {
            "calls": {"nothing": alone("calls"), "watch": of_itself("calls"), "watch --audit": of_itself("calls", "--audit")},
            "others": {"nothing": beside_nothing("calls"), "watch": beside("calls"), "watch --audit": beside("calls", "--audit")},
            "late": {"nothing": alone("late"), "watch": of_itself("late")},
        }
        if shutil.which("perf"):
            record = ["perf", "record", "-q", "-g", "-F", "1000", "-e", "cpu-clock", "-o", perf, "--", program, "late", "control"]
            series["late"]["perf record -g"] = lambda: took(start(record))
        for name, variants in series.items():
            times = {variant: [] for variant in variants}
            for _ in range(rounds):
                for variant, measured in variants.items():
                    times[variant].append(measured())
            base = times.pop("nothing")
            print(f"{name}: nothing takes {statistics.median(base) / 1e3:.1f} us ({min(base) / 1e3:.1f} to {max(base) / 1e3:.1f})")
            for variant, all_of in times.items():
                if name == "late":
                    added, unit = [(one / before - 1) * 100 for one, before in zip(all_of, base)], "%"
                else:
                    added, unit = [(one - before) / CALLS for one, before in zip(all_of, base)], "ns a call"
                print(f"  {variant}: {statistics.median(added):+.2f} {unit} ({min(added):+.2f} to {max(added):+.2f})", flush=True)


if __name__ == "__main__":
    main()
