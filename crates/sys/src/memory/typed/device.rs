//! Memory of devices: dumb buffers of graphics drivers, PCI regions, framebuffers, and memory kept back from the kernel.
//!
//! Bytes written to a real device's region may make it do anything, so only a region that is known to be plain memory
//! (ivshmem's) is used without being named. A framebuffer shows what is written.

use super::{Backend, Memory, Offer};
use crate::device_memory::DeviceMemory;
use crate::drm::{Card, DumbBuffer};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use whylate_core::MemoryMode;

impl Memory for DeviceMemory {
    fn as_slice(&self) -> &[u8] {
        self.as_slice()
    }
    fn as_mut_slice(&mut self) -> &mut [u8] {
        self.as_mut_slice()
    }
}

impl Memory for DumbBuffer {
    fn as_slice(&self) -> &[u8] {
        self.memory.as_slice()
    }
    fn as_mut_slice(&mut self) -> &mut [u8] {
        self.memory.as_mut_slice()
    }
}

/// Dumb buffers of every graphics device. The driver chooses the type; most likely write-combining.
#[derive(Debug)]
pub(super) struct Dumb;

impl Backend for Dumb {
    fn name(&self) -> &'static str {
        "dumb"
    }
    fn meaning(&self) -> &'static str {
        "dumb buffers of a graphics driver, which chooses the type (vgem: write-combining)"
    }
    fn offers(&self, device: Option<&Path>) -> Result<Vec<Offer>, String> {
        let cards = match device {
            Some(device) => vec![device.to_owned()],
            None => Card::paths().map_err(|error| format!("{error}; `modprobe vgem` adds a device"))?,
        };
        let mut refused = Vec::new();
        let mut offers = Vec::new();
        for card in cards {
            match Card::open(&card).and_then(|card| card.buffer_of(4096).map(drop)) {
                Ok(()) => offers.push(Offer::free(MemoryMode::WriteCombining, card)),
                Err(error) => refused.push(format!("{}: {error}", card.display())),
            }
        }
        let none = || format!("no graphics device makes dumb buffers ({})", refused.join("; "));
        if offers.is_empty() { Err(none()) } else { Ok(offers) }
    }
    fn open(&self, offer: &Offer, bytes: usize) -> io::Result<Box<dyn Memory>> {
        let mut buffer = Card::open(&offer.place)?.buffer_of(bytes)?;
        buffer.memory.touch();
        Ok(Box::new(buffer))
    }
}

/// A region of a PCI device, as sysfs maps it.
#[derive(Debug)]
pub(super) struct PciResource;

/// Vendor and device of ivshmem, whose third region is plain memory of the hypervisor.
const IVSHMEM: (&str, &str) = ("0x1af4", "0x1110");

impl Backend for PciResource {
    fn name(&self) -> &'static str {
        "pci"
    }
    fn meaning(&self) -> &'static str {
        "a region of a PCI device: resourceN uncached, resourceN_wc write-combining"
    }
    fn offers(&self, device: Option<&Path>) -> Result<Vec<Offer>, String> {
        if let Some(device) = device {
            return named_file(device).map(|()| vec![Offer::free(resource_mode(device), device)]);
        }
        let folder = fs::read_dir("/sys/bus/pci/devices");
        let folder = folder.map_err(|_| "there is no PCI bus (/sys/bus/pci is missing)".to_owned())?;
        let word = |path: PathBuf| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
        let mut offers = Vec::new();
        for entry in folder.flatten() {
            let path = entry.path();
            if (word(path.join("vendor")).as_str(), word(path.join("device")).as_str()) == IVSHMEM {
                let files = ["resource2", "resource2_wc"].map(|name| path.join(name));
                let files = files.into_iter().filter(|file| file.exists());
                offers.extend(files.map(|file| Offer::free(resource_mode(&file), file)));
            }
        }
        if offers.is_empty() {
            return Err("no PCI device has a region that is known to be plain memory (ivshmem); name the resource file of a \
                        device with --device. whylate overwrites the file, so the device's driver must not be loaded"
                .to_owned());
        }
        Ok(offers)
    }
    fn open(&self, offer: &Offer, bytes: usize) -> io::Result<Box<dyn Memory>> {
        map_file(&offer.place, 0, bytes, 0)
    }
}

fn resource_mode(file: &Path) -> MemoryMode {
    let is_combining = file.as_os_str().as_encoded_bytes().ends_with(b"_wc");
    if is_combining { MemoryMode::WriteCombining } else { MemoryMode::UncachedMinus }
}

fn named_file(path: &Path) -> Result<(), String> {
    let opened = File::options().read(true).write(true).open(path);
    opened.map(drop).map_err(|error| format!("{} cannot be opened: {error}", path.display()))
}

fn map_file(path: &Path, offset: u64, bytes: usize, flags: i32) -> io::Result<Box<dyn Memory>> {
    let file = File::options().read(true).write(true).custom_flags(flags).open(path)?;
    Ok(Box::new(DeviceMemory::map_present(&file, offset, bytes)?))
}

