"""Writes a simulated farm as a lake whose months are merged.

    generate.py LAKE [--boards 300] [--years 5] [--days 7] [--worse 0.1] [--for RUNS] [--accepted DAY] [--seed 1]
        [--only TABLE,...]

Each board has a level and a spread of its own (2 to 8 %), runs that depend on the run before, single bad runs (2 %, up to
three times later) and runs that are missing (2 %). A part of the boards becomes 30 % later at one moment, for good or for
a number of runs: `planted.csv` in the lake says which, and when.
"""

import argparse
import os

import duckdb

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("lake")
parser.add_argument("--boards", type=int, default=300)
parser.add_argument("--years", type=float, default=5)
parser.add_argument("--days", type=int, default=7, help="between two runs of a board")
parser.add_argument("--worse", type=float, default=0.1, help="part of the boards")
parser.add_argument("--for", type=int, default=1 << 30, dest="worse_for", help="runs that are later")
parser.add_argument("--accepted", help="the day that boards have in their label `accepted`")
parser.add_argument("--seed", type=int, default=1)
parser.add_argument("--only", type=lambda text: text.split(","), help="tables to write")
asked = parser.parse_args()
runs = int(asked.years * 365 / asked.days)
os.makedirs(os.path.join(asked.lake, "merged", "parts"), exist_ok=True)
db = duckdb.connect()

db.execute(f"""
-- A number between 0 and 1 that looks random, by what it is for.
CREATE MACRO chance(what, who, place) AS
    (CAST(hash(what, who, place, {asked.seed}) >> 11 AS DOUBLE) + 0.5) / 9007199254740992.0;
CREATE MACRO normal(what, who, place) AS
    sqrt(-2 * ln(chance(what || '/1', who, place))) * cos(2 * pi() * chance(what || '/2', who, place));
CREATE TABLE boards AS
    SELECT board, format('board-{{:04d}}', board) AS host, exp(9.5 + 1.2 * chance('level', board, 0)) AS level_ns,
        0.02 + 0.06 * chance('spread', board, 0) AS spread, chance('worse', board, 0) < {asked.worse} AS is_worse,
        CAST(30 + ({runs} - 45) * chance('when', board, 0) AS BIGINT) AS worse_at
    FROM range({asked.boards}) AS t(board);
CREATE TABLE made AS
    SELECT b.*, n, 1600000000 + n * {asked.days} * 86400 + board * 60 AS started_s,
        level_ns * CASE WHEN is_worse AND n >= worse_at AND n < worse_at + {asked.worse_for} THEN 1.3 ELSE 1 END
            * exp(spread * (normal('run', board, n) + 0.4 * normal('run', board, n - 1)) / sqrt(1.16))
            * CASE WHEN chance('single', board, n) < 0.02 THEN 1.3 + 1.7 * chance('how', board, n) ELSE 1 END AS tail_ns
    FROM boards AS b, range({runs}) AS t(n)
    WHERE chance('missing', board, n) >= 0.02;
CREATE TABLE named AS
    SELECT *, strftime(make_timestamp(started_s * 1000000), '%Y-%m') AS month,
        strftime(make_timestamp(started_s * 1000000), '%Y-%m-%d-%H%M%S') || '-nightly' AS run,
        strftime(make_timestamp(started_s * 1000000), '%Y-%m-%dT%H:%M:%SZ') AS started_at,
        CASE WHEN n < {runs} / 2 THEN '6.12.0-rt' ELSE '7.2.0-rt' END AS kernel
    FROM made;
CREATE TABLE shape AS
    SELECT exp(-1.9 + 0.036 * j) AS part, CAST(1 + 60000 * pow(0.83, j) AS BIGINT) AS count FROM range(56) AS t(j);
CREATE TABLE counted AS
    SELECT host, month, run, cpu, CAST(CASE WHEN ns < 256 THEN floor(ns)
        ELSE floor(ns / pow(2, floor(log2(ns)) - 7)) * pow(2, floor(log2(ns)) - 7) END AS BIGINT) AS lower_ns,
        CAST(sum(count) AS BIGINT) AS count
    FROM (
        SELECT host, month, run, cpu, tail_ns * part * (1 - 0.02 * cpu) AS ns, count
        FROM named, shape, range(2) AS t(cpu)
    )
    GROUP BY ALL;
CREATE TABLE ranked AS
    SELECT host, month, run, cpu, lower_ns, min(lower_ns) OVER series AS least, max(lower_ns) OVER series AS most,
        sum(count) OVER (PARTITION BY host, run, cpu ORDER BY lower_ns) AS up_to, sum(count) OVER series AS total
    FROM counted
    WINDOW series AS (PARTITION BY host, run, cpu);
""")

KEY = "'idle' AS cell, 1 AS repeat, 1 AS attempt, 'timer' AS probe"
MIDDLE = """lower_ns + CASE WHEN lower_ns < 256 THEN 0
    ELSE CAST(floor((pow(2, floor(log2(lower_ns) + 1e-9) - 7) - 1) / 2) AS BIGINT) END"""
