//! Names of the devices of interrupt lines.

/// The devices of a line of /proc/interrupts, without its chip: the words after the last one that says how the line is wired.
pub fn device(description: &str) -> String {
    let wiring = |word: &str| {
        word.ends_with("-edge") || word.ends_with("-fasteoi") || word == "Edge" || word == "Level"
    };
    let words: Vec<&str> = description.split_ascii_whitespace().collect();
    let after = words.iter().rposition(|word| wiring(word)).map_or(0, |last| last + 1);
    words[after..].join(" ")
}

#[cfg(test)]
mod tests {
    use super::device;

    #[test]
    fn a_line_is_named_by_its_devices() {
        assert_eq!(device("IR-PCI-MSI-0000:01:00.0 0-edge nvkm"), "nvkm");
        assert_eq!(device("IO-APIC 2-edge timer"), "timer");
        assert_eq!(device("GICv3 27 Level arch_timer"), "arch_timer");
        assert_eq!(device("virtio0-input.0"), "virtio0-input.0");
    }
}
