//! `whylate export`.

use super::report;
use crate::arguments::{ExportArguments, RunForm, TableChoice};
use crate::exit::Ending;
use crate::output;
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::Path;
use whylate_report::export::{self, CsvTable};
use whylate_report::osadl::TreeFile;

pub(super) fn execute(arguments: &ExportArguments) -> Result<Ending> {
    let result = whylate_runner::assemble(&arguments.run)?;
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
    Ok(Ending::Pass)
}

fn table(choice: TableChoice) -> CsvTable {
    match choice {
        TableChoice::Quantiles => CsvTable::Quantiles,
        TableChoice::Histogram => CsvTable::Histogram,
        TableChoice::Timeline => CsvTable::Timeline,
        TableChoice::Spikes => CsvTable::Spikes,
        TableChoice::Rates => CsvTable::Rates,
    }
}

fn write_tree(folder: &Path, files: &[TreeFile]) -> Result<()> {
    if files.is_empty() {
        bail!("the run has no histogram");
    }
    fs::create_dir(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    for file in files {
        let path = folder.join(&file.path);
        let parent = path.parent().unwrap_or(folder);
        fs::create_dir_all(parent).with_context(|| format!("cannot create {}", parent.display()))?;
        output::write_new(&path, &file.text)?;
    }
    output::message(&format!("wrote {} files in {}", files.len(), folder.display()));
    Ok(())
}
