//! Names of series: a probe, one of its series if it has several, and a part of that if samples have parts.
//!
//! Tables of runs, repeats, comparisons and spikes name a series by one text: `timer`, `dispatch/timerfd`,
//! `roundtrip/futex`, `roundtrip/futex/there`.

use std::fmt;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SeriesName<'a> {
    /// The probe: `roundtrip`.
    pub probe: &'a str,
    /// Which of its series: `futex`.
    pub series: Option<&'a str>,
    /// Which part of its samples: `there`.
    pub part: Option<&'a str>,
}

impl<'a> SeriesName<'a> {
    pub fn of(name: &'a str) -> Self {
        match name.split_once('/') {
            None => Self { probe: name, series: None, part: None },
            Some((probe, series)) => Self::in_probe(probe, Some(series)),
        }
    }

    /// A series of `probe`, given as records do: `futex`, `futex/there`.
    pub fn in_probe(probe: &'a str, series: Option<&'a str>) -> Self {
        let (series, part) = match series.map(|series| series.split_once('/').ok_or(series)) {
            None => (None, None),
            Some(Err(series)) => (Some(series), None),
            Some(Ok((series, part))) => (Some(series), Some(part)),
        };
        Self { probe, series, part }
    }

    /// The same without the part.
    #[must_use]
    pub fn whole(self) -> Self {
        Self { part: None, ..self }
    }
}

impl fmt::Display for SeriesName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.probe)?;
        for more in self.series.iter().chain(&self.part) {
            write!(f, "/{more}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_taken_apart_and_put_together() {
        for text in ["timer", "dispatch/timerfd", "roundtrip/futex/there"] {
            assert_eq!(SeriesName::of(text).to_string(), text);
        }
        let name = SeriesName::of("roundtrip/futex/there");
        assert_eq!((name.probe, name.series, name.part), ("roundtrip", Some("futex"), Some("there")));
        assert_eq!(name.whole().to_string(), "roundtrip/futex");
        assert_eq!(SeriesName::in_probe("roundtrip", Some("futex/there")), name);
        assert_eq!(SeriesName::in_probe("timer", None), SeriesName::of("timer"));
    }
}
