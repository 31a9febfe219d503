//! Sets of CPUs, in the kernel's list syntax and by name.

use crate::units::{CpuId, as_text};
use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

/// The largest CPU number that is accepted: the kernel's own limit (`CONFIG_NR_CPUS`) is 8192.
const CPU_MAX: u32 = 8191;

/// A text that is not a CPU list, or a list that this machine cannot serve.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CpuError {
    /// Not in the kernel's syntax.
    #[error(
        "`{text}` is not a CPU list; write for example `1,3-5`, or `all`, `isolated`, `housekeeping`, `last`"
    )]
    Syntax { text: String },
    /// A range whose end comes before its start.
    #[error("`{text}`: the range `{range}` ends before it starts")]
    Backwards { text: String, range: String },
    /// A number above the kernel's own limit.
    #[error("`{text}`: CPU {cpu} is above {CPU_MAX}, the most that Linux supports")]
    TooLarge { text: String, cpu: u64 },
    /// The machine has no such CPU.
    #[error("CPU {cpu} does not exist; this machine has {present}")]
    Absent { cpu: CpuId, present: CpuSet },
    /// The CPU is there but switched off.
    #[error(
        "CPU {cpu} is offline; bring it up with `echo 1 > /sys/devices/system/cpu/cpu{cpu}/online`, or choose from {online}"
    )]
    Offline { cpu: CpuId, online: CpuSet },
    /// The cpuset of this process does not hold the CPU.
    #[error(
        "CPU {cpu} is not allowed for this process (cpuset or affinity); allowed are {allowed}. If a shield holds the CPU (`whylate cpus` shows it), wait until the shield is removed; otherwise run outside the container, or widen its cpuset"
    )]
    NotAllowed { cpu: CpuId, allowed: CpuSet },
    /// The name has no meaning here.
    #[error("`{name}` is empty on this machine: {reason}")]
    Empty { name: String, reason: &'static str },
}

#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct CpuSet(BTreeSet<CpuId>);

impl CpuSet {
    /// The set of one CPU.
    pub fn single(cpu: CpuId) -> Self {
        Self(BTreeSet::from([cpu]))
    }
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = CpuId> + '_ {
        self.0.iter().copied()
    }
    /// Whether `cpu` is a member.
    pub fn contains(&self, cpu: CpuId) -> bool {
        self.0.contains(&cpu)
    }
    pub fn len(&self) -> usize {
        self.0.len()
    }
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
    /// The largest number; `None` when empty.
    pub fn last(&self) -> Option<CpuId> {
        self.0.last().copied()
    }
    /// The smallest number; `None` when empty.
    pub fn first(&self) -> Option<CpuId> {
        self.0.first().copied()
    }
    /// Members of `self` that are not in `other`.
    pub fn difference(&self, other: &Self) -> Self {
        Self(self.0.difference(&other.0).copied().collect())
    }
    pub fn intersection(&self, other: &Self) -> Self {
        Self(self.0.intersection(&other.0).copied().collect())
    }
    pub fn union(&self, other: &Self) -> Self {
        Self(self.0.union(&other.0).copied().collect())
    }
}

impl FromIterator<CpuId> for CpuSet {
    fn from_iter<I: IntoIterator<Item = CpuId>>(cpus: I) -> Self {
        Self(cpus.into_iter().collect())
    }
}

impl fmt::Display for CpuSet {
    /// The kernel's syntax: `1,3-5`; an empty set is the empty text.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut members = self.0.iter().map(|cpu| cpu.0).peekable();
        let mut separator = "";
        while let Some(first) = members.next() {
            let mut last = first;
            while members.next_if_eq(&(last + 1)).is_some() {
                last += 1;
            }
            match last - first {
                0 => write!(f, "{separator}{first}")?,
                _ => write!(f, "{separator}{first}-{last}")?,
            }
            separator = ",";
        }
        Ok(())
    }
}

impl fmt::Debug for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CpuSet({self})")
    }
}

impl FromStr for CpuSet {
    type Err = CpuError;
    /// The kernel's list syntax (`Documentation/admin-guide/kernel-parameters.rst`, "cpu lists"), strides
    /// (`0-31:2/4`) included; white space and a trailing newline are ignored, the empty text is the empty set.
    fn from_str(text: &str) -> Result<Self, CpuError> {
        let text = text.trim();
        let mut cpus = BTreeSet::new();
        if text.is_empty() {
            return Ok(Self(cpus));
        }
        for part in text.split(',') {
            add_range(&mut cpus, text, part.trim())?;
        }
        Ok(Self(cpus))
    }
}

