-- Which treatments helped, and on how many boards, by each run's own verdict on its deciding statistic
-- Runs are counted, never their samples; `mean_ratio` is the geometric mean of the runs' ratios.
SELECT c.treatment AS treatment, c.probe AS probe, c.statistic AS statistic, r.kernel AS kernel,
    count(*) AS run_count, count(DISTINCT c.host) AS host_count,
    sum(CASE WHEN c.outcome = 'better' THEN 1 ELSE 0 END) AS better,
    sum(CASE WHEN c.outcome = 'worse' THEN 1 ELSE 0 END) AS worse,
    sum(CASE WHEN c.outcome = 'equivalent' THEN 1 ELSE 0 END) AS equivalent,
    exp(avg(CASE WHEN c.ratio > 0 THEN ln(c.ratio) END)) AS mean_ratio
FROM contrasts AS c
JOIN runs AS r ON c.host = r.host AND c.run = r.run
WHERE c.treatment <> '' AND c.decides = 1
GROUP BY c.treatment, c.probe, c.statistic, r.kernel
ORDER BY better DESC, treatment, probe, statistic, kernel
