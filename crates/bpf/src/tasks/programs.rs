//! The names of functions on the stacks of programs: from the symbols of their files, from separate debug files by build id, and from
//! the maps (`/tmp/perf-PID.map`) that compilers at run time write. The files are read as the process sees them, also in a container.

use super::choose;
use super::demangle::plain;
use super::unwind::{StackCopy, Tables, Unwinding};
use object::LittleEndian;
use object::elf::{
    FileHeader64, NT_GNU_BUILD_ID, PF_X, PT_LOAD, PT_NOTE, SHT_DYNSYM, SHT_SYMTAB, STT_FUNC, STT_GNU_IFUNC,
    STT_OBJECT, Sym64,
};
use object::read::elf::{FileHeader as _, ProgramHeader as _, SectionHeader as _, Sym as _};
use object::{ReadCache, ReadRef};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{File, Metadata};
use std::os::unix::fs::FileExt as _;
use std::rc::Rc;
use std::time::SystemTime;
use whylate_core::recording::Frame;
use whylate_host::HostRoot;

const ENDIAN: LittleEndian = LittleEndian;
/// Where more processes or files are known, all are forgotten: a watch may go on for months.
const PROCESSES_MAX: usize = 64;
const FILES_MAX: usize = 256;
/// A file with more bytes of symbols is not read: it would take seconds.
const SYMBOLS_MAX_BYTES: u64 = 256 << 20;

/// The functions that the kernel maps into each process, to read clocks without a system call.
const VDSO: &str = "[vdso]";

/// The least alignment of what is loaded.
const PAGE_BYTES: u64 = 4_096;

/// Compilers at run time: the last part of the path of a file that their processes execute, and what they are called.
const COMPILERS: [(&str, &str); 3] = [("libjvm.so", "Java"), ("node", "Node.js"), ("nodejs", "Node.js")];

/// The loop of the Python interpreter, which runs the function that called it, and how Python names functions in its map.
const PYTHON_LOOP: &str = "_PyEval_EvalFrameDefault";
const OF_PYTHON: &str = "py::";

/// What calls the first function of a program or a thread.
const STARTS: [&str; 6] = [
    "__libc_start_call_main",
    "__libc_start_main",
    "__libc_start_main_impl",
    "_start",
    "start_thread",
    "clone3",
];

/// A part of a process's memory that is code.
#[derive(PartialEq, Eq)]
struct Mapping {
    from: u64,
    to: u64,
    offset: u64,
    /// Device and inode, which tell files apart.
    identity: String,
    /// Empty for memory without a file.
    path: String,
}

/// The functions of one file, by address.
#[derive(Default)]
struct Functions {
    /// Address, length, and where in `names` the name begins and ends.
    all: Vec<(u64, u64, usize, usize)>,
    names: String,
}

#[derive(Default)]
struct Program {
    functions: Functions,
    variables: Functions,
    tables: Tables,
    /// Offset in the file, length and address of the parts that are loaded as code.
    loaded: Vec<(u64, u64, u64)>,
}

#[derive(Default)]
struct Process {
    mappings: Vec<Mapping>,
    unwinding: Option<Unwinding>,
    /// What a compiler at run time has written so far, and the length and time of that file.
    compiled: Functions,
    compiled_file: Option<(u64, SystemTime)>,
}

/// What is known of processes and files so far.
#[derive(Default)]
pub(super) struct Programs {
    processes: BTreeMap<u32, Process>,
    files: BTreeMap<String, Rc<Program>>,
    vdso: Option<Rc<Program>>,
}

impl Programs {
    /// The functions at these addresses, innermost first, up to the first one that is in no code: from there on it is no stack.
    pub(super) fn stack(&mut self, host: &HostRoot, process: u32, addresses: &[u64]) -> Vec<Frame> {
        if self.processes.len() > PROCESSES_MAX || self.files.len() > FILES_MAX {
            *self = Self::default();
        }
        self.look_at(host, process, addresses);
        let frame = |(nth, address): (usize, &u64)| {
            // A return address is behind the call, which may be the last of its function.
            self.frame(host, process, address.saturating_sub(u64::from(nth > 0)))
        };
        let is_start = |frame: &Frame| STARTS.contains(&frame.name.as_str());
        let all: Vec<Frame> = addresses.iter().enumerate().map_while(frame).collect();
        let is_loop = |nth: usize| {
            let runs = all.get(nth + 1).is_some_and(|caller| caller.name.starts_with(OF_PYTHON));
            all[nth].name == PYTHON_LOOP && runs
        };
        let is_again = |nth: usize| nth > 0 && !all[nth].is_named && all[nth] == all[nth - 1];
        let is_kept = |nth: &usize| !is_start(&all[*nth]) && !is_loop(*nth) && !is_again(*nth);
        (0..all.len()).filter(is_kept).map(|nth| all[nth].clone()).collect()
    }

