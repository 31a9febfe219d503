//! What a guest is: its clock, its kernel, its devices.

/// How the guest's CPUs and its clock are emulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Profile {
    /// One CPU whose time is counted in instructions: the guest's time is the same whatever the host does. For
    /// assertions about lengths and culprits.
    Counted,
    /// As [`Profile::Counted`] with two CPUs that take turns. Needs QEMU 10.
    CountedPair,
    /// Two CPUs, each a thread of the host: the guest sees the host's work as latency. For interfaces and mechanisms;
    /// never for microseconds.
    Threads,
}

impl Profile {
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Counted => "icount",
            Self::CountedPair => "icount-pair",
            Self::Threads => "multi",
        }
    }

    /// Number of CPUs that are running after boot.
    #[must_use]
    pub fn cpus(self) -> u32 {
        match self {
            Self::Counted => 1,
            Self::CountedPair | Self::Threads => 2,
        }
    }

    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        [Self::Counted, Self::CountedPair, Self::Threads].into_iter().find(|profile| profile.name() == name)
    }
}

/// The processors that a kernel is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Architecture {
    /// 64-bit PCs.
    X86,
    /// 64-bit ARM.
    Arm64,
}

impl Architecture {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::X86, Self::Arm64];

    /// Name in Debian, and of the lab's package root.
    #[must_use]
    pub fn debian(self) -> &'static str {
        match self {
            Self::X86 => "amd64",
            Self::Arm64 => "arm64",
        }
    }

    /// The target that programs for its guests are compiled for.
    #[must_use]
    pub fn target(self) -> &'static str {
        match self {
            Self::X86 => "x86_64-unknown-linux-musl",
            Self::Arm64 => "aarch64-unknown-linux-musl",
        }
    }

    /// The variable that names the program under test for its guests.
    #[must_use]
    pub fn binary_variable(self) -> &'static str {
        match self {
            Self::X86 => "WHYLATE_LAB_BINARY",
            Self::Arm64 => "WHYLATE_LAB_BINARY_ARM64",
        }
    }

    /// The program that emulates it, and the Debian package that has the program.
    #[must_use]
    pub(crate) fn qemu(self) -> (&'static str, &'static str) {
        match self {
            Self::X86 => ("qemu-system-x86_64", "qemu-system-x86"),
            Self::Arm64 => ("qemu-system-aarch64", "qemu-system-arm"),
        }
    }

    /// The part of names in the cache that distinguishes them from those of x86, which came first.
    #[must_use]
    pub(crate) fn ending(self) -> &'static str {
        match self {
            Self::X86 => "",
            Self::Arm64 => "-arm64",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kernel {
    /// 5.10 with PREEMPT_RT: the oldest on which everything has to work.
    RealTime510,
    /// 6.1 with PREEMPT_RT.
    RealTime,
    /// 6.1, the distribution's usual one.
    Plain,
    /// 6.12 with PREEMPT_RT.
    RealTime612,
    /// The newest with PREEMPT_RT that Debian has.
    RealTimeNew,
    /// The newest of the usual ones.
    PlainNew,
    /// The newest with PREEMPT_RT for arm64.
    Arm64RealTimeNew,
}

impl Kernel {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::RealTime510,
        Self::RealTime,
        Self::Plain,
        Self::RealTime612,
        Self::RealTimeNew,
        Self::PlainNew,
        Self::Arm64RealTimeNew,
    ];
    /// Those that are built and tested unless others are named; the rest only if it is named, or with `--all-kernels`.
    pub const USUAL: [Self; 5] =
        [Self::RealTime, Self::Plain, Self::RealTime612, Self::RealTimeNew, Self::PlainNew];
    /// Without these there is no lab; the others are skipped if they are not available.
    pub const NEEDED: [Self; 2] = [Self::RealTime, Self::Plain];
    /// The kernels on which each run looks for culprits: the oldest and the newest.
    pub const CULPRITS: [Self; 4] = [Self::RealTime, Self::Plain, Self::RealTimeNew, Self::PlainNew];

    /// Name on the command line and in the cache.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::RealTime510 => "rt-5.10",
            Self::RealTime => "rt-6.1",
            Self::Plain => "plain-6.1",
            Self::RealTime612 => "rt-6.12",
            Self::RealTimeNew => "rt-new",
            Self::PlainNew => "plain-new",
            Self::Arm64RealTimeNew => "arm64-rt-new",
        }
    }

    /// The package that always depends on the newest kernel of this kind.
    #[must_use]
    pub fn package(self) -> &'static str {
        match (self.architecture(), self.is_realtime()) {
            (Architecture::Arm64, _) => "linux-image-rt-arm64",
            (Architecture::X86, true) => "linux-image-rt-amd64",
            (Architecture::X86, false) => "linux-image-amd64",
        }
    }

    #[must_use]
    pub fn architecture(self) -> Architecture {
        match self {
            Self::Arm64RealTimeNew => Architecture::Arm64,
            _ => Architecture::X86,
        }
    }

    /// What the package's version begins with.
    #[must_use]
    pub fn version_prefix(self) -> &'static str {
        match self {
            Self::RealTime510 => "5.10.",
            Self::RealTime | Self::Plain => "6.1.",
            Self::RealTime612 => "6.12.",
            Self::RealTimeNew | Self::PlainNew | Self::Arm64RealTimeNew => "",
        }
    }

    /// Whether it is one of those before 6.12, for which QEMU 7 is enough.
    #[must_use]
    pub(crate) fn is_old(self) -> bool {
        matches!(self, Self::RealTime510 | Self::RealTime | Self::Plain)
    }

    #[must_use]
    pub fn is_realtime(self) -> bool {
        !matches!(self, Self::Plain | Self::PlainNew)
    }

    /// The kernel of this name; `rt` and `plain` are those of 6.1.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kernel| {
            let own = kernel.name();
            own == name || own.strip_suffix("-6.1") == Some(name)
        })
    }
}

