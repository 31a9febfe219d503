//! Settings of network interfaces' drivers (`SIOCETHTOOL`, linux/ethtool.h): when they interrupt, and whether their
//! links sleep.

use std::ffi::c_char;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

/// `SIOCETHTOOL` of linux/sockios.h.
const REQUEST: u64 = 0x8946;
/// Bytes of a name with its end.
const NAME_BYTES: usize = 16;

/// `ETHTOOL_GCOALESCE`, `ETHTOOL_SCOALESCE`, and the words of `struct ethtool_coalesce`.
const COALESCE: (u32, u32, usize) = (0x0e, 0x0f, 23);
/// `ETHTOOL_GEEE`, `ETHTOOL_SEEE`, and the words of `struct ethtool_eee`.
const ENERGY: (u32, u32, usize) = (0x44, 0x45, 10);
/// Place of `eee_enabled` there.
const ENABLED: usize = 5;
const WORDS_MAX: usize = 23;

/// When an interface interrupts: a part of `struct ethtool_coalesce`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Coalescing {
    /// Longest delay of the interrupt for a received packet, in us.
    pub receive_us: u32,
    /// Packets after which it comes at once; 0 if the driver does not count them.
    pub receive_frames: u32,
    /// The same for packets that were sent.
    pub send_us: u32,
    /// The same for packets that were sent.
    pub send_frames: u32,
    /// Whether the driver changes the delay by the traffic: receiving.
    pub adaptive_receive: bool,
    /// The same, sending.
    pub adaptive_send: bool,
}

/// Places of the fields of [`Coalescing`].
const FIELDS: [usize; 6] = [1, 2, 5, 6, 10, 11];

/// `struct ifreq` with the pointer that `SIOCETHTOOL` takes.
#[repr(C)]
struct Asked {
    name: [c_char; NAME_BYTES],
    words: *mut u32,
    rest: [u8; 16],
}

const _: () = assert!(size_of::<Asked>() == 40, "struct ifreq of 64 bits");

/// Asks the driver of an interface; the first of `words` is the command, of which they are the structure.
fn ask(interface: &str, words: &mut [u32; WORDS_MAX]) -> io::Result<()> {
    if interface.is_empty() || interface.len() >= NAME_BYTES || interface.contains(['/', '\0']) {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    let socket: OwnedFd = std::net::UdpSocket::bind(("127.0.0.1", 0))?.into();
    let mut asked = Asked { name: [0; NAME_BYTES], words: words.as_mut_ptr(), rest: [0; 16] };
    for (place, byte) in asked.name.iter_mut().zip(interface.bytes()) {
        *place = byte as c_char;
    }
    // SAFETY: the kernel reads an `ifreq`, and reads and writes the structure of the command behind its pointer: at most as
    // many words as are there for every command of this file. Both live during the call.
    let answer = unsafe { libc::ioctl(socket.as_raw_fd(), REQUEST as _, &raw mut asked) };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn read((get, _, _): (u32, u32, usize), interface: &str) -> io::Result<[u32; WORDS_MAX]> {
    let mut words = [0; WORDS_MAX];
    words[0] = get;
    ask(interface, &mut words).map(|()| words)
}

fn write(
    (_, set, length): (u32, u32, usize),
    interface: &str,
    mut words: [u32; WORDS_MAX],
) -> io::Result<()> {
    words[0] = set;
    words[length..].fill(0);
    ask(interface, &mut words)
}

/// When an interface interrupts.
///
/// # Errors
/// `EOPNOTSUPP` if its driver does not report it, `ENODEV` if there is no such interface.
pub fn coalescing(interface: &str) -> io::Result<Coalescing> {
    let words = read(COALESCE, interface)?;
    let [receive_us, receive_frames, send_us, send_frames, adaptive_receive, adaptive_send] =
        FIELDS.map(|place| words[place]);
    let (adaptive_receive, adaptive_send) = (adaptive_receive != 0, adaptive_send != 0);
    Ok(Coalescing { receive_us, receive_frames, send_us, send_frames, adaptive_receive, adaptive_send })
}

/// Sets when an interface interrupts; the driver's other values stay.
pub fn set_coalescing(interface: &str, new: Coalescing) -> io::Result<()> {
    let mut words = read(COALESCE, interface)?;
    let values = [
        new.receive_us,
        new.receive_frames,
        new.send_us,
        new.send_frames,
        u32::from(new.adaptive_receive),
        u32::from(new.adaptive_send),
    ];
    for (place, value) in FIELDS.into_iter().zip(values) {
        words[place] = value;
    }
    write(COALESCE, interface, words)
}

/// Whether the link of an interface sleeps between packets (Energy-Efficient Ethernet).
pub fn sleeps(interface: &str) -> io::Result<bool> {
    Ok(read(ENERGY, interface)?[ENABLED] != 0)
}

/// Allows the link of an interface to sleep, or not.
pub fn set_sleeps(interface: &str, sleeps: bool) -> io::Result<()> {
    let mut words = read(ENERGY, interface)?;
    words[ENABLED] = u32::from(sleeps);
    write(ENERGY, interface, words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_no_interface_can_have_are_refused() {
        for name in ["", "a/b", "abcdefghijklmnop"] {
            assert_eq!(coalescing(name).unwrap_err().kind(), io::ErrorKind::InvalidInput, "{name}");
        }
        let missing = sleeps("whylate-none").unwrap_err();
        assert_eq!(missing.raw_os_error(), Some(libc::ENODEV));
        let loopback = coalescing("lo").unwrap_err();
        assert_eq!(loopback.raw_os_error(), Some(libc::EOPNOTSUPP));
    }
}
