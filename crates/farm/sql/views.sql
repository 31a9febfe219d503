-- Views that questions may use, in every engine. First the quantiles of each run, cell, probe and CPU from the histograms,
-- by the rules of `whylate report` (docs/QUERIES.md), of the recorded samples. The column `value_ns` of the table `quantiles`
-- has the same; this one can be changed to other quantiles.
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
-- `above_of_8`: of the newest 8 runs those above their limits. `kind`: `corrected` figures count missed periods, `recorded`
-- ones do not. Runs that an earlier version pushed have only the latter; a series with one in its newest 60 runs uses those
-- of all its runs, because a change of the kind is no change of the board. `note` tells how far a missing limit is away.
CREATE VIEW levels AS
WITH figures AS (
    SELECT r.host AS host, r.plan AS plan, q.cell AS cell, q.probe AS probe, r.run AS run, r.started_s AS started_s,
        max(CAST(q.value_ns AS DOUBLE)) AS recorded_ns, max(CAST(coalesce(q.corrected_ns, q.value_ns) AS DOUBLE)) AS known_ns,
        max(CASE WHEN q.corrected_ns IS NULL THEN 1 ELSE 0 END) AS only_recorded
    FROM quantiles AS q
    JOIN runs AS r ON q.host = r.host AND q.run = r.run
    WHERE q.quantile = 0.999 AND r.state = 'complete' AND r.verdict <> 'incomplete' AND coalesce(r.mismatches, '') = ''
    GROUP BY r.host, r.plan, q.cell, q.probe, r.run, r.started_s
),
aged AS (
    SELECT host, plan, cell, probe, run, started_s, recorded_ns, known_ns, only_recorded,
        row_number() OVER (PARTITION BY host, plan, cell, probe ORDER BY started_s, run) AS place,
        row_number() OVER (PARTITION BY host, plan, cell, probe ORDER BY started_s DESC, run DESC) AS age
    FROM figures
),
kinds AS (
    SELECT host, plan, cell, probe, run, started_s, recorded_ns, known_ns, place,
        max(CASE WHEN age <= 60 THEN only_recorded ELSE 0 END) OVER (PARTITION BY host, plan, cell, probe) AS all_recorded,
        only_recorded
    FROM aged
),
chosen AS (
    SELECT host, plan, cell, probe, run, started_s, place, recorded_ns,
        CASE WHEN all_recorded = 1 OR only_recorded = 1 THEN 'recorded' ELSE 'corrected' END AS kind,
        CASE WHEN all_recorded = 1 THEN recorded_ns ELSE known_ns END AS figure_ns,
        ln(CASE WHEN all_recorded = 1 THEN recorded_ns ELSE known_ns END + 1) AS figure
    FROM kinds
),
seen AS (
    SELECT host, plan, cell, probe, run, started_s, place, recorded_ns, kind, figure_ns, figure,
        count(figure) OVER (PARTITION BY host, plan, cell, probe ORDER BY started_s, run
            ROWS BETWEEN 60 PRECEDING AND 8 FOLLOWING) AS n,
        avg(figure) OVER (PARTITION BY host, plan, cell, probe ORDER BY started_s, run
            ROWS BETWEEN 60 PRECEDING AND 8 FOLLOWING) AS middle,
        avg(figure * figure) OVER (PARTITION BY host, plan, cell, probe ORDER BY started_s, run
            ROWS BETWEEN 60 PRECEDING AND 8 FOLLOWING) AS square
    FROM chosen
),
usual AS (
    SELECT host, plan, cell, probe, run, started_s, place, recorded_ns, kind, figure_ns, figure,
        CASE WHEN n < 5 OR figure <= middle + 0.05 + 1.5 * sqrt(greatest(square - middle * middle, 0))
            THEN figure END AS typical
    FROM seen
),
learnt AS (
    SELECT host, plan, cell, probe, run, started_s, place, recorded_ns, kind, figure_ns, figure,
        CAST(count(typical) OVER (PARTITION BY host, plan, cell, probe ORDER BY started_s, run
            ROWS BETWEEN 60 PRECEDING AND 9 PRECEDING) AS DOUBLE) AS n,
        avg(typical) OVER (PARTITION BY host, plan, cell, probe ORDER BY started_s, run
            ROWS BETWEEN 60 PRECEDING AND 9 PRECEDING) AS middle,
        avg(typical * typical) OVER (PARTITION BY host, plan, cell, probe ORDER BY started_s, run
            ROWS BETWEEN 60 PRECEDING AND 9 PRECEDING) AS square
    FROM usual
),
limited AS (
    SELECT host, plan, cell, probe, run, started_s, place, recorded_ns, kind, figure_ns, figure, n,
        CASE WHEN n >= 5 THEN middle + greatest(0.095, (1.96 + 3.26 / (n - 1))
            * sqrt(greatest(square - middle * middle, 0) * (n + 1) / (n - 1))) END AS top
    FROM learnt
)
SELECT host, plan, cell, probe, run, started_s, figure_ns, exp(top) AS limit_ns,
    sum(CASE WHEN figure > top THEN 1 ELSE 0 END) OVER (PARTITION BY host, plan, cell, probe ORDER BY started_s, run
        ROWS BETWEEN 7 PRECEDING AND CURRENT ROW) AS above_of_8,
    kind, recorded_ns,
    CASE WHEN top IS NULL THEN concat('no limit yet: ', CAST(place AS VARCHAR(10)), ' of ',
        CAST(CAST(greatest(14, place + 5 - n) AS BIGINT) AS VARCHAR(10)), ' runs') ELSE '' END AS note
