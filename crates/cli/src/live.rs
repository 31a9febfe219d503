//! A view that fills the terminal and takes keys, for `watch` and `top`. A separate thread draws it on standard
//! error, so that standard output has only the result; the terminal is restored whatever happens.

use ratatui::buffer::Buffer;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::Line;
use ratatui::widgets::{Paragraph, Widget as _, Wrap};
use ratatui::{Terminal, backend::CrosstermBackend};
use std::io::{self, IsTerminal as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use whylate_core::text;

/// The longest delay of a key or a new figure.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// The strip of the last seconds, up to the largest among them.
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// Whether the terminal shows a view now.
static HAS_SCREEN: AtomicBool = AtomicBool::new(false);

pub(crate) trait View: Send + 'static {
    /// Draws the whole view.
    fn draw(&mut self, area: Rect, buffer: &mut Buffer);
    /// Handles every key but `q`.
    fn key(&mut self, key: KeyCode);
}

pub(crate) struct LiveScreen<V: View> {
    view: Arc<Mutex<V>>,
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl<V: View> LiveScreen<V> {
    /// Whether there is a terminal to draw on and to read keys from.
    pub(crate) fn is_possible() -> bool {
        io::stderr().is_terminal() && io::stdin().is_terminal()
    }

    /// Takes over the terminal. `q` and Ctrl-C set `asked_to_stop`.
    pub(crate) fn start(view: V, asked_to_stop: Arc<AtomicBool>) -> io::Result<Self> {
        let (view, ended) = (Arc::new(Mutex::new(view)), Arc::new(AtomicBool::new(false)));
        enable_raw_mode()?;
        HAS_SCREEN.store(true, Ordering::Relaxed);
        let entered = execute!(io::stderr(), EnterAlternateScreen);
        let terminal = entered.and_then(|()| Terminal::new(CrosstermBackend::new(io::stderr())));
        let mut terminal = terminal.inspect_err(|_| restore())?;
        let (shared, over) = (view.clone(), ended.clone());
        let work = move || {
            while !over.load(Ordering::Relaxed) {
                let drawn = terminal.draw(|frame| {
                    let area = frame.area();
                    lock(&shared).draw(area, frame.buffer_mut());
                });
                // A terminal that is gone takes no output and no keys; the hangup was already reported.
                if drawn.is_err() || !take_keys(&shared, &asked_to_stop) {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name("view".to_owned()).spawn(work);
        Ok(Self { view, ended, thread: Some(thread.inspect_err(|_| restore())?) })
    }

    pub(crate) fn update(&self, change: impl FnOnce(&mut V)) {
        change(&mut lock(&self.view));
    }
}

impl<V: View> Drop for LiveScreen<V> {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        _ = self.thread.take().map(JoinHandle::join);
        restore();
    }
}

fn lock<V>(view: &Mutex<V>) -> MutexGuard<'_, V> {
    view.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits for a moment, and handles keys; `false` if none can come.
fn take_keys(view: &Mutex<impl View>, asked_to_stop: &AtomicBool) -> bool {
    let Ok(mut has_event) = event::poll(LOOK_EVERY) else { return false };
    while has_event {
        match event::read() {
            Ok(Event::Key(key)) if key.kind == KeyEventKind::Press => {
                let is_end = key.code == KeyCode::Char('q')
                    || key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
                if is_end {
                    asked_to_stop.store(true, Ordering::Relaxed);
                } else {
                    lock(view).key(key.code);
                }
            }
            Ok(_) => {}
            Err(_) => return false,
        }
        has_event = event::poll(Duration::ZERO).unwrap_or(false);
    }
    true
}

/// Restores the terminal if a view has it; also called before the process ends at once.
pub(crate) fn restore() {
    if HAS_SCREEN.swap(false, Ordering::Relaxed) {
        _ = disable_raw_mode();
        _ = execute!(io::stderr(), LeaveAlternateScreen, Show);
    }
}

/// Writes a line at a row of an area, without characters that would move the cursor; ends in `…` if it is cut at the
/// right edge.
pub(crate) fn line(buffer: &mut Buffer, area: Rect, row: usize, words: &str, style: Style) {
    let Ok(row) = u16::try_from(row) else { return };
    if row < area.height {
        let (y, words) = (area.y + row, text::line(words));
        buffer.set_stringn(area.x, y, &words, usize::from(area.width), style);
        if area.width > 1 && Line::raw(words).width() > usize::from(area.width) {
            buffer.set_stringn(area.right() - 1, y, "…", 1, style);
        }
    }
}

/// Writes lines, each broken between words if the area is too narrow for it.
pub(crate) fn paragraphs(buffer: &mut Buffer, area: Rect, lines: &[&str]) {
    let lines: Vec<Line<'_>> = lines.iter().map(|words| Line::raw(text::line(words))).collect();
    Paragraph::new(lines).wrap(Wrap { trim: false }).render(area, buffer);
}

/// The largest latencies of the last intervals as bars.
pub(crate) fn strip(largest_ns: &[u64]) -> String {
    let top = largest_ns.iter().copied().max().unwrap_or(0).max(1);
    let bar = |ns: &u64| if *ns == 0 { ' ' } else { BARS[(u128::from(*ns) * 7 / u128::from(top)) as usize] };
    largest_ns.iter().map(bar).collect()
}

/// A view as text of that size, without the empty lines at its end.
#[cfg(test)]
pub(crate) fn as_text(view: &mut impl View, width: u16, height: u16) -> String {
    let area = Rect::new(0, 0, width, height);
    let mut buffer = Buffer::empty(area);
    view.draw(area, &mut buffer);
    let cells: Vec<&str> = buffer.content().iter().map(|cell| cell.symbol()).collect();
    let rows = cells.chunks(usize::from(width.max(1))).map(|row| row.concat().trim_end().to_owned());
    rows.collect::<Vec<_>>().join("\n").trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_strip_is_as_high_as_its_largest() {
        assert_eq!(strip(&[0, 10, 70]), " ▂█");
        assert_eq!(strip(&[u64::MAX, 0]), "█ ");
        assert_eq!(strip(&[]), "");
    }
}
