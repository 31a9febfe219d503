-- Boards that went silent: no run for three times the usual time, and at least an hour, before the lake's newest run
SELECT host, plan, run_count, silent_days, usual_days
FROM silent_boards
ORDER BY silent_days DESC, host, plan
