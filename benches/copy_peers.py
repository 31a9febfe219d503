#!/usr/bin/env python3
"""Compares write-back copies with glibc's memcpy, tinymembench, mbw, likwid-bench and stress-ng, in alternating rounds.

  benches/copy_peers.py --ours RATES [--tinymembench PATH] [--cpu N] [--rounds N]

RATES is crates/copy/examples/rates.rs, built with `cargo build --release -p whylate-copy --example rates`; it measures glibc's memcpy
itself, in trials that take turns with ours. Rates are bytes copied per second: likwid-bench's and stress-ng's count what is read and written, and are halved where they copy. Prints a Markdown table:
for each block the best of ours, the best of the peers that can have this block, and the ratio of round medians.
"""
import argparse
import os
import re
import shutil
import statistics
import subprocess
import sys

BLOCKS = [256, 512, 1024, 2048, 4096, 8192, 16384, 65536, 1 << 20, 3110400, 64 << 20]
LIKWID_BLOCKS = [4096, 16384, 1 << 20, 64 << 20]
FLUSHING = ("clflush", "clwb")


def run(cpu, *words):
    # Ahead of ordinary tasks, so that a busy machine changes the caches only.
    done = subprocess.run(["taskset", "-c", str(cpu), "chrt", "-f", "1", *map(str, words)], capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def lines(text):
    for line in text.splitlines():
        words = line.split()
        if len(words) == 3 and words[1].isdigit():
            yield words[0], int(words[1]), float(words[2])


def mbw(cpu, mib):
    text = run(cpu, "mbw", "-q", "-n", 5, mib)
    return [float(rate) * 1048576 / 1e9 for rate in re.findall(r"AVG.*Copy: ([\d.]+) MiB/s", text)]


def likwid(cpu, kind, bytes_each):
    # Two streams: source and destination. The block has to be a multiple of what a turn copies.
    kilobytes = max(1, 2 * bytes_each // 1000)
    text = run(cpu, "likwid-bench", "-t", kind, "-w", f"N:{kilobytes}kB:1")
    found = re.search(r"MByte/s:\s*([\d.]+)", text)
    return float(found.group(1)) / 1e3 / 2 if found else None


def tinymembench(cpu, path):
    text = run(cpu, path)
    return {name.strip(): float(rate) / 1e3 for name, rate in re.findall(r"^ (.*?)\s*:\s+([\d.]+) MB/s", text, re.M)}


def stress_stream(cpu):
    text = run(cpu, "stress-ng", "--stream", 1, "--stream-l3-size", "16m", "-t", 6)
    rates = re.findall(r"memory rate: ([\d.]+) MB read/sec, ([\d.]+) MB write/sec", text)
    # Two reads for a write: the least of the two is what one copy would be.
    return min(map(float, rates[0])) * 1048576 / 1e9 if rates else None


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--ours", required=True)
    arguments.add_argument("--tinymembench")
    arguments.add_argument("--cpu", type=int, default=os.cpu_count() - 1)
    arguments.add_argument("--rounds", type=int, default=3)
    asked = arguments.parse_args()
    ours, theirs = {}, {}
    for _ in range(asked.rounds):
        print(f"load average {os.getloadavg()[0]:.1f}", file=sys.stderr)
        for name, block, rate in lines(run(asked.cpu, asked.ours, *BLOCKS)):
            if name == "libc":
                theirs.setdefault((block, "glibc memcpy"), []).append(rate)
            elif not name.startswith(FLUSHING):
                ours.setdefault((block, name), []).append(rate)
        if shutil.which("mbw"):
            for kind, rate in zip(["memcpy", "loop", "mcblock"], mbw(asked.cpu, 64)):
                if kind != "mcblock":
                    theirs.setdefault((64 << 20, f"mbw {kind}"), []).append(rate)
        if shutil.which("likwid-bench"):
            for block in LIKWID_BLOCKS:
                for kind in ["copy_avx", "copy_avx512", "copy_mem_avx512"]:
                    rate = likwid(asked.cpu, kind, block)
                    if rate:
                        theirs.setdefault((block, f"likwid {kind}"), []).append(rate)
        if asked.tinymembench:
            for name, rate in tinymembench(asked.cpu, asked.tinymembench).items():
                if "copy" in name and "prefetch" not in name or "memcpy" in name:
                    theirs.setdefault((64 << 20, f"tinymembench {name}"), []).append(rate)
        rate = stress_stream(asked.cpu)
        if rate:
            theirs.setdefault((64 << 20, "stress-ng stream"), []).append(rate)
    print("| block | ours, best | GB/s | peer, best | GB/s | ratio |\n|---|---|---|---|---|---|")
    for block in BLOCKS:
        best = lambda all_of: max(((statistics.median(rates), name) for (size, name), rates in all_of.items() if size == block),
                                  default=None)
        mine, other = best(ours), best(theirs)
        if mine and other:
            print(f"| {block} | {mine[1]} | {mine[0]:.2f} | {other[1]} | {other[0]:.2f} | {mine[0] / other[0]:.2f} |")


if __name__ == "__main__":
    main()
