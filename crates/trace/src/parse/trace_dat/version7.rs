//! Version 7: sections anywhere in the file, found through options; each section and the events may be packed.

use super::options::id;
use super::{Buffer, Contents, CpuData, foreign, plausible};
use crate::parse::ParseError;
use crate::parse::input::{Input, Scan};
use crate::parse::symbols::{Place, Symbols};
use crate::parse::unpack::Algorithm;
use std::cell::Cell;
use whylate_core::CpuId;

const PACKED: u16 = 1;
/// Bytes of the header of a section.
const HEADER_BYTES: u64 = 16;

struct Section {
    id: u16,
    packed: bool,
    bytes: u64,
}

struct File<'a> {
    input: &'a Input,
    contents: Contents,
    /// The bytes that its sections may still have: each is read once, so together they have at most the file's size.
    /// Otherwise a few packed bytes, named repeatedly, could be unpacked for minutes.
    left: Cell<u64>,
}

/// Reads what follows the file's header.
pub(super) fn read(mut scan: Scan<'_>, page_bytes: u32) -> Result<Contents, ParseError> {
    let name = scan.terminated()?;
    let _version = scan.terminated()?;
    let Some(algorithm) = Algorithm::named(&name) else {
        let found = format!("a trace.dat packed with {name:?}; whylate reads zlib, zstd and none");
        return Err(foreign(scan.input(), &found));
    };
    let contents = Contents { order: scan.order, page_bytes, algorithm, ..Contents::default() };
    let input = scan.input();
    let mut file = File { input, contents, left: Cell::new(input.length()) };
    let mut next = scan.u64()?;
    while next != 0 {
        next = file.options(next)?;
    }
    file.contents.text.take_if(|_| !file.contents.buffers.is_empty());
    Ok(file.contents)
}

impl File<'_> {
    /// The header of the section at `offset`, and what is behind it.
    fn section(&self, offset: u64) -> Result<(Section, Scan<'_>), ParseError> {
        let mut scan = self.input.scan(offset, self.contents.order);
        let (id, flags, _name) = (scan.u16()?, scan.u16()?, scan.u32()?);
        let section = Section { id, packed: flags & PACKED != 0, bytes: scan.u64()? };
        Ok((section, scan))
    }

    /// Where the contents of the section at `offset` are.
    fn place(&self, offset: u64, id: u16) -> Result<Place, ParseError> {
        let (section, mut scan) = self.section(offset)?;
        if section.id != id {
            let message = format!("section {id} is expected here, but section {} was found", section.id);
            return Err(self.input.damaged(offset, message));
        }
        let (bytes, packed) = match section.packed {
            true => (u64::from(scan.u32()?), Some((self.contents.algorithm, scan.u32()? as usize))),
            false => (section.bytes, None),
        };
        let Some(left) = self.left.get().checked_sub(bytes.saturating_add(HEADER_BYTES)) else {
            let message = "the sections are larger than the file: this section is read more than once, or overlaps another";
            return Err(self.input.damaged(offset, message));
        };
        self.left.set(left);
        let offset = scan.position;
        scan.skip(bytes)?;
        Ok(Place { input: self.input.clone(), offset, bytes, packed, head_bytes: 0 })
    }

    /// The contents of the section at `offset`, unpacked.
    fn unpacked(&self, offset: u64, id: u16) -> Result<Input, ParseError> {
        let place = self.place(offset, id)?;
        Ok(self.input.section(place.offset, place.unpacked()?))
    }

    /// Reads a section of options; where the next one is, or 0.
    fn options(&mut self, offset: u64) -> Result<u64, ParseError> {
        let section = self.unpacked(offset, id::DONE)?;
        let mut scan = section.scan(0, self.contents.order);
        while scan.position < section.length() {
            let option = scan.u16()?;
            let length = scan.u32()?;
            let end = scan.position.saturating_add(u64::from(length));
            match option {
                id::DONE => return if length >= 8 { scan.u64() } else { Ok(0) },
                id::BUFFER => {
                    let buffer = self.buffer(&mut scan, end)?;
                    self.contents.buffers.push(buffer);
                }
                id::BUFFER_TEXT => {
                    let at = scan.u64()?;
                    self.contents.text = Some(self.place(at, id::BUFFER_TEXT)?.unpacked()?);
                }
                id::HEADER..=id::COMMANDS => {
                    let at = scan.u64()?;
                    self.metadata(option, at)?;
                }
                _ => {
                    let data = scan.bytes(u64::from(length))?;
                    self.contents.options.take(option, &data, self.contents.order);
                }
            }
            scan.position = end;
        }
        Err(scan.damaged("the section of options is not terminated"))
    }

    fn metadata(&mut self, option: u16, offset: u64) -> Result<(), ParseError> {
        if option == id::SYMBOLS {
            self.contents.metadata.symbols =
                Symbols::at(Place { head_bytes: 4, ..self.place(offset, option)? });
            return Ok(());
        }
        let section = self.unpacked(offset, option)?;
        let mut scan = section.scan(0, self.contents.order);
        match option {
            id::HEADER => self.contents.metadata.header(&mut scan),
            id::FTRACE_EVENTS => self.contents.metadata.ftrace_formats(&mut scan),
            id::EVENT_FORMATS => self.contents.metadata.event_formats(&mut scan),
            id::PRINTK => self.contents.metadata.printk(&mut scan),
            _ => self.contents.metadata.commands(&mut scan),
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
            let message = format!(
                "the events of buffer {name:?} are expected here, but section {} was found",
                section.id
            );
            return Err(self.input.damaged(offset, message));
        }
        Ok(Buffer { name, clock, page_bytes, packed: section.packed, cpus })
    }
}
