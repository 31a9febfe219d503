-- The 0.999 quantile of each run, the limit set by the board's own earlier runs, and how many of 8 runs were above it
SELECT host, plan, cell, probe, run, started_s, figure_ns, limit_ns, above_of_8
FROM levels
ORDER BY host, plan, cell, probe, started_s, run
