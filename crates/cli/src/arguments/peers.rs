//! Flags of cyclictest that whylate does not have: a usage error that names the equivalent.

/// How the flag begins, whether a value follows it at once, and the equivalent.
const CYCLICTEST: [(&str, PeerValue, &str); 9] = [
    ("-h", PeerValue::Digits, HISTOGRAM),
    ("-H", PeerValue::Any, HISTOGRAM),
    ("--histogram", PeerValue::Any, HISTOGRAM),
    ("--histofall", PeerValue::Any, HISTOGRAM),
    ("--histfile", PeerValue::Any, "`--json > FILE` writes the figures and the histogram to a file"),
    ("-v", PeerValue::None, VERBOSE),
    ("--verbose", PeerValue::None, VERBOSE),
    ("-T", PeerValue::Any, TRACER),
    ("--tracer", PeerValue::Any, TRACER),
];
const HISTOGRAM: &str =
    "the histogram always has every latency, without a limit; `--json` prints the histogram";
const VERBOSE: &str = "`--json` prints the histogram and the largest spikes; `--spikes N` lists more spikes";
const TRACER: &str =
    "`whylate trace record` records what the kernel does until the task is late, and explains the latency";

#[derive(Clone, Copy, PartialEq)]
enum PeerValue {
    None,
    /// Digits after it: alone it is another flag.
    Digits,
    /// With or without a value.
    Any,
}

/// The error for a line `measure timer …` that has such a flag.
pub(crate) fn tip(words: &[String]) -> Option<String> {
    let [command, kind, flags @ ..] = words else { return None };
    if command != "measure" || kind != "timer" {
        return None;
    }
    let flags = flags.iter().take_while(|word| *word != "--");
    let found = |word: &String| CYCLICTEST.iter().find(|(flag, value, _)| is_flag(word, flag, *value));
    let flags: Vec<&String> = flags.collect();
    // `-h` alone is another flag; before a number it is cyclictest's.
    let is_number = |word: &&String| word.bytes().all(|byte| byte.is_ascii_digit());
    let apart = |nth: usize| flags[nth] == "-h" && flags.get(nth + 1).is_some_and(is_number);
    let of = |nth: usize| found(flags[nth]).map(|(.., tip)| *tip).or_else(|| apart(nth).then_some(HISTOGRAM));
    let (word, tip) = (0..flags.len()).find_map(|nth| Some((flags[nth], of(nth)?)))?;
    Some(format!(
        "error: `{word}` of cyclictest is not supported\n\n  tip: {tip}\n\nFor more information, try '--help'."
    ))
}

fn is_flag(word: &str, flag: &str, value: PeerValue) -> bool {
    let Some(rest) = word.strip_prefix(flag) else { return false };
    let is_digits = !rest.is_empty() && rest.chars().all(|c| c.is_ascii_digit());
    match value {
        PeerValue::None => rest.is_empty(),
        PeerValue::Digits => is_digits,
        PeerValue::Any => rest.is_empty() || rest.starts_with('=') || is_digits,
    }
}

#[cfg(test)]
mod tests {
    use super::tip;

    #[test]
    fn every_flag_has_a_tip_and_ours_have_none() {
        let tip_of = |line: &str| tip(&line.split(' ').map(str::to_owned).collect::<Vec<_>>());
        for flag in ["-h100", "-H200", "-H", "--histofall=3", "--histfile=x", "-v", "-T", "--histogram"] {
            let found = tip_of(&format!("measure timer -a 1 {flag} -p 95")).unwrap();
            assert!(found.contains(flag) && found.contains("tip: "), "{found}");
        }
        assert!(tip_of("measure timer -a 1 -h 400").is_some_and(|tip| tip.contains("histogram")));
        for line in [
            "measure timer -h",
            "measure timer -h -a 1",
            "measure timer -a 1 -p 95 -i 200 -t",
            "measure stall -T 50",
            "run -v",
        ] {
            assert_eq!(tip_of(line), None, "{line}");
        }
    }
}
