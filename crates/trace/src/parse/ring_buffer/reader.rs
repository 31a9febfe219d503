//! The reader of ring-buffer pages: trace.dat, and folders of raw pages.

use super::cursor::{Cursor, Item};
use super::layout::PageLayout;
use super::merge::{Merge, Wanted};
use super::pages::Pages;
use crate::event::{Event, Frames, Names, Symbol};
use crate::parse::ParseError;
use crate::parse::format::EventFormat;
use crate::parse::input::Input;
use crate::parse::metadata::Metadata;
use crate::parse::symbols::Symbols;
use crate::parse::texts::Texts;
use crate::parse::tracepoint::Decoder;
use crate::parse::unpack::{Algorithm, Unpacker};
use crate::reader::{Reader, Selection, TraceInfo};
use std::path::Path;
use std::sync::OnceLock;
use whylate_core::CpuId;

/// Makes nanoseconds of the buffer's times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Clock {
    /// The time in cycles is multiplied by the first and divided by 2 to the power of the second.
    pub scale: Option<(u32, u32)>,
    /// Nanoseconds that are added then.
    pub offset_ns: i64,
}

impl Clock {
    /// The time in nanoseconds; a time that would be negative is 0.
    #[inline]
    pub fn nanos(&self, time: u64) -> u64 {
        let scaled = match self.scale {
            Some((multiplier, shift)) => {
                ((u128::from(time) * u128::from(multiplier)) >> shift.min(127)) as u64
            }
            None => time,
        };
        scaled.saturating_add_signed(self.offset_ns)
    }
}

/// Reads the events of all CPUs in the order of time.
#[derive(Debug)]
pub struct BufferReader {
    info: TraceInfo,
    /// The same, with errors of the symbols that were found when they were needed.
    info_damaged: OnceLock<TraceInfo>,
    layout: PageLayout,
    merge: Merge,
    decoder: Decoder,
    texts: Texts,
    symbols: Symbols,
    clock: Clock,
    from_ns: u64,
}

impl BufferReader {
    /// A reader that begins with the first event.
    pub(in crate::parse) fn new(
        info: TraceInfo,
        layout: PageLayout,
        merge: Merge,
        metadata: Metadata,
        clock: Clock,
    ) -> Self {
        let symbols = metadata.symbols.clone();
        let release = info.kernel.as_deref();
        let (decoder, texts) = metadata.decoder(layout.order, layout.commit_width, release, &symbols);
        Self {
            info,
            info_damaged: OnceLock::new(),
            layout,
            merge,
            decoder,
            texts,
            symbols,
            clock,
            from_ns: 0,
        }
    }

    /// A reader for the pages of a buffer that is read while it records: [`BufferReader::refill`] gives them.
    pub fn live(layout: PageLayout, release: &str, formats: Vec<EventFormat>) -> Self {
        let info = TraceInfo { kernel: Some(release.to_owned()), ..TraceInfo::default() };
        let merge = Merge::new(Unpacker::new(Algorithm::None), Vec::new());
        Self::new(info, layout, merge, Metadata { formats, ..Metadata::default() }, Clock::default())
    }

    /// Continues with later pages of the same buffer; everything learned so far stays.
    ///
    /// # Errors
    /// [`ParseError::Damaged`] when the bytes are not whole pages.
    pub fn refill(&mut self, pages: Vec<(CpuId, Vec<u8>)>) -> Result<(), ParseError> {
        let mut cursors = Vec::new();
        for (cpu, pages) in pages.into_iter().filter(|(_, pages)| !pages.is_empty()) {
            let input = Input::memory(Path::new("trace_pipe_raw"), pages);
            let pages = Pages::plain(&input, 0, input.length(), self.layout.page_bytes)?;
            cursors.push(Cursor::new(cpu, self.layout, pages));
        }
        self.merge = Merge::new(Unpacker::new(Algorithm::None), cursors);
        Ok(())
    }
}

impl Reader for BufferReader {
    fn info(&self) -> &TraceInfo {
        let Some(damage) = self.symbols.damage() else { return &self.info };
        self.info_damaged.get_or_init(|| {
            let mut info = self.info.clone();
            info.remarks.push(damage.to_owned());
            info
        })
    }

    fn names(&self) -> &Names {
        &self.texts.names
    }

    fn seek(&mut self, from_ns: Option<u64>, selection: Selection) -> Result<(), ParseError> {
        let wanted = match selection {
            Selection::All => Wanted::all(),
            Selection::Wakeups => Wanted::only(self.decoder.wakeups(&mut self.texts)),
        };
        self.texts.forget_learned();
        if from_ns.is_none() {
            self.texts.restart();
        }
        let clock = self.clock;
        self.from_ns = from_ns.unwrap_or(0);
        let before = from_ns.map(|from_ns| move |time| clock.nanos(time) < from_ns);
        self.merge.seek(before.as_ref().map(|before| before as &dyn Fn(u64) -> bool), wanted)
    }

    fn next(&mut self) -> Result<Option<Event>, ParseError> {
        let mut event = Event::default();
        Ok(self.read(&mut event)?.then_some(event))
    }

    #[inline]
    fn read(&mut self, event: &mut Event) -> Result<bool, ParseError> {
        loop {
            let Some((index, item)) = self.merge.take()? else {
                self.info.records = self.merge.records();
                self.info.limits = self.texts.limit().into_iter().collect();
                return Ok(false);
            };
            let at_ns = self.clock.nanos(item.time());
            if at_ns < self.from_ns {
                continue;
            }
            let cursor = self.merge.cursor(index);
            let (cpu, offset) = (cursor.cpu, cursor.offset());
            if let Item::Lost { events, .. } = item {
                *event = Event::lost(at_ns, cpu, offset, events);
                return Ok(true);
            }
            let decoded = self.decoder.decode_into(cursor.data(), &mut self.texts, event);
            decoded.map_err(|message| cursor.damaged(message))?;
            event.command = event.pid.and_then(|pid| self.texts.of_pid(pid));
            (event.at_ns, event.cpu, event.offset) = (at_ns, cpu, offset);
            return Ok(true);
        }
    }

    fn symbol(&self, symbol: Symbol) -> Option<(&str, u64)> {
        match symbol {
            Symbol::Name(name) => Some((self.texts.names.text(name), 0)),
            Symbol::Address(address) => self.symbols.of(address),
        }
    }

    fn frames(&self, frames: Frames) -> &[Symbol] {
        self.texts.frames(frames)
    }
}
