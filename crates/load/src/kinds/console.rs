//! The console load: lines of random text on a terminal, without pause.
//!
//! The screen of a virtual console is read before (`/dev/vcsaN`) and written back at the end.

use super::events::{Act, Acts, Keys};
use crate::error::LoadError;
use rustix::fs::OFlags;
use std::fs::{self, File};
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;
use whylate_copy::Random;
use whylate_core::plan::ConsolePlan;

/// The virtual console that is shown now.
const SHOWN: &str = "/dev/tty0";
/// Length of a line without its end.
const LINE: usize = 78;
/// Time after which a terminal that takes nothing is tried again.
const PAUSE: Duration = Duration::from_millis(1);

fn unavailable(why: &str) -> LoadError {
    LoadError::Unavailable(format!("the console load: {why}"))
}

struct Terminal {
    path: PathBuf,
    file: File,
    random: Random,
    /// The screen: where its contents are, and what they were.
    before: Option<(PathBuf, Vec<u8>)>,
    /// The rest of the text of the last turn.
    text: Vec<u8>,
}

impl Terminal {
    fn open(plan: &ConsolePlan) -> Result<Self, LoadError> {
        let path = plan.device.clone().unwrap_or_else(|| SHOWN.into());
        let refused = |error: &dyn std::fmt::Display| unavailable(&format!("{}: {error}", path.display()));
        if plan.device.is_none() && !path.exists() {
            let why =
                "this kernel has no virtual consoles (/dev/tty0 is missing); name a terminal with `device`";
            return Err(unavailable(why));
        }
        let flags = OFlags::NOCTTY | OFlags::NONBLOCK;
        let file = File::options().write(true).custom_flags(flags.bits() as i32).open(&path);
        let file = file.map_err(|error| refused(&error))?;
        if !file.is_terminal() {
            return Err(refused(&"is not a terminal; name one such as /dev/tty1"));
        }
        if !plan.yes_draw_on_my_screen {
            return Err(unavailable(&format!(
                "someone may be using {}; confirm with `--yes-draw-on-my-screen`, or choose another terminal",
                path.display()
            )));
        }
        let before = screen_of(&path).and_then(|screen| Some((screen.clone(), fs::read(screen).ok()?)));
        Ok(Self { path, file, random: Random::new(1), before, text: Vec::new() })
    }
}

/// The screen of a virtual console with colours and cursor: `/dev/vcsa2` of `/dev/tty2`.
fn screen_of(path: &Path) -> Option<PathBuf> {
    let shown = || fs::read_to_string("/sys/class/tty/tty0/active").ok();
    let name = match path.to_str()? {
        SHOWN => shown()?.trim().to_owned(),
        other => other.strip_prefix("/dev/")?.to_owned(),
    };
    let number: u32 = name.strip_prefix("tty")?.parse().ok()?;
    Some(format!("/dev/vcsa{number}").into())
}

impl Act for Terminal {
    fn describe(&self) -> String {
        format!("lines of {LINE} letters on {}", self.path.display())
    }

    fn turn(&mut self) -> io::Result<u64> {
        if self.text.is_empty() {
            self.text.extend((0..LINE).map(|_| b'!' + self.random.below(94) as u8));
            self.text.extend(*b"\r\n");
        }
        put(&mut self.file, &mut self.text)
    }
}

/// Writes what the terminal takes now; how many lines that ended.
fn put(terminal: &mut impl Write, text: &mut Vec<u8>) -> io::Result<u64> {
    let written = match terminal.write(text) {
        Ok(written) => written,
        Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
        Err(error) => return Err(error),
    };
    if written == 0 {
        thread::sleep(PAUSE);
    }
    Ok(text.drain(..written).filter(|letter| *letter == b'\n').count() as u64)
}

impl Drop for Terminal {
    fn drop(&mut self) {
        if let Some((screen, before)) = &self.before {
            // A console that is gone shows nothing.
            let _ = fs::write(screen, before);
        }
    }
}

impl Acts for ConsolePlan {
    const NAME: &'static str = "console";
    const ONE_THREAD: bool = true;

    fn unit(&self) -> &'static str {
        "lines_per_s"
    }

    fn keys(&self) -> Keys<'_> {
        Keys { cpus: &self.cpus, victims: None, rate: self.rate.as_pace() }
    }

    fn act(&self, _workers: usize) -> Result<Box<dyn Act>, LoadError> {
        Ok(Box::new(Terminal::open(self)?))
    }

    fn check(&self) -> Result<(), LoadError> {
        Terminal::open(self).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes this many letters, and no more.
    struct Slow {
        left: usize,
        taken: Vec<u8>,
    }

    impl Write for Slow {
        fn write(&mut self, letters: &[u8]) -> io::Result<usize> {
            let taken = letters.len().min(self.left);
            self.left -= taken;
            self.taken.extend(&letters[..taken]);
            if taken == 0 { Err(ErrorKind::WouldBlock.into()) } else { Ok(taken) }
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_terminal_gets_every_letter_once_and_may_take_none() {
        let mut terminal = Slow { left: 4, taken: Vec::new() };
        let mut text = b"one\ntwo\n".to_vec();
        assert_eq!(put(&mut terminal, &mut text).unwrap(), 1);
        assert_eq!(put(&mut terminal, &mut text).unwrap(), 0);
        terminal.left = 2;
        assert_eq!(put(&mut terminal, &mut text).unwrap(), 0);
        terminal.left = 9;
        assert_eq!(put(&mut terminal, &mut text).unwrap(), 1);
        assert!(text.is_empty() && terminal.taken == b"one\ntwo\n");
    }

    #[test]
    fn without_permission_and_without_a_terminal_it_is_refused() {
        if File::open(SHOWN).is_ok_and(|file| file.is_terminal()) {
            let error = ConsolePlan::default().check().unwrap_err().to_string();
            assert!(error.contains("--yes-draw-on-my-screen"), "{error}");
        }
        let (device, yes_draw_on_my_screen) = (Some("/dev/null".into()), true);
        let plan = ConsolePlan { device, yes_draw_on_my_screen, ..ConsolePlan::default() };
        assert!(plan.check().unwrap_err().to_string().contains("is not a terminal"));
        assert_eq!(screen_of(Path::new("/dev/tty3")), Some("/dev/vcsa3".into()));
        assert_eq!(screen_of(Path::new("/dev/ttyS0")), None);
    }
}
