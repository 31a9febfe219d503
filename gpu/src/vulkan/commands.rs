//! Programs, and lists of commands that are recorded once and run again and again.

use super::{Buffer, Gpu, GpuError, Picture, check};
use ash::vk;
use std::any::Any;
use std::ffi::CString;
use std::rc::Rc;
use std::time::Instant;

/// A compute program with the two buffers that it works on.
pub(crate) struct Program {
    module: vk::ShaderModule,
    set_layout: vk::DescriptorSetLayout,
    layout: vk::PipelineLayout,
    pipeline: vk::Pipeline,
    pool: vk::DescriptorPool,
    set: vk::DescriptorSet,
    _buffers: [Rc<Buffer>; 2],
    gpu: Rc<Gpu>,
}

impl Program {
    /// The entry point `entry` of a shader.
    pub(crate) fn new(
        gpu: &Rc<Gpu>,
        shader: &[u8],
        entry: &str,
        buffers: [&Rc<Buffer>; 2],
    ) -> Result<Rc<Self>, GpuError> {
        let entry = CString::new(entry).map_err(|error| GpuError::Failed(error.to_string()))?;
        let most = gpu.listed.range_max;
        if let Some(buffer) = buffers.iter().find(|buffer| buffer.bytes as u64 > most) {
            let (name, bytes) = (&gpu.listed.name, buffer.bytes);
            let text = format!(
                "{name} computes on buffers of at most {most} bytes, not {bytes}; choose a smaller size"
            );
            return Err(GpuError::Absent(text));
        }
        let module = gpu.shader(shader)?;
        let mut program = Self {
            module,
            set_layout: vk::DescriptorSetLayout::null(),
            layout: vk::PipelineLayout::null(),
            pipeline: vk::Pipeline::null(),
            pool: vk::DescriptorPool::null(),
            set: vk::DescriptorSet::null(),
            _buffers: buffers.map(Rc::clone),
            gpu: Rc::clone(gpu),
        };
        program.describe(buffers)?;
        let stage = vk::PipelineShaderStageCreateInfo::default()
            .stage(vk::ShaderStageFlags::COMPUTE)
            .module(module)
            .name(&entry);
        let info = [vk::ComputePipelineCreateInfo::default().stage(stage).layout(program.layout)];
        // SAFETY: the shader was made by build.rs from checked text, has this entry and uses this layout.
        let made = unsafe { gpu.device.create_compute_pipelines(vk::PipelineCache::null(), &info, None) };
        program.pipeline = check("building a program", made.map_err(|(_, code)| code))?[0];
        Ok(Rc::new(program))
    }

    fn describe(&mut self, buffers: [&Rc<Buffer>; 2]) -> Result<(), GpuError> {
        let device = &self.gpu.device;
        let kind = vk::DescriptorType::STORAGE_BUFFER;
        let binding = |number| {
            let stages = vk::ShaderStageFlags::COMPUTE;
            vk::DescriptorSetLayoutBinding::default()
                .binding(number)
                .descriptor_type(kind)
                .descriptor_count(1)
                .stage_flags(stages)
        };
        let bindings = [binding(0), binding(1)];
        let info = vk::DescriptorSetLayoutCreateInfo::default().bindings(&bindings);
        let sizes = [vk::DescriptorPoolSize { ty: kind, descriptor_count: 2 }];
        let pool = vk::DescriptorPoolCreateInfo::default().max_sets(1).pool_sizes(&sizes);
        // SAFETY: the structures live during the calls, and what they name is of this device and lives as long as this
        // program does.
        unsafe {
            self.set_layout = check("describing buffers", device.create_descriptor_set_layout(&info, None))?;
            let layouts = [self.set_layout];
            let layout = vk::PipelineLayoutCreateInfo::default().set_layouts(&layouts);
            self.layout = check("describing buffers", device.create_pipeline_layout(&layout, None))?;
            self.pool = check("describing buffers", device.create_descriptor_pool(&pool, None))?;
            let sets =
                vk::DescriptorSetAllocateInfo::default().descriptor_pool(self.pool).set_layouts(&layouts);
            self.set = check("describing buffers", device.allocate_descriptor_sets(&sets))?[0];
            for (number, buffer) in buffers.into_iter().enumerate() {
                let whole =
                    [vk::DescriptorBufferInfo { buffer: buffer.handle, offset: 0, range: vk::WHOLE_SIZE }];
                let write = vk::WriteDescriptorSet::default().dst_set(self.set).dst_binding(number as u32);
                let write = write.descriptor_type(kind).buffer_info(&whole);
                device.update_descriptor_sets(&[write], &[]);
            }
        }
        Ok(())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if self.gpu.is_hung.get() {
            return;
        }
        let device = &self.gpu.device;
        // SAFETY: commands that use a program hold it, and have ended; a null handle is ignored.
        unsafe {
            device.destroy_pipeline(self.pipeline, None);
            device.destroy_descriptor_pool(self.pool, None);
            device.destroy_pipeline_layout(self.layout, None);
            device.destroy_descriptor_set_layout(self.set_layout, None);
            device.destroy_shader_module(self.module, None);
        }
    }
}

