//! The head of a perf.data file: sections, recorded events, features.

use super::kernel;
use super::sample::Layout;
use crate::parse::ParseError;
use crate::parse::bytes::ByteOrder;
use crate::parse::input::Input;

/// First bytes of a file of a little-endian machine.
pub(in crate::parse) const MAGIC: [u8; 8] = *b"PERFILE2";
/// The same number on a big-endian machine.
pub(in crate::parse) const MAGIC_SWAPPED: [u8; 8] = *b"2ELIFREP";
/// Bytes of the header; a shorter one is that of a stream without sections.
const HEADER_BYTES: u64 = 104;
/// Bytes of the first version of `perf_event_attr`.
const ATTRIBUTE_BYTES_MIN: u64 = 64;
/// Events and ids that a file can have: beyond, it is damaged.
const EVENTS_MAX: u64 = 1 << 16;
const IDS_MAX: u64 = 1 << 22;
/// `PERF_TYPE_TRACEPOINT`.
const TYPE_TRACEPOINT: u32 = 2;

/// Features that are read, by their bit.
const TRACING_DATA: u32 = 1;
const BUILD_IDS: u32 = 2;
const OS_RELEASE: u32 = 4;
const CPU_COUNT: u32 = 7;

/// Where something is in the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Section {
    pub(super) offset: u64,
    pub(super) bytes: u64,
}

#[derive(Clone, Debug)]
pub(super) struct Attribute {
    /// The id of a tracepoint, which its records have as `common_type`.
    pub(super) tracepoint: Option<u64>,
    /// How its samples are laid out.
    pub(super) layout: Layout,
    /// `CLOCK_…` of the times; `None` for perf's own clock.
    pub(super) clock: Option<u32>,
}

#[derive(Clone, Debug)]
pub(super) struct Header {
    pub(super) order: ByteOrder,
    pub(super) data: Section,
    pub(super) attributes: Vec<Attribute>,
    /// The place of the attribute of each id that samples carry, sorted by id.
    by_id: Vec<(u64, usize)>,
    pub(super) tracing: Option<Section>,
    pub(super) release: Option<String>,
    /// The build id of the kernel.
    pub(super) build_id: Option<String>,
    pub(super) cpus: Option<u32>,
}

impl Header {
    pub(super) fn read(input: &Input) -> Result<Self, ParseError> {
        let mut magic = [0; 8];
        input.fill(0, &mut magic)?;
        let order = if magic == MAGIC { ByteOrder::Little } else { ByteOrder::Big };
        let mut scan = input.scan(8, order);
        let size = scan.u64()?;
        if size < HEADER_BYTES {
            return Err(input.damaged(
                8,
                "this was recorded to a pipe: let perf write a file with `perf record -o FILE`, \
                 or convert it with `perf inject -i THIS -o FILE`",
            ));
        }
        let attribute_bytes = scan.u64()?;
        let mut section =
            || -> Result<Section, ParseError> { Ok(Section { offset: scan.u64()?, bytes: scan.u64()? }) };
        let (attributes, data, _types) = (section()?, section()?, section()?);
        let bits = [scan.u64()?, scan.u64()?, scan.u64()?, scan.u64()?];
        let mut header = Self {
            order,
            data,
            attributes: Vec::new(),
            by_id: Vec::new(),
            tracing: None,
            release: None,
            build_id: None,
            cpus: None,
        };
        header.attributes(input, attributes, attribute_bytes)?;
        if data.bytes == 0 {
            return Err(input.damaged(40, "perf did not finish writing this file: the size of its data is 0"));
        }
        header.features(input, bits)?;
        Ok(header)
    }

