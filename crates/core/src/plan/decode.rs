//! Which type each kind of treatment is decoded to, and the key that is a word or a section.

use super::document::{Document, PlanError};
use super::trace::{TracePlan, TraceWhen};
use super::treatment::{TreatmentKind, TreatmentPlan};
use toml::Spanned;
use toml::de::DeValue;

impl<'a> Document<'a> {
    /// Decodes `trace = "on-spike"` or the section `[trace]`; `None` for `off`.
    pub(super) fn trace(&self, value: Spanned<DeValue<'a>>) -> Result<Option<TracePlan>, PlanError> {
        let plan: TracePlan = match value.get_ref() {
            DeValue::Table(_) => self.value(value, "trace", &[])?,
            _ => TracePlan { when: self.value(value, "trace", &[])?, ..TracePlan::default() },
        };
        Ok((plan.when != TraceWhen::Off).then_some(plan))
    }

    /// Decodes one `[[treatment]]`.
    pub(super) fn treatment(
        &self,
        value: Spanned<DeValue<'a>>,
        key: &str,
    ) -> Result<TreatmentPlan, PlanError> {
        use TreatmentKind as Kind;
        let (kind, value) = self.take_kind(value, key, &Kind::KINDS)?;
        let (name, value) = self.take_name(value, key)?;
        let taken = &["kind", "name"];
        let kind = match kind.as_str() {
            "shield" => Kind::Shield(self.value(value, key, taken)?),
            "cache-partition" => Kind::CachePartition(self.value(value, key, taken)?),
            "gpu-power" => Kind::GpuPower(self.value(value, key, taken)?),
            "irq-affinity" => Kind::IrqAffinity(self.value(value, key, taken)?),
            "affinity" => Kind::Affinity(self.value(value, key, taken)?),
            "governor" => Kind::Governor(self.value(value, key, taken)?),
            "smt-off" => Kind::SmtOff(self.value(value, key, taken)?),
            "idle" => Kind::Idle(self.value(value, key, taken)?),
            "thp" => Kind::Thp(self.value(value, key, taken)?),
            "ksm" => Kind::Ksm(self.value(value, key, taken)?),
            "numa-balancing" => Kind::NumaBalancing(self.value(value, key, taken)?),
            "watchdog" => Kind::Watchdog(self.value(value, key, taken)?),
            "rt-throttling" => Kind::RtThrottling(self.value(value, key, taken)?),
            "sysfs" => Kind::Sysfs(self.value(value, key, taken)?),
            "sysctl" => Kind::Sysctl(self.value(value, key, taken)?),
            _ => Kind::ModuleParameter(self.value(value, key, taken)?),
        };
        Ok(TreatmentPlan { name, kind })
    }
}
