//! The framebuffer load: frames of random bytes, streamed from ordinary memory into video memory.
//!
//! What a display may show is refused unless the user allows it, and has at the end the bytes that it had before.

use super::events::{Act, Acts, Keys};
use super::gpu::{helper_of, is_helper};
use crate::error::LoadError;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use whylate_copy::handover::stores_before_stores;
use whylate_copy::observe::BYTES_MIN;
use whylate_copy::{Copier, Kernels, Method, Random};
use whylate_core::plan::{FramebufferAccess, FramebufferPlan, FramebufferVariant};
use whylate_core::{Bytes, MemoryMode, Warning, WarningCode};
use whylate_sys::device_memory::DeviceMemory;
use whylate_sys::memory::typed::{self, TypedMemory};

/// A frame where no display says how large its are: 1024x768 pixels of 32 bits.
const FRAME: usize = 3 << 20;
/// Frames that are timed before the load is ready; the fastest counts.
const TIMED: u32 = 3;

impl Acts for FramebufferPlan {
    const NAME: &'static str = "framebuffer";
    const ONE_THREAD: bool = true;
    fn unit(&self) -> &'static str {
        "frames_per_s"
    }
    fn keys(&self) -> Keys<'_> {
        Keys { cpus: &self.cpus, victims: None, rate: self.rate.as_pace() }
    }
    fn act(&self, _workers: usize) -> Result<Box<dyn Act>, LoadError> {
        let mut streaming = Streaming::open(self)?;
        for _ in 0..TIMED {
            let begin = Instant::now();
            streaming.frame().map_err(|error| unavailable(&error.to_string()))?;
            streaming.frame_time = streaming.frame_time.min(begin.elapsed());
        }
        Ok(Box::new(streaming))
    }
    fn check(&self) -> Result<(), LoadError> {
        match &self.device {
            Some(device) if is_shown(device) => {
                copier(self.variant)?;
                written(device)?;
                permit(self, device)
            }
            // What the helper's memory lacks, the helper says.
            _ if self.program()?.is_some() && !is_helper() => copier(self.variant).map(drop),
            device => mapped(self, device.as_deref(), BYTES_MIN).map(drop),
        }
    }
    fn program(&self) -> Result<Option<PathBuf>, LoadError> {
        helper_of(self.backend.as_deref())
    }
}

/// Refuses what a display may show, unless the user allows it.
fn permit(plan: &FramebufferPlan, device: &Path) -> Result<(), LoadError> {
    if plan.yes_draw_on_my_screen {
        return Ok(());
    }
    Err(unavailable(&format!(
        "a display may show {}; confirm with `--yes-draw-on-my-screen`, or choose another device",
        device.display()
    )))
}

fn unavailable(why: &str) -> LoadError {
    LoadError::Unavailable(format!("the framebuffer load: {why}"))
}

enum Destination {
    Mapped(Box<TypedMemory>, Copier),
    Written(File),
}

/// The work of one thread.
struct Streaming {
    source: Vec<u8>,
    destination: Destination,
    /// What a display showed, and where it is written back.
    before: Option<(DeviceMemory, Vec<u8>)>,
    variant: FramebufferVariant,
    frame_time: Duration,
}

impl Streaming {
    fn open(plan: &FramebufferPlan) -> Result<Self, LoadError> {
        let device = plan.device.as_deref();
        let own = device.and_then(display_bytes);
        let frame = plan.frame.map_or_else(|| own.unwrap_or(FRAME), |frame| frame.0 as usize);
        // Before anything is written: also what memory is, is found out by writing.
        let before = match device.filter(|device| is_shown(device)) {
            Some(device) => {
                permit(plan, device)?;
                Some(contents(device, frame.max(BYTES_MIN))?)
            }
            None => None,
        };
        let mut source = vec![0; frame];
        Kernels::best().fill_random(&mut source, &mut Random::new(1));
        let destination = match (plan.through, device) {
            (FramebufferAccess::Write, Some(device)) => written(device)?,
            _ => mapped(plan, device, frame)?,
        };
        Ok(Self { source, destination, before, variant: plan.variant, frame_time: Duration::MAX })
    }

    /// Writes one frame.
    fn frame(&mut self) -> io::Result<()> {
        match &mut self.destination {
            Destination::Mapped(memory, copier) => {
                copier.copy(&self.source, memory.as_mut_slice());
                if self.variant == FramebufferVariant::Sfence {
                    stores_before_stores();
                }
            }
            Destination::Written(file) => file.write_all_at(&self.source, 0)?,
        }
        Ok(())
    }
}

