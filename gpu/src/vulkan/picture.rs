//! An image that points are drawn into, without a display.

use super::commands::Recorder;
use super::memory::{Kind, type_of};
use super::{Gpu, GpuError, check};
use ash::vk;
use std::rc::Rc;

/// Pixels of a row, and rows.
pub(crate) const SIDE: u32 = 512;
const FORMAT: vk::Format = vk::Format::R8G8B8A8_UNORM;

/// The image, and how it is drawn.
pub(crate) struct Picture {
    image: vk::Image,
    memory: vk::DeviceMemory,
    view: vk::ImageView,
    pass: vk::RenderPass,
    framebuffer: vk::Framebuffer,
    module: vk::ShaderModule,
    layout: vk::PipelineLayout,
    pipeline: vk::Pipeline,
    gpu: Rc<Gpu>,
}

impl Picture {
    pub(crate) fn new(gpu: &Rc<Gpu>, shader: &[u8]) -> Result<Rc<Self>, GpuError> {
        if !gpu.listed.draws {
            return Err(GpuError::Absent(format!("{} does not draw", gpu.listed.name)));
        }
        let mut picture = Self {
            image: vk::Image::null(),
            memory: vk::DeviceMemory::null(),
            view: vk::ImageView::null(),
            pass: vk::RenderPass::null(),
            framebuffer: vk::Framebuffer::null(),
            module: gpu.shader(shader)?,
            layout: vk::PipelineLayout::null(),
            pipeline: vk::Pipeline::null(),
            gpu: Rc::clone(gpu),
        };
        picture.make_image()?;
        picture.make_pass()?;
        picture.make_pipeline()?;
        Ok(Rc::new(picture))
    }

    fn make_image(&mut self) -> Result<(), GpuError> {
        let device = &self.gpu.device;
        let info = vk::ImageCreateInfo::default()
            .image_type(vk::ImageType::TYPE_2D)
            .format(FORMAT)
            .extent(vk::Extent3D { width: SIDE, height: SIDE, depth: 1 })
            .mip_levels(1)
            .array_layers(1)
            .samples(vk::SampleCountFlags::TYPE_1)
            .tiling(vk::ImageTiling::OPTIMAL)
            .usage(vk::ImageUsageFlags::COLOR_ATTACHMENT | vk::ImageUsageFlags::TRANSFER_SRC);
        // SAFETY: the structures live during the calls; the memory is large enough, of a type that the image takes, and
        // bound once.
        unsafe {
            self.image = check("making an image", device.create_image(&info, None))?;
            let needs = device.get_image_memory_requirements(self.image);
            let index = type_of(&self.gpu.types, Kind::Device, needs.memory_type_bits).ok_or_else(|| {
                GpuError::Absent(format!("{} has no memory for images", self.gpu.listed.name))
            })?;
            let info = vk::MemoryAllocateInfo::default().allocation_size(needs.size).memory_type_index(index);
            self.memory = check("allocating an image", device.allocate_memory(&info, None))?;
            check("binding an image", device.bind_image_memory(self.image, self.memory, 0))?;
            let info = vk::ImageViewCreateInfo::default()
                .image(self.image)
                .view_type(vk::ImageViewType::TYPE_2D)
                .format(FORMAT)
                .subresource_range(vk::ImageSubresourceRange {
                    aspect_mask: vk::ImageAspectFlags::COLOR,
                    level_count: 1,
                    layer_count: 1,
                    ..vk::ImageSubresourceRange::default()
                });
            self.view = check("viewing an image", device.create_image_view(&info, None))?;
        }
        Ok(())
    }

    /// Clears the image, draws, and leaves it as copies take it.
    fn make_pass(&mut self) -> Result<(), GpuError> {
        let attachment = [vk::AttachmentDescription::default()
            .format(FORMAT)
            .samples(vk::SampleCountFlags::TYPE_1)
            .load_op(vk::AttachmentLoadOp::CLEAR)
            .store_op(vk::AttachmentStoreOp::STORE)
            .initial_layout(vk::ImageLayout::UNDEFINED)
            .final_layout(vk::ImageLayout::TRANSFER_SRC_OPTIMAL)];
        let color =
            [vk::AttachmentReference { attachment: 0, layout: vk::ImageLayout::COLOR_ATTACHMENT_OPTIMAL }];
        let subpass = [vk::SubpassDescription::default()
            .pipeline_bind_point(vk::PipelineBindPoint::GRAPHICS)
            .color_attachments(&color)];
        let drawn = [vk::SubpassDependency::default()
            .src_subpass(0)
            .dst_subpass(vk::SUBPASS_EXTERNAL)
            .src_stage_mask(vk::PipelineStageFlags::COLOR_ATTACHMENT_OUTPUT)
            .dst_stage_mask(vk::PipelineStageFlags::TRANSFER)
            .src_access_mask(vk::AccessFlags::COLOR_ATTACHMENT_WRITE)
            .dst_access_mask(vk::AccessFlags::TRANSFER_READ)];
        let info = vk::RenderPassCreateInfo::default()
            .attachments(&attachment)
            .subpasses(&subpass)
            .dependencies(&drawn);
        let views = [self.view];
        // SAFETY: the structures live during the calls; the view is of this device and lives as long as the picture.
        unsafe {
            self.pass = check("describing a drawing", self.gpu.device.create_render_pass(&info, None))?;
            let info = vk::FramebufferCreateInfo::default()
                .render_pass(self.pass)
                .attachments(&views)
                .width(SIDE)
                .height(SIDE)
                .layers(1);
            self.framebuffer =
                check("describing a drawing", self.gpu.device.create_framebuffer(&info, None))?;
        }
        Ok(())
    }

