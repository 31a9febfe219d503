//! Makes trace.dat files and raw pages as kernels and trace-cmd write them: any byte order, word size and page size.

use std::io::Write;
use whylate_trace::internal::Algorithm;
use whylate_trace::parse::ByteOrder;

/// Ids of the events that are made.
pub(crate) const SWITCH: u16 = 300;
pub(crate) const WAKEUP: u16 = 301;
pub(crate) const IRQ: u16 = 302;
pub(crate) const UNNAMED: u16 = 900;
pub(crate) const PRINT: u16 = 5;
pub(crate) const FUNCTION: u16 = 1;

/// How the traced machine is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Machine {
    pub(crate) order: ByteOrder,
    pub(crate) long_bytes: usize,
    pub(crate) page_bytes: usize,
}

impl Machine {
    pub(crate) fn u16(self, value: u16) -> [u8; 2] {
        if self.order == ByteOrder::Little { value.to_le_bytes() } else { value.to_be_bytes() }
    }

    pub(crate) fn u32(self, value: u32) -> [u8; 4] {
        if self.order == ByteOrder::Little { value.to_le_bytes() } else { value.to_be_bytes() }
    }

    pub(crate) fn u64(self, value: u64) -> [u8; 8] {
        if self.order == ByteOrder::Little { value.to_le_bytes() } else { value.to_be_bytes() }
    }

    pub(crate) fn long(self, value: u64) -> Vec<u8> {
        if self.long_bytes == 8 { self.u64(value).to_vec() } else { self.u32(value as u32).to_vec() }
    }

    /// The start of a record.
    fn common(self, id: u16, pid: u32) -> Vec<u8> {
        let mut record = self.u16(id).to_vec();
        record.extend_from_slice(&[0x05, 0x21]);
        record.extend_from_slice(&self.u32(pid));
        record
    }

    fn task(self, record: &mut Vec<u8>, command: &str, pid: u32, priority: i32) {
        let mut text = command.as_bytes().to_vec();
        text.resize(16, 0);
        record.extend_from_slice(&text);
        record.extend_from_slice(&self.u32(pid));
        record.extend_from_slice(&self.u32(priority as u32));
    }

    /// A switch from `pid` to `next`.
    pub(crate) fn switch(self, pid: u32, state: u64, next: u32) -> Vec<u8> {
        let mut record = self.common(SWITCH, pid);
        self.task(&mut record, &format!("task-{pid}"), pid, 120);
        record.extend_from_slice(&self.long(state));
        self.task(&mut record, &format!("task-{next}"), next, 98);
        record
    }

    pub(crate) fn wakeup(self, pid: u32, woken: u32, cpu: u32) -> Vec<u8> {
        let mut record = self.common(WAKEUP, pid);
        self.task(&mut record, &format!("task-{woken}"), woken, -1);
        record.extend_from_slice(&self.u32(cpu));
        record
    }

    pub(crate) fn irq(self, pid: u32, irq: u32, name: &str) -> Vec<u8> {
        let mut record = self.common(IRQ, pid);
        record.extend_from_slice(&self.u32(irq));
        record.extend_from_slice(&self.u32((name.len() as u32 + 1) << 16 | 16));
        record.extend_from_slice(name.as_bytes());
        record.push(0);
        record
    }

    pub(crate) fn function(self, pid: u32, function: u64, caller: u64) -> Vec<u8> {
        let mut record = self.common(FUNCTION, pid);
        record.extend_from_slice(&self.long(function));
        record.extend_from_slice(&self.long(caller));
        record
    }

    pub(crate) fn print(self, pid: u32, text: &str) -> Vec<u8> {
        let mut record = self.common(PRINT, pid);
        record.extend_from_slice(&self.long(0));
        record.extend_from_slice(text.as_bytes());
        record.extend_from_slice(b"\n\0");
        record
    }

    pub(crate) fn unnamed(self, pid: u32) -> Vec<u8> {
        self.common(UNNAMED, pid)
    }

