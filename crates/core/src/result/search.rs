//! Selects runs: `kernel>=6.12 verdict=fail`.

use super::{RunState, RunSummary, Verdict};
use std::cmp::Ordering;

/// The signs that compare, the longest first.
const SIGNS: [&str; 7] = [">=", "<=", "!=", "=", "~", "<", ">"];
const KEYS: [&str; 8] = ["plan", "host", "kernel", "verdict", "state", "tag", "note", "started"];

/// A term that no run could meet.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SearchError {
    /// It asks for something that runs do not have.
    #[error("{term}: there is no key `{key}`; choose {}", KEYS.join(", "))]
    Key {
        term: String,
        /// The text before the sign.
        key: String,
    },
    /// Its value does not exist.
    #[error("{term}: {problem}")]
    Value {
        term: String,
        /// What is wrong, and what exists.
        problem: String,
    },
}

/// Terms that a run has to meet, all of them.
#[derive(Clone, Debug, Default)]
pub struct RunSearch(Vec<Term>);

impl RunSearch {
    /// A list of `KEY SIGN VALUE`, with a key of `plan host kernel verdict state tag note started` and a sign of `= !=
    /// ~ < > <= >=`. A term without a sign is a text that any of the values contains.
    ///
    /// # Errors
    /// An unknown key, verdict or state, or an order of texts without a number.
    pub fn of<T: AsRef<str>>(terms: &[T]) -> Result<Self, SearchError> {
        terms.iter().map(|text| Term::of(text.as_ref())).collect::<Result<_, _>>().map(Self)
    }

    /// Whether a run meets all terms.
    #[must_use]
    pub fn matches(&self, run: &RunSummary) -> bool {
        self.0.iter().all(|term| term.matches(run))
    }
}

/// `kernel>=6.12`; without a sign a text that any of the values holds.
#[derive(Clone, Debug)]
struct Term {
    key: Option<&'static str>,
    sign: &'static str,
    value: String,
}

impl Term {
    fn of(text: &str) -> Result<Self, SearchError> {
        let at = text.find(['=', '!', '~', '<', '>']);
        let sign = at.and_then(|at| SIGNS.into_iter().find(|sign| text[at..].starts_with(sign)));
        let (Some(at), Some(sign)) = (at, sign) else {
            return Ok(Self { key: None, sign: "~", value: text.to_owned() });
        };
        let (key, value) = (&text[..at], &text[at + sign.len()..]);
        let Some(known) = KEYS.into_iter().find(|known| *known == key) else {
            return Err(SearchError::Key { term: text.to_owned(), key: key.to_owned() });
        };
        if let Some(problem) = problem(known, sign, value) {
            return Err(SearchError::Value { term: text.to_owned(), problem });
        }
        Ok(Self { key: Some(known), sign, value: value.to_owned() })
    }

    fn matches(&self, run: &RunSummary) -> bool {
        let keys = KEYS.into_iter().filter(|key| self.key.is_none_or(|own| own == *key));
        let values: Vec<String> = keys.flat_map(|key| values(run, key)).collect();
        let is = |value: &String| match self.sign {
            "=" | "!=" => value.eq_ignore_ascii_case(&self.value),
            "~" => value.to_lowercase().contains(&self.value.to_lowercase()),
            sign => {
                let order = by_numbers(value, &self.value);
                match sign {
                    "<" => order == Ordering::Less,
                    ">" => order == Ordering::Greater,
                    "<=" => order != Ordering::Greater,
                    _ => order != Ordering::Less,
                }
            }
        };
        values.iter().any(is) != (self.sign == "!=")
    }
}

/// Why no run could meet it.
fn problem(key: &str, sign: &str, value: &str) -> Option<String> {
    let unknown = match (key, sign) {
        ("verdict", "=" | "!=") => value.to_lowercase().parse::<Verdict>().err(),
        ("state", "=" | "!=") => value.to_lowercase().parse::<RunState>().err(),
        _ => None,
    };
    let is_order = sign.starts_with(['<', '>']);
    let without_number = is_order && !value.contains(|letter: char| letter.is_ascii_digit());
    unknown.or_else(|| {
        without_number.then(|| format!("`{sign}` compares numbers and dates; for other text use `=` or `~`"))
    })
}

fn values(run: &RunSummary, key: &str) -> Vec<String> {
    match key {
        "plan" => vec![run.plan.clone()],
        "host" => vec![run.host.clone()],
        "kernel" => vec![run.kernel.clone()],
        "verdict" => run.verdict.iter().map(|verdict| verdict.name().to_owned()).collect(),
        "state" => vec![run.state.name().to_owned()],
        "tag" => run.tags.clone(),
        "note" => run.note.iter().cloned().collect(),
        _ => vec![run.started_at.clone()],
    }
}

/// `6.9` is before `6.12`: numbers in the texts are compared as numbers, up to the length of the second.
fn by_numbers(a: &str, b: &str) -> Ordering {
    let parts = |text: &str| -> Vec<u64> {
        text.split(|c: char| !c.is_ascii_digit()).filter_map(|part| part.parse().ok()).collect()
    };
    let (a, b) = (parts(a), parts(b));
    a.iter().take(b.len()).cmp(b.iter())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::{RunState, Verdict};

    #[test]
    fn terms_select_runs() {
        let run = RunSummary {
            path: "runs/a".to_owned(),
            plan: "quick".to_owned(),
            started_at: "2026-11-22T10:00:00Z".to_owned(),
            state: RunState::Complete,
            running: false,
            verdict: Some(Verdict::Fail),
            figures: None,
            host: "bench".to_owned(),
            kernel: "6.12.4-rt3".to_owned(),
            tags: vec!["before".to_owned()],
            note: None,
        };
        let matches = |text: &str| Term::of(text).unwrap().matches(&run);
        for text in [
            "kernel>=6.12",
            "kernel<6.13",
            "kernel>6.9",
            "verdict=fail",
            "tag=before",
            "tag!=after",
            "bench",
            "plan~qui",
            "started>=2026-11-01",
        ] {
            assert!(matches(text), "{text}");
        }
        for text in ["kernel<6.12", "kernel>=7", "verdict=pass", "tag=after", "host!=bench", "nowhere"] {
            assert!(!matches(text), "{text}");
        }
        for text in ["verdict=nonsense", "state!=going", "kernel>=new"] {
            assert!(matches!(Term::of(text), Err(SearchError::Value { .. })), "{text}");
        }
        assert!(Term::of("colour=red").unwrap_err().to_string().contains("plan, host"));
    }
}
