//! /proc/cpuinfo: maker, model, microcode and feature flags.
//!
//! Taken from the first processor that states them: the kernel offers only features that all CPUs have.

use crate::{HostError, HostRoot};
use whylate_core::cpus::CpuSet;
use whylate_core::units::CpuId;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuInfo {
    pub processors: CpuSet,
    /// x86 `vendor_id`: `GenuineIntel`, `AuthenticAMD`, …
    pub vendor: Option<String>,
    /// x86 `model name`.
    pub model: Option<String>,
    /// x86 `microcode`.
    pub microcode: Option<String>,
    /// x86 `flags` or arm64 `Features`.
    pub flags: Vec<String>,
    /// arm64 `[CPU implementer, CPU part]` of each kind of core, in the order met.
    pub core_kinds: Vec<(String, String)>,
}

impl CpuInfo {
    /// Reads /proc/cpuinfo; the default when it is absent.
    pub fn read(root: &HostRoot) -> Result<Self, HostError> {
        Ok(root.read("/proc/cpuinfo")?.map(|text| Self::parse(&text)).unwrap_or_default())
    }

    /// Parses the text; lines in another form are left out.
    pub fn parse(text: &str) -> Self {
        let mut info = Self::default();
        let mut processors = Vec::new();
        let mut implementer = String::new();
        for line in text.lines() {
            let Some((key, value)) = line.split_once(':') else { continue };
            let value = value.trim();
            match key.trim() {
                "processor" => processors.extend(value.parse().map(CpuId)),
                "vendor_id" => set_once(&mut info.vendor, value),
                "model name" => set_once(&mut info.model, value),
                "microcode" => set_once(&mut info.microcode, value),
                "flags" | "Features" if info.flags.is_empty() => {
                    info.flags = value.split_whitespace().map(str::to_owned).collect();
                }
                "CPU implementer" => value.clone_into(&mut implementer),
                "CPU part" => {
                    let kind = (implementer.clone(), value.to_owned());
                    if !info.core_kinds.contains(&kind) {
                        info.core_kinds.push(kind);
                    }
                }
                _ => {}
            }
        }
        info.processors = processors.into_iter().collect();
        info
    }

    /// Whether the feature is listed, in the kernel's spelling.
    pub fn has_flag(&self, flag: &str) -> bool {
        self.flags.iter().any(|known| known == flag)
    }

    /// The architecture that such a text comes from, as `uname -m` calls it; `None` for those not known here.
    pub fn architecture(&self) -> Option<&'static str> {
        if self.vendor.is_some() && self.has_flag("fpu") {
            Some(if self.has_flag("lm") { "x86_64" } else { "i686" })
        } else if self.core_kinds.is_empty() {
            None
        } else {
            Some(if self.has_flag("asimd") { "aarch64" } else { "armv7l" })
        }
    }
}

fn set_once(field: &mut Option<String>, value: &str) {
    if field.is_none() && !value.is_empty() {
        *field = Some(value.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn arm_core_kinds_are_kept_apart() {
        let text = "processor\t: 0\nFeatures\t: fp asimd\nCPU implementer\t: 0x41\nCPU part\t: 0xd05\n\n\
                    processor\t: 1\nFeatures\t: fp asimd\nCPU implementer\t: 0x41\nCPU part\t: 0xd0b\n\n\
                    processor\t: 2\nFeatures\t: fp asimd\nCPU implementer\t: 0x41\nCPU part\t: 0xd0b\n";
        let info = CpuInfo::parse(text);
        assert_eq!(info.processors.to_string(), "0-2");
        assert_eq!(info.architecture(), Some("aarch64"));
        let parts: Vec<&str> = info.core_kinds.iter().map(|(_, part)| part.as_str()).collect();
        assert_eq!(parts, ["0xd05", "0xd0b"]);
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "((processor|flags|model name|CPU part)?\\s?:?\\PC{0,12}\n){0,8}") {
            let _ = CpuInfo::parse(&text);
        }
    }
}
