-- Facts about each label of the farm file, by value: boards, runs, time watched, the largest latency, and a bound for the next run
-- As `bounds`, with the machines' labels instead of the kernel.
SELECT l.label AS label, l.value AS value, r.plan AS plan, count(*) AS run_count, count(DISTINCT r.host) AS host_count,
    sum(CASE WHEN r.verdict = 'pass' THEN 1 ELSE 0 END) AS passed,
    sum(CASE WHEN r.verdict = 'fail' THEN 1 ELSE 0 END) AS failed,
    sum(CASE WHEN r.verdict = 'incomplete' THEN 1 ELSE 0 END) AS incomplete,
    sum(r.watched_ns) / 3.6e12 AS watched_hours,
    max(r.max_ns) AS largest_ns,
    1.0 / (count(*) + 1) AS next_exceeds_at_most
FROM runs AS r
JOIN run_labels AS l ON r.host = l.host AND r.run = l.run
GROUP BY l.label, l.value, r.plan
ORDER BY label, value, plan
