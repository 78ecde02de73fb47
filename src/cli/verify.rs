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
        let verdict = match proof {
            proof if proof.holds() => "ok",
            proof if proof.violations.is_empty() => "UNSEEN",
            _ => "VIOLATED",
        };
        text.push_str(&format!("{verdict:<9}{}\n", proof.name));
        for table in &proof.cut_short {
            text.push_str(&format!("         not all of {} was seen, for it took too long\n", plain(table)));
        }
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
    } else if report.proofs.iter().all(|proof| proof.violations.is_empty()) {
        "nothing is violated, but not all was seen\n"
    } else {
        "the books are violated: stop the service, keep a copy of the database, restore the last backup beside it and compare\n"
    });
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::verify::Proven;

    #[test]
    fn nothing_is_called_ok_that_was_not_seen() {
        let proof = |violations: &[&str], cut_short: &[&str]| {
            let texts = |all: &[&str]| all.iter().map(ToString::to_string).collect();
            Proven { name: "foreign keys".into(), violations: texts(violations), cut_short: texts(cut_short) }
        };
        for (proof, verdict, end) in [
            (proof(&[], &[]), "ok       foreign keys\n", "the books are whole\n"),
            (
                proof(&[], &["events"]),
                "UNSEEN   foreign keys\n         not all of events was seen, for it took too long\n",
                "nothing is violated, but not all was seen\n",
            ),
            (
                proof(&["row 1"], &["events"]),
                "VIOLATED foreign keys\n",
                "restore the last backup beside it and compare\n",
            ),
        ] {
            let clean = proof.holds();
            let text =
                render(&Report { clean, proofs: vec![proof], audit_rows: 0, audit_head: "00".into(), balances: 0 });
            assert!(text.starts_with(verdict) && text.ends_with(end), "{text}");
        }
    }
}
