-- Views that questions may use, in every engine. First the quantiles of each run, cell, probe and CPU from the histograms,
-- by the rules of `whylate report` (docs/QUERIES.md). The table `quantiles` has the same; this one can be changed to others.
CREATE VIEW bucket_quantiles AS
WITH extremes AS (
    SELECT host, run, cell, probe, cpu, min(min_ns) AS least_ns, max(max_ns) AS most_ns
    FROM intervals
    GROUP BY host, run, cell, probe, cpu
),
buckets AS (
    SELECT host, run, cell, probe, cpu, lower_ns, sum(count) AS samples
    FROM histograms
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
    ON f.host = e.host AND f.run = e.run AND f.cell = e.cell AND f.probe = e.probe AND f.cpu = e.cpu;

-- The level of a board over time: the 0.999 quantile of each run (of the CPU with the largest one), and the limit that the
-- board's own earlier runs set. They are up to 52 runs, of which the nearest is 9 runs back, so that a change does not
-- set its own limit; single bad runs (above the mean by 1.5 standard deviations of the 68 runs around) do not count; five
-- runs have to be left. The limit is where 1 of 40 runs would be (Student's t, approximated), 10 % above the mean at least.
-- `above_of_8`: of the newest 8 runs those above their limits.
CREATE VIEW levels AS
WITH figures AS (
    SELECT r.host AS host, r.plan AS plan, q.cell AS cell, q.probe AS probe, r.run AS run, r.started_s AS started_s,
        max(CAST(q.value_ns AS DOUBLE)) AS figure_ns, ln(max(CAST(q.value_ns AS DOUBLE)) + 1) AS figure
    FROM quantiles AS q
    JOIN runs AS r ON q.host = r.host AND q.run = r.run
    WHERE q.quantile = 0.999 AND r.state = 'complete' AND r.verdict <> 'incomplete'
    GROUP BY r.host, r.plan, q.cell, q.probe, r.run, r.started_s
),
seen AS (
    SELECT host, plan, cell, probe, run, started_s, figure_ns, figure,
        count(figure) OVER (PARTITION BY host, plan, cell, probe ORDER BY started_s, run
            ROWS BETWEEN 60 PRECEDING AND 8 FOLLOWING) AS n,
        avg(figure) OVER (PARTITION BY host, plan, cell, probe ORDER BY started_s, run
            ROWS BETWEEN 60 PRECEDING AND 8 FOLLOWING) AS middle,
        avg(figure * figure) OVER (PARTITION BY host, plan, cell, probe ORDER BY started_s, run
            ROWS BETWEEN 60 PRECEDING AND 8 FOLLOWING) AS square
    FROM figures
),
usual AS (
    SELECT host, plan, cell, probe, run, started_s, figure_ns, figure,
        CASE WHEN n < 5 OR figure <= middle + 0.05 + 1.5 * sqrt(greatest(square - middle * middle, 0))
            THEN figure END AS typical
    FROM seen
),
learnt AS (
    SELECT host, plan, cell, probe, run, started_s, figure_ns, figure,
        CAST(count(typical) OVER (PARTITION BY host, plan, cell, probe ORDER BY started_s, run
            ROWS BETWEEN 60 PRECEDING AND 9 PRECEDING) AS DOUBLE) AS n,
        avg(typical) OVER (PARTITION BY host, plan, cell, probe ORDER BY started_s, run
            ROWS BETWEEN 60 PRECEDING AND 9 PRECEDING) AS middle,
        avg(typical * typical) OVER (PARTITION BY host, plan, cell, probe ORDER BY started_s, run
            ROWS BETWEEN 60 PRECEDING AND 9 PRECEDING) AS square
    FROM usual
),
limited AS (
    SELECT host, plan, cell, probe, run, started_s, figure_ns, figure,
        CASE WHEN n >= 5 THEN middle + greatest(0.095, (1.96 + 3.26 / (n - 1))
            * sqrt(greatest(square - middle * middle, 0) * (n + 1) / (n - 1))) END AS top
    FROM learnt
)
SELECT host, plan, cell, probe, run, started_s, figure_ns, exp(top) AS limit_ns,
    sum(CASE WHEN figure > top THEN 1 ELSE 0 END) OVER (PARTITION BY host, plan, cell, probe ORDER BY started_s, run
        ROWS BETWEEN 7 PRECEDING AND CURRENT ROW) AS above_of_8
FROM limited;

-- Boards without a run for three times as long as is usual between their runs, and for an hour: seen from the newest run of the
-- lake, so that the answer does not depend on when it is asked for.
CREATE VIEW silent_boards AS
WITH boards AS (
    SELECT host, plan, count(*) AS run_count, min(started_s) AS first_s, max(started_s) AS last_s
    FROM runs
    GROUP BY host, plan
),
newest AS (
    -- A board whose clock is ahead does not make others silent.
    SELECT max(started_s) AS now_s FROM runs WHERE mismatches NOT LIKE '%clock: %'
),
silences AS (
    SELECT b.host AS host, b.plan AS plan, b.run_count AS run_count, (n.now_s - b.last_s) / 86400.0 AS silent_days,
        (b.last_s - b.first_s) / 86400.0 / (b.run_count - 1) AS usual_days
    FROM boards AS b CROSS JOIN newest AS n
    WHERE b.run_count > 1
)
SELECT host, plan, run_count, silent_days, usual_days, greatest(1 / 24.0, 3.0 * usual_days) AS allowed_days
FROM silences
WHERE silent_days > greatest(1 / 24.0, 3.0 * usual_days);

-- The labels of the machines in the farm file when their runs were pushed: a row for each label of a run. EACH_WORD stands
-- for the function of the engine that makes a row of each word of a text.
CREATE VIEW run_labels AS
WITH words AS (
    SELECT host, run, EACH_WORD(labels) AS word FROM runs
)
SELECT host, run, substring(word, 1, position('=' IN word) - 1) AS label,
    substring(word, position('=' IN word) + 1) AS value
FROM words
WHERE word <> '';
