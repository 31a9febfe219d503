//! Break markers: the text that a measuring program writes into the trace when it stops it.

/// Latency and threshold of a break marker. That of cyclictest is in microseconds (`hit latency threshold (3533 > 2000)`).
/// That of whylate's own probe names its unit (`hit latency threshold (405930 ns > 300000 ns)`).
pub(crate) fn read(text: &str) -> Option<(u64, Option<u64>)> {
    let (_, rest) = text.split_once("hit latency threshold (")?;
    let in_ns = |number: &str| {
        let digits = number.trim().trim_end_matches([')', '\n', ' ']);
        match digits.strip_suffix(" ns") {
            Some(nanoseconds) => nanoseconds.parse().ok(),
            None => digits.parse::<u64>().ok().map(|microseconds| microseconds.saturating_mul(1000)),
        }
    };
    let (latency, threshold) = rest.split_once('>').unwrap_or((rest, ""));
    Some((in_ns(latency)?, in_ns(threshold)))
}

/// Whether the kernel's latency tracers wrote it when they stopped the trace: `timerlat_main: stop tracing hit on cpu 6`.
pub(crate) fn is_stop(text: &str) -> bool {
    text.contains("stop tracing hit on cpu")
}

#[cfg(test)]
mod tests {
    use super::read;

    #[test]
    fn units_are_those_of_the_program() {
        assert_eq!(read("hit latency threshold (3533 > 2000)\n"), Some((3_533_000, Some(2_000_000))));
        assert_eq!(read("hit latency threshold (405930 ns > 300000 ns)\n"), Some((405_930, Some(300_000))));
        assert_eq!(read("hit latency threshold (12"), Some((12_000, None)));
        assert_eq!(read("hit latency threshold ("), None);
        assert_eq!(read("something else"), None);
    }
}
