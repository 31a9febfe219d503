-- Who made each board late in its newest 5 runs: causes and actors, the largest sum of spikes first
-- Each spike counts for its first cause, as recorded; a report shows causes that do not repeat as `host_stall`.
WITH placed AS (
    SELECT host, plan, run, row_number() OVER (PARTITION BY host, plan ORDER BY started_s DESC, run DESC) AS age
    FROM runs
)
SELECT p.host AS host, p.plan AS plan, c.cell AS cell, c.cause AS cause, coalesce(c.actor, '') AS actor,
    count(*) AS spikes, count(DISTINCT c.run) AS run_count, max(c.latency_ns) AS largest_ns,
    sum(c.latency_ns * c.share) / 1e6 AS late_ms
FROM causes AS c
JOIN placed AS p ON c.host = p.host AND c.run = p.run
WHERE c.rank = 0 AND p.age <= 5
GROUP BY p.host, p.plan, c.cell, c.cause, coalesce(c.actor, '')
ORDER BY host, plan, late_ms DESC, cell, cause, actor
