-- Boards that went silent: no run for three times as long as usual and for an hour, seen from the newest run of the lake
WITH boards AS (
    SELECT host, plan, count(*) AS run_count, min(started_s) AS first_s, max(started_s) AS last_s
    FROM runs
    GROUP BY host, plan
),
newest AS (
    SELECT max(started_s) AS now_s FROM runs
)
SELECT b.host AS host, b.plan AS plan, b.run_count AS run_count, (n.now_s - b.last_s) / 86400.0 AS silent_days,
    (b.last_s - b.first_s) / 86400.0 / (b.run_count - 1) AS usual_days
FROM boards AS b CROSS JOIN newest AS n
WHERE b.run_count > 1 AND n.now_s - b.last_s > greatest(3600.0, 3.0 * (b.last_s - b.first_s) / (b.run_count - 1))
ORDER BY silent_days DESC, host, plan
