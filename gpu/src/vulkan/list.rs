//! The devices that Vulkan finds, in words.

use super::memory::{Kind, type_of};
use super::{GpuError, Vulkan, check};
use ash::vk;
use std::ffi::CStr;

#[derive(Clone, Debug)]
pub(crate) struct Listed {
    pub(crate) number: usize,
    pub(crate) name: String,
    /// `discrete`, `integrated`, `virtual`, `cpu`, `other`.
    pub(crate) kind: &'static str,
    pub(crate) driver: String,
    /// Bytes of its own memory.
    pub(crate) memory_bytes: u64,
    /// The kinds of memory that it has, and whether it can be drawn with.
    pub(crate) memory: Vec<Kind>,
    pub(crate) draws: bool,
    /// The most bytes of a buffer that a program works on.
    pub(super) range_max: u64,
    pub(super) extensions: Vec<String>,
}

/// All of them.
pub(crate) fn list(vulkan: &Vulkan) -> Result<Vec<Listed>, GpuError> {
    vulkan
        .physical()?
        .into_iter()
        .enumerate()
        .map(|(number, device)| describe(vulkan, number, device))
        .collect()
}

fn describe(vulkan: &Vulkan, number: usize, device: vk::PhysicalDevice) -> Result<Listed, GpuError> {
    let instance = &vulkan.instance;
    let mut driver = vk::PhysicalDeviceDriverProperties::default();
    let mut properties = vk::PhysicalDeviceProperties2::default().push_next(&mut driver);
    // SAFETY: the device is one of this instance; the structures are chained as Vulkan 1.2 says and live on.
    let (memory, families, extensions) = unsafe {
        instance.get_physical_device_properties2(device, &mut properties);
        (
            instance.get_physical_device_memory_properties(device),
            instance.get_physical_device_queue_family_properties(device),
            instance.enumerate_device_extension_properties(device),
        )
    };
    let properties = properties.properties;
    let text =
        |words: Result<&CStr, _>| words.map(|words| words.to_string_lossy().into_owned()).unwrap_or_default();
    let extensions = check("listing extensions", extensions)?;
    let extensions: Vec<String> =
        extensions.iter().map(|extension| text(extension.extension_name_as_c_str())).collect();
    let has_import = extensions.iter().any(|name| name == "VK_EXT_external_memory_host");
    let types = memory.memory_types_as_slice();
    let is_there = |kind: &Kind| match kind {
        Kind::Imported => has_import,
        kind => type_of(types, *kind, u32::MAX).is_some(),
    };
    let local = memory.memory_heaps_as_slice().iter();
    let local = local.filter(|heap| heap.flags.contains(vk::MemoryHeapFlags::DEVICE_LOCAL));
    Ok(Listed {
        number,
        name: text(properties.device_name_as_c_str()),
        kind: match properties.device_type {
            vk::PhysicalDeviceType::DISCRETE_GPU => "discrete",
            vk::PhysicalDeviceType::INTEGRATED_GPU => "integrated",
            vk::PhysicalDeviceType::VIRTUAL_GPU => "virtual",
            vk::PhysicalDeviceType::CPU => "cpu",
            _ => "other",
        },
        driver: format!("{} {}", text(driver.driver_name_as_c_str()), text(driver.driver_info_as_c_str())),
        memory_bytes: local.map(|heap| heap.size).sum(),
        memory: Kind::ALL.into_iter().filter(is_there).collect(),
        draws: families.iter().any(|family| family.queue_flags.contains(vk::QueueFlags::GRAPHICS)),
        range_max: u64::from(properties.limits.max_storage_buffer_range),
        extensions,
    })
}
