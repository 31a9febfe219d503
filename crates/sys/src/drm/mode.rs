//! What a card shows: which display, and buffers shown in turns.

use super::{Card, DumbBuffer, control, read_write};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;
use std::io::{self, Read};

/// `struct drm_mode_card_res` of include/uapi/drm/drm_mode.h.
#[repr(C)]
#[derive(Default)]
struct Resources {
    framebuffers: u64,
    crtcs: u64,
    connectors: u64,
    encoders: u64,
    framebuffer_count: u32,
    crtc_count: u32,
    connector_count: u32,
    encoder_count: u32,
    limits: [u32; 4],
}
/// `struct drm_mode_modeinfo`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct ModeInfo {
    clock: u32,
    width: u16,
    horizontal: [u16; 4],
    height: u16,
    vertical: [u16; 4],
    refresh_hz: u32,
    flags: u32,
    kind: u32,
    name: [u8; 32],
}
/// `struct drm_mode_crtc`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Crtc {
    connectors: u64,
    connector_count: u32,
    id: u32,
    framebuffer: u32,
    x: u32,
    y: u32,
    gamma_size: u32,
    mode_valid: u32,
    mode: ModeInfo,
}
/// `struct drm_mode_get_encoder`.
#[repr(C)]
#[derive(Default)]
struct Encoder {
    id: u32,
    kind: u32,
    crtc: u32,
    possible_crtcs: u32,
    possible_clones: u32,
}
/// `struct drm_mode_get_connector`.
#[repr(C)]
#[derive(Default)]
struct Connector {
    encoders: u64,
    modes: u64,
    properties: u64,
    property_values: u64,
    mode_count: u32,
    property_count: u32,
    encoder_count: u32,
    encoder: u32,
    id: u32,
    kind: u32,
    kind_id: u32,
    connection: u32,
    size_mm: [u32; 2],
    subpixel: u32,
    padding: u32,
}
/// `struct drm_mode_fb_cmd`.
#[repr(C)]
#[derive(Default)]
struct Framebuffer {
    id: u32,
    width: u32,
    height: u32,
    pitch: u32,
    bits_per_pixel: u32,
    depth: u32,
    handle: u32,
}
/// `struct drm_mode_crtc_page_flip`.
#[repr(C)]
#[derive(Default)]
struct PageFlip {
    crtc: u32,
    framebuffer: u32,
    flags: u32,
    reserved: u32,
    user_data: u64,
}
const _: () = assert!(size_of::<Resources>() == 64 && size_of::<Crtc>() == 104);
const _: () = assert!(size_of::<Encoder>() == 20 && size_of::<Connector>() == 80);
const _: () = assert!(size_of::<Framebuffer>() == 28 && size_of::<PageFlip>() == 24);

const GET_RESOURCES: u64 = read_write::<Resources>(0xa0);
const GET_CRTC: u64 = read_write::<Crtc>(0xa1);
const SET_CRTC: u64 = read_write::<Crtc>(0xa2);
const GET_ENCODER: u64 = read_write::<Encoder>(0xa6);
const GET_CONNECTOR: u64 = read_write::<Connector>(0xa7);
const ADD_FRAMEBUFFER: u64 = read_write::<Framebuffer>(0xae);
const REMOVE_FRAMEBUFFER: u64 = read_write::<u32>(0xaf);
const PAGE_FLIP: u64 = read_write::<PageFlip>(0xb0);
/// `DRM_IOCTL_SET_MASTER`, without an argument.
const SET_MASTER: u64 = (b'd' as u64) << 8 | 0x1e;

/// `DRM_MODE_CONNECTED`.
const CONNECTED: u32 = 1;
/// `DRM_MODE_PAGE_FLIP_EVENT`.
const FLIP_EVENT: u32 = 1;
/// How many displays of a card are tried, and modes of one of them.
const MOST: usize = 32;
const MODES_MOST: usize = 256;
/// A flip takes one frame, a 60th of a second or so.
const FLIP_WITHIN: Timespec = Timespec { tv_sec: 2, tv_nsec: 0 };

/// A display that is connected to a card.
pub struct Display {
    card: Card,
    connector: u32,
    mode: ModeInfo,
    /// Its state when it was found; its framebuffer is 0 if it shows nothing.
    before: Crtc,
}

