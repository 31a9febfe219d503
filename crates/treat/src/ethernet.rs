//! Settings of network interfaces as texts, which a journal keeps.

use crate::change::EthernetSetting;
use std::io;
use whylate_sys::ethtool::{self, Coalescing};

const KEYS: [&str; 6] = ["rx-usecs", "rx-frames", "tx-usecs", "tx-frames", "adaptive-rx", "adaptive-tx"];

pub(crate) fn switch(is_on: bool) -> &'static str {
    if is_on { "on" } else { "off" }
}

/// `rx-usecs 8 rx-frames 0 …`, as ethtool calls them.
fn text(of: Coalescing) -> String {
    let values = [
        of.receive_us,
        of.receive_frames,
        of.send_us,
        of.send_frames,
        u32::from(of.adaptive_receive),
        u32::from(of.adaptive_send),
    ];
    KEYS.iter().zip(values).map(|(key, value)| format!("{key} {value}")).collect::<Vec<_>>().join(" ")
}

fn parse(text: &str) -> Option<Coalescing> {
    let mut words = text.split(' ');
    let mut values = [0; KEYS.len()];
    for (key, value) in KEYS.into_iter().zip(&mut values) {
        if words.next()? != key {
            return None;
        }
        *value = words.next()?.parse().ok()?;
    }
    let [receive_us, receive_frames, send_us, send_frames, receive, send] = values;
    let is_whole = words.next().is_none() && receive <= 1 && send <= 1;
    let (adaptive_receive, adaptive_send) = (receive == 1, send == 1);
    is_whole.then_some(Coalescing {
        receive_us,
        receive_frames,
        send_us,
        send_frames,
        adaptive_receive,
        adaptive_send,
    })
}

/// Whether the setting can have that value.
pub(crate) fn is_value(setting: EthernetSetting, value: &str) -> bool {
    match setting {
        EthernetSetting::Coalescing => parse(value).is_some(),
        EthernetSetting::LinkSleep => ["on", "off"].contains(&value),
    }
}

/// The settings of `interface` with interrupts at most that many microseconds after a packet, whatever the traffic.
pub(crate) fn delayed_by(interface: &str, us: u32) -> io::Result<String> {
    let now = ethtool::coalescing(interface)?;
    // A driver that counts packets takes 1 for "at once"; with 0 and 0 it would never interrupt.
    let frames = |now: u32| if us == 0 { now.min(1) } else { now };
    Ok(text(Coalescing {
        receive_us: if now.receive_us > 0 || us == 0 || now.receive_frames == 0 { us } else { 0 },
        receive_frames: frames(now.receive_frames),
        send_us: if now.send_us > 0 || us == 0 { us } else { 0 },
        send_frames: frames(now.send_frames),
        adaptive_receive: false,
        adaptive_send: false,
    }))
}

pub(crate) fn read(interface: &str, setting: EthernetSetting) -> io::Result<String> {
    match setting {
        EthernetSetting::Coalescing => ethtool::coalescing(interface).map(text),
        EthernetSetting::LinkSleep => ethtool::sleeps(interface).map(|is_on| switch(is_on).to_owned()),
    }
}

pub(crate) fn write(interface: &str, setting: EthernetSetting, value: &str) -> io::Result<()> {
    match setting {
        EthernetSetting::Coalescing => {
            let new = parse(value).ok_or(io::ErrorKind::InvalidInput)?;
            ethtool::set_coalescing(interface, new)
        }
        EthernetSetting::LinkSleep => ethtool::set_sleeps(interface, value == switch(true)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_leads_back() {
        let all =
            Coalescing { receive_us: 8, receive_frames: 64, adaptive_receive: true, ..Coalescing::default() };
        let written = text(all);
        assert_eq!(written, "rx-usecs 8 rx-frames 64 tx-usecs 0 tx-frames 0 adaptive-rx 1 adaptive-tx 0");
        assert_eq!(parse(&written), Some(all));
        for wrong in [
            "",
            "rx-usecs 8",
            &written.replace("rx 1", "rx 2"),
            &format!("{written} x"),
            &written.replace('8', "-8"),
        ] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
        assert!(is_value(EthernetSetting::LinkSleep, "off") && !is_value(EthernetSetting::LinkSleep, "0"));
    }
}