    /// The functions of a sample, and whether these are all: by its frame pointers, or by the copy of its stack where that shows
    /// more.
    pub(super) fn sampled(
        &mut self,
        host: &HostRoot,
        process: u32,
        addresses: &[u64],
        copy: Option<&StackCopy>,
    ) -> (Vec<Frame>, bool) {
        let Some(copy) = copy else { return (self.stack(host, process, addresses), false) };
        self.look_at(host, process, &[copy.instruction]);
        let (unwound, is_whole) = self.unwinding(host, process).addresses(copy);
        let unwound = self.stack(host, process, &unwound);
        if is_whole {
            return (unwound, true);
        }
        let by_pointers = self.stack(host, process, addresses);
        (if unwound.len() > by_pointers.len() { unwound } else { by_pointers }, false)
    }

    /// Reads what a process has in memory if it did not have these addresses the last time: it may have loaded a library since.
    fn look_at(&mut self, host: &HostRoot, process: u32, addresses: &[u64]) {
        let known = self.processes.entry(process).or_default();
        if addresses.iter().any(|address| known.mapping(*address).is_none()) {
            let found = mappings(host, process);
            // A process that has ended has none. A word that is no address is in no mapping, and new tables would be read for
            // each sample.
            if !found.is_empty() && found != known.mappings {
                known.mappings = found;
                known.unwinding = None;
            }
        }
    }

    fn unwinding(&mut self, host: &HostRoot, process: u32) -> &mut Unwinding {
        let Self { processes, files, vdso } = self;
        let Process { mappings, unwinding, .. } = processes.entry(process).or_default();
        unwinding.get_or_insert_with(|| {
            Unwinding::of(mappings.iter().filter_map(|mapping| {
                let (program, moved_by) = match mapping.path.as_str() {
                    VDSO => (Rc::clone(vdso.get_or_insert_with(own_vdso)), mapping.from),
                    path if path.starts_with('/') => {
                        let program = program(files, host, process, mapping);
                        let moved_by = program.moved_by(mapping)?;
                        (program, moved_by)
                    }
                    _ => return None,
                };
                Some(program.tables.module(mapping.from..mapping.to, moved_by))
            }))
        })
    }

    /// The variable of a program or library that has this address.
    pub(super) fn variable(&mut self, host: &HostRoot, process: u32, address: u64) -> Option<Frame> {
        if self.files.len() > FILES_MAX {
            *self = Self::default();
        }
        let text = host.read(&format!("/proc/{process}/maps")).ok().flatten()?;
        let all: Vec<(bool, Mapping)> = text.lines().filter_map(any_mapping).collect();
        let holds = |(_, it): &(bool, Mapping)| (it.from..it.to).contains(&address);
        let mut nth = all.iter().position(holds)?;
        // Variables that begin as zeros lie in memory without a file behind those of the file.
        while all[nth].1.path.is_empty() && nth > 0 && all[nth - 1].1.to == all[nth].1.from {
            nth -= 1;
        }
        let (_, code) = all.iter().find(|(is_code, it)| {
            *is_code && it.path.starts_with('/') && it.identity == all[nth].1.identity
        })?;
        let program = program(&mut self.files, host, process, code);
        let name = program.variables.at(address.wrapping_sub(program.moved_by(code)?))?;
        let file = code.path.rsplit('/').next().unwrap_or_default().to_owned();
        Some(Frame { name: plain(name), is_named: true, file })
    }

