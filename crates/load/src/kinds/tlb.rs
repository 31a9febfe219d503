//! The tlb load: mappings are changed, and every CPU that runs the same process flushes its translations.

use super::events::{Act, Acts, Keys};
use crate::error::LoadError;
use std::io;
use whylate_core::plan::TlbPlan;
use whylate_sys::disturb::mapping::ChangingPage;

struct Flushes(ChangingPage);

impl Act for Flushes {
    fn describe(&self) -> String {
        "mprotect and munmap of written pages".to_owned()
    }
    fn turn(&mut self) -> io::Result<u64> {
        self.0.change()?;
        Ok(1)
    }
}

impl Acts for TlbPlan {
    const NAME: &'static str = "tlb";
    fn unit(&self) -> &'static str {
        "flushes_per_s"
    }
    fn keys(&self) -> Keys<'_> {
        Keys { cpus: &self.cpus, victims: Some(&self.victims), rate: self.rate.as_pace() }
    }
    fn act(&self, _workers: usize) -> Result<Box<dyn Act>, LoadError> {
        Ok(Box::new(Flushes(ChangingPage::new().map_err(LoadError::system("mapping pages"))?)))
    }
}
