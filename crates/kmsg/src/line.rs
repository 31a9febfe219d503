//! One line of a log in any of its forms: the moment, the CPU or thread that printed it, the message.
//!
//! Forms: `dmesg` (plain, `-x`, `-T`, `-d`, `-e`, `--time-format iso`), /dev/kmsg, `journalctl -k` (short, short-iso,
//! short-monotonic, short-precise), syslog of old and new, all of them quoted in a mail.

/// A line of the log.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct LogLine {
    /// Since boot.
    pub(crate) at_ns: Option<u64>,
    /// The day and time, as it is written.
    pub(crate) wall: Option<String>,
    /// The CPU or the thread that printed it, where the kernel says so (CONFIG_PRINTK_CALLER).
    pub(crate) text: String,
    /// It begins like a line of a log. Other lines continue the one before, or belong to a log without times.
    pub(crate) stamped: bool,
}

/// The line without marks of quotation; `None` for a line of another program in the same file.
pub(crate) fn parse(raw: &str) -> Option<LogLine> {
    let text = unquoted(raw);
    let mut line = LogLine::default();
    let text = priority(text);
    if let Some((at_ns, rest)) = kmsg(text) {
        return Some(LogLine { at_ns: Some(at_ns), text: rest.to_owned(), stamped: true, wall: None });
    }
    let text = facility(text).inspect(|_| line.stamped = true).unwrap_or(text);
    let (wall, text) = wall(text);
    line.wall = wall.map(str::to_owned);
    let text = if line.wall.is_some() {
        line.stamped = true;
        // `host kernel: [  12.3] text`; dmesg has the text at once.
        match program(text) {
            Some(("kernel", rest)) => rest,
            Some(_) => return None,
            None => text,
        }
    } else {
        text.strip_prefix("kernel: ").inspect(|_| line.stamped = true).unwrap_or(text)
    };
    let text = stamp(text, &mut line);
    // `[  12.345678] host kernel: text` is journalctl's short-monotonic.
    let text = match program(text).filter(|_| line.stamped) {
        Some(("kernel", rest)) => rest,
        Some((other, _))
            if line.wall.is_none() && text.split_whitespace().nth(1) == Some(&format!("{other}:")) =>
        {
            text
        }
        _ => text,
    };
    text.trim().clone_into(&mut line.text);
    Some(line)
}

/// Without `> `, `| ` and spaces that mails and forums put before lines.
fn unquoted(raw: &str) -> &str {
    let mut text = raw.trim_end().trim_start_matches(['\u{feff}', ' ', '\t', '\u{a0}']);
    while let Some(rest) = text.strip_prefix('>').or_else(|| text.strip_prefix("| ")) {
        text = rest.trim_start_matches([' ', '\t', '\u{a0}']);
    }
    while let Some((_, rest)) = text.strip_prefix("\u{1b}[").and_then(|rest| rest.split_once('m')) {
        text = rest;
    }
    text
}

/// Without `<6>`.
fn priority(text: &str) -> &str {
    let inside = text.strip_prefix('<').and_then(|rest| rest.split_once('>'));
    inside.filter(|(number, _)| number.len() <= 3 && is_digits(number)).map_or(text, |(_, rest)| rest)
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// `6,1234,5678901,-;text`: priority, sequence, microseconds, flags.
fn kmsg(text: &str) -> Option<(u64, &str)> {
    let (head, rest) = text.split_once(';')?;
    let mut fields = head.split(',');
    let (priority, sequence, at_us) = (fields.next()?, fields.next()?, fields.next()?);
    fields.next()?;
    (is_digits(priority) && is_digits(sequence) && is_digits(at_us)).then_some(())?;
    Some((at_us.parse::<u64>().ok()?.checked_mul(1000)?, rest))
}

/// Without `kern  :warn  : `.
fn facility(text: &str) -> Option<&str> {
    const FACILITIES: [&str; 6] = ["kern", "user", "daemon", "syslog", "auth", "local"];
    let (facility, rest) = text.split_once(':')?;
    FACILITIES.contains(&facility.trim()).then_some(())?;
    let (level, rest) = rest.split_once(':')?;
    matches!(level.trim(), "emerg" | "alert" | "crit" | "err" | "warn" | "notice" | "info" | "debug")
        .then_some(())?;
    Some(rest.trim_start())
}

/// `Nov 27 20:03:26 `, `2024-01-01T12:00:00,123456+01:00 `, `[Mon Jan  1 12:00:00 2024] `.
fn wall(text: &str) -> (Option<&str>, &str) {
    if let Some((inside, rest)) = text.strip_prefix('[').and_then(|rest| rest.split_once(']'))
        && inside.split_whitespace().any(is_time)
    {
        return (Some(inside), rest.trim_start());
    }
    let mut end = 0;
    for (index, word) in text.split(' ').enumerate().take(5) {
        end += word.len() + 1;
        let iso =
            index == 0 && word.len() > 10 && word.as_bytes().get(10) == Some(&b'T') && is_time(&word[11..]);
        if iso || (index > 0 && is_time(word) && is_month(text)) {
            let (time, rest) = text.split_at(end.min(text.len()));
            return (Some(time.trim_end()), rest);
        }
    }
    (None, text)
}

fn is_month(text: &str) -> bool {
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    text.split_whitespace().take(2).any(|word| MONTHS.contains(&word))
}

/// `12:34:56`, also with a fraction.
fn is_time(word: &str) -> bool {
    let bytes = word.as_bytes();
    bytes.len() >= 8
        && [0, 1, 3, 4, 6, 7].iter().all(|at| bytes[*at].is_ascii_digit())
        && bytes[2] == b':'
        && bytes[5] == b':'
}

/// `host kernel: rest`, `host systemd[1]: rest`: the program, and what it wrote.
fn program(text: &str) -> Option<(&str, &str)> {
    let (head, rest) = text.split_once(": ")?;
    let mut words = head.split_whitespace();
    let (_host, program) = (words.next()?, words.next()?);
    words.next().is_none().then_some(())?;
    let program = program.split('[').next().unwrap_or(program);
    let is_name = !program.is_empty()
        && program.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_./()@".contains(&byte));
    is_name.then_some((program, rest))
}

/// Takes `[   12.345678]`, `[  +0.000012]` and `[T123]`, `[    C0]` behind it.
fn stamp<'t>(text: &'t str, line: &mut LogLine) -> &'t str {
    let Some((inside, rest)) = text.strip_prefix('[').and_then(|rest| rest.split_once(']')) else {
        return text;
    };
    let figure = inside.trim();
    if let Some(at_ns) = seconds(figure) {
        line.at_ns = Some(at_ns);
    } else if figure.strip_prefix('+').and_then(seconds).is_none() && !is_short_day(figure) {
        return text;
    }
    line.stamped = true;
    let rest = rest.trim_start();
    let caller = rest.strip_prefix('[').and_then(|rest| rest.split_once(']')).filter(|(caller, _)| {
        let caller = caller.trim();
        caller.strip_prefix(['T', 'C']).is_some_and(is_digits)
    });
    caller.map_or(rest, |(_, rest)| rest.trim_start())
}

