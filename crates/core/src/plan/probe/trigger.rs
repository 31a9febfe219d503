//! What says that the application was late: a line, a number that grows, a signal.

use super::{Condition, Mark, Operand, preset};
use crate::plan::kinds::KeyError;
use crate::units::Nanos;
use std::path::PathBuf;
use std::str::FromStr;

/// How a watch learns that the application was late.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trigger {
    /// A line of the started program's output that matches: `output:REGEX`.
    Output { pattern: String },
    /// A line that is appended to a file: `file:PATH:REGEX`.
    File { path: PathBuf, pattern: String },
    /// A line of the systemd journal: `journal:REGEX`.
    Journal { pattern: String },
    /// A line of the kernel's log: `kernel:REGEX`.
    Kernel { pattern: String },
    /// A number in a file, when it grows: `counter:PATH`.
    Counter { path: PathBuf },
    /// A signal to the watch: `signal:USR1`.
    Signal { number: i32 },
    /// `whylate trigger` of another process: `socket`.
    Socket,
    /// A text that a watched thread writes into `trace_marker`: `marker:TEXT`.
    Marker { text: String },
    /// A call of a function or static tracepoint; a condition may follow: `FILE:FUNCTION:return<0`,
    /// `usdt:FILE:PROVIDER:NAME:arg1>1000`.
    Call { place: Mark, condition: Option<Condition> },
    /// The buffer of a sound card ran empty or full: `xrun`.
    Xrun,
}

/// The signals, with their numbers on x86-64 and aarch64.
const SIGNALS: [(&str, i32); 2] = [("USR1", 10), ("USR2", 12)];
const FORMS: &str = "output:REGEX, file:PATH:REGEX, journal:REGEX, kernel:REGEX, counter:PATH, signal:USR1, signal:USR2, socket, \
                     marker:TEXT, FILE:FUNCTION, usdt:FILE:PROVIDER:NAME (both with :arg1>1000, :return<0 or :took>1ms), xrun or preset:NAME";

impl Trigger {
    /// The time before a trigger that is explained by default.
    pub const LAST: Nanos = Nanos(50_000_000);
    /// The shortest and the longest such time: the kernel's records of more are not kept.
    const LAST_BOUNDS: [Nanos; 2] = [Nanos(1_000_000), Nanos(2_000_000_000)];

    /// The regular expression that a line has to match.
    pub fn pattern(&self) -> Option<&str> {
        match self {
            Self::Output { pattern }
            | Self::File { pattern, .. }
            | Self::Journal { pattern }
            | Self::Kernel { pattern } => Some(pattern),
            _ => None,
        }
    }

    /// Whether programs in the kernel wait for it.
    pub fn is_of_kernel(&self) -> bool {
        matches!(self, Self::Marker { .. } | Self::Call { .. } | Self::Xrun)
    }

    /// A call of a function of a file, which has a slash, so that a mistyped word is none; or of a static tracepoint.
    fn call(text: &str) -> Option<Result<Self, String>> {
        let is_place =
            text.starts_with("usdt:") || text.split_once(':').is_some_and(|(file, _)| file.contains('/'));
        let (place, condition) = match text.rsplit_once(':') {
            Some((place, condition)) if Condition::is_meant(condition) => (place, Some(condition)),
            _ => (text, None),
        };
        let parsed = || {
            let place: Mark = place
                .parse()
                .map_err(|_: String| format!("`{text}` is not FILE:FUNCTION or usdt:FILE:PROVIDER:NAME"))?;
            let condition = condition.map(str::parse::<Condition>).transpose()?;
            let is_of_function =
                condition.is_none_or(|it: Condition| matches!(it.operand, Operand::Argument(_)));
            if matches!(place, Mark::Usdt { .. }) && !is_of_function {
                return Err(format!(
                    "`{text}`: a static tracepoint has only arguments; `return` and `took` need a function"
                ));
            }
            Ok(Self::Call { place, condition })
        };
        is_place.then(parsed)
    }

