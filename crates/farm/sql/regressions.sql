-- Where the 0.999 quantile of a board's runs changed its level: Pettitt's test over the runs, in their order
-- At least 5 runs on either side; p below 0.01. `factor` is the geometric mean after the change over that before.
WITH figures AS (
    SELECT r.host AS host, r.plan AS plan, q.cell AS cell, q.probe AS probe, r.run AS run, r.started_s AS started_s,
        max(r.kernel) AS kernel, max(CAST(q.value_ns AS DOUBLE)) AS figure
    FROM quantiles AS q
    JOIN runs AS r ON q.host = r.host AND q.run = r.run
    WHERE q.quantile = 0.999
    GROUP BY r.host, r.plan, q.cell, q.probe, r.run, r.started_s
),
placed AS (
    SELECT host, plan, cell, probe, run, kernel, figure, started_s,
        row_number() OVER (PARTITION BY host, plan, cell, probe ORDER BY started_s, run) AS place,
        count(*) OVER (PARTITION BY host, plan, cell, probe) AS n,
        rank() OVER (PARTITION BY host, plan, cell, probe ORDER BY figure) AS lowest_rank,
        count(*) OVER (PARTITION BY host, plan, cell, probe, figure) AS ties
    FROM figures
),
summed AS (
    SELECT host, plan, cell, probe, run, kernel, figure, started_s, place, n,
        2 * sum(lowest_rank + (ties - 1) / 2.0) OVER (
            PARTITION BY host, plan, cell, probe ORDER BY started_s, run
            ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        ) - place * (n + 1) AS u
    FROM placed
),
splits AS (
    SELECT host, plan, cell, probe, place, n, abs(u) AS k,
        row_number() OVER (PARTITION BY host, plan, cell, probe ORDER BY abs(u) DESC, place) AS nth
    FROM summed
    WHERE place >= 5 AND n - place >= 5
),
changes AS (
    SELECT host, plan, cell, probe, place, k, n,
        2 * exp(-6.0 * k * k / (CAST(n AS DOUBLE) * n * n + CAST(n AS DOUBLE) * n)) AS p
    FROM splits
    WHERE nth = 1
)
SELECT c.host AS host, c.plan AS plan, c.cell AS cell, c.probe AS probe,
    exp(avg(CASE WHEN s.place > c.place THEN ln(s.figure + 1) END)
        - avg(CASE WHEN s.place <= c.place THEN ln(s.figure + 1) END)) AS factor,
    max(CASE WHEN s.place = c.place + 1 THEN s.run END) AS first_run_after,
    max(CASE WHEN s.place = c.place + 1 THEN s.kernel END) AS kernel_after,
    max(CASE WHEN s.place = c.place THEN s.kernel END) AS kernel_before,
    max(c.p) AS p_value, max(c.n) AS run_count
FROM changes AS c
JOIN summed AS s ON c.host = s.host AND c.plan = s.plan AND c.cell = s.cell AND c.probe = s.probe
WHERE c.p < 0.01
GROUP BY c.host, c.plan, c.cell, c.probe
ORDER BY factor DESC, host, plan, cell, probe
