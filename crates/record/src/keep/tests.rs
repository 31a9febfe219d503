//! A ring that records only what is done to it.

use super::*;
use std::cell::RefCell;
use std::rc::Rc;

#[derive(Debug, Default)]
struct FakeRing {
    said: Rc<RefCell<Vec<String>>>,
    full_disk: bool,
}

impl FakeRing {
    fn say(&self, word: &str) -> Result<(), RecordError> {
        self.said.borrow_mut().push(word.to_owned());
        Ok(())
    }
}

impl Ring for FakeRing {
    fn folder(&self) -> &Path {
        Path::new("/fake/instances/whylate")
    }
    fn pause(&self) -> Result<(), RecordError> {
        self.say("pause")
    }
    fn resume(&self) -> Result<(), RecordError> {
        self.say("resume")
    }
    fn save(&self, path: &Path) -> Result<Saved, RecordError> {
        self.say("save")?;
        if self.full_disk {
            let source = std::io::Error::from(std::io::ErrorKind::StorageFull);
            return Err(RecordError::Save { path: path.to_owned(), source });
        }
        fs::write(path, "trace").unwrap();
        Ok(Saved { path: path.to_owned(), bytes: 5, lost: Vec::new() })
    }
    fn finish(self: Box<Self>) -> Result<(), RecordError> {
        self.say("finish")
    }
}

fn spike(latency_ns: u64) -> SpikeRecord {
    SpikeRecord { cpu: CpuId(1), at_ns: clock::now().0, latency_ns, ..SpikeRecord::default() }
}

/// A keeper with its names, and what was done to its ring.
struct Bench {
    keeper: Keeper,
    names: RankedFiles,
    said: Rc<RefCell<Vec<String>>>,
}

impl Bench {
    fn new(folder: &Path, worst: usize) -> Self {
        let ring = FakeRing::default();
        let said = Rc::clone(&ring.said);
        let keeper = Keeper::new(Box::new(ring), Nanos(100), worst);
        Self { keeper, names: RankedFiles::new(folder.join("late.dat"), worst), said }
    }

    fn see(&mut self, spikes: &[SpikeRecord]) -> Option<Change> {
        let names = &mut self.names;
        self.keeper.spikes(spikes, &mut |_| names.next_path()).unwrap()
    }

    fn said(&self) -> String {
        self.said.borrow_mut().drain(..).collect::<Vec<_>>().join(" ")
    }
}

fn files(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn only_what_is_above_the_limit_is_saved() {
    let folder = tempfile::tempdir().unwrap();
    let mut bench = Bench::new(folder.path(), 1);
    assert_eq!(bench.see(&[spike(99), spike(100)]), None);
    assert_eq!(bench.said(), "");
    let change = bench.see(&[spike(101), spike(300), spike(200)]).unwrap();
    assert_eq!((change.kept.latency_ns, change.removed), (300, None));
    assert_eq!(bench.said(), "pause save resume");
    assert_eq!(files(folder.path()), ["late.dat"]);
}

#[test]
fn smaller_traces_make_room_and_the_largest_gets_the_first_name() {
    let folder = tempfile::tempdir().unwrap();
    let mut bench = Bench::new(folder.path(), 2);
    let latencies = [500, 200, 300, 250, 900];
    let removed: Vec<Option<u64>> = latencies
        .iter()
        .map(|latency| bench.see(&[spike(*latency)]).and_then(|change| Some(change.removed?.latency_ns)))
        .collect();
    assert_eq!(removed, [None, None, Some(200), None, Some(300)]);
    assert_eq!(files(folder.path()), ["late-saved-1.dat", "late-saved-4.dat"]);
    let Bench { keeper, names, said } = bench;
    let (mut kept, missed) = keeper.finish().unwrap();
    names.rename(&mut kept).unwrap();
    assert_eq!(said.borrow().last().unwrap(), "finish");
    assert_eq!((kept.iter().map(|kept| kept.latency_ns).collect::<Vec<_>>(), missed), (vec![900, 500], 0));
    assert_eq!(kept[0].path, folder.path().join("late.dat"));
    assert_eq!(files(folder.path()), ["late-2.dat", "late.dat"]);
}

#[test]
fn a_name_that_is_taken_meanwhile_is_not_overwritten() {
    let folder = tempfile::tempdir().unwrap();
    let mut bench = Bench::new(folder.path(), 2);
    bench.see(&[spike(500)]).unwrap();
    fs::write(folder.path().join("late.dat"), "not ours").unwrap();
    let (mut kept, _) = bench.keeper.finish().unwrap();
    bench.names.rename(&mut kept).unwrap();
    assert_eq!(kept[0].path, folder.path().join("late-saved-1.dat"));
    assert_eq!(fs::read_to_string(folder.path().join("late.dat")).unwrap(), "not ours");
}

#[test]
fn what_came_while_nothing_was_recorded_is_counted() {
    let folder = tempfile::tempdir().unwrap();
    let mut bench = Bench::new(folder.path(), 3);
    let before = spike(400);
    bench.see(&[spike(500)]).unwrap();
    // It happened before the ring was emptied, and is reported now.
    assert_eq!(bench.see(&[before.clone(), spike(50)]), None);
    let change = bench.see(&[before, spike(150)]).unwrap();
    assert_eq!(change.kept.latency_ns, 150);
    assert_eq!(bench.keeper.pause().unwrap().1, 2);
}

#[test]
fn earlier_traces_compete_with_new_ones() {
    let folder = tempfile::tempdir().unwrap();
    let mut bench = Bench::new(folder.path(), 2);
    bench.see(&[spike(500)]).unwrap();
    bench.see(&[spike(400)]).unwrap();
    let (kept, _) = bench.keeper.pause().unwrap();
    assert!(bench.said().ends_with("resume pause"));
    // Nothing is recorded meanwhile, so nothing can be kept.
    assert_eq!(bench.see(&[spike(900)]), None);
    assert_eq!(bench.said(), "");
    // Another cell: its own traces.
    bench.keeper.begin(Vec::new()).unwrap();
    assert_eq!(bench.see(&[spike(150)]).unwrap().removed, None);
    bench.keeper.pause().unwrap();
    bench.keeper.begin(kept).unwrap();
    assert_eq!(bench.see(&[spike(300)]), None);
    assert_eq!(bench.see(&[spike(450)]).unwrap().removed.unwrap().latency_ns, 400);
}

#[test]
fn a_trace_that_cannot_be_saved_is_an_error_that_names_it() {
    let folder = tempfile::tempdir().unwrap();
    let ring = FakeRing { full_disk: true, ..FakeRing::default() };
    let mut keeper = Keeper::new(Box::new(ring), Nanos(100), 1);
    let path = folder.path().join("late.dat");
    let error = keeper.spikes(&[spike(500)], &mut |_| path.clone()).unwrap_err();
    assert!(error.to_string().contains("late.dat"), "{error}");
    assert_eq!(keeper.pause().unwrap().0, Vec::new());
}
