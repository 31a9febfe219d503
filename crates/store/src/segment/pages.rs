//! The memory that a column's pages take, checked before a Parquet reader reads them: the reader inflates a page
//! whatever its size.
//!
//! The header of a page is a struct in Thrift's compact protocol (parquet.thrift, `PageHeader`).

use flate2::read::MultiGzDecoder;
use std::io::{self, Read as _};

/// No page that whylate writes is nearly this large.
const PAGE_MAX: usize = 32 << 20;
/// The largest inflation of a byte by deflate.
const INFLATION_MAX: usize = 1032;
const DEPTH_MAX: u32 = 8;

/// Fields of `PageHeader`.
const SIZE: i16 = 2;
const PACKED_SIZE: i16 = 3;
const DATA_V2: i16 = 8;

/// The bytes of all pages of a column after inflation; `None` if they are not pages, or if one is larger than it says
/// or than any page can be.
pub(super) fn inflated(mut column: &[u8], is_packed: bool) -> Option<usize> {
    let mut sum = 0_usize;
    while !column.is_empty() {
        let mut header = PageHeader { left: column, size: 0, packed_size: 0, is_v2: false };
        header.fields(0)?;
        let (size, packed) = (usize::try_from(header.size).ok()?, usize::try_from(header.packed_size).ok()?);
        let page;
        (page, column) = header.left.split_at_checked(packed)?;
        // Pages of version 2 begin with an unpacked part.
        let may_exceed = is_packed && packed > PAGE_MAX / INFLATION_MAX;
        if size > PAGE_MAX || may_exceed && (header.is_v2 || !fits(page, size)) {
            return None;
        }
        sum = sum.checked_add(size)?;
    }
    Some(sum)
}

fn fits(page: &[u8], size: usize) -> bool {
    let mut inflated = MultiGzDecoder::new(page).take(size as u64 + 1);
    io::copy(&mut inflated, &mut io::sink()).is_ok_and(|length| length <= size as u64)
}

struct PageHeader<'b> {
    left: &'b [u8],
    size: i64,
    packed_size: i64,
    is_v2: bool,
}

impl PageHeader<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.left.split_first()?;
        self.left = rest;
        Some(*first)
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    fn integer(&mut self) -> Option<i64> {
        let value = self.varint()?;
        Some((value >> 1).cast_signed() ^ -(value & 1).cast_signed())
    }

    fn skip(&mut self, bytes: u64) -> Option<()> {
        self.left = self.left.get(usize::try_from(bytes).ok()?..)?;
        Some(())
    }

    /// Reads a struct up to its end.
    fn fields(&mut self, depth: u32) -> Option<()> {
        let mut number = 0_i16;
        loop {
            let byte = self.byte()?;
            if byte == 0 {
                return Some(());
            }
            number = match byte >> 4 {
                0 => i16::try_from(self.integer()?).ok()?,
                more => number.checked_add(i16::from(more))?,
            };
            match (depth, number, byte & 0xf) {
                (0, SIZE, 5) => self.size = self.integer()?,
                (0, PACKED_SIZE, 5) => self.packed_size = self.integer()?,
                (_, _, kind) => {
                    self.is_v2 |= depth == 0 && number == DATA_V2;
                    self.value(kind, depth)?;
                }
            }
        }
    }

    fn value(&mut self, kind: u8, depth: u32) -> Option<()> {
        match kind {
            1 | 2 => Some(()),
            3 => self.skip(1),
            4..=6 => self.integer().map(|_| ()),
            7 => self.skip(8),
            8 => {
                let length = self.varint()?;
                self.skip(length)
            }
            12 if depth < DEPTH_MAX => self.fields(depth + 1),
            // No page header has lists or maps.
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use std::io::Write as _;

    /// A data page of version 1 with one value.
    fn page(size: usize, packed: &[u8]) -> Vec<u8> {
        let mut page = vec![0x15, 0];
        for size in [size, packed.len()] {
            page.push(0x15);
            let mut left = size << 1;
            while left > 0x7f {
                page.push((left & 0x7f) as u8 | 0x80);
                left >>= 7;
            }
            page.push(left as u8);
        }
        // `data_page_header`: number of values, encodings.
        page.extend([0x2c, 0x15, 2, 0x15, 0, 0x15, 6, 0x15, 6, 0, 0]);
        page.extend(packed);
        page
    }

    fn packed(length: usize) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(&vec![7; length]).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn pages_are_summed_and_those_that_inflate_to_more_are_refused() {
        let small = page(1000, &packed(1000));
        assert_eq!(inflated(&[small.clone(), small.clone()].concat(), true), Some(2000));
        let large = packed(16 << 20);
        assert_eq!(inflated(&page(16 << 20, &large), true), Some(16 << 20));
        assert_eq!(inflated(&page(1000, &large), true), None);
        assert_eq!(inflated(&page(PAGE_MAX + 1, &packed(10)), true), None);
        assert_eq!(inflated(&small[..small.len() - 1], true), None);
        assert_eq!(inflated(&[0x19, 0xff, 0xff], false), None);
        assert_eq!(inflated(&[], true), Some(0));
    }
}