    /// What `preset:NAME` or `preset:NAME:PATH` means: a line of a file; otherwise of the output of the program that the watch
    /// starts, or of the journal.
    fn of_preset(preset: &str, has_command: bool) -> Result<Self, String> {
        let (pattern, path) = preset::find(preset, has_command)?;
        Ok(match path {
            Some(path) => Self::File { path, pattern },
            None if has_command => Self::Output { pattern },
            None => Self::Journal { pattern },
        })
    }

    /// What `given` triggers are, with their places; checks the time before them, too.
    pub(super) fn parse_all(
        given: &[String],
        last: Option<Nanos>,
        has_command: bool,
    ) -> Result<Vec<(usize, Self)>, KeyError> {
        let error = |message| KeyError::new("triggers", message);
        let [least, most] = Self::LAST_BOUNDS;
        if last.is_some() && given.is_empty() {
            return Err(KeyError::new("last", "has no effect without a trigger; add a trigger"));
        }
        if last.is_some_and(|last| last < least || last > most) {
            return Err(KeyError::new("last", format!("must be from {least} to {most}")));
        }
        let mut all = Vec::new();
        for (nth, text) in given.iter().enumerate() {
            if given[..nth].contains(text) {
                return Err(error(format!("`{text}` is given twice")));
            }
            let trigger: Self = match text.strip_prefix("preset:") {
                Some(preset) => Self::of_preset(preset, has_command).map_err(error)?,
                None => text.parse().map_err(error)?,
            };
            if matches!(trigger, Self::Output { .. }) && !has_command {
                return Err(error(format!(
                    "`{text}` needs a program that the watch starts; for the log of a running program use file:PATH:REGEX or journal:REGEX"
                )));
            }
            all.push((nth, trigger));
        }
        Ok(all)
    }
}

