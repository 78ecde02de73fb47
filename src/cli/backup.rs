//! Backups, and back again.

use std::path::Path;

use crate::app;
use crate::clock;
use crate::config::Config;
use crate::ops::backup::{self, BackedUp};
use crate::ops::restore::{self, Restored};
use crate::stop::Stop;

use super::DONE;
use super::output::{Output, plain, size};

pub(super) fn write(file: &Path, config: &Config, output: &Output) -> anyhow::Result<u8> {
    let written = backup::backup(&config.database.path, file, &Stop::default())?;
    output.show(&written, render_backup)?;
    Ok(DONE)
}

fn render_backup(written: &BackedUp) -> String {
    let path = plain(&written.path.display().to_string());
    format!(
        "{path}: {}, {} events, {} audit rows, head {}\n\
         it is one file, proven to be whole; it holds customers' data\n\
         to restore it: stop the service, then `billingd restore {path}`\n",
        size(written.bytes),
        written.events,
        written.audit_rows,
        written.audit_head
    )
}

pub(super) fn restore(file: &Path, operator: Option<&str>, config: &Config, output: &Output) -> anyhow::Result<u8> {
    let actor = format!("operator:{}", super::operator(operator));
    let restored = restore::restore(file, &config.database.path, &app::binding(config), &actor, clock::now())?;
    output.show(&restored, render_restore)?;
    Ok(DONE)
}

fn render_restore(restored: &Restored) -> String {
    let shown = |path: &Path| plain(&path.display().to_string());
    let kept = restored.kept.as_ref().map_or_else(
        || "there was no database before".to_owned(),
        |kept| format!("the former database is kept: {}", shown(kept)),
    );
    format!(
        "{} is {} now: {} events, {} audit rows, head {}\n\
         the books are whole\n\
         {kept}\n\
         next: start the service, then `billingd reconcile` fetches from Stripe what came after the backup\n",
        shown(&restored.database),
        shown(&restored.from),
        restored.events,
        restored.audit_rows,
        restored.audit_head
    )
}
