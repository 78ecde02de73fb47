//! The proof that the books are whole.

use crate::config::Config;
use crate::domain::words::counted;
use crate::ops::verify::{self, Report};

use super::output::{Output, plain};
use super::{DONE, FOUND};

pub(super) fn run(config: &Config, output: &Output) -> anyhow::Result<u8> {
    let report = super::reader(config)?.read_at_leisure(verify::verify)?;
    output.show(&report, render)?;
    Ok(if report.clean { DONE } else { FOUND })
}

fn render(report: &Report) -> String {
    let mut text = String::new();
    for proof in &report.proofs {
        let verdict = if proof.violations.is_empty() { "ok       " } else { "VIOLATED " };
        text.push_str(&format!("{verdict}{}\n", proof.name));
        for violation in &proof.violations {
            text.push_str(&format!("         {}\n", plain(violation)));
        }
    }
    text.push_str(&format!(
        "{}, {}, head {}\n",
        counted(report.balances, "balance"),
        counted(report.audit_rows, "audit row"),
        report.audit_head
    ));
    text.push_str(if report.clean {
        "the books are whole\n"
    } else {
        "the books are violated: stop the service, keep a copy of the database, restore the last backup beside it and compare\n"
    });
    text
}