impl Gpu {
    pub(super) fn shader(&self, bytes: &[u8]) -> Result<vk::ShaderModule, GpuError> {
        let words: Vec<u32> = bytes
            .chunks_exact(4)
            .map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]]))
            .collect();
        let info = vk::ShaderModuleCreateInfo::default().code(&words);
        // SAFETY: the words are SPIR-V that build.rs made from checked text.
        check("loading a shader", unsafe { self.device.create_shader_module(&info, None) })
    }
}

/// A list of commands, with what it uses.
pub(crate) struct Commands {
    buffer: vk::CommandBuffer,
    fence: vk::Fence,
    spins: bool,
    _used: Vec<Rc<dyn Any>>,
    gpu: Rc<Gpu>,
}

pub(crate) struct Recorder<'r> {
    pub(super) buffer: vk::CommandBuffer,
    pub(super) gpu: &'r Gpu,
    used: Vec<Rc<dyn Any>>,
}

impl Recorder<'_> {
    /// Runs a program in that many groups; later commands see what it wrote.
    pub(crate) fn dispatch(&mut self, program: &Rc<Program>, groups: (u32, u32)) {
        let device = &self.gpu.device;
        // SAFETY: the buffer is being recorded; the program and its set are of this device and kept.
        unsafe {
            device.cmd_bind_pipeline(self.buffer, vk::PipelineBindPoint::COMPUTE, program.pipeline);
            let point = vk::PipelineBindPoint::COMPUTE;
            device.cmd_bind_descriptor_sets(self.buffer, point, program.layout, 0, &[program.set], &[]);
            device.cmd_dispatch(self.buffer, groups.0, groups.1, 1);
        }
        self.used.push(Rc::clone(program) as Rc<dyn Any>);
        self.barrier();
    }

    /// Copies as much as both hold; later commands see it.
    pub(crate) fn copy(&mut self, from: &Rc<Buffer>, to: &Rc<Buffer>) {
        let size = from.bytes.min(to.bytes) as u64;
        let region = [vk::BufferCopy { src_offset: 0, dst_offset: 0, size }];
        // SAFETY: the buffer is being recorded; both are of this device, as long as that, and kept.
        unsafe { self.gpu.device.cmd_copy_buffer(self.buffer, from.handle, to.handle, &region) };
        self.used.extend([Rc::clone(from) as Rc<dyn Any>, Rc::clone(to) as Rc<dyn Any>]);
        self.barrier();
    }

    /// Draws the points of `places` into the picture, and copies it to `to`.
    pub(crate) fn draw(&mut self, picture: &Rc<Picture>, places: &Rc<Buffer>, count: u32, to: &Rc<Buffer>) {
        picture.record(self, places.handle, count, to.handle);
        self.used.push(Rc::clone(picture) as Rc<dyn Any>);
        self.used.extend([Rc::clone(places) as Rc<dyn Any>, Rc::clone(to) as Rc<dyn Any>]);
        self.barrier();
    }

    /// What was written before is seen by all that comes later, the host included.
    fn barrier(&self) {
        let all = vk::AccessFlags::MEMORY_READ | vk::AccessFlags::MEMORY_WRITE;
        let barrier = [vk::MemoryBarrier::default()
            .src_access_mask(all)
            .dst_access_mask(all | vk::AccessFlags::HOST_READ)];
        let (before, after) = (
            vk::PipelineStageFlags::ALL_COMMANDS,
            vk::PipelineStageFlags::ALL_COMMANDS | vk::PipelineStageFlags::HOST,
        );
        let none = vk::DependencyFlags::empty();
        // SAFETY: the buffer is being recorded, outside of a render pass.
        unsafe { self.gpu.device.cmd_pipeline_barrier(self.buffer, before, after, none, &barrier, &[], &[]) };
    }
}

