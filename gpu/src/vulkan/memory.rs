//! Buffers in a chosen kind of memory.

use super::{Gpu, GpuError, check};
use ash::vk;
use std::rc::Rc;
use whylate_sys::memory::Buffer as HostBuffer;

/// Kinds of memory, as the processor sees them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Device,
    /// Memory of the host, cached, mapped into the device for good.
    Pinned,
    /// Memory of the host, written past its caches.
    WriteCombined,
    /// Pages of this process, lent to the device.
    Imported,
}

impl Kind {
    pub(crate) const ALL: [Self; 4] = [Self::Device, Self::Pinned, Self::WriteCombined, Self::Imported];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Device => "device",
            Self::Pinned => "pinned",
            Self::WriteCombined => "write-combined",
            Self::Imported => "imported",
        }
    }
}

/// The best type of memory of that kind among those of the bits.
pub(super) fn type_of(types: &[vk::MemoryType], kind: Kind, bits: u32) -> Option<u32> {
    use vk::MemoryPropertyFlags as Flags;
    let host = Flags::HOST_VISIBLE | Flags::HOST_COHERENT;
    let find = |with: Flags, without: Flags| {
        let fits = |(index, memory): &(usize, &vk::MemoryType)| {
            let flags = memory.property_flags;
            bits & (1 << index) != 0 && flags.contains(with) && !flags.intersects(without)
        };
        types.iter().enumerate().find(fits).map(|(index, _)| index as u32)
    };
    match kind {
        Kind::Device => find(Flags::DEVICE_LOCAL, host).or_else(|| find(Flags::DEVICE_LOCAL, Flags::empty())),
        Kind::Pinned => find(host | Flags::HOST_CACHED, Flags::empty()),
        Kind::WriteCombined => find(host, Flags::HOST_CACHED),
        Kind::Imported => find(Flags::empty(), Flags::empty()),
    }
}

/// A buffer that programs read and write, and copies use.
pub(crate) struct Buffer {
    pub(super) handle: vk::Buffer,
    pub(crate) bytes: usize,
    memory: vk::DeviceMemory,
    /// The address for this process; null if the host does not see it.
    host: *mut u8,
    _lent: Option<HostBuffer>,
    gpu: Rc<Gpu>,
}

impl Buffer {
    /// A buffer of that many bytes, rounded up to whole pages.
    pub(crate) fn new(gpu: &Rc<Gpu>, bytes: usize, kind: Kind) -> Result<Rc<Self>, GpuError> {
        let bytes = bytes.max(1).next_multiple_of(4096);
        let usage = vk::BufferUsageFlags::STORAGE_BUFFER
            | vk::BufferUsageFlags::TRANSFER_SRC
            | vk::BufferUsageFlags::TRANSFER_DST
            | vk::BufferUsageFlags::VERTEX_BUFFER;
        let mut outside = vk::ExternalMemoryBufferCreateInfo::default()
            .handle_types(vk::ExternalMemoryHandleTypeFlags::HOST_ALLOCATION_EXT);
        let mut info = vk::BufferCreateInfo::default().size(bytes as u64).usage(usage);
        if kind == Kind::Imported {
            info = info.push_next(&mut outside);
        }
        // SAFETY: the structures live during the call.
        let handle = check("making a buffer", unsafe { gpu.device.create_buffer(&info, None) })?;
        let mut buffer = Self {
            handle,
            bytes,
            memory: vk::DeviceMemory::null(),
            host: std::ptr::null_mut(),
            _lent: None,
            gpu: Rc::clone(gpu),
        };
        // SAFETY: the buffer is of this device.
        let needs = unsafe { gpu.device.get_buffer_memory_requirements(handle) };
        match kind {
            Kind::Imported => buffer.lend(needs)?,
            kind => buffer.allocate(kind, needs)?,
        }
        // SAFETY: the memory is of this device, large enough, of a type that the buffer takes, and bound once.
        check("binding memory", unsafe { gpu.device.bind_buffer_memory(handle, buffer.memory, 0) })?;
        Ok(Rc::new(buffer))
    }