fn add_range(cpus: &mut BTreeSet<CpuId>, text: &str, part: &str) -> Result<(), CpuError> {
    let number = |digits: &str| -> Result<u32, CpuError> {
        let value: u64 = match digits.parse() {
            Ok(value) if digits.starts_with(|c: char| c.is_ascii_digit()) => value,
            _ => return Err(CpuError::Syntax { text: text.to_owned() }),
        };
        match u32::try_from(value) {
            Ok(cpu) if cpu <= CPU_MAX => Ok(cpu),
            _ => Err(CpuError::TooLarge { text: text.to_owned(), cpu: value }),
        }
    };
    let (range, stride) = part.split_once(':').map_or((part, None), |(range, stride)| (range, Some(stride)));
    let (first, last) = match range.split_once('-') {
        Some((first, last)) => (number(first)?, number(last)?),
        None => (number(range)?, number(range)?),
    };
    if last < first {
        return Err(CpuError::Backwards { text: text.to_owned(), range: part.to_owned() });
    }
    let (used, group) = match stride {
        None => (1, 1),
        Some(stride) => match stride.split_once('/') {
            Some((used, group)) => (number(used)?, number(group)?),
            None => return Err(CpuError::Syntax { text: text.to_owned() }),
        },
    };
    if group == 0 || used > group {
        return Err(CpuError::Syntax { text: text.to_owned() });
    }
    cpus.extend((first..=last).filter(|cpu| (cpu - first) % group < used).map(CpuId));
    Ok(())
}

as_text!(CpuSet, "1,3-5", "A CPU list in the kernel's syntax");

/// The CPUs that an experiment may name: those that exist, that are online, that are isolated, and that this process
/// may use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuContext {
    /// Every CPU the machine has.
    pub present: CpuSet,
    pub online: CpuSet,
    /// Those set apart at boot or by a cpuset partition.
    pub isolated: CpuSet,
    /// Those that the cpuset and affinity of this process allow.
    pub allowed: CpuSet,
}

impl CpuContext {
    /// Online CPUs that are not isolated: where the rest of the system runs.
    pub fn housekeeping(&self) -> CpuSet {
        self.online.difference(&self.isolated)
    }

    /// CPUs that can be used here and now.
    pub fn usable(&self) -> CpuSet {
        self.online.intersection(&self.allowed)
    }
}

/// CPUs by list or by name, before it is known which machine they are on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CpuSelector {
    List(CpuSet),
    /// Every usable CPU.
    All,
    Isolated,
    /// All but the isolated ones.
    Housekeeping,
    /// The usable CPU with the highest number: the one that the rest of the system uses least.
    Last,
    /// The plan's target CPUs (loads and treatments only).
    Target,
    /// Every usable CPU that is not a target (loads and treatments only).
    Others,
}

impl CpuSelector {
    /// The default of keys that name target CPUs.
    pub(crate) fn target() -> Self {
        Self::Target
    }

    /// The default of keys that name all other CPUs.
    pub(crate) fn others() -> Self {
        Self::Others
    }

    /// Turns names into CPUs and checks that each can be used.
    ///
    /// `target` is what `target` and `others` mean; `None` if they mean nothing.
    ///
    /// # Errors
    /// [`CpuError`] naming the first CPU that is absent, offline or not allowed, or the name that is empty here.
    pub fn resolve(&self, context: &CpuContext, target: Option<&CpuSet>) -> Result<CpuSet, CpuError> {
        let empty = |reason| CpuError::Empty { name: self.to_string(), reason };
        let cpus = match self {
            Self::List(list) => list.clone(),
            Self::All => context.usable(),
            Self::Isolated => context.isolated.clone(),
            Self::Housekeeping => context.housekeeping().intersection(&context.allowed),
            Self::Last => context.usable().last().map(CpuSet::single).unwrap_or_default(),
            Self::Target => target.cloned().ok_or(empty("there are no target CPUs here"))?,
            Self::Others => {
                let target = target.ok_or(empty("there are no target CPUs here"))?;
                context.usable().difference(target)
            }
        };
        if cpus.is_empty() {
            return Err(empty(match self {
                Self::Isolated => "boot with `isolcpus=` or make an isolated cpuset, or name CPUs",
                Self::Others => "every usable CPU is a target; name fewer targets",
                _ => "name at least one CPU",
            }));
        }
        for cpu in cpus.iter() {
            if !context.present.contains(cpu) {
                return Err(CpuError::Absent { cpu, present: context.present.clone() });
            }
            if !context.online.contains(cpu) {
                return Err(CpuError::Offline { cpu, online: context.online.clone() });
            }
            if !context.allowed.contains(cpu) {
                return Err(CpuError::NotAllowed { cpu, allowed: context.allowed.clone() });
            }
        }
        Ok(cpus)
    }
}

