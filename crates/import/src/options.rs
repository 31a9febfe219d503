//! The options of cyclictest in a command line.

/// Its short options that take no value, so that others may follow in the same word.
const WITHOUT_VALUE: &str = "mMnNqrRsSuUvxX";

/// Whether cyclictest printed nanoseconds (`-N`).
pub(crate) fn is_in_nanoseconds(command: &str) -> bool {
    command.split_whitespace().any(|word| word == "--nsecs" || behind(word, &['N']).is_some())
}

/// The number of buckets of a histogram (`-h 400`, `-qh400`, `--histogram=400`): values from this on are above it.
pub(crate) fn histogram_end(command: &str) -> Option<u64> {
    let mut words = command.split_whitespace();
    let mut end = None;
    while let Some(word) = words.next() {
        let long = ["--histogram", "--histofall"].iter().find_map(|name| word.strip_prefix(name));
        let value = match (long, behind(word, &['h', 'H'])) {
            (Some(""), _) | (None, Some("")) => words.next(),
            (Some(rest), _) => rest.strip_prefix('='),
            (None, value) => value,
        };
        end = value.and_then(|value| value.parse().ok()).or(end);
    }
    end
}

/// What follows one of these short options in its word.
fn behind<'w>(word: &'w str, options: &[char]) -> Option<&'w str> {
    let letters = word.strip_prefix('-').filter(|rest| !rest.starts_with('-'))?;
    let at = letters.find(|letter: char| !WITHOUT_VALUE.contains(letter) || options.contains(&letter))?;
    let mut rest = letters[at..].chars();
    rest.next().filter(|letter| options.contains(letter)).map(|_| rest.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_found_in_each_form() {
        for command in
            ["-q -h 400", "-qh400", "-mS -H400", "--histogram=400 -q", "--histofall 400", "-h 9 -h 400"]
        {
            assert_eq!(histogram_end(&format!("cyclictest {command}")), Some(400), "{command}");
        }
        for command in ["-q -p 95", "--json=-h400", "-ph400", "--histfile=h", "-h"] {
            assert_eq!(histogram_end(&format!("cyclictest {command}")), None, "{command}");
        }
        for (command, is_so) in
            [("-N", true), ("-qN", true), ("--nsecs", true), ("-p N", false), ("-aN", false)]
        {
            assert_eq!(is_in_nanoseconds(command), is_so, "{command}");
        }
    }
}