#[derive(Debug)]
pub(super) struct Framebuffer;

impl Backend for Framebuffer {
    fn name(&self) -> &'static str {
        "framebuffer"
    }
    fn meaning(&self) -> &'static str {
        "a framebuffer device, which shows what is written"
    }
    fn offers(&self, device: Option<&Path>) -> Result<Vec<Offer>, String> {
        let device = device.unwrap_or(Path::new("/dev/fb0"));
        named_file(device)?;
        Ok(vec![Offer { is_free: false, ..Offer::free(MemoryMode::WriteCombining, device) }])
    }
    fn open(&self, offer: &Offer, bytes: usize) -> io::Result<Box<dyn Memory>> {
        map_file(&offer.place, 0, bytes, 0)
    }
}

/// Memory that the kernel's command line reserves (`memmap=16M$0x40000000`), through /dev/mem.
#[derive(Debug)]
pub(super) struct CarveOut;

const DEV_MEM: &str = "/dev/mem";

impl Backend for CarveOut {
    fn name(&self) -> &'static str {
        "carve-out"
    }
    fn meaning(&self) -> &'static str {
        "memory reserved by memmap= at boot, through /dev/mem"
    }
    fn offers(&self, device: Option<&Path>) -> Result<Vec<Offer>, String> {
        let Some(place) = device else {
            return Err(format!(
                "no range is given: boot with memmap=16M$ADDRESS and name it with --device {DEV_MEM}@ADDRESS"
            ));
        };
        let (file, address) =
            carve_out(place).ok_or_else(|| format!("--device must be {DEV_MEM}@0xADDRESS"))?;
        let ranges = fs::read_to_string("/proc/iomem").unwrap_or_default();
        if !is_reserved(&ranges, address) {
            return Err(format!(
                "/proc/iomem (read as root) does not show {address:#x} as Reserved, so other software may \
                 use this memory"
            ));
        }
        named_file(file)?;
        Ok([MemoryMode::WriteBack, MemoryMode::UncachedMinus].map(|mode| Offer::free(mode, place)).into())
    }
    fn open(&self, offer: &Offer, bytes: usize) -> io::Result<Box<dyn Memory>> {
        let (file, address) = carve_out(&offer.place).ok_or(io::ErrorKind::InvalidInput)?;
        let ranges = fs::read_to_string("/proc/iomem")?;
        if !is_reserved(&ranges, address + bytes as u64 - 1) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("the reserved range is shorter than {bytes} bytes"),
            ));
        }
        // The kernel maps uncached what is opened for synchronous writes.
        let flags = if offer.mode == MemoryMode::WriteBack { 0 } else { libc::O_SYNC };
        map_file(file, address, bytes, flags)
    }
}

/// `/dev/mem@0x40000000`.
fn carve_out(place: &Path) -> Option<(&Path, u64)> {
    let (file, address) = place.to_str()?.split_once('@')?;
    let address = u64::from_str_radix(address.trim_start_matches("0x"), 16).ok()?;
    (file == DEV_MEM && address % 4096 == 0).then_some((Path::new(DEV_MEM), address))
}

/// Whether an address is in a top-level range that is reserved.
fn is_reserved(ranges: &str, address: u64) -> bool {
    ranges.lines().filter(|line| !line.starts_with(' ')).any(|line| {
        let Some((range, what)) = line.split_once(" : ") else { return false };
        let number = |text| u64::from_str_radix(text, 16).ok();
        let Some((Some(from), Some(to))) = range.split_once('-').map(|(from, to)| (number(from), number(to)))
        else {
            return false;
        };
        what.eq_ignore_ascii_case("reserved") && to > 0 && (from..=to).contains(&address)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_reserved_ranges_are_carve_outs() {
        let ranges =
            "00001000-0009ffff : System RAM\n40000000-40ffffff : Reserved\n  40001000-40001fff : Reserved\n";
        assert!(is_reserved(ranges, 0x4000_0000) && is_reserved(ranges, 0x40ff_ffff));
        assert!(!is_reserved(ranges, 0x2000) && !is_reserved(ranges, 0x4100_0000));
        // What an ordinary user sees.
        assert!(!is_reserved("00000000-00000000 : Reserved\n", 0));
    }

    #[test]
    fn a_carve_out_is_an_address_of_dev_mem() {
        assert_eq!(carve_out(Path::new("/dev/mem@0x40000000")), Some((Path::new(DEV_MEM), 0x4000_0000)));
        for wrong in ["/dev/mem", "/dev/mem@12", "/dev/sda@0x40000000", "/dev/mem@x"] {
            assert_eq!(carve_out(Path::new(wrong)), None, "{wrong}");
        }
    }

    #[test]
    fn the_name_of_a_region_says_its_type() {
        assert_eq!(resource_mode(Path::new("/sys/x/resource2_wc")), MemoryMode::WriteCombining);
        assert_eq!(resource_mode(Path::new("/sys/x/resource2")), MemoryMode::UncachedMinus);
    }
}
