//! Chains: an activity over several threads, from a mark in one thread to a mark in another.

use super::Mark;
use crate::plan::kinds::KeyError;
use crate::units::Nanos;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::str::FromStr;

/// An activity over several threads. An instance lasts from a pass of `begin` to the pass of `end` that belongs to it.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ChainPlan {
    /// Name of the chain; its series is `chain NAME`.
    pub name: String,
    /// Where an instance begins: a mark such as `FILE:FUNCTION`. `:arg1` adds the argument that joins begin and end,
    /// `@THREAD` the name of the only thread that counts.
    pub begin: String,
    /// Where an instance ends; written like `begin`.
    pub end: String,
    /// An instance is late when it takes longer than this.
    pub deadline: Option<Nanos>,
}

/// A chain whose marks are parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    pub name: String,
    pub begin: ChainMark,
    pub end: ChainMark,
    pub deadline: Option<Nanos>,
}

/// One end of a chain: `/usr/bin/a:send:arg2@sender`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChainMark {
    pub place: Mark,
    /// The argument that joins begin and end, counted from 1. A text has the number that follows it instead.
    pub argument: Option<u8>,
    /// Only passes by threads of this name count.
    pub thread: Option<String>,
}

/// Arguments that functions have in registers.
const ARGUMENTS_MAX: u8 = 6;
/// The number of bytes of a thread's name that the kernel keeps.
const THREAD_BYTES: usize = 15;
const NAME_BYTES: usize = 40;
/// What the series of a chain begins with.
const SERIES: &str = "chain ";

impl ChainMark {
    /// Whether its passes may have a value.
    pub fn has_value(&self) -> bool {
        self.argument.is_some() || matches!(self.place, Mark::Marker { .. })
    }

    /// Whether one pass may be of both marks.
    fn is_ambiguous(&self, other: &Self) -> bool {
        let are_apart = match (&self.thread, &other.thread) {
            (Some(one), Some(other)) => one != other,
            _ => false,
        };
        !are_apart && (self.place == other.place || Mark::is_ambiguous(&self.place, &other.place))
    }

    fn without_thread(text: &str) -> Result<Self, String> {
        if text.starts_with("marker:") {
            return Ok(Self { place: text.parse()?, argument: None, thread: None });
        }
        let argument = text.rsplit_once(':').and_then(|(place, word)| {
            let number: u8 = word.strip_prefix("arg")?.parse().ok()?;
            Some((place, number))
        });
        if let Some((_, number)) = argument.filter(|(_, number)| !(1..=ARGUMENTS_MAX).contains(number)) {
            return Err(format!(
                "`{text}`: choose an argument from arg1 to arg{ARGUMENTS_MAX}, not arg{number}"
            ));
        }
        let (place, argument) = argument.map_or((text, None), |(place, number)| (place, Some(number)));
        Ok(Self { place: place.parse()?, argument, thread: None })
    }
}

impl FromStr for ChainMark {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // A path may have the sign, too: then what comes before it is no mark.
        let parts =
            text.rsplit_once('@').and_then(|(mark, thread)| Some((Self::without_thread(mark).ok()?, thread)));
        let Some((mark, thread)) = parts else { return Self::without_thread(text) };
        if thread.is_empty() {
            return Err(format!("`{text}`: the name of the thread is missing after @"));
        }
        let kept = thread.char_indices().take_while(|(at, letter)| at + letter.len_utf8() <= THREAD_BYTES);
        Ok(Self { thread: Some(kept.map(|(_, letter)| letter).collect()), ..mark })
    }
}

impl Chain {
    /// The series of the task probe that has the latencies of a chain.
    pub fn series_of(name: &str) -> String {
        format!("{SERIES}{name}")
    }

    /// The name of the chain whose latencies a series has.
    pub fn of_series(series: &str) -> Option<&str> {
        series.strip_prefix(SERIES)
    }

    pub fn series(&self) -> String {
        Self::series_of(&self.name)
    }

    /// Whether a begin and an end are joined by a value that both have.
    pub fn has_values(&self) -> bool {
        self.begin.has_value() && self.end.has_value()
    }

    pub(super) fn parse_all(given: &[ChainPlan]) -> Result<Vec<Self>, KeyError> {
        let error = |message| KeyError::new("chains", message);
        for (nth, one) in given.iter().enumerate() {
            if given[..nth].iter().any(|it| it.name == one.name) {
                return Err(error(format!("two chains have the name `{}`; rename one", one.name)));
            }
        }
        given.iter().map(|one| Self::parse(one).map_err(error)).collect()
    }