impl Commands {
    /// Records a list; `spins`: whether waiting for its end keeps the processor busy.
    pub(crate) fn record(
        gpu: &Rc<Gpu>,
        spins: bool,
        record: impl FnOnce(&mut Recorder<'_>),
    ) -> Result<Self, GpuError> {
        let device = &gpu.device;
        let info = vk::CommandBufferAllocateInfo::default().command_pool(gpu.pool).command_buffer_count(1);
        // SAFETY: the pool is of this device and used by this thread alone, as everything that holds the device.
        let buffer = check("recording", unsafe { device.allocate_command_buffers(&info) })?[0];
        let mut recorder = Recorder { buffer, gpu, used: Vec::new() };
        // SAFETY: the buffer is new, and its recording is begun and ended once; the structures live during the calls.
        let fence = unsafe {
            check("recording", device.begin_command_buffer(buffer, &vk::CommandBufferBeginInfo::default()))?;
            record(&mut recorder);
            check("recording", device.end_command_buffer(buffer))?;
            check("making a fence", device.create_fence(&vk::FenceCreateInfo::default(), None))?
        };
        Ok(Self { buffer, fence, spins, _used: recorder.used, gpu: Rc::clone(gpu) })
    }

    /// Runs the list and waits for its end.
    pub(crate) fn run(&self) -> Result<(), GpuError> {
        let device = &self.gpu.device;
        let buffers = [self.buffer];
        let submit = [vk::SubmitInfo::default().command_buffers(&buffers)];
        // SAFETY: the list is recorded, what it uses is kept, and the fence is not waited for by another one.
        check("submitting", unsafe { device.queue_submit(self.gpu.queue, &submit, self.fence) })?;
        let ended = if self.spins { self.spin() } else { self.block() };
        if ended == Err(vk::Result::TIMEOUT) {
            self.gpu.is_hung.set(true);
        }
        check("waiting for the device", ended)?;
        // SAFETY: the fence has been signalled, and no thread waits for it.
        check("resetting a fence", unsafe { device.reset_fences(&[self.fence]) })
    }

    fn block(&self) -> Result<(), vk::Result> {
        // SAFETY: the fence is of this device.
        unsafe {
            self.gpu.device.wait_for_fences(&[self.fence], true, self.gpu.answers_within().as_nanos() as u64)
        }
    }

    fn spin(&self) -> Result<(), vk::Result> {
        let begin = Instant::now();
        // SAFETY: the fence is of this device.
        while !unsafe { self.gpu.device.get_fence_status(self.fence) }? {
            if begin.elapsed() > self.gpu.answers_within() {
                return Err(vk::Result::TIMEOUT);
            }
            std::hint::spin_loop();
        }
        Ok(())
    }
}

impl Drop for Commands {
    fn drop(&mut self) {
        if self.gpu.is_hung.get() {
            // The device may still use them.
            std::mem::forget(std::mem::take(&mut self._used));
            return;
        }
        // SAFETY: `run` waits for the end, so neither is in use.
        unsafe {
            self.gpu.device.free_command_buffers(self.gpu.pool, &[self.buffer]);
            self.gpu.device.destroy_fence(self.fence, None);
        }
    }
}
