//! What a load is asked to do: resolved to this machine's CPUs and bytes.

use crate::error::LoadError;
use crate::kinds::{LoadPlace, LoadWork};
use serde::{Deserialize, Serialize};
use whylate_core::plan::{LoadKind, Pace};
use whylate_core::{BytesPerSec, CpuSet, Facts, Nanos};

/// One load.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoadSpec {
    pub work: LoadWork,
    /// Time between two rates.
    pub interval: Nanos,
    /// When it ends by itself; without it, it runs until it is stopped.
    pub duration: Option<Nanos>,
}

impl LoadSpec {
    /// Until stopped, with a rate each second.
    pub fn new(work: LoadWork) -> Self {
        Self { work, interval: Nanos::from_secs(1), duration: None }
    }

    /// A load of a plan on the machine of `facts`, checked; `target` is what a plan calls so.
    ///
    /// # Errors
    /// [`LoadError`] for CPUs or sizes that are not there, and what [`LoadSpec::validate`] finds.
    pub fn resolve(kind: &LoadKind, target: &CpuSet, facts: &Facts) -> Result<Self, LoadError> {
        let spec = Self::new(LoadWork::resolve(kind, &LoadPlace { target, facts })?);
        spec.validate()?;
        Ok(spec)
    }

    /// Errors that can be known before anything is started.
    ///
    /// # Errors
    /// [`LoadError`] naming what is wrong with the CPUs, the working set, the pace, the command or the pattern.
    pub fn validate(&self) -> Result<(), LoadError> {
        if self.interval.0 == 0 {
            return Err(LoadError::Interval);
        }
        self.work.work().validate()
    }
}

/// Refuses a pace that cannot be kept.
pub(crate) fn check_pace(pace: Pace) -> Result<(), LoadError> {
    let possible = match pace {
        Pace::Full => true,
        Pace::Rate(BytesPerSec(rate)) => rate.is_finite() && rate > 0.0,
        Pace::DutyCycle(share) => share > 0.0 && share <= 1.0,
    };
    if possible { Ok(()) } else { Err(LoadError::Pace { pace: pace.to_string() }) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::exec::ExecSpec;
    use crate::kinds::memory::MemorySpec;
    use whylate_core::Bytes;
    use whylate_core::plan::MemoryAccess;
    use whylate_testing::says;

    fn memory() -> MemorySpec {
        MemorySpec {
            cpus: "0".parse().unwrap(),
            access: MemoryAccess::Copy,
            working_set: Bytes(1 << 20),
            huge_pages: false,
            node: None,
            pace: Pace::Full,
        }
    }

    fn exec() -> ExecSpec {
        ExecSpec {
            command: vec!["true".to_owned()],
            cpus: None,
            output: "output.txt".into(),
            rate_pattern: None,
            rate_unit: "per_s".to_owned(),
            restart: false,
            calibrated: None,
            server: None,
        }
    }

    fn message(work: LoadWork) -> String {
        LoadSpec::new(work).validate().unwrap_err().to_string()
    }

    #[test]
    fn wrong_specs_say_what_is_wrong() {
        assert!(LoadSpec::new(LoadWork::Memory(memory())).validate().is_ok());
        let spec = LoadSpec { interval: Nanos(0), ..LoadSpec::new(LoadWork::Memory(memory())) };
        assert!(matches!(spec.validate(), Err(LoadError::Interval)));
        let cpus = CpuSet::default();
        assert!(message(LoadWork::Memory(MemorySpec { cpus, ..memory() })).contains("no CPU"));
        let working_set = Bytes(64);
        let text = message(LoadWork::Memory(MemorySpec { working_set, ..memory() }));
        assert!(says("working-set-b-too", &text));
        for pace in [Pace::DutyCycle(0.0), Pace::DutyCycle(1.5), Pace::Rate(BytesPerSec(-1.0))] {
            assert!(message(LoadWork::Memory(MemorySpec { pace, ..memory() })).contains("is not possible"));
        }
    }

    #[test]
    fn wrong_patterns_and_commands_are_found_before_starting() {
        assert!(LoadSpec::new(LoadWork::Exec(exec())).validate().is_ok());
        let with = |pattern: &str| {
            message(LoadWork::Exec(ExecSpec { rate_pattern: Some(pattern.to_owned()), ..exec() }))
        };
        assert!(says("not-regular-expression", with("rate: ([0-9")));
        assert!(says("has-groups-needs-exactly", with("rate: [0-9]+")));
        assert!(with("(a)(b)").contains("has 2 groups"));
        assert!(message(LoadWork::Exec(ExecSpec { command: vec![], ..exec() })).contains("command is empty"));
    }

    #[test]
    fn requests_survive_the_way_to_the_child() {
        for work in [LoadWork::Memory(memory()), LoadWork::Exec(exec())] {
            let spec = LoadSpec { duration: Some(Nanos::from_secs(2)), ..LoadSpec::new(work) };
            let line = serde_json::to_string(&spec).unwrap();
            assert!(!line.contains('\n'));
            assert_eq!(serde_json::from_str::<LoadSpec>(&line).unwrap(), spec);
        }
    }
}
