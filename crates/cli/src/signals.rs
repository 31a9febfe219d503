//! Ctrl-C and SIGTERM: the first asks for an orderly end, the second ends at once.

use anyhow::{Context, Result};
use signal_hook::consts::{SIGINT, SIGTERM};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Set once the user wants the command to end.
pub(crate) fn watch() -> Result<Arc<AtomicBool>> {
    let asked = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // In this order: the second signal finds the flag set by the first.
        let context = || format!("cannot handle signal {signal}");
        let now = i32::from(crate::exit::ERROR);
        signal_hook::flag::register_conditional_shutdown(signal, now, Arc::clone(&asked))
            .with_context(context)?;
        signal_hook::flag::register(signal, Arc::clone(&asked)).with_context(context)?;
    }
    Ok(asked)
}
