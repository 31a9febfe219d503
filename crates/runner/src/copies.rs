//! The table of copies: from and to memory that any process can have, or that only the helper for graphics processors
//! has.

use std::path::Path;
use whylate_core::result::{BackendFacts, CopyTable};
use whylate_load::{GPU_BACKENDS, gpu_backends, gpu_copies};
use whylate_probe::ProbeError;
use whylate_probe::copy_table::{self, CopyRequest};

/// Every way to get memory of a type, with what it offers here.
pub fn backends(device: Option<&Path>) -> Vec<BackendFacts> {
    let mut all = copy_table::backends(device);
    all.extend(gpu_backends());
    all
}

/// The table, by the process that has the memory of the wanted backend. `progress` gets the share that is done, and
/// says whether to go on.
///
/// # Errors
/// [`ProbeError`] when a type of memory that was asked for is not available, or the CPU cannot be used.
pub fn copy_table(
    request: &CopyRequest,
    progress: &mut dyn FnMut(f64) -> bool,
) -> Result<CopyTable, ProbeError> {
    let is_of_helper = |name: &str| GPU_BACKENDS.iter().any(|(known, _)| *known == name);
    if !request.backend.as_deref().is_some_and(is_of_helper) {
        return copy_table::copy_table(request, progress);
    }
    let text = serde_json::to_string(request).map_err(|error| ProbeError::Failed(error.to_string()))?;
    let table = gpu_copies(&text, progress).map_err(|error| ProbeError::Unavailable(error.to_string()))?;
    Ok(table.unwrap_or_default())
}
