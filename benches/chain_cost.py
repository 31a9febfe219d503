#!/usr/bin/env python3
"""What a pass of a chain's mark costs the thread, beside an empty probe of bpftrace and of perf at the same function.

    benches/chain_cost.py [WHYLATE] [ROUNDS]

A program calls two functions every 200 us and measures each call. The variants take turns. For each variant, the script prints
the time of a call above that without a probe: the median over the rounds of the median of 5000 calls, and its range. First, it prints the mean
time in whylate's own BPF programs of these functions. Needs root, a C compiler, bpftrace and perf.
"""
import ctypes
import os
import re
import statistics
import struct
import subprocess
import sys
import tempfile
import time

PROGRAM = r"""
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>
#define CALLS 5000
static long long begin_ns[CALLS], end_ns[CALLS];
static long long now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}
__attribute__((noinline)) void frame_in(long number) { __asm__ volatile("" ::"r"(number) : "memory"); }
__attribute__((noinline)) void frame_out(long number) { __asm__ volatile("" ::"r"(number) : "memory"); }
static int order(const void *a, const void *b)
{
	long long x = *(long long *)a, y = *(long long *)b;
	return (x > y) - (x < y);
}
int main(int count, char **words)
{
	struct sched_param high = { .sched_priority = 50 };
	sched_setscheduler(0, SCHED_FIFO, &high);
	prctl(PR_SET_NAME, "passes");
	mlockall(MCL_CURRENT | MCL_FUTURE);
	sleep(count > 1 ? atoi(words[1]) : 0);
	for (long i = 0; i < CALLS; i++) {
		usleep(200);
		long long a = now();
		frame_in(i);
		long long b = now();
		frame_out(i);
		long long c = now();
		begin_ns[i] = b - a;
		end_ns[i] = c - b;
	}
	qsort(begin_ns, CALLS, 8, order);
	qsort(end_ns, CALLS, 8, order);
	printf("%lld %lld %lld\n", begin_ns[CALLS / 2], end_ns[CALLS / 2], begin_ns[CALLS * 9 / 10]);
	return 0;
}
"""


BPF = {"x86_64": 321, "aarch64": 280}
UPROBE = 2
STATS = "/proc/sys/kernel/bpf_stats_enabled"
libc = ctypes.CDLL(None, use_errno=True)


def bpf(command, attributes):
    buffer = ctypes.create_string_buffer(attributes, 128)
    return libc.syscall(BPF[os.uname().machine], command, buffer, 128), buffer.raw


def programs():
    """Number, name, runs and their time of each BPF program of a uprobe."""
    found, last = {}, 0
    while True:
        failed, answer = bpf(11, struct.pack("II", last, 0))
        if failed:
            return found
        last = struct.unpack_from("I", answer, 4)[0]
        handle, _ = bpf(13, struct.pack("III", last, 0, 0))
        if handle < 0:
            continue
        info = ctypes.create_string_buffer(256)
        bpf(15, struct.pack("IIQ", handle, 208, ctypes.addressof(info)))
        os.close(handle)
        if struct.unpack_from("I", info.raw, 0)[0] == UPROBE:
            time_ns, runs = struct.unpack_from("QQ", info.raw, 192)
            found[last] = (info.raw[64:80].rstrip(b"\0").decode(), runs, time_ns)


def run(command, **more):
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False, **more).stdout


def numbers(text):
    found = re.search(r"^(\d+) (\d+) (\d+)$", text, re.M)
    return [int(one) for one in found.groups()] if found else None


def main():
    whylate = sys.argv[1] if len(sys.argv) > 1 else "target/release/whylate"
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 5
    with tempfile.TemporaryDirectory() as folder:
        source, program = os.path.join(folder, "passes.c"), os.path.join(folder, "passes")
        with open(source, "w", encoding="ascii") as file:
            file.write(PROGRAM)
        subprocess.run(["cc", "-O1", "-o", program, source], check=True)
        state = dict(os.environ, WHYLATE_STATE_DIR=folder)

        def watched(nth, *flags):
            output = os.path.join(folder, f"run{nth}{len(flags)}")
            words = [whylate, "watch", "-q", "--json", "-o", output, *flags, "--", program, "0"]
            return numbers(run(words, env=state))

        def bpftrace():
            probes = f"uprobe:{program}:frame_in {{ @a = count(); }} uprobe:{program}:frame_out {{ @b = count(); }}"
            with subprocess.Popen(["bpftrace", "-q", "-e", probes], stdout=subprocess.DEVNULL) as tracer:
                time.sleep(3)
                found = numbers(run([program, "0"]))
                tracer.terminate()
            return found

        def perf():
            run(["perf", "probe", "-q", "-x", program, "-a", "frame_in", "-a", "frame_out"])
            events = "probe_passes:frame_in,probe_passes:frame_out"
            found = numbers(run(["perf", "stat", "-a", "-e", events, program, "0"]))
            run(["perf", "probe", "-q", "-d", "probe_passes:*"])
            return found

        def in_programs(words):
            """The mean time of a run of each program of a uprobe, while this command runs."""
            with open(STATS, "w", encoding="ascii") as file:
                file.write("1")
            before, after = set(programs()), {}
            with subprocess.Popen(words, env=state, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as child:
                while child.poll() is None:
                    after.update(programs())
                    time.sleep(0.05)
            with open(STATS, "w", encoding="ascii") as file:
                file.write("0")
            for name, runs, time_ns in (it for number, it in after.items() if number not in before):
                if runs:
                    print(f"BPF program {name}: {time_ns / runs:.0f} ns on average in {runs} runs")

        chain = ["--chain", "frame", "--begin", f"{program}:frame_in:arg1", "--end", f"{program}:frame_out:arg1"]
        variants = {
            "no probe": lambda nth: numbers(run([program, "0"])),
            "watch without a chain": lambda nth: watched(nth),
            "watch with a chain": lambda nth: watched(nth, *chain),
            "bpftrace count()": lambda nth: bpftrace(),
            "perf stat": lambda nth: perf(),
        }
        in_programs([whylate, "watch", "-q", "--json", "-o", os.path.join(folder, "stats"), *chain, "--", program, "0"])
        found = {name: [] for name in variants}
        for nth in range(rounds):
            for name, variant in variants.items():
                took = variant(nth)
                if took:
                    found[name].append(took)
        none = statistics.median(one[0] for one in found["no probe"])
        for name, all_of in found.items():
            if not all_of:
                print(f"{name}: not measured")
                continue
            begins, ends = [one[0] - none for one in all_of], [one[1] - none for one in all_of]
            print(
                f"{name}: begin {statistics.median(begins):.0f} ns ({min(begins):.0f} to {max(begins):.0f}), "
                f"end {statistics.median(ends):.0f} ns ({min(ends):.0f} to {max(ends):.0f})"
            )


if __name__ == "__main__":
    main()
