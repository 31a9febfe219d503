//! How the kernel's files print a value, and when two texts are the same value.
//!
//! Texts read from a file are brought into a normal form, in which values are compared and shown. A text to write is
//! made from the normal form again; to restore a value, the text that was read is written, if the file accepts it.

use serde::{Deserialize, Serialize};
use whylate_core::CpuSet;
use whylate_core::order::InOrder;

/// How a file prints its value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reading {
    /// The whole text, without white space at its ends.
    #[default]
    Whole,
    /// Words, however they are separated: `4096\t131072\t6291456`.
    Words,
    /// One of several words, the one in brackets: `always [madvise] never`. A file that prints only the word is read
    /// like that, too.
    Bracketed,
    /// Yes or no: `Y`, `N`, `1`, `0`; the normal form is `1` or `0`.
    Switch,
    /// A number that the kernel may round to what the hardware can do.
    Rounded,
    /// A CPU list: `1,3-5`.
    CpuList,
    /// A mask in hexadecimal words, separated by commas (`ff,ffffffff`); the normal form is a CPU list.
    CpuMask,
    /// Lines of `RESOURCE:DOMAIN=VALUE;…` of resctrl. A value may name a part of them, and holds if each of its
    /// domains has its value; the kernel may round a share of memory bandwidth up.
    Schemata,
    /// Whether the cpuset controller is among those of `cgroup.subtree_control`: `+cpuset` or `-cpuset`.
    CpusetController,
    /// The same of the controller of CPU time: `+cpu` or `-cpu`.
    CpuController,
    /// A text file on disk: every byte counts, and it may be absent.
    Text,
}

impl Reading {
    /// The normal form of what the file holds. A text in another form than expected is its own normal form.
    pub fn normal(self, text: &str) -> String {
        let trimmed = text.trim_matches(|c: char| c.is_whitespace() || c == '\0');
        match self {
            Self::Text => text.to_owned(),
            Self::Whole | Self::Rounded => trimmed.to_owned(),
            Self::Words => trimmed.split_whitespace().collect::<Vec<_>>().join(" "),
            Self::Bracketed => {
                let inside = trimmed.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
                inside.map_or(trimmed, |(word, _)| word).to_owned()
            }
            Self::Switch => match trimmed {
                "Y" | "y" | "1" | "on" => "1".to_owned(),
                "N" | "n" | "0" | "off" => "0".to_owned(),
                other => other.to_owned(),
            },
            Self::CpuList => trimmed.parse::<CpuSet>().map_or(trimmed.to_owned(), |cpus| cpus.to_string()),
            Self::CpuMask => CpuSet::from_mask(trimmed).map_or(trimmed.to_owned(), |cpus| cpus.to_string()),
            Self::CpusetController => controller(trimmed, "cpuset"),
            Self::CpuController => controller(trimmed, "cpu"),
            Self::Schemata => {
                let mut lines: Vec<String> = trimmed.lines().map(|line| line.trim().to_owned()).collect();
                lines.order();
                lines.join("\n")
            }
        }
    }

    /// The text to write for a value in the normal form.
    pub fn written(self, normal: &str) -> String {
        match self {
            Self::Text => normal.to_owned(),
            Self::CpuMask => {
                let mask = normal.parse::<CpuSet>().map(|cpus| cpus.mask());
                mask.unwrap_or_else(|_| normal.to_owned()) + "\n"
            }
            _ => format!("{normal}\n"),
        }
    }

    /// The text to write so that the file again holds what was read from it.
    pub fn restoring(self, text: &str) -> String {
        match self {
            Self::Bracketed | Self::CpusetController | Self::CpuController => {
                self.written(&self.normal(text))
            }
            _ => text.to_owned(),
        }
    }

    /// Whether `found` (a normal form) is the result of writing `new`.
    pub fn is_reached(self, new: &str, found: &str) -> bool {
        match self {
            Self::Schemata => domains(new).all(|(resource, domain, value)| {
                domains(found).any(|other| {
                    (other.0, other.1) == (resource, domain) && is_same_schema(resource, value, other.2)
                })
            }),
            Self::Rounded => found == new || (found.parse::<u64>().is_ok() && new.parse::<u64>().is_ok()),
            // The normal form of a mask is a list, too.
            Self::CpuMask => Self::CpuList.normal(new) == found,
            _ => self.normal(new) == found,
        }
    }
}

