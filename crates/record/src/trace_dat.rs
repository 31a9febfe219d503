//! Writes what the kernel recorded as a `trace.dat` file of version 6, which trace-cmd, KernelShark and whylate open.
//!
//! In: the folder of a trace buffer in tracefs, tracing stopped. Out: one file, complete or not there. The pages of
//! the ring buffer are copied as they are; reading them consumes them. Layout: trace-cmd.dat.v6(5).

use super::error::RecordError;
use super::pipe::{Pipe, page_layout, read_at_once};
use super::tracefs::Tracefs;
use std::fs::{self, File};
use std::io::{BufWriter, Seek as _, SeekFrom, Write};
use std::path::{Path, PathBuf};
use whylate_core::CpuId;
use whylate_core::order::InOrder;
use whylate_trace::parse::ByteOrder;

/// The option that says that the trace clock follows the table of CPUs.
const OPTION_TRACE_CLOCK: u16 = 4;
/// The option that holds the kernel's name, release and machine.
const OPTION_UNAME: u16 = 5;
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Saved {
    pub path: PathBuf,
    /// Bytes of ring-buffer pages in it.
    pub bytes: u64,
    /// Events that the kernel overwrote or dropped since the buffer was emptied; only CPUs with a loss.
    pub lost: Vec<(CpuId, u64)>,
}

/// The parts of the file that do not change while a buffer records: read once, before anything is measured.
#[derive(Clone, Debug)]
pub(super) struct Prologue {
    bytes: Vec<u8>,
    page_bytes: usize,
    clock: String,
    uname: String,
}

impl Prologue {
    /// Reads formats and symbols. `events` are the enabled ones, as `system/name`.
    pub(super) fn read(
        tracefs: &Tracefs,
        events: &[String],
        clock: &str,
        uname: &str,
    ) -> Result<Self, RecordError> {
        let page_bytes = page_layout(tracefs.top())?.page_bytes;
        let mut bytes = Vec::with_capacity(8 << 20);
        bytes.extend([0x17, 0x08, 0x44]);
        bytes.extend(b"tracing6\0");
        bytes.push(u8::from(ByteOrder::NATIVE == ByteOrder::Big));
        bytes.push(size_of::<usize>() as u8);
        bytes.extend((page_bytes as u32).to_ne_bytes());
        for name in ["header_page", "header_event"] {
            bytes.extend(name.as_bytes());
            bytes.push(0);
            push_sized(&mut bytes, &read_at_once(&tracefs.top().join("events").join(name))?);
        }
        formats(tracefs, events, &mut bytes)?;
        let symbols = whylate_bpf::kernel_functions();
        bytes.extend((symbols.len() as u32).to_ne_bytes());
        bytes.extend(symbols.as_bytes());
        let texts = read(&tracefs.top().join("printk_formats")).unwrap_or_default();
        bytes.extend((texts.len() as u32).to_ne_bytes());
        bytes.extend(&texts);
        Ok(Self { bytes, page_bytes, clock: clock.to_owned(), uname: uname.to_owned() })
    }

    /// Writes the file of what `instance` has recorded on `cpus`, and empties its buffer.
    pub(super) fn save(&self, instance: &Path, cpus: &[CpuId], path: &Path) -> Result<Saved, RecordError> {
        let unfinished = path.with_extension("dat.part");
        // A file of that name was left by a killed process; if it is a link, it is not followed.
        let _ = fs::remove_file(&unfinished);
        let failed = RecordError::save(path);
        let outcome = self.write(instance, cpus, &unfinished, path);
        let (bytes, lost) = outcome.inspect_err(|_| {
            // The error is returned; the unfinished file is of no use.
            let _ = fs::remove_file(&unfinished);
        })?;
        // Unlike a rename, a link never replaces a file that was created meanwhile.
        let named = fs::hard_link(&unfinished, path).map_err(&failed);
        fs::remove_file(&unfinished).map_err(&failed)?;
        named?;
        Ok(Saved { path: path.to_owned(), bytes, lost })
    }

