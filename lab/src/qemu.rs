//! The command line of QEMU for a machine.

use crate::counter;
use crate::emulator::Emulator;
use crate::error::LabError;
use crate::grub;
use crate::machine::{Architecture, Device, Machine, Profile};
use std::fs::File;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const MEMORY_MIB: u32 = 1024;
/// The processor of arm64: one that real boards have, without pointer authentication, which is slow to emulate.
const ARM64_CPU: &str = "cortex-a76";
/// Size of the memory behind the PCI BAR, in MiB.
const BAR_MIB: u32 = 4;
/// Size of the second disk, in MiB.
const DISK_MIB: u64 = 64;
/// How many CPUs can be plugged in.
const EXTRA_CPUS: u32 = 2;
/// How long its sockets may take to appear.
const SOCKET_LIMIT: Duration = Duration::from_secs(60);

/// What a guest is made of: files of the cache and the folder of this boot.
pub(crate) struct Parts<'a> {
    pub(crate) emulator: &'a Emulator,
    /// Folder of the kernel in the cache.
    pub(crate) kernel: &'a Path,
    /// Root file system in the cache; the guest's writes go nowhere.
    pub(crate) root: &'a Path,
    /// Folder of this boot: the initial RAM file system, sockets, logs, the second disk.
    pub(crate) folder: &'a Path,
    /// Folder that guest and host share.
    pub(crate) share: &'a Path,
}

/// The command that starts a machine, with more words on its kernel's command line.
pub(crate) fn command(machine: &Machine, parts: &Parts<'_>, words: &str) -> Result<Command, LabError> {
    let mut qemu = parts.emulator.command(machine.kernel.architecture().qemu().0);
    qemu.args(["-nodefaults", "-no-user-config", "-display", "none"]);
    if !machine.devices.contains(&Device::Grub) {
        qemu.arg("-no-reboot");
    }
    let (board, cpu) = board(machine);
    qemu.args(["-M", board, "-cpu", cpu, "-m", &MEMORY_MIB.to_string()]);
    qemu.args(["-smp", &cpus(machine)]);
    match machine.profile {
        Profile::Counted | Profile::CountedPair => {
            qemu.args(["-accel", "tcg,thread=single", "-icount", "shift=3,sleep=off"]);
        }
        Profile::Threads => {
            qemu.args(["-accel", "tcg,thread=multi"]);
        }
    }
    start(&mut qemu, machine, parts, words);
    for (name, option) in [("agent", "-serial"), ("monitor", "-monitor")] {
        let socket = parts.folder.join(name);
        qemu.args(["-chardev", &format!("socket,id={name},path={},server=on,wait=off", socket.display())]);
        qemu.args([option, &format!("chardev:{name}")]);
    }
    disk(&mut qemu, "root", parts.root, "snapshot=on");
    disk(&mut qemu, "modules", &parts.kernel.join("modules.ext4"), "readonly=on");
    qemu.args(["-fsdev", &format!("local,id=lab,path={},security_model=none", parts.share.display())]);
    qemu.args(["-device", "virtio-9p-pci,fsdev=lab,mount_tag=lab"]);
    for device in &machine.devices {
        add_device(&mut qemu, *device, parts.folder)?;
    }
    let errors = parts.folder.join("qemu.log");
    let errors = File::create(&errors).map_err(LabError::file("create", &errors))?;
    qemu.stdin(Stdio::null()).stdout(Stdio::null()).stderr(errors);
    Ok(qemu)
}

fn board(machine: &Machine) -> (&'static str, &'static str) {
    match machine.kernel.architecture() {
        Architecture::Arm64 => ("virt,gic-version=3", ARM64_CPU),
        // The emulated processor is one of AMD, which would report siblings in a way that is not emulated.
        Architecture::X86 if machine.devices.contains(&Device::Siblings) => {
            ("q35", "max,vendor=GenuineIntel")
        }
        Architecture::X86 => ("q35", "max"),
    }
}

/// The kernel's command line.
pub(crate) fn command_line(machine: &Machine) -> String {
    let is_x86 = machine.kernel.architecture() == Architecture::X86;
    let console = if is_x86 { "ttyS0 tsc=reliable" } else { "ttyAMA0" };
    let mut line = format!("console={console} panic=-1 loglevel=5 sysrq_always_enabled");
    match machine.profile {
        // If all CPUs wait, for example for a disk of the host, counted time jumps to the next timer: minutes may pass
        // for a task that waits no longer than usual.
        Profile::Counted | Profile::CountedPair => line.push_str(" sysctl.kernel.hung_task_timeout_secs=0"),
        Profile::Threads if is_x86 => {
            // A busy host delivers the timer's interrupts too late for a newer kernel's test of them, which ends in a panic.
            if !machine.kernel.is_old() {
                line.push_str(" no_timer_check");
            }
            if let Some(khz) = counter::frequency_khz() {
                line.push_str(&format!(" tsc_early_khz={khz}"));
            }
        }
        Profile::Threads => {}
    }
    if machine.devices.contains(&Device::VesaFramebuffer) {
        // mtrr:3 asks vesafb for write-combining.
        line.push_str(" vga=0x315 video=vesafb:mtrr:3");
    }
    line
}

/// What QEMU starts, its command line, its console.
fn start(qemu: &mut Command, machine: &Machine, parts: &Parts<'_>, words: &str) {
    if machine.devices.contains(&Device::Grub) {
        qemu.arg("-kernel").arg(grub::image(parts.folder));
    } else {
        // Only the setup code of a bzImage sets a graphics mode.
        let is_vesa = machine.devices.contains(&Device::VesaFramebuffer);
        qemu.arg("-kernel").arg(parts.kernel.join(if is_vesa { "bzImage" } else { "vmlinux" }));
        qemu.arg("-initrd").arg(parts.folder.join("initramfs"));
        let mut line = command_line(machine);
        if !words.is_empty() {
            line.push_str(&format!(" {words}"));
        }
        qemu.args(["-append", &line]);
    }
    let console = parts.folder.join("console.log");
    qemu.args(["-chardev", &format!("file,id=console,path={}", console.display())]);
    qemu.args(["-serial", "chardev:console"]);
}

