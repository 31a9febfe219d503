//! Flags of `whylate copy`.

use super::report::ReportFormat;
use clap::Args;
use std::path::PathBuf;
use whylate_core::plan::Size;
use whylate_core::{Bytes, CopyMethod, CpuSelector, Frame, MemoryMode};

/// `whylate copy`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  whylate copy                                  every method, every memory type of this machine
  whylate copy --frame 1920x1080:nv12@60        also the time to copy a video frame
  whylate copy --backends                       available memory types, and why others are not
  whylate copy --from wc --method movntdqa      only copies out of write-combining memory
  whylate copy --backend pci --device /sys/bus/pci/devices/0000:03:00.0/resource2_wc
  whylate copy -o copy.html                     also draws the rate by block size

Memory is wb (cached), wt (stores go to memory), wc (write-combining), uc- or uc (uncached). A
driver may map memory as cached although another type was requested. So whylate first times each
type other than wb; the rows name the type that the timing shows. whylate writes only to memory that
no other program uses, unless you name a --device.")]
pub(crate) struct CopyArguments {
    /// CPU that copies
    #[arg(short = 'a', long, alias = "cpus", value_name = "CPU", default_value = "last")]
    pub(crate) cpu: CpuSelector,
    /// Measures only copies from this type of memory
    #[arg(long, value_name = "TYPE")]
    pub(crate) from: Option<MemoryMode>,
    /// Measures only copies to this type of memory
    #[arg(long, value_name = "TYPE")]
    pub(crate) to: Option<MemoryMode>,
    /// Copy methods to measure [default: all that the CPU supports]
    #[arg(long, alias = "methods", value_name = "LIST", value_delimiter = ',')]
    pub(crate) method: Vec<CopyMethod>,
    /// Measures only memory of this backend; see --backends
    #[arg(long, value_name = "NAME")]
    pub(crate) backend: Option<String>,
    /// Device of the backend: a file, or /dev/mem@ADDRESS
    #[arg(long, value_name = "PATH", requires = "backend")]
    pub(crate) device: Option<PathBuf>,
    /// Sizes of the copied blocks [default: 256 B to 16 KiB, 64 KiB, 1 MiB, 3110400 B]
    #[arg(long, alias = "blocks", value_name = "LIST", value_delimiter = ',')]
    pub(crate) block: Vec<Size>,
    /// Video frames to copy: WIDTHxHEIGHT:FORMAT@RATE
    #[arg(long, value_name = "FRAME")]
    pub(crate) frame: Option<Frame>,
    /// Trials for each method and block
    #[arg(long, value_name = "N", default_value_t = 15, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) trials: u32,
    /// Lists the backends that provide each memory type, and copies nothing
    #[arg(long)]
    pub(crate) backends: bool,
    /// terminal, markdown or html [default: by the extension of the --output file, else terminal]
    #[arg(long, hide_possible_values = true)]
    pub(crate) format: Option<ReportFormat>,
    /// File for the report; must not exist [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Prints one JSON document
    #[arg(long, conflicts_with = "format")]
    pub(crate) json: bool,
    /// Shows no progress
    #[arg(short, long)]
    pub(crate) quiet: bool,
}

/// The largest block: each type of memory needs twice this size.
pub(crate) const BLOCK_MAX: Bytes = Bytes(1 << 30);