    fn write(
        &self,
        instance: &Path,
        cpus: &[CpuId],
        unfinished: &Path,
        path: &Path,
    ) -> Result<(u64, Vec<(CpuId, u64)>), RecordError> {
        let failed = RecordError::save(path);
        let commands = read(&instance.join("saved_cmdlines"))
            .or_else(|_| read(&instance.join("../../saved_cmdlines")))
            .unwrap_or_default();
        let mut head = self.bytes.clone();
        push_sized(&mut head, &commands);
        // Readers expect CPUs 0 to the last: CPUs that are not recorded have no pages.
        let cpu_count = cpus.iter().map(|cpu| cpu.0 as usize + 1).max().unwrap_or(0);
        head.extend((cpu_count as u32).to_ne_bytes());
        head.extend(b"options  \0");
        push_option(&mut head, OPTION_TRACE_CLOCK, b"");
        push_option(&mut head, OPTION_UNAME, format!("{}\0", self.uname).as_bytes());
        head.extend(0_u16.to_ne_bytes());
        head.extend(b"flyrecord\0");
        let table_at = head.len() as u64;
        head.resize(head.len() + 16 * cpu_count, 0);
        push_sized(&mut head, self.clock.as_bytes());

        let mut file = BufWriter::with_capacity(1 << 20, File::create_new(unfinished).map_err(&failed)?);
        file.write_all(&head).map_err(&failed)?;
        let (mut at, mut bytes, mut lost) = (head.len() as u64, 0, Vec::new());
        let mut table = vec![0; 16 * cpu_count];
        for cpu in cpus {
            let padding = at.next_multiple_of(self.page_bytes as u64) - at;
            file.write_all(&vec![0; padding as usize]).map_err(&failed)?;
            at += padding;
            let length = self.copy_pages(instance, *cpu, &mut file, path)?;
            let row = 16 * cpu.0 as usize;
            table[row..row + 8].copy_from_slice(&at.to_ne_bytes());
            table[row + 8..row + 16].copy_from_slice(&length.to_ne_bytes());
            (at, bytes) = (at + length, bytes + length);
            lost.extend(overrun(instance, *cpu).filter(|count| *count > 0).map(|count| (*cpu, count)));
        }
        file.seek(SeekFrom::Start(table_at)).map_err(&failed)?;
        file.write_all(&table).map_err(&failed)?;
        let file = file.into_inner().map_err(|error| failed(error.into_error()))?;
        file.sync_all().map_err(&failed)?;
        Ok((bytes, lost))
    }

    /// Copies the pages of one CPU; how many bytes they were.
    fn copy_pages(
        &self,
        instance: &Path,
        cpu: CpuId,
        file: &mut impl Write,
        path: &Path,
    ) -> Result<u64, RecordError> {
        let mut pages = Pipe::of_pages(instance, cpu)?;
        let mut page = vec![0; self.page_bytes];
        let mut bytes = 0;
        while pages.next_page(&mut page)? {
            file.write_all(&page).map_err(RecordError::save(path))?;
            bytes += self.page_bytes as u64;
        }
        Ok(bytes)
    }
}

fn read(path: &Path) -> Result<Vec<u8>, RecordError> {
    fs::read(path).map_err(RecordError::read(path))
}

fn push_sized(bytes: &mut Vec<u8>, content: &[u8]) {
    bytes.extend((content.len() as u64).to_ne_bytes());
    bytes.extend(content);
}

fn push_option(bytes: &mut Vec<u8>, option: u16, content: &[u8]) {
    bytes.extend(option.to_ne_bytes());
    bytes.extend((content.len() as u32).to_ne_bytes());
    bytes.extend(content);
}

/// The formats of the tracers' own entries and of `events`.
fn formats(tracefs: &Tracefs, events: &[String], bytes: &mut Vec<u8>) -> Result<(), RecordError> {
    let folder = tracefs.top().join("events");
    let own = names(&folder.join("ftrace"));
    let own = own.iter().filter_map(|name| fs::read(folder.join("ftrace").join(name).join("format")).ok());
    let own: Vec<Vec<u8>> = own.collect();
    bytes.extend((own.len() as u32).to_ne_bytes());
    own.iter().for_each(|format| push_sized(bytes, format));

    let mut systems: Vec<(&str, Vec<&str>)> = Vec::new();
    for event in events {
        let Some((system, name)) = event.split_once('/') else { continue };
        match systems.iter_mut().find(|(known, _)| *known == system) {
            Some((_, names)) => names.push(name),
            None => systems.push((system, vec![name])),
        }
    }
    bytes.extend((systems.len() as u32).to_ne_bytes());
    for (system, names) in systems {
        bytes.extend(system.as_bytes());
        bytes.push(0);
        bytes.extend((names.len() as u32).to_ne_bytes());
        for name in names {
            push_sized(bytes, &read(&folder.join(system).join(name).join("format"))?);
        }
    }
    Ok(())
}

/// The folders in a folder, in alphabetical order.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.order();
    names
}

/// Events that were overwritten or dropped on a CPU.
fn overrun(instance: &Path, cpu: CpuId) -> Option<u64> {
    let text = fs::read_to_string(instance.join(format!("per_cpu/cpu{}/stats", cpu.0))).ok()?;
    let number = |key: &str| -> Option<u64> {
        text.lines().find_map(|line| line.strip_prefix(key)?.trim().parse().ok())
    };
    Some(number("overrun:")? + number("dropped events:").unwrap_or(0))
}
