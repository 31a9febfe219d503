//! Vulkan, as far as the loads need it: one device, buffers of a chosen kind of memory, compute programs, an image
//! that is drawn off screen. The only unsafe code of this program; its interface is safe to call.
//!
//! A device that does not answer within [`Gpu::answers_within`] is not waited for: its objects are left to the kernel.

mod commands;
mod error;
mod host;
mod list;
mod memory;
mod picture;

pub(crate) use commands::{Commands, Program};
pub(crate) use error::GpuError;
pub(crate) use host::{CardMemory, HostVisible};
pub(crate) use list::{Listed, list};
pub(crate) use memory::{Buffer, Kind};
pub(crate) use picture::Picture;

use ash::{Entry, ext, khr, vk};
use error::check;
use std::cell::Cell;
use std::ffi::CStr;
use std::rc::Rc;
use std::time::Duration;

/// The longest time that a device may take for one list of commands. Software cannot hang as a device can, and has to wait
/// for its processors.
pub(crate) const ANSWER_WITHIN: Duration = Duration::from_secs(4);
const SOFTWARE_ANSWER_WITHIN: Duration = Duration::from_secs(60);

/// The loader, and what it found.
pub(crate) struct Vulkan {
    // Dropped last: the functions of the instance are in this library.
    instance: ash::Instance,
    _entry: Entry,
}

impl Vulkan {
    pub(crate) fn load() -> Result<Rc<Self>, GpuError> {
        // SAFETY: the Vulkan loader of the system is loaded as any program that uses Vulkan does; it outlives all that
        // comes from it, since the entry is kept together with the instance.
        let entry = unsafe { Entry::load() }.map_err(|error| {
            GpuError::Absent(format!("there is no Vulkan loader ({error}); install libvulkan1 and a driver"))
        })?;
        let application =
            vk::ApplicationInfo::default().application_name(c"whylate-gpu").api_version(vk::API_VERSION_1_2);
        let info = vk::InstanceCreateInfo::default().application_info(&application);
        // SAFETY: the structures live during the call.
        let instance = unsafe { entry.create_instance(&info, None) }.map_err(|code| match code {
            vk::Result::ERROR_INCOMPATIBLE_DRIVER => GpuError::Absent(
                "there is no Vulkan driver; install one (Debian: mesa-vulkan-drivers)".to_owned(),
            ),
            code => GpuError::failed("starting Vulkan", code),
        })?;
        Ok(Rc::new(Self { instance, _entry: entry }))
    }

    fn physical(&self) -> Result<Vec<vk::PhysicalDevice>, GpuError> {
        // SAFETY: the instance lives.
        check("listing devices", unsafe { self.instance.enumerate_physical_devices() })
    }
}

impl Drop for Vulkan {
    fn drop(&mut self) {
        // SAFETY: every device holds this value, so none is left.
        unsafe { self.instance.destroy_instance(None) };
    }
}

/// A device with one queue.
pub(crate) struct Gpu {
    device: ash::Device,
    queue: vk::Queue,
    pool: vk::CommandPool,
    types: Vec<vk::MemoryType>,
    import: Option<ext::external_memory_host::Device>,
    physical: vk::PhysicalDevice,
    has_budget: bool,
    pub(crate) listed: Listed,
    /// It has not answered: nothing may wait for it.
    is_hung: Cell<bool>,
    vulkan: Rc<Vulkan>,
}

impl Gpu {
    /// The device of that number or with that text in its name; by default the first that is not a processor, or else
    /// the first.
    pub(crate) fn open(named: Option<&str>) -> Result<Rc<Self>, GpuError> {
        let vulkan = Vulkan::load()?;
        let all = list(&vulkan)?;
        let wanted = |listed: &&Listed| match named {
            Some(text) => {
                listed.number.to_string() == text || listed.name.to_lowercase().contains(&text.to_lowercase())
            }
            None => listed.kind != "cpu",
        };
        let found = all.iter().find(wanted).or(all.first().filter(|_| named.is_none()));
        let Some(listed) = found.cloned() else {
            let names: Vec<&str> = all.iter().map(|listed| listed.name.as_str()).collect();
            let text = named.unwrap_or_default();
            return Err(GpuError::Absent(match names.is_empty() {
                true => "Vulkan finds no device".to_owned(),
                false => format!("Vulkan finds no device `{text}`; there is {}", names.join(", ")),
            }));
        };
        Self::with(vulkan, listed)
    }

