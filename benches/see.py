#!/usr/bin/env python3
"""How fast runs are shown: the report of one run, and the list of a folder of 1,000 for 100 readers at once.

Usage: benches/see.py WHYLATE LARGE_RUN SMALL_RUN

LARGE_RUN is a run directory (`cargo run --example simulate_day -p whylate-store -- 64 24 0.75 DIR` makes one of a day with 64 CPUs and
10,000 spikes); SMALL_RUN is copied 1,000 times.
"""

import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor

whylate, large, small = sys.argv[1:]
folder = pathlib.Path(tempfile.mkdtemp())


def milliseconds(work):
    begin = time.perf_counter()
    work()
    return (time.perf_counter() - begin) * 1000


def show(what, all):
    print(f"{what}: least {min(all):.0f} ms, median {statistics.median(all):.0f} ms, most {max(all):.0f} ms ({len(all)} times)", flush=True)


def report(nth):
    subprocess.run([whylate, "report", large, "-o", folder / f"{nth}.html"], check=True, capture_output=True)


show("report of the large run", [milliseconds(lambda: report(nth)) for nth in range(5)])
print(f"  {(folder / '0.html').stat().st_size / 1e6:.2f} MB")
runs = folder / "runs"
for nth in range(1000):
    shutil.copytree(small, runs / f"run-{nth:04}")
server = subprocess.Popen([whylate, "serve", "--dir", runs, "--address", "127.0.0.1:0"], stderr=subprocess.PIPE, text=True)
try:
    address = server.stderr.readline().split("shown at ")[1].split()[0]
    get = lambda path="": urllib.request.urlopen(address + path, timeout=60).read()
    show("list of 1,000 runs, the first time", [milliseconds(get)])
    again = []
    for _ in range(20):
        # The list is read again when it is older than half a second.
        time.sleep(0.6)
        again.append(milliseconds(get))
    show("list of 1,000 runs, read again", again)
    show("search in it", [milliseconds(lambda: get("?q=kernel%3E%3D5")) for _ in range(20)])
    with ThreadPoolExecutor(100) as readers:
        everyone = milliseconds(lambda: list(readers.map(lambda _: get(), range(100))))
        print(f"100 readers of the list at once: all served in {everyone:.0f} ms")
        each = list(readers.map(lambda nth: milliseconds(lambda: get(f"runs/run-{nth % 10:04}")), range(100)))
        show("100 readers of 10 reports at once, each", each)
    status = pathlib.Path(f"/proc/{server.pid}/status").read_text()
    print("memory of the server:", next(line for line in status.splitlines() if line.startswith("VmHWM")).split(":")[1].strip())
finally:
    server.terminate()
    shutil.rmtree(folder)
