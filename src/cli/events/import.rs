//! Events from a file.

use std::fs::File;
use std::io::{BufRead, BufReader};

use anyhow::Context as _;
use clap::Args;

use crate::clock;
use crate::config::Config;
use crate::ops::import::{Import, Imported};

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
    let mut progress = Progress::new("bytes", size);
    loop {
        let now = clock::now();
        let Some(batch) = import.next_batch(now).with_context(|| {
            let read = import.imported().read;
            format!("{name} cannot be read on; the {read} entries before are done; importing it again is safe")
        })?
        else {
            break;
        };
        import.run(&mut connection, &errand, batch, now)?;
        progress.at(import.bytes());
    }
    errand.run_woken(&mut connection, clock::now())?;
    drop(progress);
    let imported = import.imported();
    output.show(imported, render)?;
    Ok(if imported.failed + imported.unreadable > 0 { FOUND } else { DONE })
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