    pub(crate) fn header_page(self) -> String {
        let (long, data) = (self.long_bytes, 8 + self.long_bytes);
        format!(
            "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n\tfield: local_t commit;\toffset:8;\tsize:{long};\tsigned:1;\n\tfield: int overwrite;\toffset:8;\tsize:1;\tsigned:1;\n\tfield: char data;\toffset:{data};\tsize:{};\tsigned:0;\n",
            self.page_bytes - data
        )
    }

    /// Formats: ftrace's own, and those of `sched` and `irq`.
    pub(crate) fn formats(self) -> [(&'static str, Vec<String>); 3] {
        let long = self.long_bytes;
        let function = format!(
            "\tfield:unsigned long ip;\toffset:8;\tsize:{long};\tsigned:0;\n\tfield:unsigned long parent_ip;\toffset:{};\tsize:{long};\tsigned:0;\n",
            8 + long
        );
        let print = format!(
            "\tfield:unsigned long ip;\toffset:8;\tsize:{long};\tsigned:0;\n\tfield:char buf[];\toffset:{};\tsize:0;\tsigned:0;\n",
            8 + long
        );
        let next = 32 + long;
        let switch = format!(
            "{}\tfield:long prev_state;\toffset:32;\tsize:{long};\tsigned:1;\n{}",
            task_fields("prev_", 8),
            task_fields("next_", next)
        );
        let wakeup =
            format!("{}\tfield:int target_cpu;\toffset:32;\tsize:4;\tsigned:1;\n", task_fields("", 8));
        let irq = "\tfield:int irq;\toffset:8;\tsize:4;\tsigned:1;\n\tfield:__data_loc char[] name;\toffset:12;\tsize:4;\tsigned:0;\n";
        [
            ("ftrace", vec![format("function", FUNCTION, &function), format("print", PRINT, &print)]),
            ("sched", vec![format("sched_switch", SWITCH, &switch), format("sched_wakeup", WAKEUP, &wakeup)]),
            ("irq", vec![format("irq_handler_entry", IRQ, irq)]),
        ]
    }
}

fn task_fields(prefix: &str, at: usize) -> String {
    format!(
        "\tfield:char {prefix}comm[16];\toffset:{at};\tsize:16;\tsigned:0;\n\tfield:pid_t {prefix}pid;\toffset:{};\tsize:4;\tsigned:1;\n\tfield:int {prefix}prio;\toffset:{};\tsize:4;\tsigned:1;\n",
        at + 16,
        at + 20
    )
}

fn format(name: &str, id: u16, fields: &str) -> String {
    format!(
        "name: {name}\nID: {id}\nformat:\n\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;\n\tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;\n\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n{fields}\nprint fmt: \"\"\n"
    )
}

/// The pages of one CPU.
#[derive(Clone, Debug)]
pub(crate) struct Pages {
    machine: Machine,
    done: Vec<u8>,
    page: Vec<u8>,
    time: u64,
    page_time: u64,
    missed: Option<Option<u64>>,
}

impl Pages {
    pub(crate) fn new(machine: Machine) -> Self {
        Self { machine, done: Vec::new(), page: Vec::new(), time: 0, page_time: 0, missed: None }
    }

    fn room(&self) -> usize {
        self.machine.page_bytes - 8 - self.machine.long_bytes
    }

    /// An entry's first word.
    fn entry(&mut self, kind: u32, delta: u32) {
        let word = match self.machine.order {
            ByteOrder::Little => delta << 5 | kind,
            ByteOrder::Big => kind << 27 | delta,
        };
        self.page.extend_from_slice(&self.machine.u32(word));
    }

    /// Begins a page if `bytes` no longer fit.
    fn reserve(&mut self, time: u64, bytes: usize) {
        if !self.page.is_empty() && self.page.len() + bytes > self.room() {
            self.end_page();
        }
        if self.page.is_empty() {
            self.page_time = time;
            self.time = time;
        }
    }

    fn delta(&mut self, time: u64) -> u32 {
        let delta = time - self.time;
        self.time = time;
        if delta >> 27 == 0 {
            return delta as u32;
        }
        self.entry(30, (delta & 0x7ff_ffff) as u32);
        self.page.extend_from_slice(&self.machine.u32((delta >> 27) as u32));
        0
    }