    fn frame(&mut self, host: &HostRoot, process: u32, address: u64) -> Option<Frame> {
        let known = self.processes.get_mut(&process)?;
        let mapping = known.mapping(address)?;
        let file =
            mapping.path.rsplit('/').next().unwrap_or_default().trim_end_matches(" (deleted)").to_owned();
        let offset = address - mapping.from + mapping.offset;
        if file == VDSO {
            let vdso = self.vdso.get_or_insert_with(own_vdso);
            return Some(frame_of(vdso.functions.at(offset), file, offset));
        }
        if !mapping.path.starts_with('/') || mapping.path.starts_with("/memfd:") {
            known.read_compiled(host, process);
            let name = known.compiled.at(address).map(plain);
            let compiler = known.compiler();
            let file = compiler.map(str::to_owned).unwrap_or(if file.is_empty() {
                "memory".to_owned()
            } else {
                file
            });
            let is_named = name.is_some();
            // One name for all of it: addresses would make as many functions of it, with a few samples each.
            let unnamed = || match compiler {
                Some(compiler) => format!("code that {compiler} compiled"),
                None => "code that was compiled at run time".to_owned(),
            };
            return Some(Frame { name: name.unwrap_or_else(unnamed), is_named, file });
        }
        let program = program(&mut self.files, host, process, mapping);
        let loaded = program.loaded.iter().find(|(from, length, _)| (*from..from + length).contains(&offset));
        let name = loaded.and_then(|(from, _, address)| program.functions.at(offset - from + address));
        Some(frame_of(name, file, offset))
    }
}

fn program(
    files: &mut BTreeMap<String, Rc<Program>>,
    host: &HostRoot,
    process: u32,
    mapping: &Mapping,
) -> Rc<Program> {
    let read = || Rc::new(Program::read(host, process, mapping).unwrap_or_default());
    Rc::clone(files.entry(mapping.identity.clone()).or_insert_with(read))
}

fn frame_of(name: Option<&str>, file: String, offset: u64) -> Frame {
    let is_named = name.is_some();
    let name = name.map_or_else(|| format!("{file}+{offset:#x}"), plain);
    Frame { name, is_named, file }
}

/// The code of a process; empty where it has ended.
fn mappings(host: &HostRoot, process: u32) -> Vec<Mapping> {
    let text = host.read(&format!("/proc/{process}/maps")).ok().flatten().unwrap_or_default();
    text.lines().filter_map(mapping).collect()
}

fn mapping(line: &str) -> Option<Mapping> {
    any_mapping(line).and_then(|(is_code, mapping)| is_code.then_some(mapping))
}

/// The own [`VDSO`], which is the same for all 64-bit processes.
fn own_vdso() -> Rc<Program> {
    let image = || {
        let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
        let mapping = maps.lines().filter_map(mapping).find(|mapping| mapping.path == VDSO)?;
        let mut image = vec![0; usize::try_from(mapping.to - mapping.from).ok()?];
        File::open("/proc/self/mem").ok()?.read_exact_at(&mut image, mapping.from).ok()?;
        Some(image)
    };
    let image = image().unwrap_or_default();
    Rc::new(Program {
        functions: functions(&*image, SHT_DYNSYM).unwrap_or_default(),
        tables: Tables::read(&*image).unwrap_or_default(),
        ..Program::default()
    })
}

/// A part of a process's memory, and whether it is code.
fn any_mapping(line: &str) -> Option<(bool, Mapping)> {
    let mut words = line.splitn(6, ' ');
    let (from, to) = words.next()?.split_once('-')?;
    let is_code = words.next()?.contains('x');
    let offset = words.next()?;
    let identity = format!("{} {}", words.next()?, words.next()?);
    let number = |text: &str| u64::from_str_radix(text, 16).ok();
    let (from, to, offset) = (number(from)?, number(to)?, number(offset)?);
    let path = words.next().unwrap_or_default().trim_start().to_owned();
    Some((is_code, Mapping { from, to, offset, identity, path }))
}

impl Process {
    fn mapping(&self, address: u64) -> Option<&Mapping> {
        self.mappings.iter().find(|mapping| (mapping.from..mapping.to).contains(&address))
    }

