//! Objects of tables that are not what was written. An engine refuses a whole question because of one that it cannot read, and
//! may read wrong figures out of one with a changed bit (DuckDB compares no checksums). So the objects that a question needs
//! are compared with their checksums before an engine is asked, and tables without rows stand in the place of damaged ones.

use super::layout::{Layout, MERGED, MergedPart};
use super::links::Links;
use super::merge::{PartManifest, digest_of};
use super::mirror::files_below;
use super::{Lake, Object};
use crate::error::{At as _, FarmError};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use whylate_store::{check_lake_table, empty_lake_table, merge_tables};

/// So many damaged objects are said one by one.
const SAID_MAX: usize = 20;

/// An object of a lake that an answer had to do without.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Damaged {
    pub object: String,
    pub what: String,
}

impl Damaged {
    /// What a reader is told of the objects that an answer had to do without, and what to do about them; no line without any.
    pub fn said(all: &[Self], lake: &str) -> Vec<String> {
        let line =
            |it: &Self| format!("{lake}/{}: damaged, and left out of the answer: {}", it.object, it.what);
        let mut lines: Vec<String> = all.iter().take(SAID_MAX).map(line).collect();
        let more = all.len().saturating_sub(SAID_MAX);
        if more > 0 {
            lines.push(format!("{more} more objects are damaged, and left out of the answer"));
        }
        if all.iter().any(|it| it.object.starts_with(MERGED)) {
            lines.push(format!("`whylate farm merge {lake} --repair` makes a damaged month anew"));
        }
        if !lines.is_empty() {
            lines.push(format!(
                "`whylate pull {lake} --check` names all that is damaged in the lake; `whylate push RUN {lake} --replace` sends \
                 a run anew"
            ));
        }
        lines
    }
}

impl Lake {
    /// The damaged objects of `tables`, by their names. Of a bucket, what is new is fetched into `cache` before.
    pub(crate) fn find_damaged(
        &self,
        cache: Option<&Path>,
        layout: &Layout,
        tables: &[&str],
    ) -> Result<Vec<Damaged>, FarmError> {
        let Some(cache) = cache else { return Ok(damaged(self.folder(), layout, tables)) };
        self.mirror(cache, tables)?;
        let found = damaged(cache, layout, tables);
        if found.is_empty() {
            return Ok(found);
        }
        // It may be the copy alone: it is fetched anew, in one step, since other questions may read it.
        for it in &found {
            // One that cannot be changed is found damaged again.
            let copy = File::options().write(true).open(cache.join(&it.object));
            _ = copy.and_then(|copy| copy.set_modified(std::time::UNIX_EPOCH));
        }
        self.mirror(cache, tables)?;
        Ok(damaged(cache, layout, tables))
    }

    /// Where the engine finds the objects: in `cache`, or in the lake itself.
    pub(crate) fn place<'a>(&'a self, cache: Option<&'a Path>) -> &'a Path {
        cache.unwrap_or_else(|| self.folder())
    }
}

/// The damaged objects of `tables` in a folder with objects of the lake, by their names. A month has only the tables that its
/// runs had: one that no manifest lists may be absent.
fn damaged(place: &Path, layout: &Layout, tables: &[&str]) -> Vec<Damaged> {
    let mut found = Vec::new();
    let mut look = |name: String, listed: Option<&Object>| {
        if let Err(what) = check(&place.join(&name), listed) {
            found.push(Damaged { object: name, what });
        }
    };
    for table in tables {
        let names = names_below(place, &format!("table={table}"));
        names.filter(|name| !is_hidden(name, layout)).for_each(|name| look(name, None));
    }
    let mut unread = Vec::new();
    for part in &layout.merged {
        let listed = objects_of(part, place).unwrap_or_else(|why| {
            unread.push(Damaged { object: part.manifest(), what: format!("it cannot be read: {why}") });
            Vec::new()
        });
        for table in tables {
            let name = part.table(table);
            let object = listed.iter().find(|object| object.name == name);
            look(name, object);
        }
    }
    found.append(&mut unread);
    found.sort();
    found
}

/// Whether it is of a run that counts in a merged month already, so that no answer looks at it.
fn is_hidden(name: &str, layout: &Layout) -> bool {
    layout.hidden.iter().any(|it| {
        name.ends_with(&format!("/{}.parquet", it.run)) && name.contains(&format!("/host={}/", it.host))
    })
}