    fn with(vulkan: Rc<Vulkan>, listed: Listed) -> Result<Rc<Self>, GpuError> {
        let physical = *vulkan
            .physical()?
            .get(listed.number)
            .ok_or_else(|| GpuError::Absent("the device is gone".to_owned()))?;
        let instance = &vulkan.instance;
        // SAFETY: the device is one of this instance.
        let families = unsafe { instance.get_physical_device_queue_family_properties(physical) };
        let both = vk::QueueFlags::GRAPHICS | vk::QueueFlags::COMPUTE;
        let family = families.iter().position(|family| family.queue_flags.contains(both));
        let family = family
            .or(families.iter().position(|family| family.queue_flags.contains(vk::QueueFlags::COMPUTE)));
        let family = family
            .ok_or_else(|| GpuError::Absent(format!("{} has no queue that computes", listed.name)))?
            as u32;
        let has = |name: &CStr| listed.extensions.iter().any(|known| known.as_bytes() == name.to_bytes());
        let (host, budget) = (ext::external_memory_host::NAME, ext::memory_budget::NAME);
        let names: Vec<_> = [host, khr::external_memory::NAME, budget]
            .into_iter()
            .filter(|name| has(name))
            .map(CStr::as_ptr)
            .collect();
        let queues =
            [vk::DeviceQueueCreateInfo::default().queue_family_index(family).queue_priorities(&[1.0])];
        let info =
            vk::DeviceCreateInfo::default().queue_create_infos(&queues).enabled_extension_names(&names);
        // SAFETY: the structures live during the call; the family and the extensions are among those of the device.
        let device = check("opening the device", unsafe { instance.create_device(physical, &info, None) })?;
        let pool = vk::CommandPoolCreateInfo::default().queue_family_index(family);
        // SAFETY: of the family that the device was opened with.
        let (queue, pool) =
            unsafe { (device.get_device_queue(family, 0), device.create_command_pool(&pool, None)) };
        // SAFETY: the device is one of this instance.
        let memory = unsafe { instance.get_physical_device_memory_properties(physical) };
        Ok(Rc::new(Self {
            import: has(host).then(|| ext::external_memory_host::Device::new(instance, &device)),
            has_budget: has(budget),
            queue,
            pool: check("making a pool of commands", pool)?,
            types: memory.memory_types_as_slice().to_vec(),
            physical,
            listed,
            is_hung: Cell::new(false),
            device,
            vulkan,
        }))
    }

    /// The longest time that it may take for one list of commands.
    pub(crate) fn answers_within(&self) -> Duration {
        if self.listed.kind == "cpu" { SOFTWARE_ANSWER_WITHIN } else { ANSWER_WITHIN }
    }

    /// Asks the driver how much memory is in use; without that extension, for the state of the device's memory alone.
    pub(crate) fn query(&self) -> u64 {
        let mut budget = vk::PhysicalDeviceMemoryBudgetPropertiesEXT::default();
        let mut properties = vk::PhysicalDeviceMemoryProperties2::default();
        if self.has_budget {
            properties = properties.push_next(&mut budget);
        }
        // SAFETY: the device is one of this instance; the structures are chained as the extension says and live on.
        unsafe {
            self.vulkan.instance.get_physical_device_memory_properties2(self.physical, &mut properties)
        };
        budget.heap_usage.iter().sum()
    }

    pub(crate) fn query_name(&self) -> &'static str {
        if self.has_budget { "queries of the memory budget" } else { "queries of the memory properties" }
    }
}

impl Drop for Gpu {
    fn drop(&mut self) {
        if self.is_hung.get() {
            return;
        }
        // SAFETY: buffers, programs and commands hold this value, so none is left and nothing runs.
        unsafe {
            self.device.destroy_command_pool(self.pool, None);
            self.device.destroy_device(None);
        }
    }
}
