//! Takes the kernel out of a `bzImage`: QEMU starts an ELF `vmlinux` directly, which saves the guest from unpacking it.
//!
//! The layout is the one of the kernel's `Documentation/x86/boot.rst`: sectors of the setup code at 0x1f1, protocol
//! version at 0x206, offset and length of the compressed kernel at 0x248 and 0x24c. The length includes four bytes at
//! the end that hold the size of the unpacked kernel.

use crate::error::LabError;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// Bytes of a sector of setup code.
const SECTOR_BYTES: usize = 512;
/// Size of the number after the compressed kernel.
const SIZE_BYTES: usize = 4;
/// The start of every ELF file.
const ELF_MAGIC: &[u8] = b"\x7fELF";

/// How a kernel is compressed: the start of its data, and the program that unpacks it.
const COMPRESSIONS: [(&[u8], &str); 3] =
    [(b"\xfd7zXZ\0", "xz"), (b"\x28\xb5\x2f\xfd", "zstd"), (b"\x1f\x8b\x08", "gzip")];

/// The compressed kernel within an image.
fn payload(image: &[u8]) -> Result<&[u8], String> {
    let number = |offset: usize| -> Result<usize, String> {
        let bytes = image.get(offset..offset + 4).and_then(|bytes| <[u8; 4]>::try_from(bytes).ok());
        bytes
            .map(|bytes| u32::from_le_bytes(bytes) as usize)
            .ok_or_else(|| "the image is cut off in its header".into())
    };
    if image.get(0x202..0x206) != Some(b"HdrS") {
        return Err("not a Linux kernel image: no HdrS at 0x202".into());
    }
    let sectors = match image[0x1f1] {
        0 => 4,
        sectors => usize::from(sectors),
    };
    let start = (sectors + 1) * SECTOR_BYTES + number(0x248)?;
    let length = number(0x24c)?.checked_sub(SIZE_BYTES).ok_or("the image contains no compressed kernel")?;
    image.get(start..start + length).ok_or_else(|| "the compressed kernel is cut off".into())
}

/// Unpacks the kernel of `bzimage` to the ELF file `vmlinux`.
///
/// # Errors
/// When the image is not understood, or when the unpacking program is missing or fails.
pub(crate) fn extract(bzimage: &Path, vmlinux: &Path) -> Result<(), LabError> {
    let wrong = |what: String| LabError::KernelImage { path: bzimage.to_owned(), what };
    let image = std::fs::read(bzimage).map_err(LabError::file("read", bzimage))?;
    let payload = payload(&image).map_err(wrong)?;
    let (_, program) = COMPRESSIONS
        .iter()
        .find(|(magic, _)| payload.starts_with(magic))
        .ok_or_else(|| wrong("the kernel's compression is not known".into()))?;
    let mut child = Command::new(program)
        .args(["-d", "-c"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|source| LabError::Start { command: (*program).to_owned(), source })?;
    let unpacked = std::thread::scope(|scope| {
        let stdin = child.stdin.take();
        // A write error means that the program ended early: its output then is no ELF file.
        scope.spawn(move || stdin.map(|mut stdin| stdin.write_all(payload)));
        child.wait_with_output()
    });
    let unpacked = unpacked.map_err(|source| LabError::Start { command: (*program).to_owned(), source })?;
    if !unpacked.stdout.starts_with(ELF_MAGIC) {
        return Err(wrong(format!("{program} unpacked no ELF file from this image")));
    }
    crate::host::write(vmlinux, &unpacked.stdout)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An image with one sector of setup code and this compressed kernel 16 bytes behind it.
    fn image(kernel: &[u8]) -> Vec<u8> {
        let mut image = vec![0; 2 * SECTOR_BYTES + 16];
        image[0x1f1] = 1;
        image[0x202..0x206].copy_from_slice(b"HdrS");
        image[0x248..0x24c].copy_from_slice(&16_u32.to_le_bytes());
        image[0x24c..0x250].copy_from_slice(&(kernel.len() as u32 + 4).to_le_bytes());
        image.extend_from_slice(kernel);
        image.extend_from_slice(&[9; SIZE_BYTES]);
        image
    }

    #[test]
    fn the_compressed_kernel_is_found() {
        assert_eq!(payload(&image(b"kernel")).unwrap(), b"kernel");
    }

    #[test]
    fn a_damaged_image_is_an_error() {
        assert!(payload(b"").is_err());
        assert!(payload(&[0; 4096]).unwrap_err().contains("HdrS"));
        let mut short = image(b"kernel");
        short.truncate(short.len() - SIZE_BYTES - 1);
        assert!(payload(&short).unwrap_err().contains("cut off"));
    }

    #[test]
    fn a_kernel_is_unpacked() {
        let folder = tempfile::tempdir().unwrap();
        let [bzimage, vmlinux] = ["bzImage", "vmlinux"].map(|name| folder.path().join(name));
        // printf '\177ELF!' | gzip -n
        let gzipped = b"\x1f\x8b\x08\0\0\0\0\0\0\x03\xab\x77\xf5\x71\x53\x04\0\x75\xa4\xa0\x82\x05\0\0\0";
        std::fs::write(&bzimage, image(gzipped)).unwrap();
        match extract(&bzimage, &vmlinux) {
            Ok(()) => assert_eq!(std::fs::read(&vmlinux).unwrap(), b"\x7fELF!"),
            Err(error) => panic!("{error}"),
        }
        std::fs::write(&bzimage, image(b"unknown")).unwrap();
        assert!(extract(&bzimage, &vmlinux).unwrap_err().to_string().contains("not known"));
    }
}
