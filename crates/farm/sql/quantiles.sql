-- The quantiles of every run, exactly as in `whylate report --json`: of the recorded samples, and with missed periods
-- `corrected_ns` counts each missed period as late as it would have been (`corrected` in JSON; `value_ns` for a probe that
-- misses none). It is empty for a run that an earlier version pushed.
SELECT q.host AS host, q.run AS run, q.cell AS cell, q.probe AS probe, q.cpu AS cpu, q.quantile AS quantile,
    q.value_ns AS value_ns, q.corrected_ns AS corrected_ns
FROM quantiles AS q
JOIN runs AS r ON q.host = r.host AND q.run = r.run
ORDER BY host, run, cell, probe, cpu, quantile