    pub(crate) fn event(&mut self, time: u64, record: &[u8]) {
        let mut record = record.to_vec();
        record.resize(record.len().next_multiple_of(4), 0);
        self.reserve(time, record.len() + 16);
        let delta = self.delta(time);
        if record.len() <= 112 {
            self.entry(record.len() as u32 / 4, delta);
        } else {
            self.entry(0, delta);
            self.page.extend_from_slice(&self.machine.u32(record.len() as u32 + 4));
        }
        self.page.extend_from_slice(&record);
    }

    /// An event that a filter discarded. It keeps its time, or gets one 1 ns later: without a delta it would be the end
    /// of the page.
    pub(crate) fn discarded(&mut self, time: u64, bytes: usize) -> u64 {
        self.reserve(time, bytes + 16);
        let delta = self.delta(time);
        self.time += u64::from(delta == 0);
        self.entry(29, delta.max(1));
        self.page.extend_from_slice(&self.machine.u32(bytes as u32));
        self.page.extend(std::iter::repeat_n(0, bytes - 4));
        self.time
    }

    /// An absolute time, of which 59 bits are stored.
    pub(crate) fn stamp(&mut self, time: u64) {
        self.reserve(time, 8);
        let low = time & ((1 << 59) - 1);
        self.entry(31, (low & 0x7ff_ffff) as u32);
        self.page.extend_from_slice(&self.machine.u32((low >> 27) as u32));
        self.time = time;
    }

    /// The next page follows a loss.
    pub(crate) fn lose(&mut self, events: Option<u64>) {
        self.end_page();
        self.missed = Some(events);
    }

    pub(crate) fn end_page(&mut self) {
        if self.page.is_empty() {
            return;
        }
        let mut commit = self.page.len() as u64;
        let mut data = std::mem::take(&mut self.page);
        if let Some(events) = self.missed.take() {
            commit |= 1 << 31;
            if let Some(events) = events.filter(|_| data.len() + self.machine.long_bytes <= self.room()) {
                commit |= 1 << 30;
                data.extend_from_slice(&self.machine.long(events));
            }
        }
        data.resize(self.room(), 0);
        self.done.extend_from_slice(&self.machine.u64(self.page_time));
        self.done.extend_from_slice(&self.machine.long(commit));
        self.done.extend_from_slice(&data);
    }

    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.end_page();
        self.done
    }
}

/// Packs bytes.
pub(crate) fn pack(algorithm: Algorithm, bytes: &[u8]) -> Vec<u8> {
    match algorithm {
        Algorithm::None => bytes.to_vec(),
        Algorithm::Zlib => {
            let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
            encoder.write_all(bytes).unwrap();
            encoder.finish().unwrap()
        }
        Algorithm::Zstandard => structured_zstd::encoding::compress_to_vec(
            bytes,
            structured_zstd::encoding::CompressionLevel::Fastest,
        ),
    }
}

/// An instance: its name, clock and the pages of each CPU.
pub(crate) type Instance<'a> = (&'a str, &'a str, Vec<Vec<u8>>);

/// The parts of a file.
pub(crate) struct File<'a> {
    pub(crate) machine: Machine,
    pub(crate) algorithm: Algorithm,
    pub(crate) instances: Vec<Instance<'a>>,
    /// More options: number and data.
    pub(crate) options: Vec<(u16, Vec<u8>)>,
    /// The content that replaces records.
    pub(crate) text: Option<&'static str>,
}

pub(crate) const KALLSYMS: &str =
    "ffffffff81000000 T _stext\n81000100 t in_32_bits\nffffffff81000100 t do_one\n";
pub(crate) const COMMANDS: &str = "7 saved-seven\n8 <...>\n";