impl FromStr for Trigger {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "socket" => return Ok(Self::Socket),
            "xrun" => return Ok(Self::Xrun),
            _ => {}
        }
        if let Some(call) = Self::call(text) {
            return call;
        }
        let unknown = || format!("`{text}` is not a trigger: choose from {FORMS}");
        let (kind, rest) = text.split_once(':').ok_or_else(unknown)?;
        let pattern = |pattern: &str| {
            if pattern.is_empty() {
                Err(format!("`{text}` has no regular expression"))
            } else {
                Ok(pattern.to_owned())
            }
        };
        let path = |path: &str| {
            if path.is_empty() { Err(format!("`{text}` has no path")) } else { Ok(PathBuf::from(path)) }
        };
        Ok(match kind {
            "output" => Self::Output { pattern: pattern(rest)? },
            "journal" => Self::Journal { pattern: pattern(rest)? },
            "kernel" => Self::Kernel { pattern: pattern(rest)? },
            "counter" => Self::Counter { path: path(rest)? },
            "file" => {
                let (name, line) = rest.split_once(':').unwrap_or((rest, ""));
                Self::File { path: path(name)?, pattern: pattern(line)? }
            }
            "signal" => {
                let name = rest.strip_prefix("SIG").unwrap_or(rest);
                let known = SIGNALS.into_iter().find(|(known, _)| *known == name);
                let (_, number) =
                    known.ok_or_else(|| format!("`{text}`: the signal must be USR1 or USR2"))?;
                Self::Signal { number }
            }
            "marker" => match text.parse::<Mark>()? {
                Mark::Marker { text } => Self::Marker { text },
                _ => return Err(unknown()),
            },
            _ => return Err(unknown()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Trigger {
        text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn every_form_is_read() {
        assert_eq!(parsed("output:Late: [0-9]+"), Trigger::Output { pattern: "Late: [0-9]+".to_owned() });
        let (path, pattern) = ("/var/log/klippy.log".into(), "Timer too close: x".to_owned());
        assert_eq!(parsed("file:/var/log/klippy.log:Timer too close: x"), Trigger::File { path, pattern });
        assert_eq!(parsed("journal:xrun").pattern(), Some("xrun"));
        assert_eq!(parsed("kernel:NETDEV").pattern(), Some("NETDEV"));
        let path = "/sys/class/net/eth0/statistics/rx_missed_errors".into();
        assert_eq!(
            parsed("counter:/sys/class/net/eth0/statistics/rx_missed_errors"),
            Trigger::Counter { path }
        );
        assert_eq!(parsed("signal:USR1"), Trigger::Signal { number: 10 });
        assert_eq!(parsed("signal:SIGUSR2"), Trigger::Signal { number: 12 });
        assert_eq!(parsed("socket"), Trigger::Socket);
        assert_eq!(
            (parsed("xrun"), parsed("marker:late: 1")),
            (Trigger::Xrun, Trigger::Marker { text: "late: 1".to_owned() })
        );
        let place = |text: &str| text.parse::<Mark>().unwrap();
        let call = |text: &str, condition: Option<&str>| Trigger::Call {
            place: place(text),
            condition: condition.map(|it| it.parse().unwrap()),
        };
        assert_eq!(parsed("/usr/bin/a:update"), call("/usr/bin/a:update", None));
        assert_eq!(parsed("./a:update:took>1ms"), call("./a:update", Some("took>1ms")));
        assert_eq!(parsed("usdt:a:p:late:arg2>=5"), call("usdt:a:p:late", Some("arg2>=5")));
        assert!(parsed("xrun").is_of_kernel() && !parsed("socket").is_of_kernel());
    }

    #[test]
    fn an_error_says_what_is_wrong_and_what_there_is() {
        let error = |text: &str| text.parse::<Trigger>().unwrap_err();
        assert!(
            error("stdout:late").contains("choose from output:REGEX") && error("late").contains("choose")
        );
        assert!(error("output:").contains("no regular expression"));
        assert!(error("file:/var/log/a").contains("no regular expression"));
        assert!(error("file::late").contains("no path") && error("counter:").contains("no path"));
        assert!(
            error("/bin/a:update:arg9>1").contains("arg1 to arg6")
                && error("usdt:a:b").contains("FILE:FUNCTION")
        );
        assert!(
            error("usdt:a:p:late:return<0").contains("only arguments")
                && error("marker:").contains("1 to 63 bytes")
        );
        assert!(error("signal:TERM").contains("USR1 or USR2"));
    }

    #[test]
    fn a_preset_is_a_line_of_the_place_where_the_program_writes() {
        let place = |preset: &str, has_command| match Trigger::of_preset(preset, has_command) {
            Ok(Trigger::File { path, .. }) => format!("file {}", path.display()),
            Ok(Trigger::Output { .. }) => "output".to_owned(),
            Ok(Trigger::Journal { .. }) => "journal".to_owned(),
            other => format!("{other:?}"),
        };
        let found = [
            ("jack", true),
            ("jack", false),
            ("klipper", false),
            ("klipper", true),
            ("srsran:/tmp/gnb.log", true),
        ]
        .map(|(preset, has_command)| place(preset, has_command));
        assert_eq!(found, ["output", "journal", "file /tmp/klippy.log", "output", "file /tmp/gnb.log"]);
    }

    #[test]
    fn triggers_need_what_they_are_about() {
        let check = |given: &[&str], last, has_command| {
            let given: Vec<String> = given.iter().map(|one| (*one).to_owned()).collect();
            Trigger::parse_all(&given, last, has_command).map_err(|error| (error.key, error.message))
        };
        assert_eq!(check(&["output:a", "socket"], None, true).unwrap().len(), 2);
        assert!(check(&["output:a"], None, false).unwrap_err().1.contains("a program that the watch starts"));
        assert!(check(&["socket", "socket"], None, false).unwrap_err().1.contains("twice"));
        assert_eq!(check(&[], Some(Trigger::LAST), false).unwrap_err().0, "last");
        assert_eq!(check(&["socket"], Some(Nanos(2_000_000_001)), false).unwrap_err().0, "last");
        assert!(check(&["socket"], Some(Nanos(1_000_000)), false).is_ok());
    }
}
