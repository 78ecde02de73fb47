//! A first configuration, with tokens of its own and readable by its owner only.
//!
//! The text is `config::starter`'s; here it gets its random bytes, its file mode and its next steps.

use std::fs::{DirBuilder, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use serde::Serialize;

use crate::config::{StarterTokens, starter};

use super::DONE;
use super::output::{Output, plain};

const FILE_NAME: &str = "billingd.toml";

/// Where the page answers, as the written configuration has it.
const PAGE: &str = "http://127.0.0.1:8788/";

#[derive(Debug, Serialize)]
struct Written {
    config: PathBuf,
    page: &'static str,
    next: Vec<String>,
}

pub(super) fn run(folder: &Path, output: &Output) -> anyhow::Result<u8> {
    let mut random = [0; 96];
    getrandom::fill(&mut random).context("the system gives no random bytes")?;
    let text = starter(&StarterTokens::from_random(&random));
    make_folder(folder)?;
    let path = folder.join(FILE_NAME);
    write_new(&path, &text)?;
    let shown = path.display();
    let next = vec![
        "export STRIPE_WEBHOOK_SECRET=whsec_…".to_owned(),
        format!("billingd --config {shown} check"),
        format!("billingd --config {shown} serve"),
    ];
    output.show(&Written { config: path.clone(), page: PAGE, next }, render)?;
    Ok(DONE)
}

fn make_folder(folder: &Path) -> anyhow::Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    DirBuilder::new()
        .recursive(true)
        .mode(0o750)
        .create(folder)
        .with_context(|| format!("the folder {} cannot be made", folder.display()))
}

/// Never overwrites, and never shows the secrets to others, not even for a moment.
fn write_new(path: &Path, text: &str) -> anyhow::Result<()> {
    let mut file = match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            bail!("{} exists already and is left as it is; move it away, or name another folder", path.display())
        }
        Err(error) => return Err(error).with_context(|| format!("{} cannot be made", path.display())),
    };
    file.write_all(text.as_bytes())
        .and_then(|()| file.sync_all())
        .with_context(|| format!("{} cannot be written", path.display()))
}

fn render(written: &Written) -> String {
    let commands: Vec<String> = written.next.iter().map(|command| format!("     {}", plain(command))).collect();
    format!(
        "wrote {} (mode 0600: it holds three fresh admin tokens)\n\n\
         next:\n\
         \x20 1. before the first start: test mode instead of real money? set `livemode = false` under [stripe];\n\
         \x20    and set `path` under [database] to an absolute one, or always start in the same folder\n\
         \x20 2. at Stripe, point a webhook endpoint at https://YOUR-HOST/webhooks/stripe with the types that\n\
         \x20    `billingd events types` lists; at home:\n\
         \x20    stripe listen --all-snapshot --forward-to 127.0.0.1:8787/webhooks/stripe\n\
         \x20 3. the endpoint's signing secret, or what `stripe listen --print-secret` prints; then start:\n\
         {}\n\
         \x20 4. the page for operators: {}, with the secret of the token \"ops\" in that file\n",
        plain(&written.config.display().to_string()),
        commands.join("\n"),
        written.page,
    )
}
