-- What made tasks late: the causes of the largest spikes, by kernel, drivers and processor
-- Each spike counts for its first cause, as recorded; a report shows causes that do not repeat as `host_stall`.
SELECT c.cause AS cause, coalesce(c.actor, '') AS actor, r.kernel AS kernel, r.drivers AS drivers,
    r.processor AS processor, count(*) AS spikes, count(DISTINCT c.host) AS host_count,
    max(c.latency_ns) AS largest_ns, sum(c.latency_ns * c.share) / 1e6 AS late_ms
FROM causes AS c
JOIN runs AS r ON c.host = r.host AND c.run = r.run
WHERE c.rank = 0
GROUP BY c.cause, coalesce(c.actor, ''), r.kernel, r.drivers, r.processor
ORDER BY late_ms DESC, cause, actor, kernel
LIMIT 50
