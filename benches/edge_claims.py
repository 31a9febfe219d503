#!/usr/bin/env python3
"""What whylate claims about an idle guest of a hypervisor, spike by spike: `edge_claims.py WHYLATE [SECONDS]`.

Counts the causes of the longest spikes of idle measurements, and those that blame code of the guest with a confidence of at least
0.6 for more than code at an edge of the kernel can take (entry, exit, arming a timer, HLT). The exit code is
1 if there are any of those.
"""
import collections, json, subprocess, sys

OF_CODE = {"irqs_off", "preempt_off", "irq", "softirq", "idle_exit"}
EDGES = ("irqentry_", "exit_to_user", "entry_", "hrtimer_start", "hrtimer_reprogram", "tick_program", "lapic_next", "native_safe_halt",
         "pv_native_safe_halt", "default_idle", "do_nanosleep", "hrtimer_wakeup", "native_write_msr", "asm_sysvec")
WANTED = 10_000


def main(whylate, seconds):
    claims, at_edges, seen = collections.Counter(), [], 0
    while seen < WANTED:
        command = [whylate, "measure", "timer", "--interval", "250us", "--duration", f"{seconds}s", "--causes", "--spikes", "4000",
                   "--json", "-q"]
        done = subprocess.run(command, capture_output=True, text=True)
        spikes = json.loads(done.stdout)["spikes"]
        seen += len(spikes)
        for spike in spikes:
            cause = spike["cause"]
            length_ns = spike["latency_ns"] * (cause.get("share") or 1)
            size = "above 1 ms" if length_ns >= 1e6 else "50 us to 1 ms" if length_ns >= 5e4 else "below 50 us"
            claims[size, cause["kind"]] += 1
            function = cause.get("function") or ""
            is_edge = function.startswith(EDGES) or (cause["kind"] == "idle_exit" and length_ns > 200e3)
            if cause["kind"] in OF_CODE and is_edge and length_ns > 20e3 and (cause.get("confidence") or 0) >= 0.6:
                at_edges.append((round(length_ns / 1000), cause))
        print(f"{seen} spikes, {len(at_edges)} claims against edges", flush=True)
        if not spikes:
            break
    for (size, kind), count in sorted(claims.items()):
        print(f"{size:14} {kind:14} {count}")
    for length_us, cause in sorted(at_edges, key=lambda it: -it[0])[:20]:
        print(length_us, "us", json.dumps(cause))
    return 1 if at_edges else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 20))
