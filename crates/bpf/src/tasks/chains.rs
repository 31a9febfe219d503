//! The chains of wake-ups that led to activations.

use super::TaskWatch;
use crate::error::BpfError;
use std::collections::BTreeMap;
use whylate_core::CpuId;
use whylate_core::result::WakeLink;
use whylate_explain::activation::{self, Activation, CHAIN_BEFORE_NS, Waker, convoy_from};
use whylate_explain::segments::Recording;

/// Chains of wake-ups that are put together at one look: all CPUs have to be read for them.
const CHAINS_MAX: usize = 16;

/// So many records of each CPU are read for them: where more happens in 100 ms, chains go back less far.
const CHAIN_RECORDS_MAX: u64 = 8_192;

/// The chains of some activations, one after another, and what the CPUs recorded meanwhile.
pub(super) type Chains = (Vec<Vec<WakeLink>>, BTreeMap<CpuId, Recording>);

impl TaskWatch {
    /// The chains of wake-ups of activations, as far as a thread began them, and all that the CPUs recorded then; of the first
    /// ones only, where there are many.
    pub(super) fn wakeups(&self, activations: &[&Activation]) -> Result<Chains, BpfError> {
        let has_chain = |one: &Activation| matches!(one.waker, Waker::Thread(..));
        let begin = |one: &Activation| {
            let chain_ns = has_chain(one).then(|| one.woken_ns.saturating_sub(CHAIN_BEFORE_NS));
            chain_ns.or_else(|| convoy_from(one))
        };
        let wanted = activations.iter().filter_map(|one| Some((*one, begin(one)?)));
        let wanted: Vec<(&Activation, u64)> = wanted.take(CHAINS_MAX).collect();
        let Some(from_ns) = wanted.iter().map(|(_, from_ns)| *from_ns).min() else {
            return Ok((vec![Vec::new(); activations.len()], BTreeMap::new()));
        };
        let read = |cpu| Ok((cpu, self.causes.newest_since(cpu, from_ns, CHAIN_RECORDS_MAX)?));
        let recordings =
            self.cpus.iter().map(read).collect::<Result<BTreeMap<CpuId, Recording>, BpfError>>()?;
        let of = |one: &&Activation| {
            let is_wanted = wanted.iter().any(|(it, _)| has_chain(it) && std::ptr::eq(*it, *one));
            if is_wanted { activation::chain(one, &recordings, &self.surroundings) } else { Vec::new() }
        };
        Ok((activations.iter().map(of).collect(), recordings))
    }
}