    /// What compiles its code at run time.
    fn compiler(&self) -> Option<&'static str> {
        let is_of = |mapping: &Mapping, name: &str| mapping.path.rsplit('/').next() == Some(name);
        let is_there = |(name, _): &(&str, &str)| self.mappings.iter().any(|mapping| is_of(mapping, name));
        COMPILERS.into_iter().find(is_there).map(|(_, compiler)| compiler)
    }

    /// Reads what its compiler has written, where that is not what it was the last time.
    fn read_compiled(&mut self, host: &HostRoot, process: u32) {
        let Some(inside) = choose::ids(host, process).pop() else { return };
        let path = host.path(&format!("/proc/{process}/root/tmp/perf-{inside}.map"));
        let Some(found) = std::fs::metadata(&path).ok().filter(Metadata::is_file) else { return };
        // `jcmd PID Compiler.perfmap` writes the file anew, perhaps with the same length.
        let file = found.modified().ok().map(|at| (found.len(), at));
        if file == self.compiled_file || found.len() > SYMBOLS_MAX_BYTES {
            return;
        }
        self.compiled_file = file;
        self.compiled = Functions::default();
        let text = std::fs::read(path).unwrap_or_default();
        for line in String::from_utf8_lossy(&text).lines() {
            let mut words = line.splitn(3, ' ');
            let mut number = || u64::from_str_radix(words.next()?.trim_start_matches("0x"), 16).ok();
            if let (Some(from), Some(length)) = (number(), number()) {
                self.compiled.add(from, length, words.next().unwrap_or_default());
            }
        }
        self.compiled.all.sort();
    }
}

impl Functions {
    fn add(&mut self, from: u64, length: u64, name: &str) {
        let begin = self.names.len();
        let _ = self.names.write_str(name);
        self.all.push((from, length, begin, self.names.len()));
    }

    fn at(&self, address: u64) -> Option<&str> {
        let behind = self.all.partition_point(|(from, ..)| *from <= address);
        let (from, length, begin, end) = self.all[..behind].last()?;
        // Functions in assembly often have no length.
        (address - from < *length || *length == 0).then(|| &self.names[*begin..*end])
    }
}

impl Program {
    fn read(host: &HostRoot, process: u32, mapping: &Mapping) -> Option<Self> {
        // The file itself, also where another one has its name by now; it needs more rights than the name.
        let exact = format!("/proc/{process}/map_files/{:x}-{:x}", mapping.from, mapping.to);
        let named = format!("/proc/{process}/root{}", mapping.path);
        let open = |path: &String| File::open(host.path(path)).ok();
        let data = ReadCache::new(open(&exact).or_else(|| open(&named))?);
        let header = FileHeader64::<LittleEndian>::parse(&data).ok()?;
        let segments = header.program_headers(ENDIAN, &data).ok()?;
        let code =
            segments.iter().filter(|it| it.p_type(ENDIAN) == PT_LOAD && it.p_flags(ENDIAN) & PF_X != 0);
        let loaded = code.map(|it| (it.p_offset(ENDIAN), it.p_filesz(ENDIAN), it.p_vaddr(ENDIAN))).collect();
        let variables = |table| symbols(&data, table, &[STT_OBJECT]);
        let variables = variables(SHT_SYMTAB).or_else(|| variables(SHT_DYNSYM)).unwrap_or_default();
        let functions = functions(&data, SHT_SYMTAB).or_else(|| {
            let note = segments.iter().filter(|it| it.p_type(ENDIAN) == PT_NOTE);
            let notes = note.filter_map(|it| it.notes(ENDIAN, &data).ok().flatten());
            let mut all = notes.flat_map(|notes| notes.map_while(Result::ok));
            let id = all.find(|note| note.n_type(ENDIAN) == NT_GNU_BUILD_ID && note.name() == b"GNU")?;
            let id: String = id.desc().iter().map(|byte| format!("{byte:02x}")).collect();
            let path = format!("usr/lib/debug/.build-id/{}/{}.debug", id.get(..2)?, id.get(2..)?);
            let roots = [format!("/proc/{process}/root/{path}"), format!("/{path}")];
            functions(&ReadCache::new(roots.iter().find_map(open)?), SHT_SYMTAB)
        });
        let functions = functions.or_else(|| self::functions(&data, SHT_DYNSYM)).unwrap_or_default();
        let tables = Tables::read(&data).unwrap_or_default();
        Some(Self { functions, variables, tables, loaded })
    }

