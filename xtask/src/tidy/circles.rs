//! Circles of imports: modules with one parent that reach each other through `use` and paths. A name that a module
//! re-exports leads to the module that it comes from; macros and globs are not followed.

use super::counts::{Count, crate_of};
use super::source::SourceFile;
use std::collections::{BTreeMap, BTreeSet};

type Path = Vec<String>;

/// A longer chain of re-exports is not followed.
const HOPS_MAX: usize = 6;

/// Per crate: how many modules are in a circle with others of their parent.
pub(crate) fn counts(sources: &[SourceFile]) -> Vec<Count> {
    let mut crates: BTreeMap<&str, Modules> = BTreeMap::new();
    for source in sources {
        if let Some(name) = crate_of(&source.path)
            && !source.is_test(1)
        {
            crates.entry(name).or_default().add(module_of(&source.path), &source.product_code());
        }
    }
    let count = |(name, modules): (&str, Modules)| {
        let places = modules.circles();
        Count { name: format!("circles/{name}"), number: places.len(), places }
    };
    crates.into_iter().map(count).filter(|count| count.number > 0).collect()
}

/// `crates/a/src/b/mod.rs` and `crates/a/src/b.rs` are the module `b`.
fn module_of(file: &str) -> Path {
    let inner = file.split_once("/src/").map_or("", |(_, inner)| inner);
    let mut path: Path = inner.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
    if path.last().is_some_and(|last| ["mod", "lib", "main"].contains(&last.as_str())) {
        path.pop();
    }
    path
}

/// The modules of a crate: what each imports, from the root on, and under which name.
#[derive(Default)]
struct Modules(BTreeMap<Path, Vec<(String, Path)>>);

impl Modules {
    fn add(&mut self, module: Path, code: &str) {
        let uses = uses(code).into_iter().chain(inline_paths(code).map(|path| (String::new(), path)));
        let uses = uses.filter_map(|(name, path)| Some((name, absolute(&module, &path)?)));
        let uses: Vec<_> = uses.collect();
        self.0.entry(module).or_default().extend(uses);
    }

    /// The module in which a path ends.
    fn resolve(&self, path: &[String], hops: usize) -> Path {
        let mut module = Path::new();
        for (index, segment) in path.iter().enumerate() {
            let child = [module.as_slice(), std::slice::from_ref(segment)].concat();
            if self.0.contains_key(&child) {
                module = child;
                continue;
            }
            let named = self.0.get(&module).and_then(|names| names.iter().find(|(name, _)| name == segment));
            return match named {
                Some((_, target)) if hops < HOPS_MAX => {
                    self.resolve(&[target, &path[index + 1..]].concat(), hops + 1)
                }
                _ => module,
            };
        }
        module
    }

    /// Which module imports which, both children of one parent.
    fn edges(&self) -> BTreeMap<Path, BTreeSet<Path>> {
        let mut edges: BTreeMap<Path, BTreeSet<Path>> = BTreeMap::new();
        for (module, imports) in &self.0 {
            for (_, path) in imports {
                let target = self.resolve(path, 0);
                let shared = module.iter().zip(&target).take_while(|(a, b)| a == b).count();
                if shared < module.len() && shared < target.len() {
                    let (from, to) = (module[..=shared].to_vec(), target[..=shared].to_vec());
                    edges.entry(from).or_default().insert(to);
                }
            }
        }
        edges
    }

    /// Each module in a circle, and those in it that it imports.
    fn circles(&self) -> Vec<String> {
        let edges = self.edges();
        let reached: BTreeMap<&Path, BTreeSet<&Path>> =
            edges.keys().map(|module| (module, reach(&edges, module))).collect();
        let is_back = |from: &Path, to: &Path| reached.get(to).is_some_and(|seen| seen.contains(from));
        let circular = reached.iter().filter(|(module, seen)| seen.contains(*module));
        let shown = circular.map(|(module, _)| {
            let targets = edges[*module].iter().filter(|target| is_back(module, target));
            let targets: Vec<String> = targets.map(|target| target.join("::")).collect();
            format!("{} -> {}", module.join("::"), targets.join(", "))
        });
        shown.collect()
    }
}

/// All modules that `from` imports, directly or through others.
fn reach<'a>(edges: &'a BTreeMap<Path, BTreeSet<Path>>, from: &'a Path) -> BTreeSet<&'a Path> {
    let (mut seen, mut open) = (BTreeSet::new(), vec![from]);
    while let Some(module) = open.pop() {
        open.extend(edges.get(module).into_iter().flatten().filter(|target| seen.insert(*target)));
    }
    seen
}

