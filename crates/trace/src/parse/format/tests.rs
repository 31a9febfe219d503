use super::*;
use crate::parse::bytes::{ByteOrder, until_nul};
use proptest::prelude::*;

fn switch() -> Vec<Field> {
    EventFormat::parse("sched", SWITCH.to_owned()).unwrap().fields().unwrap()
}

const SWITCH: &str = "name: sched_switch
ID: 372
format:
	field:unsigned short common_type;	offset:0;	size:2;	signed:0;
	field:unsigned char common_flags;	offset:2;	size:1;	signed:0;
	field:int common_pid;	offset:4;	size:4;	signed:1;

	field:char prev_comm[16];	offset:8;	size:16;	signed:0;
	field:long prev_state;	offset:24;	size:8;	signed:1;
	field:__data_loc char[] next_comm;	offset:32;	size:4;	signed:0;
	field:__rel_loc u32[] values;	offset:36;	size:4;	signed:0;
	field:unsigned long args[6];	offset:40;	size:48;	signed:0;
	field:void * function;	offset:88;	size:8;	signed:0;
	field:char comm[TASK_COMM_LEN];	offset:96;	size:16;	signed:1;
	field:char buf[];	offset:112;	size:0;	signed:0;

print fmt: \"field:%d\", REC->field
	field:int never;	offset:0;	size:4;	signed:1;
";

#[test]
fn a_format_file_is_understood() {
    let format = EventFormat::parse("sched", SWITCH.to_owned()).unwrap();
    assert_eq!((format.full_name().as_str(), format.id), ("sched:sched_switch", 372));
    let fields = switch();
    assert_eq!(fields.len(), 11);
    let field = |name: &str| slot(&fields, name);
    let of = |offset, size, signed, place| Slot { offset, size, signed, place };
    assert_eq!(field("prev_comm"), of(8, 16, false, Place::Array));
    assert_eq!(field("prev_state"), of(24, 8, true, Place::Number));
    assert_eq!(field("next_comm").place, Place::DataLocation);
    assert_eq!(field("values").place, Place::RelativeLocation);
    assert_eq!(field("args"), of(40, 48, false, Place::Array));
    assert_eq!(field("function"), of(88, 8, false, Place::Number));
    assert_eq!(field("comm"), of(96, 16, true, Place::Array));
    assert_eq!(field("buf"), of(112, 0, false, Place::Array));
    assert_eq!(field("never"), Slot::default());
}

#[test]
fn values_are_read_by_offset_in_both_orders() {
    let fields = switch();
    let mut record = vec![0u8; 120];
    record[8..12].copy_from_slice(b"init");
    record[24..32].copy_from_slice(&(-2i64).to_le_bytes());
    record[32..36].copy_from_slice(&(5u32 << 16 | 112).to_le_bytes());
    record[112..117].copy_from_slice(b"bash\0");
    let little = Record { bytes: &record, order: ByteOrder::Little };
    let text = |name: &str| slot(&fields, name).bytes(little).map(until_nul);
    assert_eq!(text("prev_comm"), Some(&b"init"[..]));
    assert_eq!(slot(&fields, "prev_state").value(little), Some(-2i64 as u64));
    assert_eq!(text("next_comm"), Some(&b"bash"[..]));
    assert_eq!(slot(&fields, "buf").bytes(little), Some(&b"bash\0\0\0\0"[..]));
    record[4..8].copy_from_slice(&7i32.to_be_bytes());
    let big = Record { bytes: &record, order: ByteOrder::Big };
    assert_eq!(slot(&fields, "common_pid").value(big), Some(7));
}

#[test]
fn relative_locations_count_from_the_end_of_the_field() {
    let mut record = vec![0u8; 64];
    record[36..40].copy_from_slice(&(8u32 << 16 | 4).to_be_bytes());
    record[44..52].copy_from_slice(&[1, 2, 3, 4, 5, 6, 7, 8]);
    let values = slot(&switch(), "values").bytes(Record { bytes: &record, order: ByteOrder::Big });
    assert_eq!(values, Some(&[1u8, 2, 3, 4, 5, 6, 7, 8][..]));
}

#[test]
fn short_records_have_no_value() {
    let record = Record { bytes: &[0xffu8; 36], order: ByteOrder::Little };
    for name in ["next_comm", "values", "args", "buf"] {
        assert_eq!(slot(&switch(), name).bytes(record), None, "{name}");
    }
    assert_eq!(slot(&switch(), "function").value(record), None);
}

#[test]
fn what_is_no_format_is_refused() {
    assert_eq!(EventFormat::parse("", "ID: 1\n".to_owned()), Err(FormatError::NoName));
    let no_id = Err(FormatError::NoId { event: "x".into() });
    assert_eq!(EventFormat::parse("", "name: x\nID: 70000\n".to_owned()), no_id);
    let text = "name: x\nID: 7\nformat:\n\tfield:int a;\toffset:x;\tsize:4;\tsigned:1;\n";
    assert!(matches!(fields(text), Err(FormatError::Field { .. })));
}

#[test]
fn the_page_header_is_read_by_the_same_rules() {
    let text = "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n\tfield: local_t commit;\toffset:8;\tsize:4;\tsigned:1;\n\tfield: char data;\toffset:12;\tsize:4084;\tsigned:1;\n";
    let fields = fields(text).unwrap();
    let sizes: Vec<_> =
        fields.iter().map(|field| (field.name.as_str(), field.slot.offset, field.slot.size)).collect();
    assert_eq!(sizes, [("timestamp", 0, 8), ("commit", 8, 4), ("data", 12, 4084)]);
}

proptest! {
    #[test]
    fn no_text_panics(text in "\\PC{0,200}", record in proptest::collection::vec(any::<u8>(), 0..80)) {
        let wrapped = format!("name: x\nID: 7\nfield:{text}; offset:3; size:4; signed:1;\n");
        if let Ok(Ok(fields)) = EventFormat::parse("s", wrapped).map(|format| format.fields()) {
            for field in &fields {
                let _ = field.slot.value(Record { bytes: &record, order: ByteOrder::Big });
                let _ = field.slot.bytes(Record { bytes: &record, order: ByteOrder::Little });
            }
        }
    }
}