impl Drop for Streaming {
    fn drop(&mut self) {
        if let Some((memory, before)) = &mut self.before {
            memory.as_mut_slice().copy_from_slice(before);
        }
    }
}

impl Act for Streaming {
    fn describe(&self) -> String {
        let frame = Bytes(self.source.len() as u64);
        let how = match &self.destination {
            Destination::Mapped(memory, copier) => {
                format!("{} ({}) into {}", self.variant, copier.method(), memory.describe())
            }
            Destination::Written(_) => "by write(2)".to_owned(),
        };
        let each = self.frame_time.as_secs_f64() * 1e3;
        format!("frames of {frame}, {how}, each for at least {each:.2} ms,")
    }
    fn warnings(&self) -> Vec<Warning> {
        let Destination::Mapped(memory, _) = &self.destination else { return Vec::new() };
        let text = format!("the framebuffer load uses {}", memory.describe());
        let unproven = (!memory.is_proven()).then(|| Warning::new(WarningCode::MemoryModeNotEffective, text));
        unproven.into_iter().collect()
    }
    fn turn(&mut self) -> io::Result<u64> {
        self.frame().map(|()| 1)
    }
}

/// A mapping of what a display shows, and a copy of it.
fn contents(device: &Path, bytes: usize) -> Result<(DeviceMemory, Vec<u8>), LoadError> {
    let opened = File::options().read(true).write(true).open(device);
    let memory = opened.and_then(|file| DeviceMemory::map(&file, 0, bytes));
    let memory = memory.map_err(|error| unavailable(&format!("{}: {error}", device.display())))?;
    let before = memory.as_slice().to_vec();
    Ok((memory, before))
}

fn written(device: &Path) -> Result<Destination, LoadError> {
    let file = File::options().read(true).write(true).open(device);
    file.map(Destination::Written).map_err(|error| unavailable(&format!("{}: {error}", device.display())))
}

/// Memory of the device, of the type that the variant needs.
fn mapped(plan: &FramebufferPlan, device: Option<&Path>, frame: usize) -> Result<Destination, LoadError> {
    let copier = copier(plan.variant)?;
    let modes: &[MemoryMode] = match plan.variant {
        FramebufferVariant::Uncached => &[MemoryMode::Uncached, MemoryMode::UncachedMinus],
        _ => &[MemoryMode::WriteCombining],
    };
    let backend = plan.backend.as_deref().or(device.map(backend_of));
    let mut refused = None;
    for mode in modes {
        match typed::open(*mode, backend, device, frame) {
            Ok(memory) => return Ok(Destination::Mapped(Box::new(memory), copier)),
            Err(reason) => drop(refused.insert(reason)),
        }
    }
    Err(unavailable(&match backend {
        Some(_) => refused.unwrap_or_default(),
        None => format!(
            "no {} memory is safe to overwrite here; name a device, run `modprobe vgem`, or load the module \
             in kmod/ (`whylate copy --backends` says what is missing)",
            modes[0]
        ),
    }))
}

/// The first of the ways of a variant that this CPU has.
fn copier(variant: FramebufferVariant) -> Result<Copier, LoadError> {
    let methods: &[Method] = match variant {
        FramebufferVariant::AsIs | FramebufferVariant::Sfence | FramebufferVariant::Uncached => {
            &[Method::Memcpy]
        }
        FramebufferVariant::DestinationFlushed => &[Method::Clflushopt, Method::Clflush, Method::DcCvac],
        FramebufferVariant::SourceFlushed => {
            &[Method::ClflushoptFirst, Method::ClflushFirst, Method::DcCivac]
        }
        FramebufferVariant::NonTemporal => &[Method::Avx512Nt, Method::Avx2Nt, Method::Sse2Nt, Method::Stnp],
    };
    let mut refused = None;
    for method in methods {
        match Copier::new(*method) {
            Ok(copier) => return Ok(copier),
            Err(error) => drop(refused.insert(error.to_string())),
        }
    }
    Err(unavailable(&refused.unwrap_or_default()))
}

/// The way to memory of a device, by what it is called.
fn backend_of(device: &Path) -> &'static str {
    let name = device.as_os_str().as_encoded_bytes();
    match name {
        _ if name.starts_with(b"/dev/fb") => "framebuffer",
        _ if name.starts_with(b"/dev/dri/") => "dumb",
        _ if name.starts_with(b"/dev/whylate") => "memtype",
        _ => "pci",
    }
}

