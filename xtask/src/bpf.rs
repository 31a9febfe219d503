//! Compiles the BPF programs, and checks whether the stored objects belong to the sources.
//!
//! The objects are stored in the source tree, so that building whylate needs no clang. Each carries a hash of all
//! sources and the version of the compiler. The hash is always checked, the bytes only with the same compiler.

use crate::process;
use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;

const SOURCES: &str = "crates/bpf/bpf";
/// The compiled objects, and the file of which each is made; those include the others.
const OBJECTS: [(&str, &str); 2] = [
    ("crates/bpf/objects/whylate.bpf.o", "whylate.bpf.c"),
    ("crates/bpf/objects/dispatch.bpf.o", "dispatch.bpf.c"),
];
/// The text before the hash and the version in the object.
const MARK: &str = "whylate-bpf sources ";

/// Compiles the programs into the source tree.
///
/// # Errors
/// When there is no clang for BPF, or the sources do not compile.
pub(crate) fn run(root: &Path) -> Result<()> {
    let version = compiler().context("compiling BPF programs needs clang and llvm-strip")?;
    for (path, main) in OBJECTS {
        let object = compiled(root, main, &version)?;
        std::fs::write(root.join(path), object).with_context(|| format!("cannot write {path}"))?;
        println!("xtask: {path}, compiled by {version}");
    }
    Ok(())
}

/// Checks that the objects belong to the sources.
pub(crate) fn check(root: &Path) -> Result<()> {
    let here = compiler().ok();
    let expected = source_hash(root)?;
    for (path, main) in OBJECTS {
        let kept = std::fs::read(root.join(path)).with_context(|| format!("cannot read {path}"))?;
        let (hash, version) = origin(&kept)
            .with_context(|| format!("{path} does not name the sources that it was compiled from"))?;
        ensure!(
            hash == expected,
            "{path} was compiled from other sources than those in {SOURCES}: run `cargo xtask bpf`"
        );
        if here.as_ref() != Some(&version) {
            println!(
                "xtask: {path} matches the sources by its hash; {version} is not installed to compile it again"
            );
            continue;
        }
        ensure!(
            compiled(root, main, &version)? == kept,
            "{path} differs from what {version} compiles from the sources in {SOURCES}: run `cargo xtask bpf`"
        );
    }
    Ok(())
}

/// The object that the compiler of that version makes of the sources.
fn compiled(root: &Path, main: &str, version: &str) -> Result<Vec<u8>> {
    let path = std::env::temp_dir().join(format!("whylate-{}-{main}.o", std::process::id()));
    let object = compile(root, main, version, &path)
        .and_then(|()| std::fs::read(&path).with_context(|| format!("cannot read {}", path.display())));
    // Files that stay in the folder for temporary files do no harm.
    let _ = std::fs::remove_file(&path);
    object
}

fn compile(root: &Path, main: &str, version: &str, object: &Path) -> Result<()> {
    let folder = root.join(SOURCES);
    let origin = format!("-DORIGIN=\"{MARK}{} {version}\"", source_hash(root)?);
    let mut clang = Command::new("clang");
    clang.current_dir(&folder);
    // -g for the type information; v3 is understood from Linux 5.3 on.
    clang.args(["-O2", "-g", "-target", "bpf", "-mcpu=v3", "-Wall", "-Werror", "-Wno-unused-function"]);
    // The place of the sources must not change the object.
    clang.arg(format!("-fdebug-prefix-map={}=.", folder.display()));
    clang.arg(format!("-ffile-prefix-map={}=.", folder.display()));
    clang.args([&origin, "-c", main, "-o"]).arg(object);
    process::run(&mut clang)?;
    // The kernel's own type information stays: it is in sections of another name.
    process::run(Command::new("llvm-strip").arg("-g").arg(object))
}

/// The first line of clang's version.
fn compiler() -> Result<String> {
    let strip = process::output(Command::new("llvm-strip").arg("--version"))?;
    ensure!(!strip.is_empty(), "llvm-strip says nothing");
    let text = process::output(Command::new("clang").arg("--version"))?;
    Ok(text.lines().next().unwrap_or_default().to_owned())
}

/// FNV-1a over names and contents of the sources, in hexadecimal.
fn source_hash(root: &Path) -> Result<String> {
    let folder = root.join(SOURCES);
    let entries = std::fs::read_dir(&folder).with_context(|| format!("cannot list {SOURCES}"))?;
    let mut paths: Vec<PathBuf> = entries.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "c" || extension == "h"));
    paths.sort();
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for path in paths {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let text = std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        for byte in name.bytes().chain([0]).chain(text).chain([0]) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    Ok(format!("{hash:016x}"))
}

/// The hash and the compiler's version that an object carries.
fn origin(object: &[u8]) -> Option<(String, String)> {
    let start = object.windows(MARK.len()).position(|window| window == MARK.as_bytes())? + MARK.len();
    let rest = &object[start..];
    let text = std::str::from_utf8(&rest[..rest.iter().position(|byte| *byte == 0)?]).ok()?;
    let (hash, version) = text.split_once(' ')?;
    Some((hash.to_owned(), version.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
    }

    #[test]
    fn the_objects_belong_to_the_sources() {
        check(&root()).unwrap();
    }

    #[test]
    fn an_object_says_what_it_is_from() {
        let object = format!("ELF\0\0{MARK}0123 clang version 14\0rest");
        assert_eq!(origin(object.as_bytes()), Some(("0123".to_owned(), "clang version 14".to_owned())));
        assert_eq!(origin(b"ELF"), None);
    }

    #[test]
    fn the_hash_changes_with_every_source() {
        let folder = tempfile::tempdir().unwrap();
        let sources = folder.path().join(SOURCES);
        std::fs::create_dir_all(&sources).unwrap();
        std::fs::write(sources.join("a.h"), "1").unwrap();
        let one = source_hash(folder.path()).unwrap();
        std::fs::write(sources.join("b.c"), "2").unwrap();
        let two = source_hash(folder.path()).unwrap();
        std::fs::write(sources.join("notes.txt"), "3").unwrap();
        assert_ne!(one, two);
        assert_eq!(two, source_hash(folder.path()).unwrap());
    }
}
