//! The process that is late: a loop on one CPU, and those plants that have to be its own threads.

use crate::Outcome;
use crate::plants::{self, Plant};
use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use whylate_core::{CpuId, CpuSet};
use whylate_sys::clock;
use whylate_sys::schedule::{self, Scheduling};

const RECORDS: usize = 1 << 20;
/// Gaps of at least this length are reported.
const THRESHOLD_NS: u64 = 1_000;
/// Pages that the page-fault plant touches.
const FRESH_BYTES: usize = 256 << 20;
const PAGE: usize = 4096;
/// Time between two pages, and between two moves.
const TOUCH_INTERVAL_NS: u64 = 1_000_000;
const MOVE_INTERVAL_NS: u64 = 20_000_000;

/// What the loop saw: written by the loop, printed by another thread.
struct Log {
    words: Box<[[AtomicU64; 4]]>,
    written: AtomicUsize,
}

const SPIKE: u64 = 1;
const PLANTED: u64 = 2;

impl Log {
    fn new() -> Self {
        let word = || std::array::from_fn(|_| AtomicU64::new(0));
        Self { words: (0..RECORDS).map(|_| word()).collect(), written: AtomicUsize::new(0) }
    }

    fn add(&self, what: u64, cpu: u32, first: u64, second: u64) {
        let place = self.written.load(Ordering::Relaxed);
        if let Some(words) = self.words.get(place) {
            for (word, value) in words.iter().zip([what, u64::from(cpu), first, second]) {
                word.store(value, Ordering::Relaxed);
            }
            self.written.store(place + 1, Ordering::Release);
        }
    }

    /// Prints what came since `from`.
    fn print(&self, from: usize) -> Outcome<usize> {
        let written = self.written.load(Ordering::Acquire);
        let mut output = std::io::stdout().lock();
        for words in &self.words[from..written] {
            let [what, cpu, first, second] = [0, 1, 2, 3].map(|index| words[index].load(Ordering::Relaxed));
            match what {
                SPIKE => writeln!(output, "spike {cpu} {first} {second}")?,
                _ => writeln!(output, "planted {first} {second}")?,
            }
        }
        output.flush()?;
        Ok(written)
    }
}

/// Measures, and reports at once what was late. It was started on another CPU, on which all but the loop stays.
pub(crate) fn run(plant: Plant, cpu: CpuId, seconds: u64) -> Outcome<()> {
    let log = Arc::new(Log::new());
    let fresh = (plant == Plant::PageFaults).then(|| vec![0u8; FRESH_BYTES]);
    println!("armed");
    std::io::stdin().read_line(&mut String::new())?;
    let is_over = Arc::new(AtomicBool::new(false));
    let (own, over) = (log.clone(), is_over.clone());
    let late = std::thread::spawn(move || {
        let outcome = prepare(plant, cpu).and_then(|()| measure(plant, cpu, &own, fresh, seconds));
        over.store(true, Ordering::Release);
        outcome
    });
    let over = is_over.clone();
    let sibling = std::thread::spawn(move || plants::sibling(plant, cpu, &over));
    let mut printed = 0;
    while !is_over.load(Ordering::Acquire) {
        std::thread::sleep(Duration::from_millis(5));
        printed = log.print(printed)?;
    }
    log.print(printed)?;
    late.join().map_err(|_| "the loop panicked")??;
    sibling.join().map_err(|_| "the plant panicked")??;
    Ok(())
}

fn prepare(plant: Plant, cpu: CpuId) -> std::io::Result<()> {
    schedule::pin_this_thread(&CpuSet::from_iter([cpu]))?;
    if plant.priority() > 0 {
        schedule::schedule_this_thread(Scheduling::Fifo(plant.priority() as u32))?;
    }
    Ok(())
}

fn measure(
    plant: Plant,
    home: CpuId,
    log: &Log,
    fresh: Option<Vec<u8>>,
    seconds: u64,
) -> std::io::Result<()> {
    let end_ns = clock::now().0 + seconds * 1_000_000_000;
    turns(plant, home, log, fresh.unwrap_or_default(), end_ns)
}

fn turns(plant: Plant, home: CpuId, log: &Log, mut fresh: Vec<u8>, end_ns: u64) -> std::io::Result<()> {
    let away = plants::other(home);
    let mut last_ns = clock::now().0;
    let (mut next_ns, mut page) = (last_ns, 0);
    let mut cpu = schedule::current_cpu();
    while last_ns < end_ns {
        let acts = last_ns >= next_ns && plant.is_of_the_loop(page < fresh.len());
        if acts && plant == Plant::Migration {
            schedule::pin_this_thread(&CpuSet::single(if cpu == home { away } else { home }))?;
            next_ns = last_ns + MOVE_INTERVAL_NS;
        } else if acts {
            fresh[page] = 1;
            page += PAGE;
            next_ns = last_ns + TOUCH_INTERVAL_NS;
        }
        let now_ns = clock::now().0;
        if acts {
            log.add(PLANTED, cpu.0, last_ns, now_ns);
        }
        if now_ns - last_ns >= THRESHOLD_NS {
            log.add(SPIKE, cpu.0, now_ns, now_ns - last_ns);
            cpu = schedule::current_cpu();
        }
        last_ns = clock::now().0;
    }
    std::hint::black_box(&fresh);
    Ok(())
}
