//! The incident that this product exists for, replayed: a temporary database, a real server, real signatures, plain
//! HTTP. What is played stands in `demo/script.rs`; here it is played, compared with the books, and told.

mod books;
mod script;
mod server;
mod stage;

use std::collections::BTreeMap;
use std::time::Instant;

use anyhow::Context as _;
use serde::Serialize;

use crate::clock;
use crate::domain::words::counted;
use crate::ops::verify;

use super::output::{Output, Table, amount, plain};
use super::{DONE, NOT_DONE};
use books::{Balance, Books};
use script::Act;
use server::Running;
use stage::{Played, Stage};

/// How many balances stand side by side.
const BALANCES_IN_A_ROW: usize = 3;

#[derive(Debug, Serialize)]
struct Report {
    as_expected: bool,
    address: String,
    acts: Vec<Played>,
    deliveries: usize,
    milliseconds: u128,
    answers: BTreeMap<String, usize>,
    events: usize,
    repeats: i64,
    effects: BTreeMap<String, usize>,
    balances: Vec<Balance>,
    problems: Vec<String>,
    verify: verify::Report,
}

pub(super) fn run(output: &Output) -> anyhow::Result<u8> {
    let report = play(&script::acts(clock::now() / 1000)?)?;
    let status = if report.as_expected { DONE } else { NOT_DONE };
    output.show(&report, render)?;
    Ok(status)
}

fn play(acts: &[Act]) -> anyhow::Result<Report> {
    let folder = tempfile::Builder::new().prefix("billingd-demo-").tempdir().context("there is no temporary folder")?;
    let running = Running::start(folder.path())?;
    let address = running.address().to_string();
    let stage = Stage::new(&running)?;
    let began = Instant::now();
    let played = acts.iter().map(|act| stage.play(act)).collect::<anyhow::Result<Vec<_>>>()?;
    let milliseconds = began.elapsed().as_millis();
    let reader = stage.close();
    // Repeats are counted at leisure: only when the server has ended are all of them in the books.
    running.stop()?;
    let books = reader.read(Books::read)?;
    let verify = reader.read_at_leisure(verify::verify)?;
    let deliveries = acts.iter().map(|act| act.deliveries.len()).sum();
    let problems = problems(&books, deliveries);
    Ok(Report {
        as_expected: problems.is_empty() && verify.clean && played.iter().all(|act| act.problems.is_empty()),
        address,
        deliveries,
        milliseconds,
        answers: all_answers(&played),
        acts: played,
        events: books.events,
        repeats: books.repeats,
        effects: books.effects,
        balances: books.balances,
        problems,
        verify,
    })
}

/// Each delivery is either the first of its event or a counted repeat.
fn problems(books: &Books, deliveries: usize) -> Vec<String> {
    let counted = i64::try_from(books.events).unwrap_or(i64::MAX).saturating_add(books.repeats);
    if i64::try_from(deliveries) == Ok(counted) {
        return Vec::new();
    }
    vec![format!("{deliveries} deliveries were made, {counted} are in the books")]
}

fn all_answers(acts: &[Played]) -> BTreeMap<String, usize> {
    acts.iter().flat_map(|act| &act.answers).fold(BTreeMap::new(), |mut all, (label, count)| {
        *all.entry(label.clone()).or_default() += count;
        all
    })
}

fn render(report: &Report) -> String {
    [
        "billingd demo: Stripe delivers at least once, in any order; each fact has one effect\n".to_owned(),
        format!("a real server on {}, a temporary database, real signatures, no network\n\n", report.address),
        render_acts(&report.acts),
        render_totals(report),
        render_balances(&report.balances),
        render_verdict(report),
    ]
    .concat()
}

fn render_acts(acts: &[Played]) -> String {
    let mut table = Table::new(&["", "WHAT HAPPENS", ">DELIVERIES", "EFFECTS"]);
    for act in acts {
        let verdict = if act.problems.is_empty() { "ok" } else { "!!" };
        table.row(&[&verdict, &act.title, &act.deliveries, &effects(&act.effects)]);
    }
    let problems = acts.iter().flat_map(|act| &act.problems).map(|problem| format!("!!  {}\n", plain(problem)));
    table.render("nothing happens") + &problems.collect::<String>()
}

fn render_totals(report: &Report) -> String {
    let answers: Vec<String> = report.answers.iter().map(|(label, count)| format!("{label} ×{count}")).collect();
    let Report { deliveries, events, milliseconds, repeats, .. } = report;
    let payments = |act: &&Played| act.effects.contains_key("grant");
    let paid: usize = report.acts.iter().filter(payments).map(|act| act.deliveries).sum();
    let grants = report.effects.get("grant").copied().unwrap_or_default();
    format!(
        "\nincident   {paid} deliveries of payments, {grants} grants\n\
         delivered  {deliveries} deliveries of {events} events in {milliseconds} ms\n\
         answered   {}\n\
         \x20          (repeats that arrive together all get the answer of the one that ran)\n\
         effects    {}; {repeats} repeats changed nothing\n",
        plain(&answers.join(", ")),
        effects(&report.effects),
    )
}

/// Such as `18 grants, 1 clawback`.
fn effects(effects: &BTreeMap<String, usize>) -> String {
    let all: Vec<String> = effects.iter().map(|(kind, count)| counted(*count, kind)).collect();
    if all.is_empty() { "none".to_owned() } else { all.join(", ") }
}

/// By columns: the names run down, then on to the right.
fn render_balances(balances: &[Balance]) -> String {
    let mut table = Table::new(&["balances", ">", " ", ">", " ", ">"]);
    let rows = balances.len().div_ceil(BALANCES_IN_A_ROW);
    for row in 0..rows {
        let cell = |column: usize| balances.get(column * rows + row);
        let name = |column| cell(column).map(|balance| balance.name.clone()).unwrap_or_default();
        let sum = |column| cell(column).map(|balance| amount(balance.balance, &balance.unit)).unwrap_or_default();
        table.row(&[&name(0), &sum(0), &name(1), &sum(1), &name(2), &sum(2)]);
    }
    format!("\n{}", table.render("balances   none"))
}

fn render_verdict(report: &Report) -> String {
    let verify = &report.verify;
    let broken: usize = verify.proofs.iter().map(|proof| proof.violations.len()).sum();
    let verified = match broken {
        0 => "the books are whole".to_owned(),
        _ => format!("{broken} VIOLATIONS"),
    };
    let mut text = format!(
        "\nverify     {verified}: {} proofs over {} balances and {} links of the audit chain\n",
        verify.proofs.len(),
        verify.balances,
        verify.audit_rows
    );
    for problem in &report.problems {
        text.push_str(&format!("!!  {}\n", plain(problem)));
    }
    text.push_str(if report.as_expected {
        "\nall as expected, and nothing is left behind; next: billingd init\n"
    } else {
        "\nNOT as expected: please report this output\n"
    });
    text
}
