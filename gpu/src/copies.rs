//! The table of copies from and to memory that only a graphics driver gives. The request is one line of JSON; the
//! answer is lines of progress, and at last the table.

use crate::cuda::HostAllocated;
use crate::vulkan::{CardMemory, HostVisible};
use serde_json::{Value, json};
use std::io::{self, Write};
use std::process::ExitCode;
use whylate_probe::copy_table::{CopyRequest, backend_facts, copy_table};
use whylate_sys::memory::typed::{self, Backend};

pub(crate) const BACKENDS: &[&dyn Backend] = &[&HostVisible, &HostAllocated, &CardMemory];

/// What each offers, or why it offers nothing.
pub(crate) fn backends() -> Value {
    json!(BACKENDS.iter().map(|backend| backend_facts(*backend, None)).collect::<Vec<_>>())
}

pub(crate) fn execute() -> ExitCode {
    typed::add(BACKENDS);
    let mut line = String::new();
    let request = io::stdin().read_line(&mut line).map_err(|error| error.to_string());
    let request =
        request.and_then(|_| serde_json::from_str::<CopyRequest>(&line).map_err(|error| error.to_string()));
    // A listener that is gone wants no more.
    let say = |value: Value| writeln!(io::stdout(), "{value}").is_ok();
    let table = request.and_then(|request| {
        copy_table(&request, &mut |done| say(json!({ "done": done }))).map_err(|error| error.to_string())
    });
    match table {
        Ok(table) if say(json!({ "table": table })) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            say(json!({ "error": error }));
            ExitCode::FAILURE
        }
    }
}
