//! The copy load: frames copied from one type of memory to another, at a pace.

use super::events::{Act, Acts, Events, Keys};
use super::gpu::{helper_of, is_helper};
use super::{LoadPlace, Work};
use crate::child::LoadContext;
use crate::error::LoadError;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::PathBuf;
use whylate_copy::{Copier, Method};
use whylate_core::plan::CopyPlan;
use whylate_core::{Bytes, CpuSet, Warning, WarningCode};
use whylate_sys::memory::typed::{self, TypedMemory};

/// The copy load on this machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CopySpec(Events<Frames>);

/// A plan with its sizes in bytes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Frames {
    plan: CopyPlan,
    frame: usize,
    /// Size of each buffer: whole frames.
    buffer: usize,
}

impl CopySpec {
    pub(crate) fn resolve(plan: &CopyPlan, place: &LoadPlace<'_>) -> Result<Self, LoadError> {
        let cpus = place.cpus("cpus", &plan.cpus)?;
        let facts = cpus.first().and_then(|cpu| place.facts.cpu(cpu));
        let facts = facts.ok_or(LoadError::NoCpus)?;
        let frame = plan.frame.resolve(facts)?.0 as usize;
        let both = plan.working_set.map(|size| size.resolve(facts)).transpose()?;
        let frames = both.map_or(1, |both| (both.0 as usize / 2 / frame).max(1));
        let plan = Frames { plan: plan.clone(), frame, buffer: frame * frames };
        Ok(Self(Events { cpus, victims: None, plan }))
    }
}

impl Work for CopySpec {
    fn unit(&self) -> &str {
        self.0.unit()
    }
    fn cpus(&self) -> Option<&CpuSet> {
        self.0.cpus()
    }
    fn working_set(&self) -> Option<Bytes> {
        Some(Bytes(2 * self.0.plan.buffer as u64))
    }
    fn validate(&self) -> Result<(), LoadError> {
        self.0.validate()
    }
    fn program(&self) -> Result<Option<PathBuf>, LoadError> {
        self.0.program()
    }
    fn run(&self, context: &mut LoadContext) -> Result<(), LoadError> {
        self.0.run(context)
    }
}

impl Frames {
    fn copier(&self) -> Result<Copier, LoadError> {
        let name = self.plan.method.name();
        let method = Method::from_name(name).ok_or_else(|| LoadError::Unavailable(name.to_owned()))?;
        Copier::new(method).map_err(|error| LoadError::Unavailable(format!("the copy load: {error}")))
    }

    fn memory(&self, bytes: usize) -> Result<(TypedMemory, TypedMemory), LoadError> {
        let plan = &self.plan;
        let open = |mode| {
            let memory = typed::open(mode, plan.backend.as_deref(), plan.device.as_deref(), bytes);
            memory.map_err(|reason| LoadError::Unavailable(format!("the copy load: {reason}")))
        };
        Ok((open(plan.from)?, open(plan.to)?))
    }
}

impl Acts for Frames {
    const NAME: &'static str = "copy";
    fn unit(&self) -> &'static str {
        "bytes_per_s"
    }
    fn keys(&self) -> Keys<'_> {
        Keys { cpus: &self.plan.cpus, victims: None, rate: self.plan.rate }
    }
    fn act(&self, _workers: usize) -> Result<Box<dyn Act>, LoadError> {
        let (mut from, mut to) = self.memory(self.buffer)?;
        // Pages of zeros may be one page for all.
        from.as_mut_slice().iter_mut().step_by(64).for_each(|byte| *byte = 1);
        to.as_mut_slice().fill(0);
        Ok(Box::new(Copying { copier: self.copier()?, from, to, frame: self.frame, at: 0 }))
    }
    fn check(&self) -> Result<(), LoadError> {
        self.copier()?;
        // Only the helper can say what its memory lacks.
        match self.program()? {
            Some(_) if !is_helper() => Ok(()),
            _ => self.memory(4096).map(drop),
        }
    }
    fn program(&self) -> Result<Option<PathBuf>, LoadError> {
        helper_of(self.plan.backend.as_deref())
    }
}

/// The work of one thread.
struct Copying {
    copier: Copier,
    from: TypedMemory,
    to: TypedMemory,
    frame: usize,
    at: usize,
}

impl Act for Copying {
    fn describe(&self) -> String {
        let (from, to) = (self.from.describe(), self.to.describe());
        format!(
            "frames of {} copied by {} from {from} to {to}",
            Bytes(self.frame as u64),
            self.copier.method()
        )
    }
    fn warnings(&self) -> Vec<Warning> {
        let unproven = [&self.from, &self.to].into_iter().filter(|memory| !memory.is_proven());
        let text = |memory: &TypedMemory| format!("the copy load uses {}", memory.describe());
        unproven.map(|memory| Warning::new(WarningCode::MemoryModeNotEffective, text(memory))).collect()
    }
    fn turn(&mut self) -> io::Result<u64> {
        let range = self.at..self.at + self.frame;
        self.copier.copy(&self.from.as_slice()[range.clone()], &mut self.to.as_mut_slice()[range]);
        self.at += self.frame;
        if self.at + self.frame > self.to.as_slice().len() {
            self.at = 0;
        }
        Ok(self.frame as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use whylate_core::plan::{Pace, Size};

    fn frames(frame: usize, buffer: usize) -> Frames {
        let plan =
            CopyPlan { frame: Size::Absolute(Bytes(frame as u64)), rate: Pace::Full, ..CopyPlan::default() };
        Frames { plan, frame, buffer }
    }

    #[test]
    fn frames_go_around_in_the_buffers_and_arrive() {
        let spec = frames(10_000, 30_000);
        let (mut from, to) = spec.memory(spec.buffer).unwrap();
        from.as_mut_slice().iter_mut().zip(0u32..).for_each(|(byte, index)| *byte = (index % 251) as u8);
        let mut copying = Copying { copier: spec.copier().unwrap(), from, to, frame: 10_000, at: 0 };
        for turn in 1..=4 {
            assert_eq!(copying.turn().unwrap(), 10_000);
            assert_eq!(copying.at, turn % 3 * 10_000);
        }
        assert!(copying.from.as_slice() == copying.to.as_slice());
        assert!(copying.describe().contains("memcpy"), "{}", copying.describe());
    }

    #[test]
    fn a_missing_method_or_memory_is_reported_before_anything_starts() {
        let mut spec = frames(4096, 4096);
        assert!(spec.check().is_ok());
        spec.plan.backend = Some("nothing".to_owned());
        spec.plan.to = whylate_core::MemoryMode::WriteCombining;
        let error = spec.check().unwrap_err();
        assert!(matches!(&error, LoadError::Unavailable(text) if text.contains("memtype")), "{error}");
    }
}
