-- Where the 0.999 quantile of a board's runs changed its level: Pettitt's test over the runs, in their order
-- At least 5 runs on either side; p below 0.01. `factor` is the geometric mean after the change divided by the one before. `kind`:
-- `corrected` figures count missed periods, `recorded` ones do not (runs of earlier versions have no others).
SELECT host, plan, cell, probe, factor, first_run_after, kernel_after, kernel_before, p_value, run_count, kind
FROM level_changes
ORDER BY factor DESC, host, plan, cell, probe
