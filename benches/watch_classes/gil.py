"""A thread `control` that works each 10 ms; in some cycles `hog` keeps the interpreter's lock in one long call. See classes.c for what it prints."""
import ctypes
import os
import sys
import threading
import time

PR_SET_NAME = 15
PERIOD_NS = 10_000_000
cycles = int(sys.argv[2])
prctl = ctypes.CDLL(None).prctl
took = []
over = threading.Event()
numbers = list(range(600_000))


def hog():
    prctl(PR_SET_NAME, b"hog", 0, 0, 0)
    while not over.wait(0.1):
        numbers.sort(reverse=True)
        sum(numbers)
        numbers.sort()


def control():
    prctl(PR_SET_NAME, b"control", 0, 0, 0)
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50))
    begin = time.monotonic_ns() + PERIOD_NS
    for nth in range(cycles):
        due = begin + nth * PERIOD_NS
        time.sleep(max(0, due - time.monotonic_ns()) / 1e9)
        took.append(time.monotonic_ns() - due)
    print(threading.get_native_id(), cycles, *took)
    print("done", flush=True)
    over.set()
    time.sleep(1)


sys.setswitchinterval(0.0005)
threads = [threading.Thread(target=work) for work in (hog, control)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
