-- Boards whose newest runs do not meet the request, or watched less time than before
-- A run with mismatches is listed even if a latency above the limit makes its verdict `fail`.
WITH placed AS (
    SELECT host, plan, run, verdict, reason, mismatches,
        CASE WHEN verdict = 'incomplete' OR coalesce(mismatches, '') <> '' THEN 1 ELSE 0 END AS is_incomplete, coalesce(watched_ns, 0) AS watched_ns, started_s,
        row_number() OVER (PARTITION BY host, plan ORDER BY started_s DESC, run DESC) AS age
    FROM runs
)
SELECT host, plan, sum(CASE WHEN age <= 10 AND is_incomplete = 1 THEN 1 ELSE 0 END) AS incomplete_of_10,
    max(CASE WHEN age = 1 THEN verdict END) AS newest_verdict,
    max(CASE WHEN age = 1 THEN mismatches END) AS newest_mismatches,
    sum(CASE WHEN age <= 5 THEN watched_ns ELSE 0 END) / 3.6e12 AS newest_5_hours,
    sum(CASE WHEN age > 5 AND age <= 10 THEN watched_ns ELSE 0 END) / 3.6e12 AS before_5_hours,
    max(CASE WHEN age = 1 AND is_incomplete = 1 THEN reason END) AS newest_reason
FROM placed
GROUP BY host, plan
HAVING sum(CASE WHEN age <= 10 AND is_incomplete = 1 THEN 1 ELSE 0 END) > 0
    OR (count(*) >= 10 AND sum(CASE WHEN age <= 5 THEN watched_ns ELSE 0 END)
        < 0.8 * sum(CASE WHEN age > 5 AND age <= 10 THEN watched_ns ELSE 0 END))
ORDER BY incomplete_of_10 DESC, host, plan
