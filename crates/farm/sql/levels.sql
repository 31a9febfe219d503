-- The 0.999 quantile of each run, the limit set by the board's own earlier runs, and how many of the newest 8 runs were above their limits
-- `note` says how many runs a missing limit still needs. `kind`: `corrected` figures count missed periods, `recorded` ones
-- do not (an earlier version pushed some of the runs).
SELECT host, plan, cell, probe, run, started_s, figure_ns, limit_ns, above_of_8, kind, note
FROM levels
ORDER BY host, plan, cell, probe, started_s, run