    fn make_pipeline(&mut self) -> Result<(), GpuError> {
        let stage = |stage, name| {
            vk::PipelineShaderStageCreateInfo::default().stage(stage).module(self.module).name(name)
        };
        let stages =
            [stage(vk::ShaderStageFlags::VERTEX, c"place"), stage(vk::ShaderStageFlags::FRAGMENT, c"paint")];
        let binding = [vk::VertexInputBindingDescription::default().stride(8)];
        let attribute = [vk::VertexInputAttributeDescription::default().format(vk::Format::R32G32_UINT)];
        let input = vk::PipelineVertexInputStateCreateInfo::default()
            .vertex_binding_descriptions(&binding)
            .vertex_attribute_descriptions(&attribute);
        let points =
            vk::PipelineInputAssemblyStateCreateInfo::default().topology(vk::PrimitiveTopology::POINT_LIST);
        let viewport = [vk::Viewport {
            width: SIDE as f32,
            height: SIDE as f32,
            max_depth: 1.0,
            ..vk::Viewport::default()
        }];
        let scissor = [area()];
        let view = vk::PipelineViewportStateCreateInfo::default().viewports(&viewport).scissors(&scissor);
        let raster = vk::PipelineRasterizationStateCreateInfo::default().line_width(1.0);
        let samples = vk::PipelineMultisampleStateCreateInfo::default()
            .rasterization_samples(vk::SampleCountFlags::TYPE_1);
        let blend =
            [vk::PipelineColorBlendAttachmentState::default()
                .color_write_mask(vk::ColorComponentFlags::RGBA)];
        let blend = vk::PipelineColorBlendStateCreateInfo::default().attachments(&blend);
        // SAFETY: the structures live during the calls; the shaders were made by build.rs from checked text, and have
        // these entries and this input.
        unsafe {
            let layout = vk::PipelineLayoutCreateInfo::default();
            self.layout =
                check("describing a drawing", self.gpu.device.create_pipeline_layout(&layout, None))?;
            let info = [vk::GraphicsPipelineCreateInfo::default()
                .stages(&stages)
                .vertex_input_state(&input)
                .input_assembly_state(&points)
                .viewport_state(&view)
                .rasterization_state(&raster)
                .multisample_state(&samples)
                .color_blend_state(&blend)
                .layout(self.layout)
                .render_pass(self.pass)];
            let made = self.gpu.device.create_graphics_pipelines(vk::PipelineCache::null(), &info, None);
            self.pipeline = check("building a drawing", made.map_err(|(_, code)| code))?[0];
        }
        Ok(())
    }

    /// Draws `count` points at `places`, and copies the image to `to`.
    pub(super) fn record(&self, recorder: &Recorder<'_>, places: vk::Buffer, count: u32, to: vk::Buffer) {
        let (device, buffer) = (&recorder.gpu.device, recorder.buffer);
        let clear = [vk::ClearValue::default()];
        let begin = vk::RenderPassBeginInfo::default()
            .render_pass(self.pass)
            .framebuffer(self.framebuffer)
            .render_area(area())
            .clear_values(&clear);
        let layers = vk::ImageSubresourceLayers {
            aspect_mask: vk::ImageAspectFlags::COLOR,
            layer_count: 1,
            ..vk::ImageSubresourceLayers::default()
        };
        let region = [vk::BufferImageCopy::default().image_subresource(layers).image_extent(vk::Extent3D {
            width: SIDE,
            height: SIDE,
            depth: 1,
        })];
        // SAFETY: the buffer is being recorded; all is of this device and kept by the recorder; both buffers are long
        // enough: the caller made them for this number of points, and for an image of this size.
        unsafe {
            device.cmd_begin_render_pass(buffer, &begin, vk::SubpassContents::INLINE);
            device.cmd_bind_pipeline(buffer, vk::PipelineBindPoint::GRAPHICS, self.pipeline);
            device.cmd_bind_vertex_buffers(buffer, 0, &[places], &[0]);
            device.cmd_draw(buffer, count, 1, 0, 0);
            device.cmd_end_render_pass(buffer);
            let layout = vk::ImageLayout::TRANSFER_SRC_OPTIMAL;
            device.cmd_copy_image_to_buffer(buffer, self.image, layout, to, &region);
        }
    }
}

fn area() -> vk::Rect2D {
    vk::Rect2D { extent: vk::Extent2D { width: SIDE, height: SIDE }, ..vk::Rect2D::default() }
}

impl Drop for Picture {
    fn drop(&mut self) {
        if self.gpu.is_hung.get() {
            return;
        }
        let device = &self.gpu.device;
        // SAFETY: commands that use a picture hold it, and have ended; a null handle is ignored.
        unsafe {
            device.destroy_pipeline(self.pipeline, None);
            device.destroy_pipeline_layout(self.layout, None);
            device.destroy_shader_module(self.module, None);
            device.destroy_framebuffer(self.framebuffer, None);
            device.destroy_render_pass(self.pass, None);
            device.destroy_image_view(self.view, None);
            device.destroy_image(self.image, None);
            device.free_memory(self.memory, None);
        }
    }
}