    /// How far the file's addresses, as linked, lie below those in memory.
    fn moved_by(&self, code: &Mapping) -> Option<u64> {
        let is_its = |(from, length, _): &&(u64, u64, u64)| {
            (from - from % PAGE_BYTES..from + length).contains(&code.offset)
        };
        let (from, _, linked) = self.loaded.iter().find(is_its)?;
        Some(code.from.wrapping_sub(code.offset).wrapping_add(*from).wrapping_sub(*linked))
    }
}

/// The functions of a table of symbols; `None` where the file has no such table.
fn functions<'data>(data: impl ReadRef<'data>, kind: u32) -> Option<Functions> {
    symbols(data, kind, &[STT_FUNC, STT_GNU_IFUNC])
}

fn symbols<'data>(data: impl ReadRef<'data>, kind: u32, types: &[u8]) -> Option<Functions> {
    let header = FileHeader64::<LittleEndian>::parse(data).ok()?;
    let sections = header.sections(ENDIAN, data).ok()?;
    let section = sections.iter().find(|section| section.sh_type(ENDIAN) == kind)?;
    let texts = sections.section(object::SectionIndex(section.sh_link(ENDIAN) as usize)).ok()?;
    if section.sh_size(ENDIAN) + texts.sh_size(ENDIAN) > SYMBOLS_MAX_BYTES {
        return None;
    }
    let symbols: &'data [Sym64<LittleEndian>] = section.data_as_array(ENDIAN, data).ok()?;
    let texts = texts.data(ENDIAN, data).ok()?;
    let mut functions = Functions::default();
    for symbol in symbols {
        let is_empty = symbol.st_type() == STT_OBJECT && symbol.st_size(ENDIAN) == 0;
        let is_there = types.contains(&symbol.st_type()) && symbol.st_shndx(ENDIAN) != 0 && !is_empty;
        let Some(rest) = texts.get(symbol.st_name(ENDIAN) as usize..).filter(|_| is_there) else {
            continue;
        };
        let name = rest.split(|byte| *byte == 0).next().unwrap_or_default();
        functions.add(symbol.st_value(ENDIAN), symbol.st_size(ENDIAN), &String::from_utf8_lossy(name));
    }
    functions.all.sort();
    (!functions.all.is_empty()).then_some(functions)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[inline(never)]
    extern "C" fn a_function_with_this_name() -> u64 {
        std::hint::black_box(7)
    }

    #[test]
    fn the_functions_of_this_program_have_their_names_and_what_is_no_code_ends_the_stack() {
        let address = a_function_with_this_name as *const () as usize as u64;
        assert_eq!(a_function_with_this_name(), 7);
        let mut programs = Programs::default();
        let stack =
            programs.stack(&HostRoot::real(), std::process::id(), &[address, address + 1, 8, address]);
        let names: Vec<&str> = stack.iter().map(|frame| frame.name.as_str()).collect();
        assert_eq!(names.len(), 2, "{names:?}");
        assert!(
            stack.iter().all(|frame| frame.is_named && frame.name.ends_with("a_function_with_this_name")),
            "{stack:?}"
        );
        assert!(
            programs.stack(&HostRoot::real(), u32::MAX, &[address]).is_empty(),
            "there is no such process"
        );
    }

    #[test]
    fn the_clock_of_the_vdso_has_its_name() {
        let functions = &own_vdso().functions;
        let (from, length, ..) =
            *functions.all.iter().find(|it| functions.names[it.2..it.3].contains("clock_gettime")).unwrap();
        let all = mappings(&HostRoot::real(), std::process::id());
        let vdso = all.iter().find(|mapping| mapping.path == VDSO).unwrap();
        let stack = Programs::default().stack(
            &HostRoot::real(),
            std::process::id(),
            &[vdso.from + from + length / 2],
        );
        assert!(stack[0].is_named && stack[0].name.ends_with("clock_gettime"), "{stack:?}");
    }

    #[test]
    fn the_variables_of_this_program_have_their_names() {
        #[used]
        static WITH_VALUE: [std::sync::atomic::AtomicU32; 4] =
            [const { std::sync::atomic::AtomicU32::new(7) }; 4];
        #[used]
        static OF_ZEROS: [std::sync::atomic::AtomicU32; 4] =
            [const { std::sync::atomic::AtomicU32::new(0) }; 4];
        let mut programs = Programs::default();
        for (word, name) in [(&WITH_VALUE[2], "WITH_VALUE"), (&OF_ZEROS[3], "OF_ZEROS")] {
            let address = std::ptr::from_ref(word) as u64;
            let variable = programs.variable(&HostRoot::real(), std::process::id(), address);
            assert!(variable.as_ref().is_some_and(|it| it.name.ends_with(name)), "{name}: {variable:?}");
        }
        let on_stack = 0_u32;
        let address = std::ptr::from_ref(&on_stack) as u64;
        assert_eq!(programs.variable(&HostRoot::real(), std::process::id(), address), None);
    }

    #[test]
    fn compilers_at_run_time_say_their_functions_in_a_map() {
        let folder = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write(
            "proc/7/maps",
            "1000-3000 rwxp 00000000 00:00 0 \n4000-5000 r-xp 00001000 08:01 99   /opt/a b/gone (deleted)\n",
        );
        write("proc/7/status", "Name:\tnode\nNSpid:\t7\t3\n");
        write("proc/7/root/tmp/perf-3.map", "1000 10 LazyCompile:~update app.js:3\n0x1800 20 second\n");
        let mut programs = Programs::default();
        let host = HostRoot::at(folder.path());
        let mut names = |addresses: &[u64]| {
            let stack = programs.stack(&host, 7, addresses);
            stack.into_iter().map(|frame| (frame.name, frame.is_named)).collect::<Vec<_>>()
        };
        let found = names(&[0x1008, 0x1800 + 0x20, 0x1900, 0x4abc]);
        let expected = [
            ("LazyCompile:~update app.js:3", true),
            ("second", true),
            ("code that was compiled at run time", false),
            ("gone+0x1abb", false),
        ];
        assert_eq!(found, expected.map(|(name, is_named)| (name.to_owned(), is_named)));
        write(
            "proc/7/root/tmp/perf-3.map",
            "1000 10 LazyCompile:~update app.js:3\n0x1800 200 grown_by_now\n",
        );
        assert_eq!(names(&[0x1900]), [("grown_by_now".to_owned(), true)], "the map is read again");
        std::fs::remove_dir_all(folder.path().join("proc")).unwrap();
        let found = names(&[0x1008, 0x1900, 0x9000]);
        let expected = ["LazyCompile:~update app.js:3", "grown_by_now"].map(|name| (name.to_owned(), true));
        assert_eq!(found, expected, "the process has ended");
    }

    #[test]
    fn code_without_a_map_has_the_name_of_its_compiler_and_the_loop_of_python_is_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let anonymous = "1000-3000 rwxp 00000000 00:00 0 \n";
        write(
            "proc/7/maps",
            &format!("{anonymous}4000-5000 r-xp 00000000 08:01 99 /usr/lib/jvm/libjvm.so\n"),
        );
        write("proc/7/status", "Name:\tjava\nNSpid:\t7\n");
        write("proc/8/maps", anonymous);
        write("proc/8/status", "Name:\tpython3\nNSpid:\t8\n");
        let map = format!("1000 10 {PYTHON_LOOP}\n1100 10 py::plan:/a.py\n1200 10 py::main:/a.py\n");
        write("proc/8/root/tmp/perf-8.map", &map);
        let (mut programs, host) = (Programs::default(), HostRoot::at(folder.path()));
        let java = programs.stack(&host, 7, &[0x1008, 0x2008]);
        let java: Vec<_> = java.iter().map(|it| (it.name.as_str(), it.file.as_str(), it.is_named)).collect();
        assert_eq!(java, [("code that Java compiled", "Java", false)], "once");
        let python = programs.stack(&host, 8, &[0x1008, 0x1108, 0x1008, 0x1208, 0x1008]);
        let names: Vec<&str> = python.iter().map(|it| it.name.as_str()).collect();
        assert_eq!(names, ["py::plan:/a.py", "py::main:/a.py", PYTHON_LOOP]);
    }
}
