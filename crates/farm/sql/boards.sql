-- The newest 30 runs of each board and plan, with quantiles of the cell and probe that was latest in the newest run
-- `p50_ns` to `p9999_ns` are from the CPU with the largest values; `max_ns` is the largest latency of the run in any cell.
-- The quantiles count missed periods if `kind` is `corrected`; `p50_recorded_ns` to `p9999_recorded_ns` never do. Earlier versions pushed
-- runs whose `kind` is `recorded`. `teaching_runs`: complete runs of the board and plan, from which limits are learnt.
WITH placed AS (
    SELECT host, plan, run, started_at, started_s, kernel, architecture, processor, verdict, mismatches, labels,
        limit_ns, max_ns,
        sum(CASE WHEN state = 'complete' AND verdict <> 'incomplete' AND coalesce(mismatches, '') = '' THEN 1 ELSE 0 END)
            OVER (PARTITION BY host, plan) AS teaching_runs,
        row_number() OVER (PARTITION BY host, plan ORDER BY started_s DESC, run DESC) AS age
    FROM runs
),
recent AS (
    SELECT * FROM placed WHERE age <= 30
),
figures AS (
    SELECT r.host AS host, r.plan AS plan, r.run AS run, r.age AS age, q.cell AS cell, q.probe AS probe,
        max(CASE WHEN q.quantile = 0.5 THEN coalesce(q.corrected_ns, q.value_ns) END) AS p50_ns,
        max(CASE WHEN q.quantile = 0.5 THEN q.value_ns END) AS p50_recorded_ns,
        max(CASE WHEN q.quantile = 0.99 THEN coalesce(q.corrected_ns, q.value_ns) END) AS p99_ns,
        max(CASE WHEN q.quantile = 0.99 THEN q.value_ns END) AS p99_recorded_ns,
        max(CASE WHEN q.quantile = 0.999 THEN coalesce(q.corrected_ns, q.value_ns) END) AS p999_ns,
        max(CASE WHEN q.quantile = 0.999 THEN q.value_ns END) AS p999_recorded_ns,
        max(CASE WHEN q.quantile = 0.9999 THEN coalesce(q.corrected_ns, q.value_ns) END) AS p9999_ns,
        max(CASE WHEN q.quantile = 0.9999 THEN q.value_ns END) AS p9999_recorded_ns,
        CASE WHEN count(q.corrected_ns) = count(*) THEN 'corrected' ELSE 'recorded' END AS kind
    FROM recent AS r
    JOIN quantiles AS q ON r.host = q.host AND r.run = q.run
    GROUP BY r.host, r.plan, r.run, r.age, q.cell, q.probe
),
ordered AS (
    SELECT host, plan, cell, probe,
        row_number() OVER (PARTITION BY host, plan ORDER BY age, p999_ns DESC, cell, probe) AS nth
    FROM figures
),
latest AS (
    SELECT host, plan, cell, probe FROM ordered WHERE nth = 1
),
drawn AS (
    SELECT f.host AS host, f.run AS run, f.cell AS cell, f.probe AS probe, f.p50_ns AS p50_ns, f.p99_ns AS p99_ns,
        f.p999_ns AS p999_ns, f.p9999_ns AS p9999_ns, f.p50_recorded_ns AS p50_recorded_ns,
        f.p99_recorded_ns AS p99_recorded_ns, f.p999_recorded_ns AS p999_recorded_ns,
        f.p9999_recorded_ns AS p9999_recorded_ns, f.kind AS kind
    FROM figures AS f
    JOIN latest AS l ON f.host = l.host AND f.plan = l.plan AND f.cell = l.cell AND f.probe = l.probe
)
SELECT r.host AS host, r.plan AS plan, r.run AS run, r.started_at AS started_at, r.started_s AS started_s,
    r.kernel AS kernel, r.architecture AS architecture, r.processor AS processor, r.verdict AS verdict,
    r.mismatches AS mismatches, r.labels AS labels, r.limit_ns AS limit_ns, r.max_ns AS max_ns, l.cell AS cell,
    l.probe AS probe, d.p50_ns AS p50_ns, d.p99_ns AS p99_ns, d.p999_ns AS p999_ns, d.p9999_ns AS p9999_ns,
    d.p50_recorded_ns AS p50_recorded_ns, d.p99_recorded_ns AS p99_recorded_ns, d.p999_recorded_ns AS p999_recorded_ns,
    d.p9999_recorded_ns AS p9999_recorded_ns, d.kind AS kind, r.teaching_runs AS teaching_runs
FROM recent AS r
LEFT JOIN latest AS l ON r.host = l.host AND r.plan = l.plan
LEFT JOIN drawn AS d ON r.host = d.host AND r.run = d.run
ORDER BY host, plan, started_s, run
