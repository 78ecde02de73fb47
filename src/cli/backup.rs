//! Backups, and back again.

use std::path::Path;

use crate::app;
use crate::clock;
use crate::config::Config;
use crate::domain::words::counted;
use crate::ops::backup::{self, BackedUp};
use crate::ops::restore::{self, Restored};
use crate::stop::Stop;
use crate::store::open;

use super::DONE;
use super::output::{Output, plain, size};

pub(super) fn write(file: &Path, config: &Config, output: &Output) -> anyhow::Result<u8> {
    anyhow::ensure!(!file.is_dir(), "{} is a folder; name a file in it", file.display());
    let written = backup::backup(&config.database.path, file, &Stop::default())?;
    let (path, now) = (std::path::absolute(file)?, clock::now());
    // Who may only read the database has a good backup all the same.
    let remembered = open::beside(&config.database.path, &app::binding(config))
        .and_then(|mut connection| backup::remember(&mut connection, &path, now));
    if let Err(error) = remembered {
        output.say(&format!("`billingd doctor` will not know of this backup: {error}\n"))?;
    }
    output.show(&written, render_backup)?;
    Ok(DONE)
}

fn render_backup(written: &BackedUp) -> String {
    let path = plain(&written.path.display().to_string());
    format!(
        "{path}: {}, {}, {}, head {}\n\
         it is one file, proven to be whole; it holds customers' data\n\
         to restore it: stop the service, then `billingd restore {path}`\n",
        size(written.bytes),
        counted(written.events, "event"),
        counted(written.audit_rows, "audit row"),
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
        "{} is {} now: {}, {}, head {}\n\
         the books are whole\n\
         {kept}\n\
         next: start the service, then `billingd reconcile` fetches from Stripe what came after the backup\n",
        shown(&restored.database),
        shown(&restored.from),
        counted(restored.events, "event"),
        counted(restored.audit_rows, "audit row"),
        restored.audit_head
    )
}
