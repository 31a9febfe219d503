#!/usr/bin/env python3
"""Plants causes of lateness on this machine, and prints by which kinds `whylate measure --causes` names them.

    benches/causes.py WHYLATE [SECONDS [PLANT...]]

Root, two CPUs, x86. The script logs what it plants on the last CPU, with its time. A spike counts as planted if at least half of it
lies in a plant; others are the machine's own and left out. Prints rows of Markdown.
"""

import collections
import ctypes
import json
import multiprocessing
import os
import socket
import struct
import subprocess
import sys
import time

LAST = max(os.sched_getaffinity(0))
OTHERS = os.sched_getaffinity(0) - {LAST}
GROUP, PORT, SOCKETS = "239.255.77.1", 47771, 700


def thread(seconds, queue):
    """A SCHED_FIFO 99 thread, 3 ms every 53 ms."""
    os.sched_setaffinity(0, {LAST})
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(99))
    planted, end = [], time.monotonic_ns() + seconds * 10**9
    while time.monotonic_ns() < end:
        time.sleep(0.05)
        begin = time.monotonic_ns()
        while time.monotonic_ns() < begin + 3_000_000:
            pass
        planted.append((begin, time.monotonic_ns()))
    queue.put(planted)


def softirq(seconds, queue):
    """A packet on the loopback device for many sockets: one softirq delivers it to all."""
    os.sched_setaffinity(0, {LAST})
    sockets = []
    for _ in range(SOCKETS):
        one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
        one.bind((GROUP, PORT))
        member = socket.inet_aton(GROUP) + socket.inet_aton("127.0.0.1")
        one.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, member)
        sockets.append(one)
    sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton("127.0.0.1"))
    planted, end = [], time.monotonic_ns() + seconds * 10**9
    while time.monotonic_ns() < end:
        time.sleep(0.003)
        begin = time.monotonic_ns()
        sender.sendto(b"x", (GROUP, PORT))
        planted.append((begin, time.monotonic_ns()))
    queue.put(planted)


def ipi(seconds, queue):
    """Reads a performance counter of the CPU from another one: an interrupt that runs a function there."""
    os.sched_setaffinity(0, OTHERS)
    # perf_event_attr: PERF_TYPE_SOFTWARE would be read without an interrupt; msr/tsc is a counter of the CPU.
    with open("/sys/bus/event_source/devices/msr/type") as kind:
        attributes = bytearray(64)
        struct.pack_into("IIQ", attributes, 0, int(kind.read()), 64, 0)
    syscall = ctypes.CDLL(None, use_errno=True).syscall
    buffer = (ctypes.c_char * 64).from_buffer(attributes)
    counter = syscall(298, buffer, -1, LAST, -1, 0)
    assert counter >= 0, os.strerror(ctypes.get_errno())
    planted, end = [], time.monotonic_ns() + seconds * 10**9
    while time.monotonic_ns() < end:
        time.sleep(0.005)
        begin = time.monotonic_ns()
        os.read(counter, 8)
        planted.append((begin, time.monotonic_ns()))
    queue.put(undisturbed(planted))


def undisturbed(planted):
    """Calls that did not wait for other work of the CPU: none that took 1.5 times as long as usual."""
    lengths = sorted(end - begin for begin, end in planted)
    usual = lengths[len(lengths) // 2]
    return [(begin, end) for begin, end in planted if end - begin <= usual * 1.5]


def throttling(_seconds, queue):
    """The probe's loop never sleeps. The kernel does not report when it throttles: its gaps are recognised by their length."""
    queue.put(None)


PLANTS = {
    "thread": (thread, "thread", ["timer"]),
    "softirq": (softirq, "softirq", ["timer"]),
    "ipi": (ipi, "ipi", ["stall", "--threshold", "1us"]),
    "throttling": (throttling, "throttled", ["stall", "--threshold", "1ms"]),
}


def is_planted(spike, planted):
    begin, end = spike["at_ns"] - spike["latency_ns"], spike["at_ns"]
    if planted is None:
        return 30_000_000 <= spike["latency_ns"] <= 80_000_000
    inside = sum(max(0, min(end, to) - max(begin, start)) for start, to in planted)
    return inside * 2 >= spike["latency_ns"]


def row(whylate, seconds, name):
    plant, kind, probe = PLANTS[name]
    queue = multiprocessing.Queue()
    planter = multiprocessing.Process(target=plant, args=(seconds + 2, queue))
    planter.start()
    time.sleep(1)
    command = [whylate, "measure", *probe, "--cpu", str(LAST), "--duration", f"{seconds}s"]
    # Hardly any call of a function is among the largest gaps; the smaller ones of late timers have no stack.
    command += ["--spikes", "50000" if probe[0] == "stall" else "2000", "--causes", "--json"]
    result = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    planted = queue.get(timeout=seconds + 30)
    planter.join()
    # If there are very many spikes, the smaller ones are not explained, and have no share.
    explained = [spike for spike in result["spikes"] if "share" in spike["cause"]]
    own = [spike for spike in explained if is_planted(spike, planted)]
    named = collections.Counter(spike["cause"]["kind"] for spike in own)
    sure = sum(spike["cause"]["kind"] != kind and spike["cause"].get("confidence") == 1 for spike in own)
    kinds = ", ".join(f"`{one}` {count}" for one, count in named.most_common())
    share = 100 * named[kind] / max(1, len(own))
    print(f"| {name} ({probe[0]}) | `{kind}` | {len(own)} | {kinds} | {share:.1f} % | {sure} |", flush=True)


def main():
    whylate = sys.argv[1]
    seconds = int(sys.argv[2]) if len(sys.argv) > 2 else 10
    print("| planted | to be named | spikes | named first as | right | wrong with full confidence |")
    print("|---|---|--:|---|--:|--:|")
    for name in sys.argv[3:] or PLANTS:
        row(whylate, seconds, name)


if __name__ == "__main__":
    main()
