//! The acts: flushes, barriers, buffers, packets.

use crate::error::LoadError;
use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use whylate_core::plan::BarrierReach;
use whylate_sys::disturb::barrier::{Barrier, Reach};
use whylate_sys::disturb::buffer::BufferDevice;
use whylate_sys::disturb::mapping::ChangingPage;

/// Packets sent before they are received.
const BURST: u64 = 8;

/// Something that is done again and again by one thread.
pub(super) trait Act {
    /// How it is done, for people.
    fn describe(&self) -> String;
    /// Does it, in well below a millisecond unless the kernel takes longer; how many events that was.
    fn turn(&mut self) -> io::Result<u64>;
}

struct Flushes(ChangingPage);

impl Act for Flushes {
    fn describe(&self) -> String {
        "mprotect and munmap of written pages".to_owned()
    }
    fn turn(&mut self) -> io::Result<u64> {
        self.0.change()?;
        Ok(1)
    }
}

pub(super) fn tlb() -> Result<Box<dyn Act>, LoadError> {
    let page = ChangingPage::new().map_err(LoadError::system("mapping pages"))?;
    Ok(Box::new(Flushes(page)))
}

struct Barriers(Barrier, BarrierReach);

impl Act for Barriers {
    fn describe(&self) -> String {
        match self.1 {
            BarrierReach::Private => "membarrier (private expedited)".to_owned(),
            BarrierReach::Global => "membarrier (global expedited)".to_owned(),
        }
    }
    fn turn(&mut self) -> io::Result<u64> {
        self.0.pass()?;
        Ok(1)
    }
}

pub(super) fn barrier(reach: BarrierReach) -> Result<Box<dyn Act>, LoadError> {
    let wanted = match reach {
        BarrierReach::Private => Reach::Private,
        BarrierReach::Global => Reach::Global,
    };
    let barrier = Barrier::register(wanted).map_err(|error| {
        LoadError::Unavailable(format!("the ipi load: this kernel has no expedited memory barriers: {error}"))
    })?;
    Ok(Box::new(Barriers(barrier, reach)))
}

struct Buffers(BufferDevice);

impl Act for Buffers {
    fn describe(&self) -> String {
        format!("buffers of 1 MiB of {} mapped, written and given back", self.0.path().display())
    }
    fn turn(&mut self) -> io::Result<u64> {
        self.0.cycle()?;
        Ok(1)
    }
}

pub(super) fn buffers() -> Result<Box<dyn Act>, LoadError> {
    Ok(Box::new(Buffers(device()?)))
}

fn device() -> Result<BufferDevice, LoadError> {
    BufferDevice::find().map_err(|error| {
        LoadError::Unavailable(format!(
            "the pageattr load: {error}; load a driver with write-combining buffers (`modprobe vgem`), as root"
        ))
    })
}

/// Whether the machine has what the pageattr load needs.
pub(crate) fn check_pageattr() -> Result<(), LoadError> {
    device().map(drop)
}

struct Packets(UdpSocket);

impl Act for Packets {
    fn describe(&self) -> String {
        "UDP packets on the loopback interface".to_owned()
    }
    fn turn(&mut self) -> io::Result<u64> {
        let mut packet = [0u8; 64];
        for _ in 0..BURST {
            self.0.send(&packet)?;
        }
        // What the kernel has not delivered yet is taken by the next turn; what it has dropped was received all the
        // same, by the softirq.
        while self.0.recv(&mut packet).is_ok() {}
        Ok(BURST)
    }
}

pub(super) fn packets() -> Result<Box<dyn Act>, LoadError> {
    let socket = || -> io::Result<UdpSocket> {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        socket.connect(socket.local_addr()?)?;
        socket.set_nonblocking(true)?;
        socket.send(&[0; 64])?;
        Ok(socket)
    };
    let socket = socket().map_err(|error| {
        LoadError::Unavailable(format!(
            "the softirq load: the loopback interface does not take packets: {error}"
        ))
    })?;
    Ok(Box::new(Packets(socket)))
}