    fn parse(plan: &ChainPlan) -> Result<Self, String> {
        let ChainPlan { name, deadline, .. } = plan;
        let is_plain = |letter: char| !letter.is_control() && !matches!(letter, '/' | '#');
        if name.trim().is_empty() || name.len() > NAME_BYTES || !name.chars().all(is_plain) {
            return Err(format!("`{name}` is not a name: it has 1 to {NAME_BYTES} bytes, without / and #"));
        }
        if deadline.is_some_and(|deadline| deadline.0 == 0) {
            return Err(format!("the deadline of chain `{name}` must be above 0"));
        }
        let mark = |which: &str, text: &str| match text {
            "" => Err(format!("chain `{name}` has no mark `{which}`")),
            text => text.parse::<ChainMark>().map_err(|error| format!("{which} of chain `{name}`: {error}")),
        };
        let (begin, end) = (mark("begin", &plan.begin)?, mark("end", &plan.end)?);
        if begin.is_ambiguous(&end) {
            return Err(format!(
                "one call or text would be both begin and end of chain `{name}`; change one, or add @THREAD to both"
            ));
        }
        if begin.has_value() != end.has_value() && (begin.argument.is_some() || end.argument.is_some()) {
            return Err(format!(
                "only one end of chain `{name}` has a value; add `:argN` to both ends, or to none"
            ));
        }
        Ok(Self { name: name.clone(), begin, end, deadline: *deadline })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(name: &str, begin: &str, end: &str) -> ChainPlan {
        ChainPlan { name: name.to_owned(), begin: begin.to_owned(), end: end.to_owned(), deadline: None }
    }

    fn error(given: &[ChainPlan]) -> String {
        Chain::parse_all(given).unwrap_err().message
    }

    #[test]
    fn an_end_of_a_chain_is_a_mark_with_a_value_and_a_thread() {
        let of = |text: &str| text.parse::<ChainMark>().unwrap();
        let place = |text: &str| text.parse::<Mark>().unwrap();
        let expected = |mark, argument, thread: Option<&str>| ChainMark {
            place: place(mark),
            argument,
            thread: thread.map(str::to_owned),
        };
        assert_eq!(of("/bin/a:send"), expected("/bin/a:send", None, None));
        assert_eq!(of("/bin/a:send:arg2@sender"), expected("/bin/a:send", Some(2), Some("sender")));
        assert_eq!(of("usdt:/bin/a:p:sent:arg1"), expected("usdt:/bin/a:p:sent", Some(1), None));
        assert_eq!(of("marker:sent @irq/31-eth0"), expected("marker:sent ", None, Some("irq/31-eth0")));
        assert_eq!(of("/opt/a@b/run:send"), expected("/opt/a@b/run:send", None, None));
        assert_eq!(of("/opt/a@b/run:send@x"), expected("/opt/a@b/run:send", None, Some("x")));
        assert_eq!(of("/bin/a:send@a_name_with_20_by").thread.unwrap(), "a_name_with_20_");
        for (wrong, why) in
            [("/bin/a:send:arg7", "arg1 to arg6"), ("send", "not a mark"), ("/bin/a:b@", "missing")]
        {
            assert!(wrong.parse::<ChainMark>().unwrap_err().contains(why), "{wrong}");
        }
    }

    #[test]
    fn wrong_chains_are_refused_with_what_to_change() {
        let good = plan("frame", "/bin/a:send:arg1", "/bin/b:shown:arg1");
        let chain = Chain::parse_all(std::slice::from_ref(&good)).unwrap().remove(0);
        assert!(chain.has_values() && chain.series() == "chain frame");
        assert_eq!(Chain::of_series("chain frame"), Some("frame"));
        assert!(error(&[good.clone(), good.clone()]).contains("the name `frame`"));
        assert!(error(&[plan("a/b", "/bin/a:x", "/bin/a:y")]).contains("without / and #"));
        assert!(error(&[plan("a", "", "/bin/a:y")]).contains("has no mark `begin`"));
        assert!(error(&[plan("a", "/bin/a:x", "y")]).contains("`a`: `y` is"));
        assert!(error(&[plan("a", "/bin/a:x:arg1", "/bin/a:y")]).contains("only one end"));
        assert!(error(&[plan("a", "/bin/a:x@b", "/bin/a:x")]).contains("both begin and end"));
        assert!(error(&[plan("a", "marker:in", "marker:in2")]).contains("both begin and end"));
        assert!(error(&[ChainPlan { deadline: Some(Nanos(0)), ..good }]).contains("above 0"));
        for other in [plan("a", "/bin/a:x@b", "/bin/a:x@c"), plan("a", "marker:in", "/bin/a:y")] {
            assert!(!Chain::parse_all(&[other]).unwrap()[0].has_values());
        }
        assert!(Chain::parse_all(&[plan("a", "marker:in", "/bin/a:y:arg1")]).unwrap()[0].has_values());
    }
}