/// `Nov27 20:03` of `dmesg -e`.
fn is_short_day(text: &str) -> bool {
    let mut words = text.split_whitespace();
    let (Some(day), Some(time), None) = (words.next(), words.next(), words.next()) else { return false };
    let time = time.as_bytes();
    day.get(..3).is_some_and(is_month) && time.len() == 5 && time[2] == b':'
}

/// `12.345678`, in nanoseconds.
fn seconds(text: &str) -> Option<u64> {
    let (whole, part) = text.split_once('.')?;
    (is_digits(whole) && is_digits(part) && part.len() <= 9).then_some(())?;
    let part_ns = part.parse::<u64>().ok()? * 10_u64.pow(9 - part.len() as u32);
    whole.parse::<u64>().ok()?.checked_mul(1_000_000_000)?.checked_add(part_ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(raw: &str) -> (Option<u64>, Option<String>, String, bool) {
        let line = parse(raw).unwrap();
        (line.at_ns, line.wall, line.text, line.stamped)
    }

    #[test]
    fn every_form_gives_the_same_message() {
        let text = "sched: RT throttling activated".to_owned();
        let at = Some(371_133_076_000);
        for raw in [
            "[  371.133076] sched: RT throttling activated",
            "> > [  371.133076] sched: RT throttling activated",
            "<4>[  371.133076] sched: RT throttling activated",
            "[  371.133076][   T12] sched: RT throttling activated",
            "[  371.133076] [    C3] sched: RT throttling activated",
            "kern  :warn  : [  371.133076] sched: RT throttling activated",
            "4,1234,371133076,-;sched: RT throttling activated",
            "4,1234,371133076,-,caller=T12;sched: RT throttling activated",
            "[  371.133076] host kernel: sched: RT throttling activated",
        ] {
            assert_eq!(parsed(raw), (at, None, text.clone(), true), "{raw}");
        }
        for raw in [
            "Nov 27 20:03:26 host kernel: [  371.133076] sched: RT throttling activated",
            "Nov  7 20:03:26.123456 host kernel: [  371.133076] sched: RT throttling activated",
            "2024-01-01T12:00:00.123456+01:00 host kernel: [  371.133076] sched: RT throttling activated",
        ] {
            let (at_ns, wall, message, stamped) = parsed(raw);
            assert_eq!((at_ns, wall.is_some(), message, stamped), (at, true, text.clone(), true), "{raw}");
        }
        for raw in [
            "Nov 27 20:03:26 host kernel: sched: RT throttling activated",
            "[Mon Nov 27 20:03:26 2026] sched: RT throttling activated",
            "kern  :warn  : [Mon Nov 27 20:03:26 2026] sched: RT throttling activated",
            "2024-01-01T12:00:00,123456+01:00 sched: RT throttling activated",
            "2024-01-01T12:00:00+0100 host kernel: sched: RT throttling activated",
        ] {
            let (at_ns, wall, message, stamped) = parsed(raw);
            assert_eq!((at_ns, wall.is_some(), message, stamped), (None, true, text.clone(), true), "{raw}");
        }
        assert_eq!(parsed("[  +0.000012] sched: RT throttling activated"), (None, None, text.clone(), true));
        assert_eq!(parsed("[Jun26 19:24] sched: RT throttling activated"), (None, None, text.clone(), true));
        assert_eq!(parsed("  sched: RT throttling activated"), (None, None, text.clone(), false));
        assert_eq!(parsed("kernel: sched: RT throttling activated"), (None, None, text, true));
    }

    #[test]
    fn lines_of_other_programs_are_left_out() {
        assert_eq!(parse("Nov 27 20:03:26 host systemd[1]: Started it: RT throttling activated"), None);
        assert_eq!(parse("2024-01-01T12:00:00+0100 host sshd[12]: RT throttling activated"), None);
    }

    #[test]
    fn messages_with_colons_stay_whole() {
        assert_eq!(
            parsed("[    1.5] usb 1-1: reset high-speed USB device").2,
            "usb 1-1: reset high-speed USB device"
        );
        assert_eq!(parsed("[    1.5] [drm] *ERROR* x").2, "[drm] *ERROR* x");
    }
}