/// A path of `module` from the crate's root on; `None` when it leaves the crate or may do so.
fn absolute(module: &[String], path: &[String]) -> Option<Path> {
    let (mut base, mut rest) = match path.first()?.as_str() {
        "crate" => (Path::new(), &path[1..]),
        "self" => (module.to_vec(), &path[1..]),
        "super" => (module.to_vec(), path),
        // A child: `pub use child::Name`.
        _ => (module.to_vec(), path),
    };
    while rest.first().is_some_and(|segment| segment == "super") {
        base.pop()?;
        rest = &rest[1..];
    }
    base.extend_from_slice(rest);
    Some(base)
}

/// Each name that the `use` items of a file bring in, with its path.
fn uses(code: &str) -> Vec<(String, Path)> {
    let mut found = Vec::new();
    for (start, _) in code.match_indices("use ") {
        let before = code[..start].chars().next_back();
        if before.is_none_or(char::is_whitespace)
            && let Some((tree, _)) = code[start + "use ".len()..].split_once(';')
        {
            expand(&[], tree.trim(), &mut found);
        }
    }
    found
}

fn expand(prefix: &[String], tree: &str, found: &mut Vec<(String, Path)>) {
    let (head, group) = tree.split_once('{').map_or((tree, None), |(head, rest)| (head, Some(rest)));
    let (head, alias) = head.split_once(" as ").map_or((head, None), |(head, alias)| (head, Some(alias)));
    let mut path = prefix.to_vec();
    path.extend(head.split("::").map(str::trim).filter(|part| !part.is_empty()).map(str::to_owned));
    let Some(group) = group else {
        if path.last().is_some_and(|last| last == "self") {
            path.pop();
        }
        let name = alias.map(str::trim).or(path.last().map(String::as_str)).unwrap_or_default().to_owned();
        return found.push((name, path));
    };
    let group = group.trim_end().trim_end_matches('}');
    let (mut depth, mut start) = (0_usize, 0);
    let mut parts = Vec::new();
    for (byte, character) in group.char_indices() {
        match character {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.push(&group[start..byte]);
                start = byte + 1;
            }
            _ => {}
        }
    }
    parts.push(&group[start..]);
    for part in parts.into_iter().map(str::trim).filter(|part| !part.is_empty()) {
        expand(&path, part, found);
    }
}

/// Paths in code that begin with `crate::` or `super::`.
fn inline_paths(code: &str) -> impl Iterator<Item = Path> {
    let starts = ["crate::", "super::"].into_iter().flat_map(|start| code.match_indices(start));
    starts.filter_map(|(start, _)| {
        let before = code[..start].chars().next_back();
        if before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == ':') {
            return None;
        }
        let rest = &code[start..];
        let length = rest.find(|c: char| !c.is_alphanumeric() && c != '_' && c != ':').unwrap_or(rest.len());
        Some(rest[..length].split("::").filter(|part| !part.is_empty()).map(str::to_owned).collect())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::TextFile;

    fn circles(files: &[(&str, &str)]) -> Vec<String> {
        let read = |(path, text): &(&str, &str)| {
            SourceFile::read(&TextFile { path: format!("crates/x/src/{path}"), text: (*text).into() })
        };
        let sources: Vec<_> = files.iter().map(read).collect();
        counts(&sources).into_iter().flat_map(|count| count.places).collect()
    }

    #[test]
    fn modules_that_import_each_other_are_a_circle() {
        let line = [("lib.rs", "mod a;"), ("a.rs", "use crate::b::{self, B};"), ("b.rs", "use super::c;")];
        assert!(circles(&line).is_empty());
        let closed = [&line[..], &[("c/mod.rs", ""), ("c/d.rs", "fn e() { crate::a::f() }")]].concat();
        assert_eq!(circles(&closed), ["a -> b", "b -> c", "c -> a"]);
    }

    #[test]
    fn a_name_leads_to_the_module_that_it_comes_from() {
        let files = [
            ("lib.rs", "pub use a::A;"),
            ("a.rs", "use crate::{b::B as C, std::fmt};"),
            ("b.rs", "use super::A;"),
        ];
        assert_eq!(circles(&files), ["a -> b", "b -> a"]);
    }

    #[test]
    fn parents_children_and_tests_make_no_circle() {
        let test = "#[cfg(test)]\nmod tests {\n    use crate::a::A;\n}\n";
        let files =
            [("lib.rs", "mod a; use a::A;"), ("a.rs", "use crate::Root; use crate::b::B;"), ("b.rs", test)];
        assert!(circles(&files).is_empty());
    }
}
