-- Current problems: failed and incomplete runs, boards above the limits set by their own runs, silent boards, missing probes, less watched time
-- `limit`: the newest run has a latency above its limit, or missed a deadline (`fail`). `level`: 5 of 8 runs were above the limit set by the board's own runs, and 5 of the newest 8 still
-- are above `allowed`, the limit at that time. The label `accepted=YYYY-MM-DD` of the newest run ends level alarms that began on
-- that day (UTC) or before. `silent`: no run for three times as
-- long as usual, and for an hour. `incomplete`: the newest run does not meet the request, whatever its verdict. `regression`: a
-- change of `regressions` to more than 1.1 times, within the newest 60 runs, that the newest 5 runs still show. `probe`: the newest run lacks a series that all of
-- the 5 runs before had. `exposure`: the newest 5 runs watched less than 80 % of the 5 before.
-- Units of `measured` and `allowed`: ns (`level`, `limit`), days (`silent`), a ratio (`regression`), hours (`exposure`).
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
    SELECT host, plan, cell, probe, run, figure_ns,
        row_number() OVER (PARTITION BY host, plan, cell, probe ORDER BY started_s DESC, run DESC) AS age
    FROM levels
),
accepted AS (
    SELECT p.host AS host, p.plan AS plan, max(l.value) AS day
    FROM placed AS p
    JOIN run_labels AS l ON p.host = l.host AND p.run = l.run
    WHERE p.age = 1 AND l.label = 'accepted' AND l.value LIKE '____-__-__'
    GROUP BY p.host, p.plan
),
held AS (
    SELECT a.host AS host, a.plan AS plan, a.cell AS cell, a.probe AS probe, min(a.held_ns) AS held_ns
    FROM level_alarms AS a
    JOIN runs AS r ON a.host = r.host AND a.plan = r.plan AND a.first_run = r.run
    LEFT JOIN accepted AS t ON a.host = t.host AND a.plan = t.plan
    WHERE t.day IS NULL OR t.day < substring(r.started_at, 1, 10)
    GROUP BY a.host, a.plan, a.cell, a.probe
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
    SELECT 'level' AS alarm, n.host AS host, n.plan AS plan, concat(n.cell, ' ', n.probe) AS what, n.figure_ns AS measured,
        h.held_ns AS allowed, n.run AS run
    FROM leveled AS n
    JOIN held AS h ON n.host = h.host AND n.plan = h.plan AND n.cell = h.cell AND n.probe = h.probe
    WHERE n.age = 1
    UNION ALL
    SELECT 'silent' AS alarm, s.host AS host, s.plan AS plan, 'days without a run' AS what, s.silent_days AS measured,
        s.allowed_days AS allowed, b.newest_run AS run
    FROM silent_boards AS s
    JOIN boards AS b ON s.host = b.host AND s.plan = b.plan
    UNION ALL
    SELECT 'incomplete' AS alarm, host, plan, coalesce(nullif(mismatches, ''), reason) AS what, CASE WHEN age <> 1 THEN 0.0 END AS measured,
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
