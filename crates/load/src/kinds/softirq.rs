//! The softirq load: packets on the loopback interface, which are received in softirqs.

use super::events::{Act, Acts, Keys};
use crate::error::LoadError;
use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use whylate_core::plan::SoftirqPlan;

/// Packets sent before they are received.
const BURST: u64 = 8;

struct Packets(UdpSocket);

impl Packets {
    fn new() -> io::Result<Self> {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        socket.connect(socket.local_addr()?)?;
        socket.set_nonblocking(true)?;
        socket.send(&[0; 64])?;
        Ok(Self(socket))
    }
}

impl Act for Packets {
    fn describe(&self) -> String {
        "UDP packets on the loopback interface".to_owned()
    }
    fn turn(&mut self) -> io::Result<u64> {
        let mut packet = [0u8; 64];
        for _ in 0..BURST {
            self.0.send(&packet)?;
        }
        // The next turn takes what the kernel has not delivered yet; what it has dropped was received all the same, by
        // the softirq.
        while self.0.recv(&mut packet).is_ok() {}
        Ok(BURST)
    }
}

impl Acts for SoftirqPlan {
    const NAME: &'static str = "softirq";
    fn unit(&self) -> &'static str {
        "packets_per_s"
    }
    fn keys(&self) -> Keys<'_> {
        Keys { cpus: &self.cpus, victims: None, rate: self.rate.as_pace() }
    }
    fn act(&self, _workers: usize) -> Result<Box<dyn Act>, LoadError> {
        let packets = Packets::new().map_err(|error| {
            LoadError::Unavailable(format!(
                "the softirq load: the loopback interface does not accept packets: {error}"
            ))
        })?;
        Ok(Box::new(packets))
    }
}
