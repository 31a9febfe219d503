-- Current problems: failed and incomplete runs, boards above the limits set by their own runs, silent boards, missing probes, less watched time
-- `limit`: the newest run has a latency above its limit, or missed a deadline (`fail`). `level`: 5 of the newest 8 runs are above the limit set by the board's own runs. `silent`: no run for three times as
-- long as usual, and for an hour. `incomplete`: the newest run does not meet the request, whatever its verdict. `regression`: a
-- change of `regressions` to more than 1.1 times, within the newest 60 runs, that the newest 5 runs still show. `probe`: the newest run lacks a series that all of
-- the 5 runs before had. `exposure`: the newest 5 runs watched less than 80 % of the 5 before.
WITH placed AS (
    SELECT host, plan, run, verdict, reason, mismatches, limit_ns, max_ns, started_s, coalesce(watched_ns, 0) AS watched_ns,
        row_number() OVER (PARTITION BY host, plan ORDER BY started_s DESC, run DESC) AS age
    FROM runs
),
boards AS (
    SELECT host, plan, count(*) AS run_count, max(CASE WHEN age = 1 THEN run END) AS newest_run,
        CAST(sum(CASE WHEN age <= 5 THEN watched_ns ELSE 0 END) AS DOUBLE) AS newest_5_ns,
        CAST(sum(CASE WHEN age > 5 AND age <= 10 THEN watched_ns ELSE 0 END) AS DOUBLE) AS before_5_ns
    FROM placed
    GROUP BY host, plan
),
leveled AS (
    SELECT host, plan, cell, probe, run, figure_ns, limit_ns, above_of_8,
        row_number() OVER (PARTITION BY host, plan, cell, probe ORDER BY started_s DESC, run DESC) AS age
    FROM levels
),
series AS (
    SELECT p.host AS host, p.plan AS plan, q.cell AS cell, q.probe AS probe, q.cpu AS cpu,
        sum(CASE WHEN p.age = 1 THEN 1 ELSE 0 END) AS newest, sum(CASE WHEN p.age > 1 THEN 1 ELSE 0 END) AS before
    FROM placed AS p
    JOIN quantiles AS q ON p.host = q.host AND p.run = q.run
    WHERE p.age <= 6 AND q.quantile = 0.999
    GROUP BY p.host, p.plan, q.cell, q.probe, q.cpu
),
found AS (
    SELECT 'level' AS alarm, host, plan, concat(cell, ' ', probe) AS what, figure_ns AS measured, limit_ns AS allowed, run
    FROM leveled
    WHERE age = 1 AND above_of_8 >= 5
    UNION ALL
    SELECT 'silent' AS alarm, s.host AS host, s.plan AS plan, 'days without a run' AS what, s.silent_days AS measured,
        s.allowed_days AS allowed, b.newest_run AS run
    FROM silent_boards AS s
    JOIN boards AS b ON s.host = b.host AND s.plan = b.plan
    UNION ALL
    SELECT 'incomplete' AS alarm, host, plan, mismatches AS what, CASE WHEN age <> 1 THEN 0.0 END AS measured,
        CASE WHEN age <> 1 THEN 0.0 END AS allowed, run
    FROM placed
    WHERE age = 1 AND (verdict = 'incomplete' OR coalesce(mismatches, '') <> '')
    UNION ALL
    SELECT 'limit' AS alarm, host, plan, reason AS what, CAST(max_ns AS DOUBLE) AS measured,
        CAST(limit_ns AS DOUBLE) AS allowed, run
    FROM placed
    WHERE age = 1 AND verdict = 'fail'
    UNION ALL
    SELECT 'regression' AS alarm, host, plan, concat(cell, ' ', probe) AS what, newest_factor AS measured, 1.1 AS allowed,
        first_run_after AS run
    FROM level_changes
    WHERE factor > 1.1 AND newest_factor > 1.1 AND runs_after <= 60
    UNION ALL
    SELECT 'probe' AS alarm, s.host AS host, s.plan AS plan, concat(s.cell, ' ', s.probe, ' CPU ', CAST(s.cpu AS VARCHAR(10))) AS what,
        0.0 AS measured, 5.0 AS allowed, b.newest_run AS run
    FROM series AS s
    JOIN boards AS b ON s.host = b.host AND s.plan = b.plan
    WHERE s.newest = 0 AND s.before >= 5
    UNION ALL
    SELECT 'exposure' AS alarm, host, plan, 'hours watched in 5 runs' AS what, newest_5_ns / 3.6e12 AS measured,
        0.8 * before_5_ns / 3.6e12 AS allowed, newest_run AS run
    FROM boards
    WHERE run_count >= 10 AND newest_5_ns < 0.8 * before_5_ns
)
SELECT alarm, host, plan, what, measured, allowed, run
FROM found
ORDER BY alarm, host, plan, what