/// `+cpuset` if the list of controllers (which may itself have that form) has it, otherwise `-cpuset`.
fn controller(text: &str, name: &str) -> String {
    let is_on = text.split_whitespace().any(|it| it.strip_prefix('+').unwrap_or(it) == name);
    format!("{}{name}", if is_on { '+' } else { '-' })
}

/// `[resource, domain, value]` of every domain in a schemata text.
fn domains(text: &str) -> impl Iterator<Item = (&str, &str, &str)> {
    text.lines().filter_map(|line| line.split_once(':')).flat_map(|(resource, rest)| {
        let pairs = rest.split(';').filter_map(|pair| pair.split_once('='));
        pairs.map(move |(domain, value)| (resource.trim(), domain.trim(), value.trim()))
    })
}

fn is_same_schema(resource: &str, wanted: &str, found: &str) -> bool {
    if resource.starts_with("MB") {
        // The hardware has bandwidth steps, and the kernel rounds up to the next one.
        matches!((wanted.parse::<u64>(), found.parse::<u64>()), (Ok(wanted), Ok(found)) if found >= wanted)
    } else {
        matches!((u64::from_str_radix(wanted, 16), u64::from_str_radix(found, 16)), (Ok(a), Ok(b)) if a == b)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use whylate_core::CpuId;

    #[test]
    fn the_kernel_prints_values_in_many_ways() {
        let cases = [
            (Reading::Whole, " performance\n", "performance"),
            (Reading::Words, "4096\t131072\t6291456\n", "4096 131072 6291456"),
            (Reading::Bracketed, "always [madvise] never\n", "madvise"),
            (Reading::Bracketed, "madvise\n", "madvise"),
            (Reading::Switch, "Y\n", "1"),
            (Reading::CpuList, "0,1,3\n", "0-1,3"),
            (Reading::CpuList, "\n", ""),
            (Reading::CpuMask, "1,80000001\n", "0,31-32"),
            (Reading::CpuMask, "3\n", "0-1"),
            (Reading::Schemata, "    MB:0=100\n    L3:0=ff;1=f\n", "L3:0=ff;1=f\nMB:0=100"),
            (Reading::CpusetController, "cpuset cpu io\n", "+cpuset"),
            (Reading::CpusetController, "cpu io\n", "-cpuset"),
            (Reading::CpuController, "cpuset io\n", "-cpu"),
            (Reading::CpuController, "+cpu\n", "+cpu"),
            (Reading::Text, " a\n", " a\n"),
        ];
        for (reading, text, normal) in cases {
            assert_eq!(reading.normal(text), normal, "{reading:?}");
        }
        assert_eq!(Reading::Bracketed.restoring("always [madvise] never\n"), "madvise\n");
        assert_eq!(Reading::CpusetController.restoring("cpu io\n"), "-cpuset\n");
        assert_eq!(Reading::CpuMask.written("0,33"), "00000002,00000001\n");
        assert_eq!(Reading::CpuMask.written(""), "00000000\n");
    }

    #[test]
    fn a_part_of_the_schemata_is_reached_when_each_of_its_domains_is() {
        let found = "L3:0=0f0;1=fff\nMB:0=20;1=100";
        assert!(Reading::Schemata.is_reached("L3:0=f0", found));
        assert!(Reading::Schemata.is_reached("MB:0=15", found), "rounded up");
        assert!(!Reading::Schemata.is_reached("L3:0=f", found));
        assert!(!Reading::Schemata.is_reached("L2:0=f0", found));
    }

    proptest! {
        #[test]
        fn masks_read_back(cpus in prop::collection::btree_set(0u32..300, 0..40)) {
            let cpus: CpuSet = cpus.into_iter().map(CpuId).collect();
            let written = Reading::CpuMask.written(&cpus.to_string());
            prop_assert_eq!(Reading::CpuMask.normal(&written), cpus.to_string());
        }

        #[test]
        fn no_text_panics(text in "\\PC{0,30}") {
            for reading in [Reading::Whole, Reading::Words, Reading::Bracketed, Reading::Switch, Reading::Rounded,
                Reading::CpuList, Reading::CpuMask, Reading::Schemata] {
                let normal = reading.normal(&text);
                let _ = reading.written(&normal);
                let _ = reading.is_reached(&text, &normal);
            }
        }
    }
}
