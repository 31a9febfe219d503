//! Version 7: sections anywhere in the file, found through options; each section and the events may be packed.

use super::options::{Options, id};
use super::{Buffer, Contents, CpuData, foreign, plausible};
use crate::parse::ParseError;
use crate::parse::bytes::ByteOrder;
use crate::parse::input::{Input, Scan};
use crate::parse::metadata::Metadata;
use crate::parse::symbols::{Place, Symbols};
use crate::parse::unpack::Algorithm;
use whylate_core::CpuId;

/// The section is packed.
const PACKED: u16 = 1;
/// Sections of options follow each other; more than this is a circle.
const OPTION_SECTIONS_MAX: usize = 4096;

/// The header of a section.
struct Section {
    id: u16,
    packed: bool,
    bytes: u64,
}

struct File<'a> {
    input: &'a Input,
    order: ByteOrder,
    algorithm: Algorithm,
    metadata: Metadata,
    options: Options,
    buffers: Vec<Buffer>,
    text: bool,
}

/// Reads what follows the file's header.
pub(super) fn read(mut scan: Scan<'_>, page_bytes: u32) -> Result<Contents, ParseError> {
    let name = scan.terminated()?;
    let _version = scan.terminated()?;
    let Some(algorithm) = Algorithm::named(&name) else {
        let found = format!("a trace.dat packed with {name:?}; it must be zlib, zstd or none");
        return Err(foreign(scan.input(), &found));
    };
    let mut file = File {
        input: scan.input(),
        order: scan.order,
        algorithm,
        metadata: Metadata::default(),
        options: Options::default(),
        buffers: Vec::new(),
        text: false,
    };
    let mut next = scan.u64()?;
    for _ in 0..OPTION_SECTIONS_MAX {
        if next == 0 {
            let File { order, metadata, options, buffers, text, .. } = file;
            let text = text && buffers.is_empty();
            return Ok(Contents { order, page_bytes, algorithm, metadata, options, buffers, text });
        }
        next = file.options(next)?;
    }
    Err(scan.input().damaged(next, "the sections of options go in a circle"))
}

impl File<'_> {
    /// The header of the section at `offset`, and what is behind it.
    fn section(&self, offset: u64) -> Result<(Section, Scan<'_>), ParseError> {
        let mut scan = self.input.scan(offset, self.order);
        let (id, flags, _name) = (scan.u16()?, scan.u16()?, scan.u32()?);
        let section = Section { id, packed: flags & PACKED != 0, bytes: scan.u64()? };
        Ok((section, scan))
    }

    /// Where the contents of the section at `offset` are.
    fn place(&self, offset: u64, id: u16) -> Result<Place, ParseError> {
        let (section, mut scan) = self.section(offset)?;
        if section.id != id {
            let message = format!("section {id} is expected here, but it is {}", section.id);
            return Err(self.input.damaged(offset, message));
        }
        let (bytes, packed) = match section.packed {
            true => (u64::from(scan.u32()?), Some((self.algorithm, scan.u32()? as usize))),
            false => (section.bytes, None),
        };
        let offset = scan.position;
        scan.skip(bytes)?;
        Ok(Place { input: self.input.clone(), offset, bytes, packed, head_bytes: 0 })
    }

    /// The contents of the section at `offset`, unpacked.
    fn contents(&self, offset: u64, id: u16) -> Result<Input, ParseError> {
        let place = self.place(offset, id)?;
        Ok(self.input.section(place.offset, place.unpacked()?))
    }

    /// Reads a section of options; where the next one is, or 0.
    fn options(&mut self, offset: u64) -> Result<u64, ParseError> {
        let contents = self.contents(offset, id::DONE)?;
        let mut scan = contents.scan(0, self.order);
        while scan.position < contents.length() {
            let option = scan.u16()?;
            let length = scan.u32()?;
            let end = scan.position.saturating_add(u64::from(length));
            match option {
                id::DONE => return if length >= 8 { scan.u64() } else { Ok(0) },
                id::BUFFER => {
                    let buffer = self.buffer(&mut scan, end)?;
                    self.buffers.push(buffer);
                }
                id::BUFFER_TEXT => self.text = true,
                id::HEADER..=id::COMMANDS => {
                    let at = scan.u64()?;
                    self.metadata(option, at)?;
                }
                _ => {
                    let data = scan.bytes(u64::from(length))?;
                    self.options.take(option, &data, self.order);
                }
            }
            scan.position = end;
        }
        Err(scan.damaged("the section of options has no end"))
    }

    fn metadata(&mut self, option: u16, offset: u64) -> Result<(), ParseError> {
        if option == id::SYMBOLS {
            self.metadata.symbols = Symbols::at(Place { head_bytes: 4, ..self.place(offset, option)? });
            return Ok(());
        }
        let contents = self.contents(offset, option)?;
        let mut scan = contents.scan(0, self.order);
        match option {
            id::HEADER => self.metadata.header(&mut scan),
            id::FTRACE_EVENTS => self.metadata.ftrace_formats(&mut scan),
            id::EVENT_FORMATS => self.metadata.event_formats(&mut scan),
            id::PRINTK => self.metadata.printk(&mut scan),
            _ => self.metadata.commands(&mut scan),
        }
    }

    /// The option that describes a buffer; it ends at `end`.
    fn buffer(&self, scan: &mut Scan<'_>, end: u64) -> Result<Buffer, ParseError> {
        let offset = scan.u64()?;
        let name = scan.terminated()?;
        let clock = Some(scan.terminated()?).filter(|clock| !clock.is_empty());
        // The first files of version 7 had no page size here: the rest is a count and 20 bytes for each CPU.
        let page_bytes = if end.saturating_sub(scan.position) % 20 == 8 { Some(scan.u32()?) } else { None };
        let count = scan.u32()?;
        let mut cpus = Vec::new();
        for _ in 0..plausible(scan, count, 20)? {
            cpus.push(CpuData { cpu: CpuId(scan.u32()?), offset: scan.u64()?, bytes: scan.u64()? });
        }
        let (section, _) = self.section(offset)?;
        if section.id != id::BUFFER {
            let message =
                format!("the events of buffer {name:?} are expected here, but it is section {}", section.id);
            return Err(self.input.damaged(offset, message));
        }
        Ok(Buffer { name, clock, page_bytes, packed: section.packed, cpus })
    }
}
