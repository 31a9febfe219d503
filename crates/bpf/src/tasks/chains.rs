//! The chains of wake-ups that led to activations.

use super::TaskWatch;
use crate::error::BpfError;
use std::collections::BTreeMap;
use whylate_core::CpuId;
use whylate_core::result::WakeLink;
use whylate_explain::activation::{self, Activation, CHAIN_BEFORE_NS, Waker};
use whylate_explain::segments::Recording;

/// Chains of wake-ups that are put together at one look: all CPUs have to be read for them.
const CHAINS_MAX: usize = 16;

/// So many records of each CPU are read for them: where more happens in 100 ms, chains go back less far.
const CHAIN_RECORDS_MAX: u64 = 8_192;

impl TaskWatch {
    /// The chains of wake-ups of activations, as far as a thread began them; the first ones only, where there are many.
    pub(super) fn wakeups(&self, activations: &[&Activation]) -> Result<Vec<Vec<WakeLink>>, BpfError> {
        let has_chain = |one: &&&Activation| matches!(one.waker, Waker::Thread(..));
        let wanted: Vec<&Activation> =
            activations.iter().filter(has_chain).take(CHAINS_MAX).copied().collect();
        let Some(first_ns) = wanted.iter().map(|one| one.woken_ns).min() else {
            return Ok(vec![Vec::new(); activations.len()]);
        };
        let from_ns = first_ns.saturating_sub(CHAIN_BEFORE_NS);
        let read = |cpu| Ok((cpu, self.causes.newest_since(cpu, from_ns, CHAIN_RECORDS_MAX)?));
        let recordings =
            self.cpus.iter().map(read).collect::<Result<BTreeMap<CpuId, Recording>, BpfError>>()?;
        let of = |one: &&Activation| match wanted.iter().any(|it| std::ptr::eq(*it, *one)) {
            true => activation::chain(one, &recordings, &self.surroundings),
            false => Vec::new(),
        };
        Ok(activations.iter().map(of).collect())
    }
}
