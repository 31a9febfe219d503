//! What files store about the traced machine: formats, symbols, texts, commands. trace.dat has it, and perf.data, which uses
//! trace.dat's original form.

use super::ParseError;
use super::bytes::ByteOrder;
use super::format::EventFormat;
use super::input::{SECTION_BYTES_MAX, Scan};
use super::printk::PrintkFormats;
use super::symbols::{Place, Symbols};
use super::texts::Texts;
use super::tracepoint::{Decoder, Kernel, Release};

/// First bytes of a description of the traced machine, and of every trace.dat.
pub(super) const MAGIC: [u8; 10] = *b"\x17\x08Dtracing";

/// Numbers of events have 16 bits.
const FORMATS_MAX: usize = 1 << 16;

/// What stands at the start of such a description.
pub(super) struct Head {
    pub(super) version: String,
    /// Bytes of a `long` of the traced machine: 4 or 8.
    pub(super) long_bytes: usize,
    pub(super) page_bytes: u32,
}

impl Head {
    /// Reads what follows the magic number, and sets the byte order.
    pub(super) fn read(scan: &mut Scan<'_>) -> Result<Self, ParseError> {
        let version = scan.terminated()?;
        scan.order = match scan.u8()? {
            0 => ByteOrder::Little,
            1 => ByteOrder::Big,
            other => {
                return Err(scan.input().damaged(scan.position - 1, format!("{other} is not a byte order")));
            }
        };
        let long_bytes = usize::from(scan.u8()?);
        if !matches!(long_bytes, 4 | 8) {
            return Err(scan
                .input()
                .damaged(scan.position - 1, format!("{long_bytes} is not the size of a long")));
        }
        let page_bytes = scan.u32()?;
        if !page_bytes.is_power_of_two() || page_bytes > super::ring_buffer::PAGE_BYTES_MAX as u32 {
            return Err(scan.input().damaged(scan.position - 4, format!("{page_bytes} is not a page size")));
        }
        Ok(Self { version, long_bytes, page_bytes })
    }
}

/// What the file stores about the traced machine.
#[derive(Debug, Default)]
pub(super) struct Metadata {
    /// `events/header_page`.
    pub(super) header_page: String,
    /// Formats of all events, ftrace's own first.
    pub(super) formats: Vec<EventFormat>,
    /// Bytes of all of them.
    pub(super) format_bytes: u64,
    pub(super) symbols: Symbols,
    pub(super) printk: PrintkFormats,
    /// `saved_cmdlines`.
    pub(super) commands: String,
}

impl Metadata {
    /// The parts up to the texts, one after the other.
    pub(super) fn read(scan: &mut Scan<'_>) -> Result<Self, ParseError> {
        let mut metadata = Self::default();
        metadata.header(scan)?;
        metadata.ftrace_formats(scan)?;
        metadata.event_formats(scan)?;
        let bytes = u64::from(scan.u32()?);
        let (input, offset) = (scan.input().clone(), scan.position);
        scan.skip(bytes)?;
        metadata.symbols = Symbols::at(Place { input, offset, bytes, packed: None, head_bytes: 0 });
        metadata.printk(scan)?;
        Ok(metadata)
    }

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
        self.formats(scan, "ftrace")
    }

    /// The formats of all other events, system by system.
    pub(super) fn event_formats(&mut self, scan: &mut Scan<'_>) -> Result<(), ParseError> {
        let systems = scan.u32()?;
        for _ in 0..plausible(scan, systems, 5)? {
            let system = scan.terminated()?;
            self.formats(scan, &system)?;
        }
        Ok(())
    }

    fn formats(&mut self, scan: &mut Scan<'_>, system: &str) -> Result<(), ParseError> {
        let count = scan.u32()?;
        for _ in 0..plausible(scan, count, 8)? {
            let length = scan.u64()?;
            // Go on after an event whose format cannot be parsed: its records become events
            // without a format.
            let text = scan.text(length)?;
            self.format_bytes = self.format_bytes.saturating_add(length);
            if self.format_bytes > SECTION_BYTES_MAX || self.formats.len() >= FORMATS_MAX {
                return Err(scan.damaged("the formats of all events are too long"));
            }
            self.formats.extend(EventFormat::parse(system, text));
        }
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

    /// The full names of all events.
    pub(super) fn recorded(&self) -> Vec<String> {
        self.formats.iter().map(EventFormat::full_name).collect()
    }

    /// The decoder for records of a kernel of that `release`, and the texts to start with.
    pub(super) fn decoder(
        self,
        order: ByteOrder,
        long_bytes: usize,
        release: Option<&str>,
        symbols: &Symbols,
    ) -> (Decoder, Texts) {
        let mut texts = Texts::default();
        texts.printk = self.printk;
        texts.learn_commands(&self.commands);
        let kernel = Kernel { order, long_bytes, release: release.and_then(Release::parse) };
        (Decoder::new(kernel, self.formats, symbols, &mut texts), texts)
    }
}

fn expect(scan: &mut Scan<'_>, name: &str) -> Result<(), ParseError> {
    let at = scan.position;
    let found = scan.bytes(name.len() as u64 + 1)?;
    if found.split_last() == Some((&0, name.as_bytes())) {
        return Ok(());
    }
    Err(scan.input().damaged(at, format!("`{name}` is expected here")))
}

/// Whether a claimed count is possible: each item has at least `bytes_each` bytes.
pub(super) fn plausible(scan: &Scan<'_>, count: u32, bytes_each: u64) -> Result<u32, ParseError> {
    let left = scan.input().length().saturating_sub(scan.position);
    if u64::from(count).saturating_mul(bytes_each) > left {
        return Err(scan.damaged(format!("{count} entries do not fit into the {left} bytes that are left")));
    }
    Ok(count)
}
