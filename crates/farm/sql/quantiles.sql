-- The quantiles of every run, of the recorded samples, exactly as in `whylate report --json`
SELECT q.host AS host, q.run AS run, q.cell AS cell, q.probe AS probe, q.cpu AS cpu, q.quantile AS quantile,
    q.value_ns AS value_ns
FROM quantiles AS q
JOIN runs AS r ON q.host = r.host AND q.run = r.run
ORDER BY host, run, cell, probe, cpu, quantile