FROM limited;

-- Level alarms that are still on at the newest run. One begins at a run with 5 of its newest 8 runs above their limits, if
-- the run before had fewer. It keeps the limit of that run, `held_ns`: limits that grow later do not end it. It ends at a run
-- with fewer than 5 of the newest 8 above `held_ns`, and fewer than 5 above their own limits.
CREATE VIEW level_alarms AS
WITH placed AS (
    SELECT host, plan, cell, probe, run, started_s, figure_ns, limit_ns, above_of_8,
        row_number() OVER (PARTITION BY host, plan, cell, probe ORDER BY started_s, run) AS place,
        coalesce(lag(above_of_8) OVER (PARTITION BY host, plan, cell, probe ORDER BY started_s, run), 0) AS above_before
    FROM levels
),
begun AS (
    SELECT host, plan, cell, probe, run AS first_run, started_s AS first_s, limit_ns AS held_ns, place AS began
    FROM placed
    WHERE above_of_8 >= 5 AND above_before < 5
),
followed AS (
    SELECT b.host AS host, b.plan AS plan, b.cell AS cell, b.probe AS probe, b.first_run AS first_run, b.first_s AS first_s,
        b.held_ns AS held_ns, b.began AS began, p.place AS place, p.above_of_8 AS above_of_8,
        sum(CASE WHEN p.figure_ns > b.held_ns THEN 1 ELSE 0 END) OVER (PARTITION BY b.host, b.plan, b.cell, b.probe, b.began
            ORDER BY p.place ROWS BETWEEN 7 PRECEDING AND CURRENT ROW) AS above_held_of_8
    FROM begun AS b
    JOIN placed AS p ON b.host = p.host AND b.plan = p.plan AND b.cell = p.cell AND b.probe = p.probe
    WHERE p.place > b.began - 8
)
SELECT host, plan, cell, probe, first_run, first_s, held_ns
FROM followed
GROUP BY host, plan, cell, probe, first_run, first_s, held_ns, began
HAVING sum(CASE WHEN place > began AND above_held_of_8 < 5 AND above_of_8 < 5 THEN 1 ELSE 0 END) = 0;

-- Where the 0.999 quantile of a board's runs changed its level: Pettitt's test over the runs, in their order. `newest_factor` is
-- the same as `factor`, of the newest 5 runs. A series uses `recorded` figures (see `levels`) if one of its runs has no other.
CREATE VIEW level_changes AS
WITH known AS (
    SELECT r.host AS host, r.plan AS plan, q.cell AS cell, q.probe AS probe, r.run AS run, r.started_s AS started_s,
        max(r.kernel) AS kernel, max(CAST(q.value_ns AS DOUBLE)) AS recorded_ns,
        max(CAST(coalesce(q.corrected_ns, q.value_ns) AS DOUBLE)) AS known_ns,
        max(CASE WHEN q.corrected_ns IS NULL THEN 1 ELSE 0 END) AS only_recorded
    FROM quantiles AS q
    JOIN runs AS r ON q.host = r.host AND q.run = r.run
    WHERE q.quantile = 0.999
    GROUP BY r.host, r.plan, q.cell, q.probe, r.run, r.started_s
),
kinds AS (
    SELECT host, plan, cell, probe, run, kernel, started_s, recorded_ns, known_ns,
        max(only_recorded) OVER (PARTITION BY host, plan, cell, probe) AS all_recorded
    FROM known
),
figures AS (
    SELECT host, plan, cell, probe, run, kernel, started_s,
        CASE WHEN all_recorded = 1 THEN recorded_ns ELSE known_ns END AS figure,
        CASE WHEN all_recorded = 1 THEN 'recorded' ELSE 'corrected' END AS kind
    FROM kinds
),
placed AS (
    SELECT host, plan, cell, probe, run, kernel, kind, figure, started_s,
        row_number() OVER (PARTITION BY host, plan, cell, probe ORDER BY started_s, run) AS place,
        count(*) OVER (PARTITION BY host, plan, cell, probe) AS n,
        rank() OVER (PARTITION BY host, plan, cell, probe ORDER BY figure) AS lowest_rank,
        count(*) OVER (PARTITION BY host, plan, cell, probe, figure) AS ties
    FROM figures
),
summed AS (
    SELECT host, plan, cell, probe, run, kernel, kind, figure, started_s, place, n,
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
    max(c.p) AS p_value, max(c.n) AS run_count, max(s.kind) AS kind, max(c.n) - max(c.place) AS runs_after,
    exp(avg(CASE WHEN s.place > c.n - 5 THEN ln(s.figure + 1) END)
        - avg(CASE WHEN s.place <= c.place THEN ln(s.figure + 1) END)) AS newest_factor
FROM changes AS c
JOIN summed AS s ON c.host = s.host AND c.plan = s.plan AND c.cell = s.cell AND c.probe = s.probe
WHERE c.p < 0.01
GROUP BY c.host, c.plan, c.cell, c.probe;

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

-- The labels of the machines in the farm file when their runs were pushed, and tags of runs: a row for each. EACH_WORD stands
-- for the function of the engine that makes a row of each word of a text.
CREATE VIEW run_labels AS
WITH words AS (
    SELECT host, run, EACH_WORD(labels) AS word FROM runs
)
SELECT host, run, substring(word, 1, position('=' IN word) - 1) AS label,
    substring(word, position('=' IN word) + 1) AS value
FROM words
WHERE word <> '';
