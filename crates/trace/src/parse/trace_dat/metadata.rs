//! The parts that both versions have in the same form: page header, formats, symbols, texts, commands.

use super::plausible;
use crate::parse::ParseError;
use crate::parse::format::Outline;
use crate::parse::input::Scan;
use crate::parse::symbols::{Place, Symbols};
use crate::parse::printk::PrintkFormats;

/// What the file keeps of the traced machine.
#[derive(Debug, Default)]
pub(super) struct Metadata {
    /// `events/header_page`.
    pub(super) header_page: String,
    /// Formats of all events, ftrace's own first.
    pub(super) formats: Vec<Outline>,
    pub(super) symbols: Symbols,
    pub(super) printk: PrintkFormats,
    /// `saved_cmdlines`.
    pub(super) commands: String,
}

impl Metadata {
    /// `header_page` and `header_event`, each with its name and length before it.
    pub(super) fn header(&mut self, scan: &mut Scan<'_>) -> Result<(), ParseError> {
        expect(scan, "header_page")?;
        let length = scan.u64()?;
        self.header_page = scan.text(length)?;
        expect(scan, "header_event")?;
        let length = scan.u64()?;
        scan.bytes(length).map(drop)
    }

    /// The formats of ftrace's own events.
    pub(super) fn ftrace_formats(&mut self, scan: &mut Scan<'_>) -> Result<(), ParseError> {
        let count = scan.u32()?;
        self.formats(scan, "ftrace", count)
    }

    /// The formats of all other events, system by system.
    pub(super) fn event_formats(&mut self, scan: &mut Scan<'_>) -> Result<(), ParseError> {
        let systems = scan.u32()?;
        for _ in 0..plausible(scan, systems, 5)? {
            let system = scan.terminated()?;
            let count = scan.u32()?;
            self.formats(scan, &system, count)?;
        }
        Ok(())
    }

    fn formats(&mut self, scan: &mut Scan<'_>, system: &str, count: u32) -> Result<(), ParseError> {
        for _ in 0..plausible(scan, count, 8)? {
            let length = scan.u64()?;
            let text = scan.text(length)?;
            // One exotic event that cannot be understood does not make the others unreadable: its records are told
            // to have no format.
            self.formats.extend(Outline::parse(system, text));
        }
        Ok(())
    }

    pub(super) fn symbols(&mut self, scan: &mut Scan<'_>) -> Result<(), ParseError> {
        let bytes = u64::from(scan.u32()?);
        let (input, offset) = (scan.input().clone(), scan.position);
        scan.skip(bytes)?;
        self.symbols = Symbols::at(Place { input, offset, bytes, packed: None, head_bytes: 0 });
        Ok(())
    }

    pub(super) fn printk(&mut self, scan: &mut Scan<'_>) -> Result<(), ParseError> {
        let length = scan.u32()?;
        self.printk = PrintkFormats::parse(&scan.text(u64::from(length))?);
        Ok(())
    }

    pub(super) fn commands(&mut self, scan: &mut Scan<'_>) -> Result<(), ParseError> {
        let length = scan.u64()?;
        self.commands = scan.text(length)?;
        Ok(())
    }
}

fn expect(scan: &mut Scan<'_>, name: &str) -> Result<(), ParseError> {
    let at = scan.position;
    let length = name.len() as u64 + 1;
    let found = scan.bytes(length)?;
    if found.split_last() == Some((&0, name.as_bytes())) {
        return Ok(());
    }
    Err(scan.input().damaged(at, format!("`{name}` is expected here")))
}
