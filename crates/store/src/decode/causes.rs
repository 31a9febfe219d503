//! Columns into causes of spikes, and into interrupts that other CPUs sent.

use super::{Column, Named, ProbeColumns, SpanColumns};
use crate::rows::{IpiRow, RowKey};
use crate::segment::Damage;
use crate::table::{Batch, CAUSES, IPIS};
use parquet::data_type::ByteArray;
use std::sync::Arc;
use whylate_core::CpuId;
use whylate_core::record::{IpiRecord, SpikeCauses};
use whylate_core::result::{Cause, CauseKind};

/// The parts of a text, which may be empty.
fn parts(text: &str, separator: char) -> Vec<String> {
    text.split(separator).filter(|part| !part.is_empty()).map(str::to_owned).collect()
}

/// Contributors of one spike follow each other, the first one with rank 0.
pub(crate) fn causes(batch: &Batch) -> Result<Vec<(Arc<RowKey>, SpikeCauses)>, Damage> {
    let named = Named { table: &CAUSES, batch };
    let mut probe = ProbeColumns::of(&named)?;
    let (at_ns, latency_ns) = (named.ints("at_ns")?, named.ints("latency_ns")?);
    let (rank, lost) = (named.numbers("rank")?, named.ints("lost")?);
    let cause = CauseColumns::of(&named)?;
    let mut spikes: Vec<(Arc<RowKey>, SpikeCauses)> = Vec::new();
    for row in named.rows() {
        let key = probe.key(row)?;
        let (cpu, at_ns) = (probe.cpu(row)?, at_ns.get(row)?);
        let found = cause.get(row)?;
        let is_same = |(known, spike): &(Arc<RowKey>, SpikeCauses)| {
            *known == key && spike.cpu == cpu && spike.at_ns == at_ns
        };
        match spikes.last_mut().filter(|last| is_same(last)) {
            Some((_, spike)) if rank.get(row)? > 0 => spike.causes.push(found),
            _ => {
                let (latency_ns, lost) = (latency_ns.get(row)?, lost.get(row)?);
                let causes = vec![found];
                spikes.push((key, SpikeCauses { cpu, series: None, at_ns, latency_ns, causes, lost }));
            }
        }
    }
    Ok(spikes)
}

/// The columns of one contributor.
struct CauseColumns<'b> {
    kind: Column<'b, ByteArray>,
    actor: Column<'b, Option<ByteArray>>,
    pid: Column<'b, Option<i64>>,
    function: Column<'b, Option<ByteArray>>,
    callers: Column<'b, ByteArray>,
    from_ns: Column<'b, Option<i64>>,
    to_ns: Column<'b, Option<i64>>,
    share: Column<'b, Option<f64>>,
    confidence: Column<'b, Option<f64>>,
    evidence: Column<'b, ByteArray>,
}

impl<'b> CauseColumns<'b> {
    fn of(named: &Named<'b>) -> Result<Self, Damage> {
        Ok(Self {
            kind: named.texts("cause")?,
            actor: named.optional_texts("actor")?,
            pid: named.optionals("pid")?,
            function: named.optional_texts("function")?,
            callers: named.texts("callers")?,
            from_ns: named.optionals("from_ns")?,
            to_ns: named.optionals("to_ns")?,
            share: named.optional_doubles("share")?,
            confidence: named.optional_doubles("confidence")?,
            evidence: named.texts("evidence")?,
        })
    }

    fn get(&self, row: usize) -> Result<Cause, Damage> {
        // A kind of a newer version explains nothing to this one.
        let kind = CauseKind::from_name(self.kind.get(row)?).unwrap_or(CauseKind::Unattributed);
        Ok(Cause {
            actor: self.actor.get(row)?,
            pid: self.pid.small(row)?,
            function: self.function.get(row)?,
            callers: parts(self.callers.get(row)?, ' '),
            from_ns: self.from_ns.get(row)?,
            to_ns: self.to_ns.get(row)?,
            share: self.share.get(row)?,
            confidence: self.confidence.get(row)?,
            evidence: parts(self.evidence.get(row)?, '\n'),
            ..Cause::new(kind)
        })
    }
}

pub(crate) fn ipis(batch: &Batch) -> Result<Vec<IpiRow>, Damage> {
    let named = Named { table: &IPIS, batch };
    let mut probe = ProbeColumns::of(&named)?;
    let span = SpanColumns::of(&named)?;
    let (function, stack) = (named.texts("function")?, named.texts("stack")?);
    let (caller, from_task) = (named.optional_texts("caller")?, named.optional_texts("from_task")?);
    let (from_cpu, count) = (named.optionals("from_cpu")?, named.ints("count")?);
    let ipi = |row| {
        let record = IpiRecord {
            cpu: probe.cpu(row)?,
            function: function.get(row)?.to_owned(),
            caller: caller.get(row)?,
            from_cpu: from_cpu.small(row)?.map(CpuId),
            from_task: from_task.get(row)?,
            stack: parts(stack.get(row)?, ' '),
            count: count.get(row)?,
        };
        Ok(IpiRow { key: probe.key(row)?, span: span.get(row)?, record })
    };
    named.rows().map(ipi).collect()
}
