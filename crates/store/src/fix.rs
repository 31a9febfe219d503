//! The steps of a search: `fix.jsonl`, a line for each repeat whose figure counts.

use crate::error::{At, StoreError};
use crate::folder::{Folder, PARSED_MAX};
use crate::reader::Reader;
use whylate_core::result::{FixResult, FixStep};
use whylate_core::{Warning, WarningCode};

pub(crate) const FILE: &str = "fix.jsonl";

/// The steps of the search in a run directory. A line that a killed process left incomplete does not count.
pub fn fix_steps(run: &Folder) -> Result<Vec<FixStep>, StoreError> {
    let text = run.read_up_to(FILE, PARSED_MAX).at("read", &run.path().join(FILE))?.unwrap_or_default();
    Ok(text.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect())
}

/// The result of the search; `None` for an experiment, and, with a warning, for a search whose steps cannot be read.
pub(crate) fn result(reader: &Reader, warnings: &mut Vec<Warning>) -> Option<FixResult> {
    let info = reader.info();
    let registration = info.fix.as_ref()?;
    let answered = fix_steps(reader.folder()).map_err(|error| error.to_string()).and_then(|steps| {
        whylate_stats::search::answer(registration, &steps, info.state).map_err(|error| error.to_string())
    });
    match answered {
        Ok(answer) => {
            Some(FixResult { run: reader.path().display().to_string(), restored: info.restored, ..answer })
        }
        Err(reason) => {
            let text = format!("the record of the search cannot be read: {reason}");
            warnings.push(Warning::new(WarningCode::DamagedManifest, text));
            None
        }
    }
}
