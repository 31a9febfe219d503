use super::*;
use crate::change::{Change, Target};
use crate::journal::{Fate, Holder, JOURNAL_FORMAT, State};
use proptest::prelude::*;
use whylate_testing::says;

fn holder() -> Holder {
    let (command, boot_id) = ("whylate run".to_owned(), "b".to_owned());
    Holder {
        command,
        run: None,
        kept: false,
        pid: 7,
        start_ticks: 9,
        pid_namespace: None,
        boot_id,
        since_s: 1,
    }
}

fn records() -> Vec<JournalRecord> {
    let change = Change::required(Target::file("/sys/a"), "1", "tries");
    let intended = |entry, old: &str| JournalRecord::Intended {
        entry,
        session: 1,
        treatment: "t".to_owned(),
        change: change.clone(),
        old: old.to_owned(),
    };
    vec![
        JournalRecord::Session { format: JOURNAL_FORMAT.to_owned(), session: 1, holder: holder() },
        intended(1, "0\n"),
        JournalRecord::Applied { entry: 1, found: "1".to_owned() },
        intended(2, "1\n"),
        JournalRecord::Closed { entry: 1, fate: Fate::LeftAlone { found: Some("5".to_owned()) } },
    ]
}

fn lines() -> Vec<Vec<u8>> {
    (1..).zip(records()).map(|(seq, record)| seal(seq, &record).unwrap()).collect()
}

/// The lines of an earlier version.
fn old_lines() -> Vec<Vec<u8>> {
    let line = |record: &JournalRecord| [serde_json::to_vec(record).unwrap(), b"\n".to_vec()].concat();
    records().iter().map(line).collect()
}

fn open(parsed: &Parsed) -> Vec<u64> {
    parsed.contents.open().map(|entry| entry.entry).collect()
}

#[test]
fn lines_add_up() {
    let bytes = lines().concat();
    let parsed = parse(&bytes, Marked::Lines(5));
    assert_eq!((parsed.good, parsed.last, parsed.is_old), (bytes.len(), 5, false));
    assert!(parsed.damage.is_empty(), "{:?}", parsed.damage);
    assert_eq!(open(&parsed), [2]);
    assert_eq!(parsed.contents.entries[0].old_normal(), "0");
    assert_eq!(parsed.contents.holder(&parsed.contents.entries[1]).unwrap().pid, 7);
}

#[test]
fn wherever_a_kill_cuts_a_line_off_those_before_it_are_read() {
    let lines = lines();
    let bytes = lines.concat();
    for cut in 0..bytes.len() {
        let mut whole = 0;
        let mut count = 0;
        while count < lines.len() && whole + lines[count].len() <= cut {
            whole += lines[count].len();
            count += 1;
        }
        // The mark is written after the line.
        for marked in [count as u64, (count as u64).saturating_sub(1)] {
            let parsed = parse(&bytes[..cut], Marked::Lines(marked));
            assert_eq!((parsed.good, parsed.damage.len()), (whole, 0), "cut at {cut}");
            assert_eq!(
                parsed.contents,
                parse(&lines[..count].concat(), Marked::Lines(count as u64)).contents
            );
        }
        // Lost after it was written.
        if count < lines.len() {
            assert!(!parse(&bytes[..cut], Marked::Lines(count as u64 + 1)).damage.is_empty(), "cut at {cut}");
        }
    }
}

#[test]
fn a_damaged_line_is_reported_and_the_others_are_read() {
    let mut lines = lines();
    lines[3] =
        String::from_utf8(lines[3].clone()).unwrap().replace("\"new\":\"1\"", "\"new\":\"2\"").into_bytes();
    let parsed = parse(&lines.concat(), Marked::Lines(5));
    assert_eq!(open(&parsed), [] as [u64; 0]);
    assert_eq!(parsed.damage.len(), 1);
    assert!(says("line-cannot-be-trusted", &parsed.damage[0]), "{:?}", parsed.damage);
    lines[3] = b"\0\0\0\n".to_vec();
    assert_eq!(parse(&lines.concat(), Marked::Lines(5)).damage, ["line 4 cannot be read"]);
}

