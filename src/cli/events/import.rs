//! Events from a file.

use std::fs::File;
use std::io::{BufRead, BufReader};

use anyhow::Context as _;
use clap::Args;

use crate::clock;
use crate::config::Config;
use crate::ops::import::{Import, Imported};
use crate::ops::ingest::Errand;
use crate::store::open::CommandConnection;

use super::super::output::{Output, plain};
use super::super::progress::Progress;
use super::super::{DONE, FOUND, beside, errand};

#[derive(Debug, Args)]
pub(in crate::cli) struct ImportArguments {
    /// JSON of one event, a list (`[…]` or `{"data": […]}`), or values one after the other (NDJSON); `-`: standard input
    #[arg(value_name = "FILE")]
    file: String,
    /// Who does this, for the audit log (default: the login name)
    #[arg(long = "as", value_name = "NAME")]
    operator: Option<String>,
}

pub(super) fn run(arguments: &ImportArguments, config: &Config, output: &Output) -> anyhow::Result<u8> {
    let name = &arguments.file;
    let (input, size): (Box<dyn BufRead>, _) = if name == "-" {
        (Box::new(std::io::stdin().lock()), None)
    } else {
        let file = File::open(name).with_context(|| format!("{name} cannot be read; nothing is imported"))?;
        let size = file.metadata().ok().map(|metadata| metadata.len());
        (Box::new(BufReader::new(file)), size)
    };
    let errand = errand(config, arguments.operator.as_deref())?;
    let mut connection = beside(config)?;
    let mut import = Import::new(input, &errand.rules().metadata_key);
    let ran = run_all(&mut import, &mut connection, &errand, Progress::new("bytes", size));
    let imported = import.imported();
    // What is stored is stored, whatever came after it.
    if ran.is_ok() || imported.read > 0 {
        output.show(imported, render)?;
    }
    ran.with_context(|| format!("{name} is not imported to its end; importing it again is safe"))?;
    Ok(if imported.failed + imported.unreadable > 0 { FOUND } else { DONE })
}

fn run_all(
    import: &mut Import<Box<dyn BufRead>>,
    connection: &mut CommandConnection,
    errand: &Errand,
    mut progress: Progress,
) -> anyhow::Result<()> {
    loop {
        let now = clock::now();
        let Some(batch) = import.next_batch(now).context("it cannot be read on")? else { break };
        import.run(connection, errand, batch, now)?;
        progress.at(import.bytes());
    }
    errand.run_woken(connection, clock::now())?;
    Ok(())
}

fn render(imported: &Imported) -> String {
    let mut text = format!(
        "{} read: {} new, {} duplicate, {} pending, {} failed, {} ignored, {} unreadable\n",
        imported.read,
        imported.new,
        imported.duplicate,
        imported.pending,
        imported.failed,
        imported.ignored,
        imported.unreadable
    );
    for one in &imported.problems {
        text.push_str(&format!("  entry {} (line {}): {}\n", one.entry, one.line, plain(&one.problem)));
    }
    if imported.failed > 0 {
        text.push_str("`billingd events list --status failed` tells what failed and why\n");
    }
    if imported.pending > 0 {
        text.push_str("`billingd events list --status pending` tells what waits, and for what\n");
    }
    if imported.unreadable > 0 {
        text.push_str(
            "what is unreadable was left out; correct the file and import it again: repeats change nothing\n",
        );
    }
    text
}