TABLES = {
    "runs": """SELECT run, 'nightly' AS plan, started_at, started_s, kernel, 'PREEMPT_RT' AS preemption,
        'x86_64' AS architecture, 'made' AS processor, '' AS drivers, '0' AS whylate_version, 'complete' AS state,
        'pass' AS verdict, '' AS reason, '' AS mismatches,
        'rack=' || (board % 10) || ' soc=' || CASE WHEN board % 3 = 0 THEN 'rk3588' ELSE 'n100' END || ACCEPTED AS labels, CAST(1000000 AS BIGINT) AS limit_ns,
        CAST(60e9 AS BIGINT) AS watched_ns, CAST(0 AS BIGINT) AS events, CAST(600000 AS BIGINT) AS samples,
        CAST(tail_ns * 1.2 AS BIGINT) AS max_ns, host, month
        FROM named ORDER BY month, host, run""",
    "cells": """SELECT run, 'idle' AS cell, '' AS loads, '' AS treatments, 1 AS repeats, CAST(NULL AS VARCHAR) AS skipped,
        CAST(60e9 AS BIGINT) AS watched_ns, CAST(0 AS BIGINT) AS events, host, month
        FROM named ORDER BY month, host, run""",
    "contrasts": """SELECT run, 'idle' AS baseline, 'quiet' AS cell, 'governor' AS treatment, 'timer' AS probe,
        'p99.9' AS statistic, 1 AS decides, 0.5 + 0.5 * chance('ratio', board, n) AS ratio, 0.4 AS ratio_low,
        1.1 AS ratio_high, CASE WHEN chance('ratio', board, n) < 0.5 THEN 'better' ELSE 'equivalent' END AS outcome,
        0.01 AS p_value, 1 AS repeats, host, month
        FROM named ORDER BY month, host, run""",
    "intervals": f"""SELECT run, {KEY}, CAST(cpu AS INTEGER) AS cpu, CAST(0 AS BIGINT) AS start_ns,
        CAST(60e9 AS BIGINT) AS end_ns, CAST(sum(count) AS BIGINT) AS samples, CAST(0 AS BIGINT) AS sum_ns,
        min(lower_ns) AS min_ns, max(lower_ns) AS max_ns, CAST(0 AS BIGINT) AS overruns, host, month
        FROM counted GROUP BY host, month, run, cpu ORDER BY month, host, run, cpu""",
    "histograms": f"""SELECT run, {KEY}, CAST(cpu AS INTEGER) AS cpu, CAST(0 AS BIGINT) AS start_ns, lower_ns, count,
        host, month
        FROM counted ORDER BY month, host, run, cpu, lower_ns""",
    "quantiles": f"""SELECT run, 'idle' AS cell, 'timer' AS probe, CAST(cpu AS INTEGER) AS cpu, quantile,
        least(greatest(min({MIDDLE}), min(least)), max(most)) AS value_ns, host, month
        FROM ranked, (VALUES (CAST(0.5 AS DOUBLE)), (0.99), (0.999), (0.9999)) AS q(quantile)
        WHERE up_to >= ceil(quantile * total * (1 - 4.5e-16))
        GROUP BY host, month, run, cpu, quantile ORDER BY month, host, run, cpu, quantile""",
    "spikes": f"""SELECT run, {KEY}, CAST(0 AS INTEGER) AS cpu, CAST(k AS BIGINT) AS at_ns,
        CAST(tail_ns AS BIGINT) AS latency_ns, host, month
        FROM named, range(2) AS t(k) ORDER BY month, host, run, k""",
    "causes": f"""SELECT run, {KEY}, CAST(0 AS INTEGER) AS cpu, CAST(k AS BIGINT) AS at_ns,
        CAST(tail_ns AS BIGINT) AS latency_ns, 0 AS rank, 'irqs-off' AS cause,
        format('irq/{{}}', 40 + CAST(floor(8 * chance('actor', board, k)) AS INTEGER)) AS actor, 0.5 AS share, host, month
        FROM named, range(2) AS t(k) ORDER BY month, host, run, k""",
}
accepted = f"' accepted={asked.accepted}'" if asked.accepted else "''"
TABLES["runs"] = TABLES["runs"].replace("ACCEPTED", accepted)
for table, select in TABLES.items():
    if asked.only is None or table in asked.only:
        folder = os.path.join(asked.lake, "merged", f"table={table}")
        form = "FORMAT parquet, PARTITION_BY (month), FILENAME_PATTERN 'made', OVERWRITE_OR_IGNORE"
        db.execute(f"COPY ({select}) TO '{folder}' ({form})")
for (month,) in db.execute("SELECT DISTINCT month FROM named").fetchall():
    # The name that the writer gives its only file.
    os.makedirs(os.path.join(asked.lake, "merged", "parts", month), exist_ok=True)
    with open(os.path.join(asked.lake, "merged", "parts", month, "made0.json"), "w") as manifest:
        manifest.write('{"format": "whylate.lake-run/1", "runs": 0, "objects": []}')
db.execute(f"""COPY (
    SELECT host, 1600000000 + worse_at * {asked.days} * 86400 + board * 60 AS started_s
    FROM boards WHERE is_worse ORDER BY host
) TO '{asked.lake}/planted.csv' (HEADER)""")