    fn allocate(&mut self, kind: Kind, needs: vk::MemoryRequirements) -> Result<(), GpuError> {
        let gpu = &self.gpu;
        let index = type_of(&gpu.types, kind, needs.memory_type_bits).ok_or_else(|| lacks(gpu, kind))?;
        let info = vk::MemoryAllocateInfo::default().allocation_size(needs.size).memory_type_index(index);
        // SAFETY: the structures live during the call.
        self.memory = check(&format!("allocating {} bytes", needs.size), unsafe {
            gpu.device.allocate_memory(&info, None)
        })?;
        if kind != Kind::Device {
            // SAFETY: memory of a type that the host sees, mapped once, as a whole.
            let start =
                unsafe { gpu.device.map_memory(self.memory, 0, vk::WHOLE_SIZE, vk::MemoryMapFlags::empty()) };
            self.host = check("mapping memory", start)?.cast();
        }
        Ok(())
    }

    fn lend(&mut self, needs: vk::MemoryRequirements) -> Result<(), GpuError> {
        let gpu = &self.gpu;
        let import = gpu.import.as_ref().ok_or_else(|| lacks(gpu, Kind::Imported))?;
        let bytes = (needs.size as usize).next_multiple_of(4096);
        let mut pages =
            HostBuffer::allocate(bytes, false, None).map_err(|error| GpuError::Failed(error.to_string()))?;
        let start = pages.as_mut_slice().as_mut_ptr();
        let handle_type = vk::ExternalMemoryHandleTypeFlags::HOST_ALLOCATION_EXT;
        let mut properties = vk::MemoryHostPointerPropertiesEXT::default();
        // SAFETY: the pages are mapped, and stay so until the memory is freed.
        let asked = unsafe {
            (import.fp().get_memory_host_pointer_properties_ext)(
                gpu.device.handle(),
                handle_type,
                start.cast(),
                &mut properties,
            )
        };
        check("lending pages", asked.result())?;
        let bits = needs.memory_type_bits & properties.memory_type_bits;
        let index = type_of(&gpu.types, Kind::Imported, bits).ok_or_else(|| lacks(gpu, Kind::Imported))?;
        let mut lent =
            vk::ImportMemoryHostPointerInfoEXT::default().handle_type(handle_type).host_pointer(start.cast());
        let info = vk::MemoryAllocateInfo::default()
            .allocation_size(bytes as u64)
            .memory_type_index(index)
            .push_next(&mut lent);
        // SAFETY: the pages are mapped, aligned to pages, and outlive the memory: they are kept together with it.
        self.memory = check("lending pages", unsafe { gpu.device.allocate_memory(&info, None) })?;
        self.host = start;
        self._lent = Some(pages);
        Ok(())
    }

    /// Writes bytes from the start on, as far as there is room; nothing if the host does not see the buffer.
    pub(crate) fn write(&self, from: &[u8]) {
        if !self.host.is_null() {
            // SAFETY: both are as long as what is copied, and a buffer is not part of a slice of this program.
            unsafe { self.host.copy_from_nonoverlapping(from.as_ptr(), from.len().min(self.bytes)) };
        }
    }

    /// Reads bytes from the start on; nothing if the host does not see the buffer.
    pub(crate) fn read(&self, to: &mut [u8]) {
        if !self.host.is_null() {
            // SAFETY: as above.
            unsafe { self.host.copy_to_nonoverlapping(to.as_mut_ptr(), to.len().min(self.bytes)) };
        }
    }

    /// The first `count` words.
    pub(crate) fn words(&self, count: usize) -> Vec<u32> {
        let mut bytes = vec![0; 4 * count];
        self.read(&mut bytes);
        bytes.chunks_exact(4).map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]])).collect()
    }
}

fn lacks(gpu: &Gpu, kind: Kind) -> GpuError {
    let names: Vec<&str> = gpu.listed.memory.iter().map(|kind| kind.name()).collect();
    let (name, there) = (&gpu.listed.name, names.join(", "));
    GpuError::Absent(format!("{name} has no {} memory; there is {there}", kind.name()))
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if self.gpu.is_hung.get() {
            // The device may still use the lent pages.
            std::mem::forget(self._lent.take());
            return;
        }
        // SAFETY: commands that use a buffer hold it, and have ended; freeing memory unmaps it.
        unsafe {
            self.gpu.device.destroy_buffer(self.handle, None);
            self.gpu.device.free_memory(self.memory, None);
        }
    }
}
