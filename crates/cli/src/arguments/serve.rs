//! Flags of `whylate serve`.

use super::EngineChoice;
use clap::Args;
use std::net::SocketAddr;
use std::path::PathBuf;

/// `whylate serve`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  whylate serve                                  the runs of this user, at http://127.0.0.1:8787
  whylate serve --dir /srv/runs --address 127.0.0.1:9000
  whylate serve --lake s3://latency/farm         the boards of a lake, at /farm
  whylate serve --address 0.0.0.0:8787 --behind-proxy --token-file /etc/whylate/token
                                                 for other machines, through a proxy that does TLS

whylate serve only reads. A run in progress is shown live. /metrics is for Prometheus, /runs.json
for scripts. For a lake, /farm shows all boards, /farm/board/NAME shows one board, and /farm/compare
compares two groups of runs. Answers of the engine (see `farm query`) are cached: an answer older
than ten minutes is shown while a new answer is fetched.")]
pub(crate) struct ServeArguments {
    /// Folder with the runs [default: where `whylate run` stores them; with --lake: none]
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// Reads runs and files of all users, not only those that belong to this user or root
    #[arg(long)]
    pub(crate) any_owner: bool,
    /// Lake (bucket or folder with the runs of many machines) whose boards are shown
    #[arg(long, value_name = "URL")]
    pub(crate) lake: Option<String>,
    /// The engine that answers questions about the lake
    #[arg(long, value_name = "ENGINE", default_value = "duckdb", requires = "lake")]
    pub(crate) engine: EngineChoice,
    /// Address to listen on; port 0 takes a free port
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8787")]
    pub(crate) address: SocketAddr,
    /// File with the token that clients must send [default: $WHYLATE_TOKEN, if it is set]
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// With a token, allows an address other than loopback; only for use behind a proxy with TLS
    #[arg(long)]
    pub(crate) behind_proxy: bool,
}