    fn attributes(&mut self, input: &Input, section: Section, bytes: u64) -> Result<(), ParseError> {
        let count = section.bytes.checked_div(bytes).unwrap_or(0);
        if bytes < ATTRIBUTE_BYTES_MIN + 16 || count == 0 || count > EVENTS_MAX {
            return Err(input.damaged(16, format!("{count} events of {bytes} bytes each are impossible")));
        }
        for index in 0..count {
            let at = section.offset.saturating_add(index * bytes);
            let entry = input.bytes(at, bytes)?;
            let missing = || input.damaged(at, "the description of an event is too short");
            let attribute = Attribute::read(&entry, self.order).ok_or_else(missing)?;
            let mut scan = input.scan(at.saturating_add(bytes - 16), self.order);
            let ids = Section { offset: scan.u64()?, bytes: scan.u64()? };
            if ids.bytes / 8 > IDS_MAX {
                return Err(input.damaged(at, format!("an event cannot have {} ids", ids.bytes / 8)));
            }
            for id in input.bytes(ids.offset, ids.bytes)?.chunks_exact(8) {
                self.by_id.push((self.order.u64(id, 0).unwrap_or(0), self.attributes.len()));
            }
            self.attributes.push(attribute);
        }
        self.by_id.sort_by_key(|(id, _)| *id);
        Ok(())
    }

    /// The attribute of an id that samples carry.
    #[inline]
    pub(super) fn attribute(&self, id: u64) -> Option<&Attribute> {
        let after = self.by_id.partition_point(|(known, _)| *known <= id);
        let (known, at) = self.by_id.get(after.checked_sub(1)?)?;
        self.attributes.get(*at).filter(|_| *known == id)
    }

    /// The sections behind the data, one for each bit that is set.
    fn features(&mut self, input: &Input, bits: [u64; 4]) -> Result<(), ParseError> {
        let end = self.data.offset.checked_add(self.data.bytes);
        let begin = end.filter(|end| *end <= input.length()).ok_or_else(|| {
            input.damaged(
                40,
                format!("the file ends after {} bytes, within its data: it is truncated", input.length()),
            )
        })?;
        let mut scan = input.scan(begin, self.order);
        for bit in 0..256u32 {
            if bits[bit as usize / 64] >> (bit % 64) & 1 == 0 {
                continue;
            }
            let section = Section { offset: scan.u64()?, bytes: scan.u64()? };
            let mut inner = input.scan(section.offset, self.order);
            match bit {
                TRACING_DATA => self.tracing = Some(section),
                BUILD_IDS => {
                    let ids = input.bytes(section.offset, section.bytes)?;
                    self.build_id = kernel::build_id(&ids, self.order);
                }
                OS_RELEASE => {
                    let length = inner.u32()?;
                    let text = inner.text(u64::from(length))?;
                    self.release = Some(text.trim_end_matches('\0').to_owned());
                }
                CPU_COUNT => {
                    // What is available, and what is online.
                    inner.u32()?;
                    self.cpus = Some(inner.u32()?);
                }
                _ => {}
            }
        }
        Ok(())
    }
}

impl Attribute {
    /// Reads `perf_event_attr`; fields that an old version lacks are 0.
    fn read(entry: &[u8], order: ByteOrder) -> Option<Self> {
        let size = order.u32(entry, 4)?;
        let flags = order.u64(entry, 40)?;
        // Big-endian machines number bit fields from the other end.
        let flag = |bit: u32| {
            let place = if order == ByteOrder::Little { bit } else { 63 - bit };
            flags >> place & 1 == 1
        };
        let uses_clock = flag(25) && size >= 96;
        Some(Self {
            tracepoint: (order.u32(entry, 0)? == TYPE_TRACEPOINT).then_some(order.u64(entry, 8)?),
            layout: Layout::new(order.u64(entry, 24)?, order.u64(entry, 32)?, flag(18)),
            clock: if uses_clock { order.u32(entry, 92) } else { None },
        })
    }

    /// The clock's name as trace clocks are called.
    pub(super) fn clock_name(&self) -> String {
        match self.clock {
            None => "perf".to_owned(),
            Some(0) => "realtime".to_owned(),
            Some(1) => "mono".to_owned(),
            Some(4) => "mono_raw".to_owned(),
            Some(7) => "boot".to_owned(),
            Some(11) => "tai".to_owned(),
            Some(other) => format!("clock {other}"),
        }
    }
}