impl FromStr for CpuSelector {
    type Err = CpuError;
    fn from_str(text: &str) -> Result<Self, CpuError> {
        Ok(match text.trim() {
            "all" => Self::All,
            "isolated" => Self::Isolated,
            "housekeeping" => Self::Housekeeping,
            "last" => Self::Last,
            "target" => Self::Target,
            "others" => Self::Others,
            "" => return Err(CpuError::Syntax { text: text.to_owned() }),
            list => Self::List(list.parse()?),
        })
    }
}

impl fmt::Display for CpuSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::List(list) => list.fmt(f),
            Self::All => f.write_str("all"),
            Self::Isolated => f.write_str("isolated"),
            Self::Housekeeping => f.write_str("housekeeping"),
            Self::Last => f.write_str("last"),
            Self::Target => f.write_str("target"),
            Self::Others => f.write_str("others"),
        }
    }
}

as_text!(
    CpuSelector,
    "1,3-5",
    "CPUs: a list in the kernel's syntax, or all, isolated, housekeeping, last; for loads also target and others"
);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn set(text: &str) -> CpuSet {
        text.parse().unwrap()
    }

    fn context() -> CpuContext {
        CpuContext { present: set("0-7"), online: set("0-5"), isolated: set("4-5"), allowed: set("0-4") }
    }

    #[test]
    fn lists_in_kernel_syntax() {
        assert_eq!(set("1,3-5").iter().map(|cpu| cpu.0).collect::<Vec<_>>(), [1, 3, 4, 5]);
        assert_eq!(set("0-15:2/8").to_string(), "0-1,8-9");
        assert_eq!(set(" 0-1\n").to_string(), "0-1");
        assert!(set("").is_empty());
    }

    #[test]
    fn wrong_lists_are_one_clear_line() {
        for text in ["1,", "a", "1-", "-3", "1--2", "0-3:2", "0-3:3/2", "+1"] {
            assert!(matches!(text.parse::<CpuSet>(), Err(CpuError::Syntax { .. })), "{text}");
        }
        assert!(matches!("5-3".parse::<CpuSet>(), Err(CpuError::Backwards { .. })));
        assert!(matches!("0-99999999".parse::<CpuSet>(), Err(CpuError::TooLarge { .. })));
    }

    #[test]
    fn names_resolve_against_the_machine() {
        let resolve = |text: &str| text.parse::<CpuSelector>().unwrap().resolve(&context(), Some(&set("1")));
        assert_eq!(resolve("all"), Ok(set("0-4")));
        assert_eq!(resolve("last"), Ok(set("4")));
        assert_eq!(resolve("housekeeping"), Ok(set("0-3")));
        assert_eq!(resolve("target"), Ok(set("1")));
        assert_eq!(resolve("others"), Ok(set("0,2-4")));
        assert!(matches!(resolve("isolated"), Err(CpuError::NotAllowed { cpu: CpuId(5), .. })));
        assert!(matches!(resolve("6"), Err(CpuError::Offline { cpu: CpuId(6), .. })));
        assert!(matches!(resolve("9"), Err(CpuError::Absent { cpu: CpuId(9), .. })));
    }

    #[test]
    fn isolated_without_isolation_says_what_to_do() {
        let plain = CpuContext { isolated: CpuSet::default(), ..context() };
        let error = CpuSelector::Isolated.resolve(&plain, None).unwrap_err().to_string();
        assert!(error.contains("isolcpus="), "{error}");
    }

    proptest! {
        #[test]
        fn printed_lists_read_back(cpus in prop::collection::btree_set(0u32..300, 0..40)) {
            let cpus: CpuSet = cpus.into_iter().map(CpuId).collect();
            prop_assert_eq!(cpus.to_string().parse::<CpuSet>().unwrap(), cpus);
        }

        #[test]
        fn no_text_panics(text in "\\PC*") {
            let _ = text.parse::<CpuSelector>();
        }
    }
}
