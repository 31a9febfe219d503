//! The child process of this crate's own tests: what the whylate binary does for its hidden subcommands.

use std::process::ExitCode;
use whylate_host::HostRoot;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    match arguments.next().as_deref().and_then(|name| name.to_str()) {
        Some("internal-load") => {
            whylate_load::child_main(HostRoot::real(), std::io::stdin(), std::io::stdout())
        }
        Some("internal-exec") => whylate_load::exec_main(&HostRoot::real(), arguments),
        _ => ExitCode::from(64),
    }
}
