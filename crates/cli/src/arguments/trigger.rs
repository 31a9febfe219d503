//! Flags of `whylate trigger`.

use clap::Args;

/// `whylate trigger`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  whylate trigger                       the last 50 ms are explained
  whylate trigger 'xrun of device 2'
  whylate trigger --pid 812 late        if more than one watch waits for triggers

Start the watch with --trigger socket: whylate watch --task audio --trigger socket. Exit code 69 if
no watch of this user waits for triggers.")]
pub(crate) struct TriggerArguments {
    /// Text that the report shows for this trigger
    #[arg(value_name = "TEXT")]
    pub(crate) text: Option<String>,
    /// Process id of `whylate watch`, if several wait for triggers
    #[arg(long, value_name = "PID")]
    pub(crate) pid: Option<u32>,
}
