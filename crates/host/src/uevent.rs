//! The texts of `uevent` files of sysfs: lines `KEY=value`.

/// The value of a key in a text.
pub fn uevent_value<'event>(event: &'event str, key: &str) -> Option<&'event str> {
    let line = event.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='))?;
    Some(line.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_the_whole_word_before_the_sign() {
        let event = "DRIVER_NAME=other\nDRIVER=i915 \n";
        assert_eq!(uevent_value(event, "DRIVER"), Some("i915"));
        assert_eq!(uevent_value(event, "PCI_ID"), None);
    }
}