fn cpus(machine: &Machine) -> String {
    let cpus = machine.profile.cpus();
    if machine.devices.contains(&Device::Siblings) && !machine.devices.contains(&Device::ExtraCpus) {
        return format!("{cpus},sockets=1,cores=1,threads={cpus}");
    }
    let most = if machine.devices.contains(&Device::ExtraCpus) { cpus + EXTRA_CPUS } else { cpus };
    format!("{cpus},maxcpus={most},sockets={most},cores=1,threads=1")
}

fn disk(qemu: &mut Command, id: &str, file: &Path, option: &str) {
    qemu.args(["-drive", &format!("file={},format=raw,if=none,id={id},{option}", file.display())]);
    qemu.args(["-device", &format!("virtio-blk-pci,drive={id}")]);
}

fn add_device(qemu: &mut Command, device: Device, folder: &Path) -> Result<(), LabError> {
    match device {
        Device::BochsDisplay => qemu.args(["-device", "bochs-display"]),
        Device::VirtioGpu => qemu.args(["-device", "virtio-gpu-pci"]),
        Device::VesaFramebuffer => qemu.args(["-device", "VGA"]),
        Device::SharedMemoryBar => {
            let file = folder.join("bar");
            let backend =
                format!("memory-backend-file,id=bar,size={BAR_MIB}M,share=on,mem-path={}", file.display());
            qemu.args(["-object", &backend, "-device", "ivshmem-plain,memdev=bar"])
        }
        Device::SecondDisk => {
            let path = folder.join("disk");
            // Its contents stay when the machine is booted again.
            let file = File::options().create(true).write(true).truncate(false).open(&path);
            let file = file.map_err(LabError::file("create", &path))?;
            file.set_len(DISK_MIB << 20).map_err(LabError::file("write", &path))?;
            disk(qemu, "second", &path, "cache=unsafe");
            qemu
        }
        Device::Grub => {
            disk(qemu, "boot", &grub::disk(folder), "cache=unsafe");
            qemu
        }
        Device::ExtraCpus | Device::Siblings => qemu,
    };
    Ok(())
}

/// Connects to a socket of QEMU, which appears shortly after its start.
pub(crate) fn connect(child: &mut Child, socket: &Path) -> Result<UnixStream, String> {
    let deadline = Instant::now() + SOCKET_LIMIT;
    loop {
        match UnixStream::connect(socket) {
            Ok(stream) => return Ok(stream),
            Err(error) if Instant::now() > deadline => return Err(format!("has no socket: {error}")),
            Err(_) => {}
        }
        if let Ok(Some(status)) = child.try_wait() {
            return Err(format!("did not start ({status})"));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host;
    use crate::machine::Kernel;

    fn line(machine: &Machine) -> String {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        let parts = Parts {
            emulator: &Emulator::Host,
            kernel: Path::new("/k"),
            root: Path::new("/r"),
            folder: path,
            share: Path::new("/s"),
        };
        host::shown(&command(machine, &parts, "isolcpus=1").unwrap())
    }

    #[test]
    fn time_is_counted_in_one_profile_only() {
        assert!(
            line(&Machine::new(Profile::Counted, Kernel::RealTime)).contains("-icount shift=3,sleep=off")
        );
        assert!(!line(&Machine::new(Profile::Threads, Kernel::RealTime)).contains("icount"));
    }

    #[test]
    fn a_boot_may_have_more_words_and_keeps_the_second_disk() {
        let machine = Machine::new(Profile::Threads, Kernel::RealTime).with(&[Device::SecondDisk]);
        assert!(line(&machine).contains(" isolcpus=1 -chardev"));
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("disk"), "kept").unwrap();
        add_device(&mut Command::new("true"), Device::SecondDisk, folder.path()).unwrap();
        let disk = std::fs::read(folder.path().join("disk")).unwrap();
        assert!(disk.starts_with(b"kept") && disk.len() as u64 == DISK_MIB << 20);
    }

    #[test]
    fn the_caches_root_is_never_written() {
        let line = line(&Machine::new(Profile::Threads, Kernel::Plain));
        assert!(line.contains("file=/r,format=raw,if=none,id=root,snapshot=on"), "{line}");
        assert!(line.contains("id=modules,readonly=on"), "{line}");
    }

    #[test]
    fn devices_are_there_on_request() {
        let machine = Machine::new(Profile::Threads, Kernel::RealTime);
        assert!(!line(&machine).contains("ivshmem"));
        assert!(line(&machine.clone().with(&[Device::Siblings])).contains("cores=1,threads=2"));
        let by_grub = line(&machine.clone().with(&[Device::Grub]));
        assert!(
            by_grub.contains("grub.lnx") && !by_grub.contains("-append") && !by_grub.contains("-no-reboot")
        );
        let others = Device::ALL.into_iter().filter(|device| *device != Device::Grub);
        let line = line(&machine.with(&others.collect::<Vec<_>>()));
        for text in ["bochs-display", "virtio-gpu-pci", "VGA", "ivshmem-plain", "id=second", "maxcpus=4"] {
            assert!(line.contains(text), "{text} is missing: {line}");
        }
        assert!(line.contains("/k/bzImage") && line.contains("vga=0x315"), "{line}");
    }
}
