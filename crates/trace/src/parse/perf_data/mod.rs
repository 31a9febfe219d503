//! perf.data, the file of `perf record`, with tracepoints.
//!
//! In: such a file, of either byte order, packed or not (`-z`). Out: a [`Reader`]: the records of tracepoints are decoded by
//! the formats that the file has, call chains become stacks of the kernel's part, and losses are events. Samples of anything
//! else (cycles, faults of the page counter) are events without meaning. The kernel's functions are named from its list on
//! this machine (`kernel.rs`). Other data about processes than their commands (mappings, build ids, user-space stacks) is not
//! read, nor are streams that `perf record -o -` writes.
//!
//! The code here walks the file itself. The crate `linux-perf-data` allocates as much memory as a damaged file claims, and
//! keeps all records of a file without round marks in memory.

mod header;
mod kernel;
mod order;
mod records;
mod sample;
#[cfg(test)]
mod tests;

use super::ParseError;
use super::bytes::{ByteOrder, until_nul};
use super::input::Input;
use super::metadata::{self, Head, Metadata};
use super::ring_buffer::Wanted;
use super::texts::Texts;
use super::tracepoint::Decoder;
use crate::event::{Context, Event, EventKind, Frames, Name, Names, Symbol};
use crate::reader::{CPUS_MAX, Reader, Selection, TraceInfo, lose};
use header::{Attribute, Header, Section};
pub(super) use header::{MAGIC, MAGIC_SWAPPED};
use kernel::{KernelSymbols, Places};
use order::Order;
use records::{Records, kind};
use sample::{Layout, kernel_frames};
use whylate_core::CpuId;

/// Largest thread id of a kernel, plus one.
const THREADS_MAX: usize = 1 << 22;
/// Rounds whose offsets are kept, for seeking.
const ROUNDS_MAX: usize = 1 << 16;

pub(super) struct PerfDataReader {
    input: Input,
    header: Header,
    records: Records,
    info: TraceInfo,
    decoder: Decoder,
    texts: Texts,
    symbols: KernelSymbols,
    commands: Vec<Option<Name>>,
    /// The layout of all samples.
    only_layout: Option<Layout>,
    order: Order,
    /// Starts of rounds, and the latest time before each.
    rounds: Vec<(u64, u64)>,
    latest_ns: u64,
    /// How far losses are counted already, for a second reading.
    losses_counted_to: u64,
    wakeups: Wanted,
    selection: Selection,
    from_ns: u64,
    ended: bool,
}

pub(super) fn open(input: Input) -> Result<PerfDataReader, ParseError> {
    open_with(input, &Places::of_this_machine())
}

/// The same, with the kernel's functions from `places`.
fn open_with(input: Input, places: &Places) -> Result<PerfDataReader, ParseError> {
    let header = Header::read(&input)?;
    let Some(section) = header.tracing else {
        let found = "a perf.data without tracepoints".to_owned();
        return Err(ParseError::Foreign { path: input.path().to_owned(), found });
    };
    let (tracing, long_bytes) = tracing(&input, section, header.order)?;
    if header.attributes.iter().any(|attribute| !attribute.layout.has_time_and_cpu()) {
        return Err(input.damaged(16, "samples have no time or no CPU: record with `perf record -T -a`"));
    }
    let recorded = header.attributes.iter().filter_map(|attribute| attribute.tracepoint).filter_map(|id| {
        let format = tracing.formats.iter().find(|format| u64::from(format.id) == id)?;
        Some(format.full_name())
    });
    let symbols = KernelSymbols::new(tracing.symbols.clone(), header.build_id.as_deref(), places);
    let has_chains = header.attributes.iter().any(|attribute| attribute.layout.has_chains());
    let remarks = if has_chains && symbols.are_unknown() { vec![unnamed(&header)] } else { Vec::new() };
    let info = TraceInfo {
        format: "perf.data".to_owned(),
        clock: header.attributes.first().map(Attribute::clock_name),
        kernel: header.release.clone(),
        cpus: header.cpus,
        resolution_ns: 1,
        recorded: recorded.collect(),
        remarks,
        ..TraceInfo::default()
    };
    let release = header.release.as_deref();
    let (mut decoder, mut texts) = tracing.decoder(header.order, long_bytes, release, &symbols.unmoved());
    let wakeups = Wanted::only(decoder.wakeups(&mut texts));
    Ok(PerfDataReader {
        records: Records::new(header.data, header.order),
        input,
        info,
        decoder,
        texts,
        symbols,
        commands: Vec::new(),
        only_layout: only_layout(&header),
        order: Order::default(),
        rounds: vec![(header.data.offset, 0)],
        header,
        latest_ns: 0,
        losses_counted_to: 0,
        wakeups,
        selection: Selection::All,
        from_ns: 0,
        ended: false,
    })
}

