//! The section that describes tracepoints: what perf copied of tracefs, in the form that trace.dat began with.

use super::header::Section;
use crate::parse::ParseError;
use crate::parse::bytes::ByteOrder;
use crate::parse::format::Outline;
use crate::parse::input::{Input, Scan};
use crate::parse::symbols::Symbols;
use crate::parse::printk::PrintkFormats;

const MAGIC: &[u8] = b"\x17\x08\x44tracing";
/// Systems and events that a kernel can have: beyond, the file is damaged.
const EVENTS_MAX: u32 = 1 << 16;

/// What the section says.
#[derive(Debug, Default)]
pub(super) struct Tracing {
    pub(super) formats: Vec<Outline>,
    pub(super) symbols: Symbols,
    pub(super) printk: PrintkFormats,
    pub(super) commands: String,
    pub(super) long_bytes: usize,
}

impl Tracing {
    /// Reads the section.
    pub(super) fn read(input: &Input, section: Section, order: ByteOrder) -> Result<Self, ParseError> {
        let mut scan = input.scan(section.offset, order);
        if scan.bytes(MAGIC.len() as u64)? != MAGIC {
            return Err(input.damaged(section.offset, "the description of the tracepoints is expected here"));
        }
        let version = scan.terminated()?;
        let big_endian = scan.u8()?;
        scan.order = if big_endian == 0 { ByteOrder::Little } else { ByteOrder::Big };
        let mut tracing = Self { long_bytes: usize::from(scan.u8()?), ..Self::default() };
        scan.u32()?;
        tracing.heads(&mut scan)?;
        let count = scan.u32()?;
        tracing.formats(&mut scan, "ftrace", count)?;
        for _ in 0..plausible(&mut scan)? {
            let system = scan.terminated()?;
            let count = scan.u32()?;
            tracing.formats(&mut scan, &system, count)?;
        }
        let length = scan.u32()?;
        tracing.symbols = Symbols::parse(scan.text(u64::from(length))?);
        let length = scan.u32()?;
        tracing.printk = PrintkFormats::parse(&scan.text(u64::from(length))?);
        // Version 0.6 and later.
        let has_commands = version.split_once('.').is_some_and(|(_, minor)| minor >= "6");
        if has_commands && scan.position < section.offset.saturating_add(section.bytes) {
            let length = scan.u64()?;
            tracing.commands = scan.text(length)?;
        }
        Ok(tracing)
    }

    /// `header_page` and `header_event`: perf's records need neither.
    fn heads(&mut self, scan: &mut Scan<'_>) -> Result<(), ParseError> {
        for name in ["header_page", "header_event"] {
            let at = scan.position;
            if scan.terminated()? != name {
                return Err(scan.input().damaged(at, format!("`{name}` is expected here")));
            }
            let length = scan.u64()?;
            scan.text(length)?;
        }
        Ok(())
    }

    fn formats(&mut self, scan: &mut Scan<'_>, system: &str, count: u32) -> Result<(), ParseError> {
        for _ in 0..count.min(EVENTS_MAX) {
            let length = scan.u64()?;
            let text = scan.text(length)?;
            // An event that cannot be understood does not make the others unreadable.
            self.formats.extend(Outline::parse(system, text));
        }
        Ok(())
    }
}

/// A number of systems.
fn plausible(scan: &mut Scan<'_>) -> Result<u32, ParseError> {
    let at = scan.position;
    let count = scan.u32()?;
    if count > EVENTS_MAX {
        return Err(scan.input().damaged(at, format!("there cannot be {count} systems of events")));
    }
    Ok(count)
}
