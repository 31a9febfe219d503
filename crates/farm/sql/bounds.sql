-- Facts about each kernel and plan: runs, boards, time watched, the largest latency, and a bound for the next run
-- The next run exceeds the largest of n runs with a probability of 1 / (n + 1) at most, if runs are alike. The upper
-- limit of events per hour (95 %) is given if no event was seen.
SELECT kernel, plan, count(*) AS run_count, count(DISTINCT host) AS host_count,
    sum(CASE WHEN verdict = 'pass' THEN 1 ELSE 0 END) AS passed,
    sum(CASE WHEN verdict = 'fail' THEN 1 ELSE 0 END) AS failed,
    sum(CASE WHEN verdict = 'incomplete' THEN 1 ELSE 0 END) AS incomplete,
    sum(watched_ns) / 3.6e12 AS watched_hours,
    max(max_ns) AS largest_ns,
    1.0 / (count(*) + 1) AS next_exceeds_at_most,
    sum(events) AS event_count,
    CASE WHEN sum(events) = 0 AND sum(watched_ns) > 0
        THEN 2.995732273553991 / (sum(watched_ns) / 3.6e12) END AS events_per_hour_max
FROM runs
GROUP BY kernel, plan
ORDER BY kernel, plan
