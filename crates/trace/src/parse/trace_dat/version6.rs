//! Version 6: one part after the other, the events of the CPUs at the end.

use super::options::{Options, id, selected};
use super::{Buffer, Contents, CpuData, plausible};
use crate::parse::ParseError;
use crate::parse::input::Scan;
use crate::parse::metadata::Metadata;
use crate::parse::unpack::Algorithm;
use whylate_core::CpuId;

/// A longer text is not a list of clocks.
const CLOCKS_MAX: u64 = 4096;
/// CPUs of all instances.
const ENTRIES_MAX: usize = 1 << 20;

/// Reads what follows the file's header.
pub(super) fn read(mut scan: Scan<'_>, page_bytes: u32) -> Result<Contents, ParseError> {
    let mut metadata = Metadata::read(&mut scan)?;
    metadata.commands(&mut scan)?;
    let cpus = scan.u32()?;
    let mut options = Options::default();
    let mut instances = Vec::new();
    let mut kind = kind(&mut scan)?;
    if kind == "options" {
        read_options(&mut scan, &mut options, &mut instances)?;
        kind = self::kind(&mut scan)?;
    }
    options.cpus.get_or_insert(cpus);
    let mut buffers = Vec::new();
    let mut text = None;
    if kind == "latency" {
        let left = scan.input().length().saturating_sub(scan.position);
        text = Some(scan.bytes(left)?);
    } else {
        buffers.push(buffer(&mut scan, &kind, String::new(), cpus)?);
        if options.clock_follows {
            options.clock = clock(&mut scan);
        }
    }
    for (offset, name) in instances {
        // Each list of CPUs is a part of the file, but several instances can name the same one.
        if buffers.len() * cpus as usize > ENTRIES_MAX {
            return Err(scan.damaged("too many instances of too many CPUs"));
        }
        let mut scan = scan.input().scan(offset, scan.order);
        let kind = self::kind(&mut scan)?;
        buffers.push(buffer(&mut scan, &kind, name, cpus)?);
    }
    Ok(Contents {
        order: scan.order,
        page_bytes,
        algorithm: Algorithm::None,
        metadata,
        options,
        buffers,
        text,
    })
}

/// Ten bytes that say what follows: a word, blanks, NUL.
fn kind(scan: &mut Scan<'_>) -> Result<String, ParseError> {
    let at = scan.position;
    let bytes = scan.bytes(10)?;
    let word = String::from_utf8_lossy(&bytes).trim_end_matches(['\0', ' ']).to_owned();
    if matches!(word.as_str(), "options" | "latency" | "flyrecord") {
        return Ok(word);
    }
    Err(scan.input().damaged(at, "`options`, `latency` or `flyrecord` is expected here"))
}

/// Reads the options; where the lists of CPUs of instances are goes into `instances`, with their names.
fn read_options(
    scan: &mut Scan<'_>,
    options: &mut Options,
    instances: &mut Vec<(u64, String)>,
) -> Result<(), ParseError> {
    loop {
        let option = scan.u16()?;
        if option == id::DONE {
            return Ok(());
        }
        let length = scan.u32()?;
        let end = scan.position.saturating_add(u64::from(length));
        if option == id::BUFFER {
            instances.push((scan.u64()?, scan.terminated()?));
            scan.position = end;
        } else {
            let data = scan.bytes(u64::from(length))?;
            options.take(option, &data, scan.order);
        }
    }
}

/// The clocks behind the list of CPUs, as in `trace_clock`; `None` if there is no such text.
fn clock(scan: &mut Scan<'_>) -> Option<String> {
    let length = scan.u64().ok().filter(|length| (1..=CLOCKS_MAX).contains(length))?;
    let bytes = scan.bytes(length).ok()?;
    selected(String::from_utf8_lossy(&bytes).trim_end_matches('\0'))
}

/// The list of CPUs of a buffer.
fn buffer(scan: &mut Scan<'_>, kind: &str, name: String, cpus: u32) -> Result<Buffer, ParseError> {
    if kind != "flyrecord" {
        return Err(scan.damaged("`flyrecord` is expected before this"));
    }
    let mut data = Vec::new();
    for cpu in 0..plausible(scan, cpus, 16)? {
        data.push(CpuData { cpu: CpuId(cpu), offset: scan.u64()?, bytes: scan.u64()? });
    }
    Ok(Buffer { name, clock: None, page_bytes: None, packed: false, cpus: data })
}
