//! `whylate export`.

use super::{forms, report};
use crate::arguments::{ExportArguments, RunForm, TableChoice};
use crate::exit::Ending;
use crate::output;
use anyhow::{Context as _, Result, bail};
use std::path::Path;
use whylate_report::export::{self, CsvTable, Exported};
use whylate_report::osadl::TreeFile;
use whylate_store::Folder;
use whylate_trace::parse;

pub(super) fn execute(arguments: &ExportArguments) -> Result<Ending> {
    let result = if arguments.run.is_file() {
        measurement(&arguments.run)?
    } else {
        whylate_runner::assemble(&arguments.run)?.into()
    };
    let text = match arguments.to {
        RunForm::Perfetto => export::perfetto(&result),
        RunForm::Csv => export::csv(&result, table(arguments.table))?,
        RunForm::Hdr => export::hdr(&result)?,
        RunForm::Osadl => {
            let folder = arguments.output.as_deref().context("name a folder with -o")?;
            write_tree(folder, &export::tree(&result))?;
            return Ok(Ending::Pass);
        }
    };
    report::deliver(arguments.output.as_deref(), &text)?;
    if let Some(why) = no_rows(arguments, &text) {
        output::message(&why);
    }
    Ok(Ending::Pass)
}

/// Why a table has only its heading.
fn no_rows(arguments: &ExportArguments, text: &str) -> Option<String> {
    if !matches!(arguments.to, RunForm::Csv) || text.lines().nth(1).is_some() {
        return None;
    }
    let why = match arguments.table {
        TableChoice::Ledger => {
            ": no spike with a cause is above `late_above`, by default half of the plan's limit; \
             a smaller `late_above` counts more spikes"
        }
        _ => "",
    };
    Some(format!("whylate: this table has no rows{why}"))
}

/// A measurement in a file: from `whylate measure --json` or another tool.
fn measurement(file: &Path) -> Result<Exported> {
    if forms::tool(file).is_none() && parse::open(file).is_ok() {
        let file = file.display();
        bail!("{file} is a trace: `whylate explain {file} --export perfetto` (or text) converts it");
    }
    Ok(report::imported(file)?.into())
}

fn table(choice: TableChoice) -> CsvTable {
    match choice {
        TableChoice::Quantiles => CsvTable::Quantiles,
        TableChoice::Histogram => CsvTable::Histogram,
        TableChoice::Timeline => CsvTable::Timeline,
        TableChoice::Spikes => CsvTable::Spikes,
        TableChoice::Rates => CsvTable::Rates,
        TableChoice::Ledger => CsvTable::Ledger,
    }
}

fn write_tree(folder: &Path, files: &[TreeFile]) -> Result<()> {
    if files.is_empty() {
        bail!("the run has no histogram");
    }
    let (above, name) = Folder::above(folder)?;
    above.make_whole(&name, |folder| {
        files.iter().try_for_each(|file| folder.write_new(&file.path, &mut file.text.as_bytes()))
    })?;
    output::message(&format!("wrote {} files in {}", files.len(), folder.display()));
    Ok(())
}
