-- What each question begins with, in every engine: the quantiles of each run, cell, probe and CPU, by the rules of
-- `whylate report` (docs/QUERIES.md), of all runs that are whole.
CREATE VIEW quantiles AS
WITH extremes AS (
    SELECT host, run, cell, probe, cpu, min(min_ns) AS least_ns, max(max_ns) AS most_ns
    FROM intervals
    WHERE probe <> 'noise-floor'
    GROUP BY host, run, cell, probe, cpu
),
buckets AS (
    SELECT host, run, cell, probe, cpu, lower_ns, sum(count) AS samples
    FROM histograms
    WHERE probe <> 'noise-floor'
    GROUP BY host, run, cell, probe, cpu, lower_ns
),
ranked AS (
    SELECT host, run, cell, probe, cpu,
        sum(samples) OVER (PARTITION BY host, run, cell, probe, cpu ORDER BY lower_ns) AS up_to,
        sum(samples) OVER (PARTITION BY host, run, cell, probe, cpu) AS total,
        lower_ns + CASE WHEN lower_ns < 256 THEN 0
            ELSE CAST(floor((power(2, floor(log2(lower_ns) + 1e-9) - 7) - 1) / 2) AS BIGINT) END AS middle_ns
    FROM buckets
),
wanted AS (
    SELECT CAST(0.5 AS DOUBLE) AS quantile UNION ALL SELECT CAST(0.99 AS DOUBLE)
    UNION ALL SELECT CAST(0.999 AS DOUBLE) UNION ALL SELECT CAST(0.9999 AS DOUBLE)
),
found AS (
    SELECT r.host AS host, r.run AS run, r.cell AS cell, r.probe AS probe, r.cpu AS cpu, w.quantile AS quantile,
        max(r.total) AS total, min(r.middle_ns) AS middle_ns,
        max(ceil(w.quantile * CAST(r.total AS DOUBLE) * (1 - 4.5e-16))) AS rank_of
    FROM ranked AS r CROSS JOIN wanted AS w
    WHERE r.up_to >= ceil(w.quantile * CAST(r.total AS DOUBLE) * (1 - 4.5e-16))
    GROUP BY r.host, r.run, r.cell, r.probe, r.cpu, w.quantile
)
SELECT f.host AS host, f.run AS run, f.cell AS cell, f.probe AS probe, f.cpu AS cpu, f.quantile AS quantile,
    CASE WHEN f.rank_of <= 1 THEN e.least_ns
        WHEN f.rank_of >= f.total THEN e.most_ns
        ELSE least(greatest(f.middle_ns, e.least_ns), e.most_ns) END AS value_ns
FROM found AS f
JOIN extremes AS e
    ON f.host = e.host AND f.run = e.run AND f.cell = e.cell AND f.probe = e.probe AND f.cpu = e.cpu