/// What perf copied from tracefs, in trace.dat's original form, and the bytes of a `long`.
fn tracing(input: &Input, section: Section, order: ByteOrder) -> Result<(Metadata, usize), ParseError> {
    let mut scan = input.scan(section.offset, order);
    if scan.bytes(metadata::MAGIC.len() as u64)? != metadata::MAGIC {
        return Err(input.damaged(section.offset, "the description of the tracepoints is expected here"));
    }
    let head = Head::read(&mut scan)?;
    let mut tracing = Metadata::read(&mut scan)?;
    let has_commands = head.version.split_once('.').is_some_and(|(_, minor)| minor >= "6");
    if has_commands && scan.position < section.offset.saturating_add(section.bytes) {
        tracing.commands(&mut scan)?;
    }
    Ok((tracing, head.long_bytes))
}

/// The layout of all samples, if the events agree or samples do not name their event.
fn only_layout(header: &Header) -> Option<Layout> {
    let first = header.attributes.first()?.layout;
    let agree = header.attributes.iter().all(|attribute| attribute.layout == first);
    (agree || !first.has_identifier()).then_some(first)
}

/// Why the functions in call chains have no names.
fn unnamed(header: &Header) -> String {
    let build = match &header.build_id {
        Some(id) => format!(
            "the symbols of the kernel with build id {id} are not on this machine, or this user may not see the \
             kernel's addresses (run whylate as root)"
        ),
        None => "the file does not name the build of its kernel (`perf record -B`)".to_owned(),
    };
    format!(
        "functions have no names: {build}; run whylate on the machine that recorded the file, or copy `~/.debug` from there"
    )
}

impl PerfDataReader {
    /// The layout of records other than samples: they end in the same fields for all events.
    fn common_layout(&self) -> Layout {
        self.header.attributes.first().map_or(Layout::new(0, 0, false), |attribute| attribute.layout)
    }

    fn layout(&self, body: &[u8]) -> Layout {
        if let Some(layout) = self.only_layout {
            return layout;
        }
        let common = self.common_layout();
        let attribute = self.header.order.u64(body, 0).and_then(|id| self.header.attribute(id));
        attribute.map_or(common, |attribute| attribute.layout)
    }

    /// Takes a record; `false` if there is none.
    fn advance(&mut self) -> Result<bool, ParseError> {
        let Some(place) = self.records.next(&self.input)? else { return Ok(false) };
        // Borrowed separately, so that strings can be added while the record is borrowed.
        let records = std::mem::take(&mut self.records);
        let record = records.record(place);
        let taken = match record.kind {
            kind::SAMPLE => self.sample(record.body, record.offset),
            kind::LOST | kind::LOST_SAMPLES => {
                self.lost(record.kind, record.body, record.offset);
                Ok(())
            }
            kind::MAPPING | kind::MAPPING_WITH_FILE => {
                let name_at = if record.kind == kind::MAPPING { 32 } else { 64 };
                self.symbols.mapping(record.body, self.header.order, name_at);
                Ok(())
            }
            kind::COMMAND => {
                self.command(record.body);
                Ok(())
            }
            kind::FINISHED_ROUND if !records.are_packed() => {
                self.order.end_round();
                let begin = records.restart_point().filter(|_| self.rounds.len() < ROUNDS_MAX);
                if let Some(begin) =
                    begin.filter(|begin| self.rounds.last().is_none_or(|last| last.0 < *begin))
                {
                    self.rounds.push((begin, self.latest_ns));
                }
                Ok(())
            }
            _ => Ok(()),
        };
        self.records = records;
        taken.map(|()| true)
    }

