use crate::parse::bytes::ByteOrder;
use crate::parse::format::{EventFormat, FormatError, Placement, fields};
use proptest::prelude::*;

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
    let format = EventFormat::parse("sched", SWITCH).unwrap();
    assert_eq!((format.full_name().as_str(), format.id), ("sched:sched_switch", 372));
    assert_eq!(format.fields.len(), 11);
    let field = |name: &str| format.field(name).unwrap();
    assert_eq!((field("prev_comm").offset, field("prev_comm").elements), (8, Some(16)));
    assert_eq!(field("next_comm").placement, Placement::DataLocation);
    assert_eq!(field("next_comm").type_name, "char");
    assert_eq!(field("values").placement, Placement::RelativeLocation);
    assert_eq!((field("args").elements, field("args").element_size()), (Some(6), Some(8)));
    assert_eq!((field("function").type_name.as_str(), field("function").array), ("void *", false));
    assert_eq!(field("comm").elements, Some(16));
    assert_eq!((field("buf").size, field("buf").elements, field("buf").array), (0, None, true));
    assert!(format.field("never").is_none());
}

#[test]
fn values_are_read_by_offset_in_both_orders() {
    let format = EventFormat::parse("sched", SWITCH).unwrap();
    let mut record = vec![0u8; 120];
    record[8..12].copy_from_slice(b"init");
    record[24..32].copy_from_slice(&(-2i64).to_le_bytes());
    record[32..36].copy_from_slice(&(5u32 << 16 | 112).to_le_bytes());
    record[112..117].copy_from_slice(b"bash\0");
    let order = ByteOrder::Little;
    let field = |name: &str| format.field(name).unwrap();
    assert_eq!(field("prev_comm").text(&record, order).unwrap(), "init");
    assert_eq!(field("prev_state").signed(&record, order), Some(-2));
    assert_eq!(field("next_comm").text(&record, order).unwrap(), "bash");
    assert_eq!(field("buf").bytes(&record, order).unwrap(), b"bash\0\0\0\0");
    record[4..8].copy_from_slice(&7i32.to_be_bytes());
    assert_eq!(field("common_pid").signed(&record, ByteOrder::Big), Some(7));
}

#[test]
fn relative_locations_count_from_the_end_of_the_field() {
    let format = EventFormat::parse("sched", SWITCH).unwrap();
    let mut record = vec![0u8; 64];
    record[36..40].copy_from_slice(&(8u32 << 16 | 4).to_be_bytes());
    record[44..52].copy_from_slice(&[1, 2, 3, 4, 5, 6, 7, 8]);
    let values = format.field("values").unwrap().bytes(&record, ByteOrder::Big);
    assert_eq!(values, Some(&[1u8, 2, 3, 4, 5, 6, 7, 8][..]));
}

#[test]
fn short_records_have_no_value() {
    let format = EventFormat::parse("sched", SWITCH).unwrap();
    let record = [0xffu8; 36];
    for name in ["next_comm", "values", "args", "function", "buf"] {
        assert!(format.field(name).unwrap().bytes(&record, ByteOrder::Little).is_none(), "{name}");
    }
}

#[test]
fn what_is_no_format_is_refused() {
    assert_eq!(EventFormat::parse("", "ID: 1\n"), Err(FormatError::NoName));
    let no_id = Err(FormatError::NoId { event: "x".into() });
    assert_eq!(EventFormat::parse("", "name: x\nID: 70000\n"), no_id);
    let text = "name: x\nID: 7\nformat:\n\tfield:int a;\toffset:x;\tsize:4;\tsigned:1;\n";
    assert!(matches!(EventFormat::parse("", text), Err(FormatError::Field { .. })));
}

#[test]
fn the_page_header_is_read_by_the_same_rules() {
    let text = "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n\tfield: local_t commit;\toffset:8;\tsize:4;\tsigned:1;\n\tfield: char data;\toffset:12;\tsize:4084;\tsigned:1;\n";
    let fields = fields(text).unwrap();
    let sizes: Vec<_> = fields.iter().map(|field| (field.name.as_str(), field.offset, field.size)).collect();
    assert_eq!(sizes, [("timestamp", 0, 8), ("commit", 8, 4), ("data", 12, 4084)]);
}

proptest! {
    #[test]
    fn no_text_panics(text in "\\PC{0,200}", record in proptest::collection::vec(any::<u8>(), 0..80)) {
        let wrapped = format!("name: x\nID: 7\nfield:{text}; offset:3; size:4; signed:1;\n");
        if let Ok(format) = EventFormat::parse("s", &wrapped) {
            for field in &format.fields {
                let _ = field.signed(&record, ByteOrder::Big);
                let _ = field.text(&record, ByteOrder::Little);
            }
        }
    }
}
