-- Boards that went silent: no run for three times as long as usual and for an hour, seen from the newest run of the lake
SELECT host, plan, run_count, silent_days, usual_days
FROM silent_boards
ORDER BY silent_days DESC, host, plan