/// What a merged month's manifest says; or why it cannot be read, so that the files alone are looked at.
fn objects_of(part: &MergedPart, place: &Path) -> Result<Vec<Object>, String> {
    let text = fs::read(place.join(part.manifest())).map_err(|error| error.to_string())?;
    let manifest: PartManifest = serde_json::from_slice(&text).map_err(|error| error.to_string())?;
    Ok(manifest.objects)
}

/// Compares a file with what a manifest says of it, or with the checksum in it.
fn check(file: &Path, listed: Option<&Object>) -> Result<(), String> {
    let mut open = match File::open(file) {
        Ok(open) => open,
        // A merge or a push has taken it away since it was listed.
        Err(error) if error.kind() == io::ErrorKind::NotFound && listed.is_none() => return Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err("it is missing".to_owned()),
        Err(error) => return Err(unread(&error)),
    };
    let Some(object) = listed else {
        let mut bytes = Vec::new();
        open.read_to_end(&mut bytes).map_err(|error| unread(&error))?;
        return check_lake_table(bytes);
    };
    let bytes = open.metadata().map_err(|error| unread(&error))?.len();
    if bytes != object.bytes {
        return Err(format!("it has {bytes} bytes, not {}", object.bytes));
    }
    // A month of a large farm does not fit into memory.
    match digest_of(&mut open).map_err(|error| unread(&error))?.1 == object.sha256 {
        true => Ok(()),
        false => Err("its checksum is wrong".to_owned()),
    }
}

fn unread(error: &io::Error) -> String {
    format!("it cannot be read: {error}")
}

/// The names of the Parquet files below a folder of `place`.
fn names_below<'p>(place: &'p Path, folder: &str) -> impl Iterator<Item = String> + use<'p> {
    let name = move |file: PathBuf| Some(file.strip_prefix(place).ok()?.to_string_lossy().into_owned());
    files_below(&place.join(folder)).into_iter().filter_map(name)
}

/// A folder with links to all objects of `tables` in `place`, but for the damaged ones: in their place are tables without rows.
pub(crate) fn without(damaged: &[Damaged], place: &Path, tables: &[&str]) -> Result<Links, FarmError> {
    let folder = Links::new_in(&std::env::temp_dir()).at("create a folder for", place)?;
    let place = std::path::absolute(place).at("find", place)?;
    let folders = tables.iter().flat_map(|it| [format!("table={it}"), format!("{MERGED}/table={it}")]);
    for name in folders.flat_map(|folder| names_below(&place, &folder)) {
        if damaged.binary_search_by(|it| it.object.cmp(&name)).is_err() {
            let link = room(folder.path(), &name)?;
            symlink(place.join(&name), &link).at("create", &link)?;
        }
    }
    // A manifest is no table.
    for it in damaged.iter().filter(|it| it.object.contains("table=")) {
        put_empty(folder.path(), &it.object)?;
    }
    Ok(folder)
}

/// The path of an object in a folder, in which it may be made.
fn room(folder: &Path, name: &str) -> Result<PathBuf, FarmError> {
    let path = folder.join(name);
    let parent = path.parent().unwrap_or(folder);
    fs::create_dir_all(parent).at("create", parent)?;
    Ok(path)
}

