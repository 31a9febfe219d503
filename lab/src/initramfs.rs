//! Writes an initial RAM file system: the `newc` cpio format of the kernel's
//! `Documentation/driver-api/early-userspace/buffer-format.rst`, uncompressed.

const TRAILER: &str = "TRAILER!!!";

/// An archive that grows by one entry after the other.
#[derive(Debug, Default)]
pub(crate) struct Archive {
    bytes: Vec<u8>,
    entries: u32,
}

impl Archive {
    /// Adds a folder, readable and searchable by all.
    pub(crate) fn folder(&mut self, name: &str) {
        self.entry(name, 0o040_755, (0, 0), &[]);
    }

    /// Adds a file that all may read and execute.
    pub(crate) fn file(&mut self, name: &str, content: &[u8]) {
        self.entry(name, 0o100_755, (0, 0), content);
    }

    /// Adds a character device that only root may use.
    pub(crate) fn character_device(&mut self, name: &str, major: u32, minor: u32) {
        self.entry(name, 0o020_600, (major, minor), &[]);
    }

    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.entry(TRAILER, 0, (0, 0), &[]);
        self.bytes
    }

    fn entry(&mut self, name: &str, mode: u32, device: (u32, u32), content: &[u8]) {
        self.entries += 1;
        // Inode, mode, owner, group, links, time, size, device of the file (2), device of the node (2), length of the
        // name with its final zero, checksum.
        let fields = [
            self.entries,
            mode,
            0,
            0,
            1,
            0,
            content.len() as u32,
            0,
            0,
            device.0,
            device.1,
            name.len() as u32 + 1,
            0,
        ];
        self.bytes.extend_from_slice(b"070701");
        for field in fields {
            self.bytes.extend_from_slice(format!("{field:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(content);
        self.pad();
    }

    /// Names and contents begin at multiples of four.
    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_aligned_and_end_with_the_trailer() {
        let mut archive = Archive::default();
        archive.folder("dev");
        archive.character_device("dev/console", 5, 1);
        archive.file("init", b"#!/bin/sh\n");
        let bytes = archive.finish();
        assert_eq!(bytes.len() % 4, 0);
        let text = String::from_utf8_lossy(&bytes);
        assert_eq!(text.matches("070701").count(), 4);
        assert!(text.contains("dev/console\0") && text.contains("#!/bin/sh\n"));
        assert!(text.trim_end_matches('\0').ends_with(TRAILER));
    }

    #[test]
    fn the_fields_of_a_file_are_those_of_the_format() {
        let mut archive = Archive::default();
        archive.file("a", b"xyz");
        let bytes = archive.finish();
        let field = |index: usize| String::from_utf8(bytes[6 + 8 * index..14 + 8 * index].to_vec()).unwrap();
        assert_eq!([field(1), field(6), field(11)], ["000081ed", "00000003", "00000002"]);
        // 110 bytes of header, the name and its zero: a multiple of four.
        assert_eq!(&bytes[110..116], b"a\0xyz\0");
    }
}
