-- The boards with the largest latency in their newest run of each plan
-- `p999_kind`: `corrected` counts missed periods, `recorded` does not (an earlier version pushed the run).
WITH newest AS (
    SELECT host, plan, max(started_s) AS started_s FROM runs GROUP BY host, plan
),
latest AS (
    SELECT r.host AS host, r.run AS run, r.plan AS plan, r.kernel AS kernel, r.verdict AS verdict, r.max_ns AS max_ns
    FROM runs AS r
    JOIN newest AS n ON r.host = n.host AND r.plan = n.plan AND r.started_s = n.started_s
),
tails AS (
    SELECT host, run, max(coalesce(corrected_ns, value_ns)) AS p999_ns,
        CASE WHEN count(corrected_ns) = count(*) THEN 'corrected' ELSE 'recorded' END AS p999_kind
    FROM quantiles
    WHERE quantile = 0.999
    GROUP BY host, run
)
SELECT l.host AS host, l.plan AS plan, l.verdict AS verdict, l.max_ns AS max_ns, t.p999_ns AS p999_ns,
    l.kernel AS kernel, l.run AS run, t.p999_kind AS p999_kind
FROM latest AS l
JOIN tails AS t ON l.host = t.host AND l.run = t.run
ORDER BY max_ns DESC, host, plan
LIMIT 30
