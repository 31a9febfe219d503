//! Lines by which well-known programs say that they were late.

use std::path::PathBuf;

/// Each preset: its name, the regular expression, and the log file of programs that write to no other place.
const PRESETS: [(&str, &str, Option<&str>); 6] = [
    (
        "jack",
        r"JackEngine::XRun|JackTimedDriver::Process XRun|xrun of at least [0-9.]+ msecs|exceeds estimated spare time|ProcessGraph(Async\w*|Sync): Process error|ALSA: poll time out",
        None,
    ),
    (
        "pipewire",
        r"client too slow!|client missed [0-9]+ wakeups|graph xrun|node xrun state|XRun! (rate|count):|xrun of [0-9]+ usec|snd_pcm_avail after recover",
        None,
    ),
    ("linuxcnc", r"[Uu]nexpected realtime delay on task|error finishing read! iter", None),
    ("ros2_control", r"Overrun detected!|Overrun might occur", None),
    (
        "srsran",
        r"Real-time failure in|Detected Real-Time failure|RF status: O=[0-9]+, U=[0-9]+, L=[0-9]+|Late: [0-9]+; Underflow: [0-9]+; Overflow: [0-9]+;",
        None,
    ),
    (
        "klipper",
        r"shutdown: (Timer too close|Missed scheduling of next|Rescheduled timer in the past|Stepper too far in past)|Lost communication with MCU",
        Some("/tmp/klippy.log"),
    ),
];

/// The regular expression of `NAME` or `NAME:PATH`, and the file whose lines it is for: that path, or the log file of programs
/// that the watch does not start.
pub(super) fn find(preset: &str, has_command: bool) -> Result<(String, Option<PathBuf>), String> {
    let (name, path) = match preset.split_once(':') {
        Some((name, path)) => (name, Some(path)),
        None => (preset, None),
    };
    let known = PRESETS.into_iter().find(|(known, ..)| *known == name);
    let (_, pattern, file) = known.ok_or_else(|| {
        let names = PRESETS.map(|(name, ..)| name).join(", ");
        format!("`preset:{name}` is not a preset: choose from {names}")
    })?;
    if path == Some("") {
        return Err(format!("`preset:{name}:` has no path"));
    }
    Ok((pattern.to_owned(), path.or(file.filter(|_| !has_command)).map(PathBuf::from)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_preset_is_answered_with_those_that_exist() {
        assert!(find("reaper", true).unwrap_err().contains("choose from jack, pipewire"));
        assert!(find("jack:", true).unwrap_err().contains("no path"));
        assert_eq!(find("klipper", false).unwrap().1, Some("/tmp/klippy.log".into()));
    }
}