    fn sample(&mut self, body: &[u8], offset: u64) -> Result<(), ParseError> {
        let order = self.header.order;
        let short = || self.input.damaged(offset, "a sample is shorter than its event says");
        let sample = self.layout(body).sample(body, order).ok_or_else(short)?;
        let (at_ns, cpu) = (sample.at_ns.ok_or_else(short)?, CpuId(sample.cpu.ok_or_else(short)?));
        if cpu.0 as usize >= CPUS_MAX {
            return Err(self.input.damaged(offset, format!("a sample names CPU {cpu}, which is impossible")));
        }
        self.latest_ns = self.latest_ns.max(at_ns);
        self.info.records += 1;
        if at_ns < self.from_ns {
            return Ok(());
        }
        let id = sample.raw.and_then(|raw| order.u16(raw, 0));
        if self.selection == Selection::Wakeups && !id.is_some_and(|id| self.wakeups.has(id)) {
            return Ok(());
        }
        // −1 is a thread that had ended.
        let thread = sample.thread.filter(|thread| *thread != u32::MAX);
        let (pid, context, kind) = match sample.raw {
            Some(raw) => {
                let decoded = self.decoder.decode(raw, &mut self.texts);
                let decoded = decoded.map_err(|message| self.input.damaged(offset, message))?;
                (thread.or(decoded.pid), decoded.context, decoded.kind)
            }
            None => {
                let name = self.texts.names.intern("sample of no tracepoint");
                (thread, Context::default(), EventKind::Other { system: None, name })
            }
        };
        let command = pid.and_then(|pid| {
            self.commands.get(pid as usize).copied().flatten().or_else(|| self.texts.of_pid(pid))
        });
        let event = Event { at_ns, cpu, pid, command, context, offset, kind };
        self.order.push(event);
        if self.selection == Selection::All {
            let frames: Vec<Symbol> = kernel_frames(sample.chain, order).map(Symbol::Address).collect();
            if !frames.is_empty() {
                let kind = EventKind::Stack { frames: self.texts.stack(&frames) };
                self.order.push(Event { kind, ..event });
            }
        }
        Ok(())
    }

    /// Events were lost: `LOST` has an id before the number, `LOST_SAMPLES` has not.
    fn lost(&mut self, kind: u32, body: &[u8], offset: u64) {
        let order = self.header.order;
        let Some(events) = order.u64(body, if kind == kind::LOST { 8 } else { 0 }) else { return };
        let Some((at_ns, cpu)) = self.common_layout().trailer(body, order) else { return };
        let cpu = CpuId(cpu);
        if offset >= self.losses_counted_to {
            self.losses_counted_to = offset + 1;
            lose(&mut self.info.lost, cpu, events);
        }
        if at_ns >= self.from_ns {
            self.order.push(Event::lost(at_ns, cpu, offset, Some(events)));
        }
    }

    /// A thread has a command from now on.
    fn command(&mut self, body: &[u8]) {
        let Some(thread) = self.header.order.u32(body, 4).map(|thread| thread as usize) else { return };
        let Some(text) = body.get(8..).filter(|_| thread < THREADS_MAX) else { return };
        if thread >= self.commands.len() {
            self.commands.resize(thread + 1, None);
        }
        self.commands[thread] = Some(self.texts.command(until_nul(text)));
    }
}

impl Reader for PerfDataReader {
    fn info(&self) -> &TraceInfo {
        &self.info
    }

    fn names(&self) -> &Names {
        &self.texts.names
    }

    /// Rounds that were read before and end before `from_ns` are skipped; the rest is read but not decoded.
    fn seek(&mut self, from_ns: Option<u64>, selection: Selection) -> Result<(), ParseError> {
        self.from_ns = from_ns.unwrap_or(0);
        if from_ns.is_none() {
            self.texts.restart();
        }
        self.selection = selection;
        let after = self.rounds.partition_point(|(_, latest_ns)| *latest_ns < self.from_ns);
        let (begin, latest_ns) = self.rounds[after.saturating_sub(1)];
        self.records.go_to(begin);
        self.latest_ns = latest_ns;
        self.order = Order::default();
        self.info.records = 0;
        self.ended = false;
        Ok(())
    }

    fn next(&mut self) -> Result<Option<Event>, ParseError> {
        loop {
            if let Some(event) = self.order.pop() {
                return Ok(Some(event));
            }
            if self.ended {
                return Ok(None);
            }
            match self.advance() {
                Ok(true) => {}
                Ok(false) => {
                    self.ended = true;
                    self.order.end();
                    self.info.limits = self.texts.limit().into_iter().collect();
                }
                Err(error) => {
                    // Events that were read before the damage are still returned.
                    self.ended = true;
                    self.order.end();
                    return Err(error);
                }
            }
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