#[test]
fn missing_doubled_and_exchanged_lines_are_reported() {
    let all = lines();
    let without = |left_out: usize| {
        let kept = all.iter().enumerate().filter(|(at, _)| *at != left_out).map(|(_, line)| line.clone());
        kept.collect::<Vec<_>>().concat()
    };
    for left_out in 0..all.len() {
        let parsed = parse(&without(left_out), Marked::Lines(5));
        assert_eq!(parsed.damage, ["1 of 5 lines are missing"], "without {left_out}");
    }
    let doubled = [&all[..], &all[2..3]].concat().concat();
    assert_eq!(parse(&doubled, Marked::Lines(5)).damage.len(), 1);
    let mut exchanged = all.clone();
    exchanged.swap(1, 3);
    let parsed = parse(&exchanged.concat(), Marked::Lines(5));
    assert_eq!((parsed.damage.len(), open(&parsed)), (1, vec![2]));
    assert_eq!(parse(b"", Marked::Lines(5)).damage, ["5 of 5 lines are missing"]);
    for marked in [Marked::Not, Marked::Damaged] {
        assert_eq!(parse(&all.concat(), marked).damage.len(), 1, "{marked:?}");
    }
    assert!(parse(b"", Marked::Not).damage.is_empty(), "there never was one");
}

#[test]
fn a_mark_counts_in_its_boot_only() {
    let text = mark(12, "b").unwrap();
    assert_eq!(text.len(), MARK_LENGTH + 1);
    assert_eq!(mark(u64::MAX, &"b".repeat(36)).unwrap().len(), MARK_LENGTH + 1);
    assert_eq!(read_mark(Some(&text), "b"), Marked::Lines(12));
    assert_eq!(read_mark(Some(&text), "c"), Marked::Lines(0));
    assert_eq!(read_mark(Some(b""), "b"), Marked::Damaged);
    assert_eq!(read_mark(None, "b"), Marked::Not);
}

#[test]
fn a_journal_of_an_earlier_version_is_read_as_that_did() {
    let lines = old_lines();
    let parsed = parse(&lines.concat(), Marked::Not);
    assert!(parsed.is_old && parsed.damage.is_empty());
    assert_eq!(open(&parsed), [2]);
    assert_eq!(
        parsed.contents.entries[0].state,
        State::Closed(Fate::LeftAlone { found: Some("5".to_owned()) })
    );
    let cut = [lines[..3].concat(), lines[3][..20].to_vec()].concat();
    let parsed = parse(&cut, Marked::Not);
    assert!(parsed.damage.is_empty() && parsed.good == lines[..3].concat().len());
    let mut damaged = lines.clone();
    damaged[2][10] = 0;
    assert_eq!(parse(&damaged.concat(), Marked::Not).damage.len(), 1);
    // A line of this version is never taken for an old one.
    assert!(!parse(&lines.concat(), Marked::Lines(5)).damage.is_empty());
}

#[test]
fn digits_of_a_checksum_are_as_they_were_written() {
    let line = lines().remove(0);
    let at = line.windows(6).position(|it| it == b"\"crc\":").unwrap();
    let (body, end) = line.split_at(at);
    let upper = [body, b"\"crc\"", &end[5..].to_ascii_uppercase()].concat();
    assert_ne!(upper, line, "it has no letters");
    assert!(!parse(&upper, Marked::Lines(1)).damage.is_empty());
}

/// A place and its new byte; a place and how many bytes from there become 0; two lines that change places.
type Mutation = (Option<(usize, u8)>, Option<(usize, usize)>, Option<(usize, usize)>);

fn mutation() -> impl Strategy<Value = Mutation> {
    let byte = prop::option::of((0usize..10_000, any::<u8>()));
    let zeroes = prop::option::of((0usize..10_000, 1usize..64));
    let moved = prop::option::of((0usize..5, 0usize..5));
    (byte, zeroes, moved)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, ..ProptestConfig::default() })]

    /// A change in a journal is reported, or changes nothing in what it says.
    #[test]
    fn no_mutation_is_taken_for_a_journal((byte, zeroes, moved) in mutation()) {
        let all = lines();
        let mut mutated = all.clone();
        if let Some((from, to)) = moved {
            let line = mutated.remove(from);
            mutated.insert(to, line);
        }
        let mut bytes = mutated.concat();
        if let Some((at, value)) = byte {
            let at = at % bytes.len();
            bytes[at] = value;
        }
        if let Some((from, length)) = zeroes {
            let from = from % bytes.len();
            let end = (from + length).min(bytes.len());
            bytes[from..end].fill(0);
        }
        let parsed = parse(&bytes, Marked::Lines(5));
        prop_assert!(!parsed.damage.is_empty() || bytes == all.concat(), "{}", String::from_utf8_lossy(&bytes));
    }

    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), marked in 0u64..3) {
        let _ = parse(&bytes, Marked::Lines(marked));
        let _ = read_mark(Some(&bytes), "b");
    }
}