impl File<'_> {
    fn start(&self, version: &str) -> Vec<u8> {
        let mut file = b"\x17\x08Dtracing".to_vec();
        file.extend_from_slice(version.as_bytes());
        file.push(0);
        file.push(u8::from(self.machine.order == ByteOrder::Big));
        file.push(self.machine.long_bytes as u8);
        file.extend_from_slice(&self.machine.u32(4096));
        file
    }

    fn header(&self) -> Vec<u8> {
        let mut part = Vec::new();
        for (name, text) in
            [("header_page", self.machine.header_page()), ("header_event", "# nothing\n".into())]
        {
            part.extend_from_slice(name.as_bytes());
            part.push(0);
            part.extend_from_slice(&self.machine.u64(text.len() as u64));
            part.extend_from_slice(text.as_bytes());
        }
        part
    }

    fn texts(&self, formats: &[String]) -> Vec<u8> {
        let mut part = self.machine.u32(formats.len() as u32).to_vec();
        for format in formats {
            part.extend_from_slice(&self.machine.u64(format.len() as u64));
            part.extend_from_slice(format.as_bytes());
        }
        part
    }

    /// Header, ftrace's formats, other formats, symbols, texts of trace_printk, commands: as both versions have them.
    fn parts(&self) -> [Vec<u8>; 6] {
        let [(_, own), systems @ ..] = self.machine.formats();
        let mut events = self.machine.u32(systems.len() as u32).to_vec();
        for (system, formats) in systems {
            events.extend_from_slice(system.as_bytes());
            events.push(0);
            events.extend(self.texts(&formats));
        }
        let sized = |text: &str| [&self.machine.u32(text.len() as u32)[..], text.as_bytes()].concat();
        let commands = [&self.machine.u64(COMMANDS.len() as u64)[..], COMMANDS.as_bytes()].concat();
        [self.header(), self.texts(&own), events, sized(KALLSYMS), sized(""), commands]
    }

    fn options(&self, options: &[(u16, Vec<u8>)]) -> Vec<u8> {
        let mut part = Vec::new();
        for (id, data) in options {
            part.extend_from_slice(&self.machine.u16(*id));
            part.extend_from_slice(&self.machine.u32(data.len() as u32));
            part.extend_from_slice(data);
        }
        part
    }

    /// The file in version 6, which is never packed.
    pub(crate) fn version6(&self) -> Vec<u8> {
        let mut file = self.start("6");
        file.extend(self.parts().concat());
        let cpus = self.instances[0].2.len();
        file.extend_from_slice(&self.machine.u32(cpus as u32));
        file.extend_from_slice(b"options  \0");
        if let Some(text) = self.text {
            file.extend(self.options(&self.options));
            file.extend_from_slice(&[&self.machine.u16(0)[..], b"latency  \0", text.as_bytes()].concat());
            return file;
        }
        file.extend(self.options(&self.options));
        // Options of instances have the place of their lists, which come behind all.
        let lists = 10 + 16 * cpus;
        let names: usize = self.instances[1..].iter().map(|(name, ..)| 6 + 8 + name.len() + 1).sum();
        let first_list = file.len() + names + 2;
        for (index, (name, ..)) in self.instances.iter().enumerate().skip(1) {
            let data =
                [&self.machine.u64((first_list + index * lists) as u64)[..], name.as_bytes(), b"\0"].concat();
            file.extend(self.options(&[(3, data)]));
        }
        file.extend_from_slice(&self.machine.u16(0));
        let mut at = (first_list + self.instances.len() * lists).next_multiple_of(self.machine.page_bytes);
        let mut data = Vec::new();
        for (.., cpus) in &self.instances {
            file.extend_from_slice(b"flyrecord\0");
            for pages in cpus {
                file.extend_from_slice(&self.machine.u64(at as u64));
                file.extend_from_slice(&self.machine.u64(pages.len() as u64));
                at += pages.len();
                data.extend_from_slice(pages);
            }
        }
        file.resize(file.len().next_multiple_of(self.machine.page_bytes), 0);
        file.extend(data);
        file
    }

    /// The file in version 7.
    pub(crate) fn version7(&self) -> Vec<u8> {
        let names = match self.algorithm {
            Algorithm::None => "none",
            Algorithm::Zlib => "zlib",
            Algorithm::Zstandard => "zstd",
        };
        let mut file = [&self.start("7")[..], names.as_bytes(), b"\x001.0\0"].concat();
        let first = file.len();
        file.extend_from_slice(&self.machine.u64(0));
        let mut options = self.options.clone();
        for (index, part) in self.parts().iter().enumerate() {
            let id = 16 + index as u16;
            options.push((id, self.machine.u64(file.len() as u64).to_vec()));
            self.section(&mut file, id, part);
        }
        let first_options = file.len();
        let place = self.machine.u64(first_options as u64);
        file[first..first + 8].copy_from_slice(&place);
        // The place of the next options is not known yet, so the section of options is written again with the same size.
        options.push((0, self.machine.u64(0).to_vec()));
        let mut head = Vec::new();
        self.plain_section(&mut head, 0, &self.options(&options));
        file.extend_from_slice(&head);
        let texts = self.text.map(|text| {
            let option = [&self.machine.u64(file.len() as u64)[..], b"\0"].concat();
            self.section(&mut file, 22, text.as_bytes());
            (22, option)
        });
        let instances = if texts.is_some() { &[][..] } else { &self.instances[..] };
        let buffers: Vec<_> =
            instances.iter().map(|instance| (3, self.buffer(&mut file, instance))).collect();
        let next = self.machine.u64(file.len() as u64).to_vec();
        *options.last_mut().unwrap() = (0, next);
        head.clear();
        self.plain_section(&mut head, 0, &self.options(&options));
        file[first_options..first_options + head.len()].copy_from_slice(&head);
        let buffers =
            [texts.into_iter().collect(), buffers, vec![(0, self.machine.u64(0).to_vec())]].concat();
        self.section(&mut file, 0, &self.options(&buffers));
        file
    }

    fn plain_section(&self, file: &mut Vec<u8>, id: u16, part: &[u8]) {
        file.extend_from_slice(&[self.machine.u16(id), self.machine.u16(0)].concat());
        file.extend_from_slice(&self.machine.u32(0));
        file.extend_from_slice(&self.machine.u64(part.len() as u64));
        file.extend_from_slice(part);
    }

    fn section(&self, file: &mut Vec<u8>, id: u16, part: &[u8]) {
        if self.algorithm == Algorithm::None {
            return self.plain_section(file, id, part);
        }
        let packed = pack(self.algorithm, part);
        file.extend_from_slice(&[self.machine.u16(id), self.machine.u16(1)].concat());
        file.extend_from_slice(&self.machine.u32(0));
        file.extend_from_slice(&self.machine.u64(packed.len() as u64 + 8));
        file.extend_from_slice(&self.machine.u32(packed.len() as u32));
        file.extend_from_slice(&self.machine.u32(part.len() as u32));
        file.extend_from_slice(&packed);
    }

    /// Writes the events of an instance; the data of its option.
    fn buffer(&self, file: &mut Vec<u8>, (name, clock, cpus): &Instance<'_>) -> Vec<u8> {
        let mut option = self.machine.u64(file.len() as u64).to_vec();
        option.extend_from_slice(&[name.as_bytes(), b"\0", clock.as_bytes(), b"\0"].concat());
        option.extend_from_slice(&self.machine.u32(self.machine.page_bytes as u32));
        option.extend_from_slice(&self.machine.u32(cpus.len() as u32));
        let packed = self.algorithm != Algorithm::None;
        file.extend_from_slice(&[self.machine.u16(3), self.machine.u16(u16::from(packed))].concat());
        file.extend_from_slice(&[0; 12]);
        for (cpu, pages) in cpus.iter().enumerate() {
            file.resize(file.len().next_multiple_of(64), 0);
            let begin = file.len();
            if packed {
                let chunks: Vec<&[u8]> = pages.chunks(3 * self.machine.page_bytes).collect();
                file.extend_from_slice(&self.machine.u32(chunks.len() as u32));
                for chunk in chunks {
                    let bytes = pack(self.algorithm, chunk);
                    file.extend_from_slice(&self.machine.u32(bytes.len() as u32));
                    file.extend_from_slice(&self.machine.u32(chunk.len() as u32));
                    file.extend_from_slice(&bytes);
                }
            } else {
                file.extend_from_slice(pages);
            }
            option.extend_from_slice(&self.machine.u32(cpu as u32));
            option.extend_from_slice(&self.machine.u64(begin as u64));
            option.extend_from_slice(&self.machine.u64((file.len() - begin) as u64));
        }
        option
    }
}
