//! Where the marks of activations lie: the place of a function, or of a static tracepoint, in the file that has it.

use object::elf::FileHeader64;
use object::read::elf::NoteIterator;
use object::{
    LittleEndian, Object as _, ObjectSection as _, ObjectSegment as _, ObjectSymbol as _, SymbolKind,
};
use std::path::{Path, PathBuf};
use whylate_core::plan::Mark;
use zerocopy::little_endian::U64;
use zerocopy::transmute;

/// The section with static tracepoints, the one that shows whether the file was moved since, and the name of its notes.
const NOTES: &str = ".note.stapsdt";
const BASE: &str = ".stapsdt.base";
const OWNER: &[u8] = b"stapsdt";
const NOTE_ALIGNMENT: u64 = 4;
/// A note begins with its address, that of [`BASE`] when it was linked, and that of its semaphore.
const NUMBERS_LENGTH: usize = 24;

/// The file and the offset in it; `None` for a text, which is not in a file.
pub fn place_of(mark: &Mark) -> Result<Option<(PathBuf, u64)>, String> {
    Ok(place_with_arguments(mark)?.map(|(path, offset, _)| (path, offset)))
}

/// The same with where the arguments of a static tracepoint are, as its note says: `-4@%edi 8@-20(%rbp)`.
pub(super) fn place_with_arguments(mark: &Mark) -> Result<Option<(PathBuf, u64, String)>, String> {
    let (path, what) = match mark {
        Mark::Function { path, function } => (path, format!("function `{function}`")),
        Mark::Usdt { path, provider, name } => (path, format!("static tracepoint `{provider}:{name}`")),
        Mark::Marker { .. } => return Ok(None),
    };
    let in_file = |text: String| format!("{}: {text}", path.display());
    let bytes = std::fs::read(path).map_err(|error| in_file(error.to_string()))?;
    let file = object::File::parse(&*bytes).map_err(|error| in_file(error.to_string()))?;
    let found = match mark {
        Mark::Function { function, .. } => {
            function_address(&file, function).map(|address| (address, String::new()))
        }
        Mark::Usdt { provider, name, .. } => {
            tracepoint_address(&file, provider, name).map_err(|error| in_file(error.to_owned()))?
        }
        Mark::Marker { .. } => None,
    };
    let found = found.and_then(|(address, arguments)| Some((offset(&file, address)?, arguments)));
    let (offset, arguments) = found.ok_or_else(|| in_file(format!("there is no {what} in it")))?;
    Ok(Some((real(path), offset, arguments)))
}

/// The kernel needs a full path.
fn real(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

fn function_address(file: &object::File<'_>, function: &str) -> Option<u64> {
    let all = file.symbols().chain(file.dynamic_symbols());
    let is_it = |symbol: &object::Symbol<'_, '_>| {
        symbol.is_definition() && symbol.kind() == SymbolKind::Text && symbol.name() == Ok(function)
    };
    all.into_iter().find(is_it).map(|symbol| symbol.address())
}

fn offset(file: &object::File<'_>, address: u64) -> Option<u64> {
    let holds = |from: u64, size: u64| address.checked_sub(from).filter(|within| *within < size);
    file.segments().find_map(|segment| {
        let within = holds(segment.address(), segment.file_range().1)?;
        Some(segment.file_range().0 + within)
    })
}

/// `Ok(None)` if the file has no such tracepoint. Notes of other architectures are not read.
fn tracepoint_address(
    file: &object::File<'_>,
    provider: &str,
    name: &str,
) -> Result<Option<(u64, String)>, &'static str> {
    let Some(section) = file.section_by_name(NOTES) else { return Ok(None) };
    let unread = "the notes with its static tracepoints cannot be read";
    let data = section.data().map_err(|_| unread)?;
    let notes = NoteIterator::<FileHeader64<LittleEndian>>::new(LittleEndian, NOTE_ALIGNMENT, data);
    let mut own = notes.map_err(|_| unread)?.map_while(Result::ok).filter(|note| note.name() == OWNER);
    let numbers_of = |note: &[u8]| {
        let (numbers, texts) = note.split_first_chunk::<NUMBERS_LENGTH>()?;
        let mut words = texts.split(|byte| *byte == 0);
        let is_it = words.next() == Some(provider.as_bytes()) && words.next() == Some(name.as_bytes());
        let mut arguments = || String::from_utf8_lossy(words.next().unwrap_or_default()).into_owned();
        is_it.then(|| (*numbers, arguments()))
    };
    let Some((numbers, arguments)) = own.find_map(|note| numbers_of(note.desc())) else { return Ok(None) };
    let [address, base, semaphore]: [U64; 3] = transmute!(numbers);
    if semaphore.get() != 0 {
        return Err(
            "this static tracepoint stays off until a tool raises its semaphore, which whylate does not do; \
             name a function instead",
        );
    }
    let moved_to = file.section_by_name(BASE).map_or(base.get(), |section| section.address());
    Ok(Some((address.get().wrapping_add(moved_to.wrapping_sub(base.get())), arguments)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use whylate_testing::says;

    #[test]
    fn a_function_of_this_program_is_found_and_a_missing_one_is_reported() {
        let own = std::env::current_exe().unwrap();
        let of =
            |function: &str| place_of(&Mark::Function { path: own.clone(), function: function.to_owned() });
        let (path, offset) = of("main").unwrap().unwrap();
        assert!(path.is_absolute() && offset > 0);
        assert!(says("there-no-function-no", of("no_such_function").unwrap_err()));
        let missing = Mark::Function { path: "/no/such/file".into(), function: "main".to_owned() };
        assert!(place_of(&missing).unwrap_err().starts_with("/no/such/file: "));
        let text = Mark::Function { path: "/proc/self/status".into(), function: "main".to_owned() };
        assert!(place_of(&text).is_err());
        let (provider, name) = ("control".to_owned(), "cycle".to_owned());
        let error = place_of(&Mark::Usdt { path: own.clone(), provider, name }).unwrap_err();
        assert!(error.contains("no static tracepoint `control:cycle`"), "{error}");
    }
}
