# SPDX-License-Identifier: MIT OR Apache-2.0
"""A thread that works in cycles of 8 ms and in one of ten takes 5 ms longer, in one function.

step.py CYCLES
"""
import os
import sys
import time


def work(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        sum(range(100))


def filter_samples():
    work(0.0002)


def plan_again():
    end = time.monotonic() + 0.005
    while time.monotonic() < end:
        total = 0
        for number in range(2000):
            total += number * number


def control_cycle(nth):
    filter_samples()
    if nth % 10 == 9:
        plan_again()


try:
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50))
except PermissionError:
    pass
for cycle in range(int(sys.argv[1])):
    time.sleep(0.008)
    control_cycle(cycle)