/// Puts a table without rows into a folder, in the place of an object.
fn put_empty(folder: &Path, name: &str) -> Result<(), FarmError> {
    let path = room(folder, name)?;
    let table = name.split('/').find_map(|part| part.strip_prefix("table=")).unwrap_or_default();
    let empty = empty_lake_table(table)?.unwrap_or_default();
    if !name.starts_with(MERGED) {
        return fs::write(&path, empty).at("write", path);
    }
    let of_run = folder.join("of_run");
    fs::write(&of_run, empty).at("write", &of_run)?;
    let file = File::create(&path).at("create", &path)?;
    Ok(merge_tables(&[(String::new(), of_run)], file).map(drop)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use whylate_testing::{Need, says, skip};

    const NAME: &str = "table=runs/host=a/month=2026-01/night.parquet";

    #[test]
    fn no_changed_bit_is_missed_and_a_whole_table_stands_in_its_place() {
        let folder = tempfile::tempdir().unwrap();
        put_empty(folder.path(), NAME).unwrap();
        let (object, layout) = (folder.path().join(NAME), Layout::default());
        let whole = fs::read(&object).unwrap();
        let found = || damaged(folder.path(), &layout, &["runs"]);
        assert_eq!(found(), []);
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 1 << (at % 8);
            fs::write(&object, bytes).unwrap();
            assert_eq!(found().len(), 1, "byte {at} of {}", whole.len());
        }
        assert_eq!(damaged(folder.path(), &layout, &["cells"]), []);
        let rest = without(&found(), folder.path(), &["runs"]).unwrap();
        assert_eq!(fs::read(rest.path().join(NAME)).unwrap(), whole);
        assert_eq!(damaged(rest.path(), &layout, &["runs"]), []);
    }

    /// The most memory that the process has had since it was asked to forget that.
    fn peak_kib() -> u64 {
        let status = fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find(|line| line.starts_with("VmHWM")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }

    #[test]
    fn a_large_month_is_compared_piece_by_piece() {
        const BYTES: u64 = 256 << 20;
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(BYTES).unwrap();
        let listed =
            |bytes, sha256: &str| Object { name: "month".to_owned(), bytes, sha256: sha256.to_owned() };
        let check = |listed: &Object| check(file.path(), Some(listed)).unwrap_err();
        assert!(says("has-bytes-not", &check(&listed(1, ""))));
        if let Err(error) = fs::write("/proc/self/clear_refs", "5") {
            // Its kernel has no such file (gVisor, kernels without CONFIG_PROC_PAGE_MONITOR).
            return skip(
                Need::Machine("a kernel with /proc/PID/clear_refs"),
                format!("the memory of a comparison: /proc/self/clear_refs: {error}"),
            );
        }
        let before = peak_kib();
        assert_eq!(check(&listed(BYTES, "other")), "its checksum is wrong");
        assert!(peak_kib() - before < BYTES / 1024 / 2, "{} KiB", peak_kib() - before);
    }

    #[test]
    fn objects_behind_links_are_looked_at_and_those_of_hidden_runs_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let (lake, elsewhere) = (folder.path().join("lake"), folder.path().join("elsewhere"));
        put_empty(&lake, NAME).unwrap();
        fs::rename(lake.join("table=runs/host=a"), &elsewhere).unwrap();
        symlink(&elsewhere, lake.join("table=runs/host=a")).unwrap();
        fs::write(lake.join(NAME), "garbage").unwrap();
        let of = |hidden: &[&str]| {
            let run = |run: &&str| super::super::LakeRun { host: "a".to_owned(), run: (*run).to_owned() };
            let layout = Layout { hidden: hidden.iter().map(run).collect(), ..Layout::default() };
            damaged(&lake, &layout, &["runs"]).into_iter().map(|it| it.object).collect::<Vec<_>>()
        };
        assert_eq!(of(&[]), [NAME]);
        assert_eq!(of(&["ight"]), [NAME], "another run");
        assert!(of(&["night"]).is_empty());
    }

    #[test]
    fn a_manifest_that_cannot_be_read_is_named_and_no_table_stands_in_its_place() {
        let folder = tempfile::tempdir().unwrap();
        let part = MergedPart { month: "2026-01".to_owned(), digest: "d".to_owned() };
        put_empty(folder.path(), &part.table("runs")).unwrap();
        let manifest = folder.path().join(part.manifest());
        fs::create_dir_all(manifest.parent().unwrap()).unwrap();
        fs::write(&manifest, "{").unwrap();
        let layout = Layout { merged: vec![part.clone()], ..Layout::default() };
        let found = damaged(folder.path(), &layout, &["runs"]);
        assert_eq!(found.iter().map(|it| &it.object).collect::<Vec<_>>(), [&part.manifest()]);
        let rest = without(&found, folder.path(), &["runs"]).unwrap();
        assert!(rest.path().join(part.table("runs")).exists() && !rest.path().join(part.manifest()).exists());
    }

    #[test]
    fn of_many_damaged_objects_the_first_are_named_and_all_are_counted() {
        let all: Vec<Damaged> = (0..25)
            .map(|number| Damaged { object: format!("o-{number}"), what: "it is missing".to_owned() })
            .collect();
        let said = Damaged::said(&all, "/lake");
        assert_eq!(said.len(), SAID_MAX + 2);
        assert!(
            said[0].starts_with("/lake/o-0: damaged") && said[SAID_MAX].starts_with("5 more objects"),
            "{said:?}"
        );
        assert!(Damaged::said(&[], "/lake").is_empty());
    }
}