/// Whether a display may show what is written: a framebuffer device, and the memory of a graphics device. No display
/// shows the buffers of a graphics driver.
fn is_shown(device: &Path) -> bool {
    /// PCI class of displays, as sysfs prints it.
    const DISPLAY: &str = "0x03";
    let class = device.parent().and_then(|folder| fs::read_to_string(folder.join("class")).ok());
    backend_of(device) == "framebuffer" || class.is_some_and(|class| class.starts_with(DISPLAY))
}

/// Size of what a framebuffer device shows, as sysfs says it.
fn display_bytes(device: &Path) -> Option<usize> {
    let folder = Path::new("/sys/class/graphics").join(device.file_name()?);
    let text = |name: &str| fs::read_to_string(folder.join(name)).ok();
    let stride: usize = text("stride")?.trim().parse().ok()?;
    let size = text("virtual_size")?;
    let height: usize = size.trim().split_once(',')?.1.parse().ok()?;
    Some(stride * height).filter(|bytes| *bytes > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(device: &Path) -> FramebufferPlan {
        FramebufferPlan {
            device: Some(device.to_owned()),
            frame: Some(Bytes(20_480)),
            yes_draw_on_my_screen: true,
            ..FramebufferPlan::default()
        }
    }

    /// A file below a folder that says that it is a display's.
    fn display(folder: &Path) -> PathBuf {
        fs::write(folder.join("class"), "0x030000\n").unwrap();
        let file = folder.join("resource0_wc");
        fs::write(&file, [7; 65_536]).unwrap();
        file
    }

    #[test]
    fn what_a_display_shows_is_refused_without_permission_and_written_back_with_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = display(folder.path());
        let refused = FramebufferPlan { yes_draw_on_my_screen: false, ..plan(&file) };
        let error = refused.check().unwrap_err().to_string();
        assert!(error.contains("--yes-draw-on-my-screen"), "{error}");
        assert!(fs::read(&file).unwrap().iter().all(|byte| *byte == 7));
        for through in FramebufferAccess::ALL {
            let mut act = FramebufferPlan { through, ..plan(&file) }.act(1).unwrap();
            assert_eq!(act.turn().unwrap(), 1);
            let drawn = fs::read(&file).unwrap();
            assert!(drawn[..20_480].iter().any(|byte| *byte != 7), "{through}");
            assert!(drawn[20_480..].iter().all(|byte| *byte == 7), "{through}");
            drop(act);
            assert!(fs::read(&file).unwrap().iter().all(|byte| *byte == 7), "{through}");
        }
    }

    #[test]
    fn memory_of_the_helper_is_for_the_helper() {
        let card = FramebufferPlan { backend: Some("card".to_owned()), ..FramebufferPlan::default() };
        let error = card.check().unwrap_err();
        assert!(matches!(&error, LoadError::Unavailable(text) if text.contains("whylate-gpu")), "{error}");
        let unknown = FramebufferPlan { backend: Some("nothing".to_owned()), ..FramebufferPlan::default() };
        let error = unknown.check().unwrap_err();
        assert!(matches!(&error, LoadError::Unavailable(text) if text.contains("memtype")), "{error}");
    }

    #[test]
    fn every_variant_streams_the_same_bytes_or_says_what_the_cpu_lacks() {
        let folder = tempfile::tempdir().unwrap();
        let file = display(folder.path());
        let mut expected = vec![0; 20_480];
        Kernels::best().fill_random(&mut expected, &mut Random::new(1));
        for variant in FramebufferVariant::ALL {
            let uncached = folder.path().join("resource0");
            fs::copy(&file, &uncached).unwrap();
            let place = if variant == FramebufferVariant::Uncached { &uncached } else { &file };
            match (FramebufferPlan { variant, ..plan(place) }).act(1) {
                Ok(mut act) => {
                    act.turn().unwrap();
                    assert_eq!(fs::read(place).unwrap()[..20_480], expected, "{variant}");
                    assert!(act.describe().contains("each for at least"), "{}", act.describe());
                }
                Err(error) => assert!(error.to_string().contains("this CPU cannot copy"), "{error}"),
            }
        }
        let error = FramebufferPlan { variant: FramebufferVariant::Uncached, ..plan(&file) }.act(1).err();
        assert!(error.is_some(), "a write-combining region is not uncached");
    }
}
