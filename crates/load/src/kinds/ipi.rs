//! The ipi load: memory barriers, for which the kernel interrupts other CPUs.

use super::events::{Act, Acts, Keys};
use crate::error::LoadError;
use std::io;
use whylate_core::plan::{BarrierReach, IpiPlan};
use whylate_sys::disturb::barrier::{Barrier, Reach};

struct Barriers(Barrier, BarrierReach);

impl Act for Barriers {
    fn describe(&self) -> String {
        match self.1 {
            BarrierReach::Private => "membarrier (private expedited)".to_owned(),
            BarrierReach::Global => "membarrier (global expedited)".to_owned(),
        }
    }
    fn turn(&mut self) -> io::Result<u64> {
        self.0.pass()?;
        Ok(1)
    }
}

impl Acts for IpiPlan {
    const NAME: &'static str = "ipi";
    fn unit(&self) -> &'static str {
        "barriers_per_s"
    }
    fn keys(&self) -> Keys<'_> {
        Keys { cpus: &self.cpus, victims: Some(&self.victims), rate: self.rate.as_pace() }
    }
    fn act(&self, _workers: usize) -> Result<Box<dyn Act>, LoadError> {
        let reach = match self.reach {
            BarrierReach::Private => Reach::Private,
            BarrierReach::Global => Reach::Global,
        };
        let barrier = Barrier::register(reach).map_err(|error| {
            LoadError::Unavailable(format!(
                "the ipi load: this kernel has no expedited membarrier(2): {error}"
            ))
        })?;
        Ok(Box::new(Barriers(barrier, self.reach)))
    }
}