impl Display {
    /// The first connected display of a card.
    ///
    /// # Errors
    /// When the card has none, or none is connected.
    pub fn find(card: &Card) -> io::Result<Self> {
        let (mut crtcs, mut connectors) = ([0_u32; MOST], [0_u32; MOST]);
        let mut resources = Resources {
            crtcs: crtcs.as_mut_ptr() as u64,
            connectors: connectors.as_mut_ptr() as u64,
            crtc_count: MOST as u32,
            connector_count: MOST as u32,
            ..Resources::default()
        };
        control(&card.file, GET_RESOURCES, &mut resources)?;
        for &id in connectors.iter().take(resources.connector_count as usize) {
            let mut modes = [ModeInfo::default(); MODES_MOST];
            let mut connector = Connector {
                id,
                modes: modes.as_mut_ptr() as u64,
                mode_count: MODES_MOST as u32,
                ..Connector::default()
            };
            control(&card.file, GET_CONNECTOR, &mut connector)?;
            if connector.connection != CONNECTED || modes[0].width == 0 {
                continue;
            }
            let mut encoder = Encoder { id: connector.encoder, ..Encoder::default() };
            let is_driven = control(&card.file, GET_ENCODER, &mut encoder).is_ok() && encoder.crtc != 0;
            let crtc = if is_driven { encoder.crtc } else { crtcs[0] };
            let mut before = Crtc { id: crtc, ..Crtc::default() };
            control(&card.file, GET_CRTC, &mut before)?;
            let mode = if before.mode_valid != 0 { before.mode } else { modes[0] };
            return Ok(Self { card: card.clone(), connector: id, mode, before });
        }
        Err(io::Error::new(io::ErrorKind::NotFound, "no display is connected"))
    }

    pub fn is_in_use(&self) -> bool {
        self.before.mode_valid != 0 && self.before.framebuffer != 0
    }

    /// Shows a black buffer of ours, with a second one to flip to.
    ///
    /// # Errors
    /// When another program draws on the card, or the driver has no memory left.
    pub fn take(self) -> io::Result<Flips> {
        // The first process that opens a card may draw; if that was another one, this is refused.
        if control(&self.card.file, SET_MASTER, &mut ()).is_err() {
            return Err(io::Error::other("another program (an X server, a compositor) uses the display"));
        }
        let (width, height) = (u32::from(self.mode.width), u32::from(self.mode.height));
        let buffers = [self.card.buffer(width, height)?, self.card.buffer(width, height)?];
        let mut flips = Flips { display: self, buffers, framebuffers: [0; 2], shown: 0 };
        for index in 0..2 {
            flips.framebuffers[index] = flips.framebuffer(index, width, height)?;
        }
        flips.display.show(flips.framebuffers[0])?;
        Ok(flips)
    }

    fn show(&self, framebuffer: u32) -> io::Result<()> {
        let mut connector = self.connector;
        let mut crtc = Crtc {
            connectors: std::ptr::from_mut(&mut connector) as u64,
            connector_count: 1,
            framebuffer,
            mode_valid: 1,
            mode: self.mode,
            x: 0,
            y: 0,
            ..self.before
        };
        control(&self.card.file, SET_CRTC, &mut crtc)
    }
}

/// Two buffers that a display shows in turns. When this is dropped, or its process is killed, the display shows again
/// what it did before: the kernel's console, or the former framebuffer.
pub struct Flips {
    display: Display,
    buffers: [DumbBuffer; 2],
    framebuffers: [u32; 2],
    shown: usize,
}

impl Flips {
    fn framebuffer(&self, index: usize, width: u32, height: u32) -> io::Result<u32> {
        let buffer = &self.buffers[index];
        let (pitch, handle) = (buffer.pitch, buffer.handle.number);
        let mut framebuffer = Framebuffer {
            width,
            height,
            pitch,
            bits_per_pixel: 32,
            depth: 24,
            handle,
            ..Framebuffer::default()
        };
        control(&self.display.card.file, ADD_FRAMEBUFFER, &mut framebuffer)?;
        Ok(framebuffer.id)
    }

    /// Pixels of the display: width and height.
    pub fn size(&self) -> (u16, u16) {
        (self.display.mode.width, self.display.mode.height)
    }

    /// Makes the display show the other buffer, and waits until it does.
    ///
    /// # Errors
    /// When the driver does not flip, or no flip is reported within two seconds.
    pub fn flip(&mut self) -> io::Result<()> {
        let next = 1 - self.shown;
        let mut flip = PageFlip {
            crtc: self.display.before.id,
            framebuffer: self.framebuffers[next],
            flags: FLIP_EVENT,
            ..PageFlip::default()
        };
        control(&self.display.card.file, PAGE_FLIP, &mut flip)?;
        self.shown = next;
        let mut file = &*self.display.card.file;
        let mut polled = [PollFd::new(&file, PollFlags::IN)];
        if poll(&mut polled, Some(&FLIP_WITHIN))? == 0 {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "the driver reports no flip within 2 s"));
        }
        // One event or several; which flip it was is known.
        file.read(&mut [0; 1024]).map(drop)
    }
}

impl Drop for Flips {
    fn drop(&mut self) {
        // The kernel shows its console when the card is closed; another framebuffer is shown again here.
        if self.display.is_in_use() {
            let _ = self.display.show(self.display.before.framebuffer);
        }
        for framebuffer in &mut self.framebuffers {
            let _ = control(&self.display.card.file, REMOVE_FRAMEBUFFER, framebuffer);
        }
    }
}