/// What is installed in the guest's root file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Image {
    Base,
    /// The same with Xorg and x11perf.
    Graphics,
}

impl Image {
    /// Name on the command line and in the cache.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Base => "base",
            Self::Graphics => "graphics",
        }
    }

    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        [Self::Base, Self::Graphics].into_iter().find(|image| image.name() == name)
    }
}

/// A device that a guest has only on request. The real-time clock, the HPET and vgem (a module) are always there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Device {
    /// `bochs-display`: DRM driver bochs, with a framebuffer console.
    BochsDisplay,
    /// `virtio-gpu-pci`: DRM driver virtio_gpu.
    VirtioGpu,
    /// Standard VGA with a graphics mode set before the kernel starts and vesafb mapped write-combining.
    VesaFramebuffer,
    /// 4 MiB of memory behind a PCI BAR, to be mapped UC- or write-combining.
    SharedMemoryBar,
    /// A second disk of 64 MiB, empty and writable.
    SecondDisk,
    /// Room for two more CPUs that are plugged in through the monitor.
    ExtraCpus,
    /// The two CPUs are SMT siblings: threads of one core.
    Siblings,
    /// GRUB boots it, from a disk that the guest may change; a guest that reboots is booted again by GRUB.
    Grub,
}

impl Device {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::BochsDisplay,
        Self::VirtioGpu,
        Self::VesaFramebuffer,
        Self::SharedMemoryBar,
        Self::SecondDisk,
        Self::ExtraCpus,
        Self::Siblings,
        Self::Grub,
    ];

    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::BochsDisplay => "bochs",
            Self::VirtioGpu => "virtio-gpu",
            Self::VesaFramebuffer => "vesafb",
            Self::SharedMemoryBar => "ivshmem",
            Self::SecondDisk => "disk",
            Self::ExtraCpus => "hotplug",
            Self::Siblings => "smt",
            Self::Grub => "grub",
        }
    }

    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|device| device.name() == name)
    }
}

/// A guest as a test asks for it. Tests that ask for the same share one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Machine {
    pub profile: Profile,
    pub kernel: Kernel,
    pub image: Image,
    pub devices: Vec<Device>,
}

impl Machine {
    /// A machine with the base image and no extra devices.
    #[must_use]
    pub fn new(profile: Profile, kernel: Kernel) -> Self {
        Self { profile, kernel, image: Image::Base, devices: Vec::new() }
    }

    /// The same with these devices.
    #[must_use]
    pub fn with(mut self, devices: &[Device]) -> Self {
        self.devices.extend_from_slice(devices);
        self.devices.sort();
        self.devices.dedup();
        self
    }

    /// The same with another root file system.
    #[must_use]
    pub fn image(mut self, image: Image) -> Self {
        self.image = image;
        self
    }

    /// The oldest major version of QEMU that runs it.
    #[must_use]
    pub fn qemu_major_min(&self) -> u32 {
        match (self.kernel.architecture(), self.profile) {
            // Older ones have no second serial port on arm64.
            (Architecture::Arm64, _) | (_, Profile::CountedPair) => 10,
            (Architecture::X86, Profile::Counted | Profile::Threads) => 7,
        }
    }

    /// Why there is no such machine; `None` if there is one.
    #[must_use]
    pub fn impossible(&self) -> Option<String> {
        let is_of_x86 = |device: &&Device| !matches!(device, Device::SecondDisk);
        let kernel = self.kernel.name();
        match (self.kernel.architecture(), self.image, self.devices.iter().find(is_of_x86)) {
            (Architecture::X86, ..) | (_, Image::Base, None) => None,
            (_, Image::Base, Some(device)) => {
                Some(format!("a machine of {kernel} has no device {}", device.name()))
            }
            (_, image, _) => Some(format!("there is no image {} for {kernel}", image.name())),
        }
    }

    /// What identifies it in messages, for example `icount rt-6.1` or `multi plain-new +bochs`.
    #[must_use]
    pub fn label(&self) -> String {
        let mut label = format!("{} {}", self.profile.name(), self.kernel.name());
        if self.image != Image::Base {
            label.push_str(&format!(" {}", self.image.name()));
        }
        for device in &self.devices {
            label.push_str(&format!(" +{}", device.name()));
        }
        label
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_back() {
        for device in Device::ALL {
            assert_eq!(Device::named(device.name()), Some(device));
        }
        for kernel in Kernel::ALL {
            assert_eq!(Kernel::named(kernel.name()), Some(kernel));
        }
        assert_eq!(Kernel::named("rt"), Some(Kernel::RealTime));
        for profile in [Profile::Counted, Profile::CountedPair, Profile::Threads] {
            assert_eq!(Profile::named(profile.name()), Some(profile));
        }
        assert_eq!(Image::named("graphics"), Some(Image::Graphics));
        assert_eq!(Profile::named("rt"), None);
    }

    #[test]
    fn the_order_in_which_devices_are_named_does_not_matter() {
        let machine = |devices: &[Device]| Machine::new(Profile::Threads, Kernel::RealTime).with(devices);
        let one = machine(&[Device::SecondDisk, Device::BochsDisplay]);
        assert_eq!(one, machine(&[Device::BochsDisplay, Device::SecondDisk, Device::SecondDisk]));
        assert_eq!(one.label(), "multi rt-6.1 +bochs +disk");
    }
}
