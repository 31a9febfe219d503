#!/usr/bin/env python3
"""Compares write-back copies, reads and writes with glibc's memcpy, tinymembench, mbw, likwid-bench and stress-ng, in alternating rounds.

  benches/copy_peers.py --ours RATES [--tinymembench PATH] [--cpu N] [--rounds N]

RATES is crates/copy/examples/rates.rs, built with `cargo build --release -p whylate-copy --example rates`; it measures glibc's memcpy
itself, in trials that take turns with ours. Rates are bytes copied, read or written per second: likwid-bench's and stress-ng's count what is
read and written, and are halved for copies. tinymembench's buffers have 32 MiB; it is
ended before it measures latencies. Prints a Markdown table:
for each kind and block the best of ours, the best of the peers that support this block, and the ratio of round medians.
"""
import argparse
import os
import re
import shutil
import statistics
import subprocess
import sys

COPIES = [256, 512, 1024, 2048, 4096, 8192, 16384, 65536, 1 << 20, 3110400, 64 << 20]
TINYMEMBENCH = 32 << 20
TRAFFIC = [16384, 131072, 524288, 64 << 20]
LIKWID = {
    "copy": ([4096, 16384, 1 << 20, 64 << 20], ["copy_avx", "copy_avx512", "copy_mem_avx512"]),
    "read": (TRAFFIC, ["load_avx", "load_avx512"]),
    "write": (TRAFFIC, ["store_avx", "store_avx512"]),
    "write-nt": (TRAFFIC[-1:], ["store_mem_sse", "store_mem_avx", "store_mem_avx512"]),
}
FLUSHING = ("clflush", "clwb")


def run(cpu, *words, ahead=("chrt", "-f", "1"), limit=None):
    # Ahead of ordinary tasks, so that a busy machine changes the caches only. A program that it starts must not wait for
    # another process on this CPU, as stress-ng does: that would never run.
    child = subprocess.Popen(["taskset", "-c", str(cpu), *ahead, *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        return child.communicate(timeout=limit)[0]
    except subprocess.TimeoutExpired:
        child.kill()
        return child.communicate()[0]


def lines(text):
    for line in text.splitlines():
        words = line.split()
        if len(words) == 3 and words[1].isdigit():
            yield words[0], int(words[1]), float(words[2])


def ours(cpu, path):
    for name, block, rate in lines(run(cpu, path, *sorted({*COPIES, *TRAFFIC, TINYMEMBENCH}))):
        kind, _, way = name.partition("/")
        if name == "libc":
            yield False, "copy", block, "glibc memcpy", rate
        elif way:
            yield True, kind, block, way, rate
        elif not name.startswith(FLUSHING):
            yield True, "copy", block, name, rate


def mbw(cpu):
    text = run(cpu, "mbw", "-q", "-n", 5, 64)
    # The third way, mcblock, reads one block again and again: not what a copy of 64 MiB is.
    for kind, rate in zip(["memcpy", "loop"], re.findall(r"AVG.*Copy: ([\d.]+) MiB/s", text)):
        yield "copy", 64 << 20, f"mbw {kind}", float(rate) * 1048576 / 1e9


def likwid(cpu):
    for kind, (blocks, tests) in LIKWID.items():
        for block in blocks:
            for test in tests:
                # Source and destination are two streams.
                streams = 2 if kind == "copy" else 1
                # 20 GB each; without a number of turns it looks for one that takes a second.
                words = ["-t", test, "-i", 20 * 10**9 // block, "-w", f"N:{max(1, streams * block // 1000)}kB:1"]
                text = run(cpu, "likwid-bench", *words)
                found = re.search(r"MByte/s:\s*([\d.]+)", text)
                if found:
                    yield kind, block, f"likwid {test}", float(found.group(1)) / 1e3 / streams


def tinymembench(cpu, path):
    for name, rate in re.findall(r"^ (.*?)\s*:\s+([\d.]+) MB/s", run(cpu, "stdbuf", "-oL", path, limit=70), re.M):
        if "->" in name or "2-pass" in name or "backwards" in name:
            continue
        kind = ("write-nt" if "nontemporal" in name else "write") if "fill" in name or "memset" in name else "copy"
        yield kind, TINYMEMBENCH, f"tinymembench {name.strip()}", float(rate) / 1e3


def stress(cpu):
    ahead = ("nice", "-n", "-20")
    text = run(cpu, "stress-ng", "--stream", 1, "--stream-l3-size", "16m", "-t", 6, ahead=ahead)
    rates = re.findall(r"memory rate: ([\d.]+) MB read/sec, ([\d.]+) MB write/sec", text)
    if rates:
        # Two reads for a write: the least of the two is what one copy would be.
        yield "copy", 64 << 20, "stress-ng stream", min(map(float, rates[0])) * 1048576 / 1e9
    for block in TRAFFIC[-2:]:
        words = ["stress-ng", "--memrate", 1, "--memrate-bytes", f"{block // 1024}k", "-t", 3, "--metrics"]
        text = run(cpu, *words, ahead=ahead)
        for rate, name in re.findall(r"([\d.]+) (\S+) MB per sec", text):
            kind = "read" if name.startswith("read") else "write-nt" if name.endswith("nt") else "write"
            yield kind, block, f"stress-ng {name}", float(rate) * 1048576 / 1e9


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--ours", required=True)
    arguments.add_argument("--tinymembench")
    arguments.add_argument("--cpu", type=int, default=os.cpu_count() - 1)
    arguments.add_argument("--rounds", type=int, default=3)
    asked = arguments.parse_args()
    rates = {}
    for _ in range(asked.rounds):
        print(f"load average {os.getloadavg()[0]:.1f}", file=sys.stderr)
        peers = [stress(asked.cpu)]
        if shutil.which("mbw"):
            peers.append(mbw(asked.cpu))
        if shutil.which("likwid-bench"):
            peers.append(likwid(asked.cpu))
        if asked.tinymembench:
            peers.append(tinymembench(asked.cpu, asked.tinymembench))
        for is_ours, kind, block, name, rate in ours(asked.cpu, asked.ours):
            rates.setdefault((kind, block), {}).setdefault((is_ours, name), []).append(rate)
        for kind, block, name, rate in (row for peer in peers for row in peer):
            rates.setdefault((kind, block), {}).setdefault((False, name), []).append(rate)
    print("| kind | block | ours, best | GB/s | peer, best | GB/s | ratio |\n|---|---|---|---|---|---|---|")
    for (kind, block), of_names in sorted(rates.items()):
        best = {}
        for (is_ours, name), measured in of_names.items():
            best[is_ours] = max(best.get(is_ours, (0, "")), (statistics.median(measured), name))
        if len(best) == 2:
            mine, other = best[True], best[False]
            print(f"| {kind} | {block} | {mine[1]} | {mine[0]:.2f} | {other[1]} | {other[0]:.2f} | {mine[0] / other[0]:.2f} |")


if __name__ == "__main__":
    main()
