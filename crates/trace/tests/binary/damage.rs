//! Damaged, truncated and foreign files give an error with the place, never a panic, and never more events than exist.

use crate::builder::{KALLSYMS, pack};
use crate::golden::fixture;
use crate::made::{LITTLE, file, read};
use whylate_testing::says;
use whylate_trace::event::Symbol;
use whylate_trace::internal::{Algorithm, Input, open_trace_dat};
use whylate_trace::parse::ParseError;
use whylate_trace::reader::Reader;

/// Reads to the end, over errors; how many events and errors there were.
fn drain(reader: &mut dyn Reader) -> (usize, Vec<ParseError>) {
    let (mut events, mut errors) = (0, Vec::new());
    loop {
        match reader.next() {
            Ok(Some(_)) => events += 1,
            Ok(None) => return (events, errors),
            Err(error) => errors.push(error),
        }
        assert!(events + errors.len() < 10_000, "no end");
    }
}

#[test]
fn a_file_cut_off_anywhere_is_refused() {
    for bytes in [file(LITTLE, Algorithm::None).version6(), file(LITTLE, Algorithm::Zstandard).version7()] {
        for length in (0..bytes.len()).rev().step_by(7) {
            let error = read(bytes[..length].to_vec()).expect_err("a cut file was opened").to_string();
            assert!(error.contains("at byte") || error.contains("not a trace.dat file"), "{length}: {error}");
        }
    }
}

#[test]
fn any_changed_byte_is_survived() {
    for bytes in [file(LITTLE, Algorithm::None).version6(), file(LITTLE, Algorithm::Zlib).version7()] {
        for at in 0..bytes.len() {
            // Most zeros are the empty rest of pages.
            let changes: &[u8] = if bytes[at] == 0 && at % 64 != 0 { &[] } else { &[0xff, 0x01] };
            for change in changes {
                let mut changed = bytes.clone();
                changed[at] ^= change;
                if let Ok(mut reader) = read(changed) {
                    let (events, errors) = drain(&mut reader);
                    assert!(events <= 400 && errors.len() < 50, "byte {at}: {events} events, {errors:?}");
                }
            }
        }
    }
}

#[test]
fn damage_in_a_page_names_its_place_and_the_rest_is_read() {
    let mut bytes = file(LITTLE, Algorithm::None).version6();
    // The first entry of the first page becomes an event that is longer than the page.
    let page = bytes.len() - 4 * 4096;
    bytes[page + 16] = 28;
    bytes[page + 8..page + 10].copy_from_slice(&60u16.to_le_bytes());
    let (events, errors) = drain(&mut read(bytes).unwrap());
    assert_eq!((events, errors.len()), (10, 1), "{errors:?}");
    let shown = errors[0].to_string();
    assert!(shown.contains(&format!("at byte {}:", page + 16)) && shown.contains("does not fit"), "{shown}");
}

#[test]
fn damage_in_the_list_of_functions_leaves_the_events() {
    let bytes = file(LITTLE, Algorithm::Zlib).version7();
    let list = [&LITTLE.u32(KALLSYMS.len() as u32)[..], KALLSYMS.as_bytes()].concat();
    let packed = pack(Algorithm::Zlib, &list);
    let at =
        bytes.windows(packed.len()).position(|window| window == packed).expect("the list is in the file");
    let mut changed = bytes.clone();
    changed[at + packed.len() / 2] ^= 0xff;
    let (mut whole, mut damaged) = (read(bytes).unwrap(), read(changed).unwrap());
    assert_eq!(drain(&mut damaged).0, drain(&mut whole).0);
    assert!(damaged.info().remarks.is_empty());
    let symbol = Symbol::Address(0xffff_ffff_8100_0104);
    assert!(whole.symbol(symbol).is_some());
    assert_eq!(damaged.symbol(symbol), None);
    assert!(whole.info().remarks.is_empty());
    let [remark] = &damaged.info().remarks[..] else { panic!("{:?}", damaged.info().remarks) };
    assert!(remark.contains(&format!("made.dat: at byte {at}")), "{remark}");
}

#[test]
fn foreign_files_and_versions_are_named() {
    let error = read(b"# tracer: nop\n#\n".to_vec()).unwrap_err();
    assert!(matches!(error, ParseError::Foreign { .. }), "{error}");
    let mut bytes = file(LITTLE, Algorithm::None).version6();
    bytes[10] = b'5';
    assert!(says("must-be-or", read(bytes).unwrap_err().to_string()));
    let bytes = file(LITTLE, Algorithm::None).version7();
    let at = bytes.windows(4).position(|window| window == b"none").unwrap();
    let mut changed = bytes.clone();
    changed[at..at + 4].copy_from_slice(b"lzma");
    assert!(read(changed).unwrap_err().to_string().contains("\"lzma\""));
    let mut wrong_order = bytes;
    wrong_order[12] = 1;
    let error = read(wrong_order).unwrap_err().to_string();
    assert!(error.contains("at byte"), "{error}");
}

#[test]
fn a_file_without_buffers_is_refused() {
    let mut made = file(LITTLE, Algorithm::Zlib);
    made.instances.clear();
    let error = read(made.version7()).unwrap_err().to_string();
    assert!(error.contains("no buffer with events"), "{error}");
}

#[test]
fn a_real_file_cut_off_is_refused() {
    let bytes = std::fs::read(fixture("events-rt-6.1.dat")).unwrap();
    for length in [20, 1000, 300_000, 946_482, 1_082_574, 1_082_600] {
        let input = Input::memory(std::path::Path::new("cut.dat"), bytes[..length].to_vec());
        let error = open_trace_dat(&input).expect_err("a cut file was opened").to_string();
        assert!(error.starts_with("cut.dat: at byte "), "{length}: {error}");
    }
}

/// Sections named repeatedly, such as by circular options, would be unpacked repeatedly.
#[test]
fn a_section_is_read_once() {
    let mut bytes = file(LITTLE, Algorithm::None).version7();
    let name = bytes.windows(5).position(|window| window == b"none\0").unwrap() + 5;
    let first = name + bytes[name..].iter().position(|byte| *byte == 0).unwrap() + 1;
    let first: [u8; 8] = bytes[first..first + 8].try_into().unwrap();
    // The option that ends the last options: number 0, a length of 8, and no next section.
    let last = [&[0, 0, 8, 0, 0, 0][..], &[0; 8]].concat();
    let next = bytes.windows(14).rposition(|window| window == last).unwrap() + 6;
    bytes[next..next + 8].copy_from_slice(&first);
    let error = read(bytes).unwrap_err().to_string();
    assert!(says("this-one-read-more", &error), "{error}");
}
