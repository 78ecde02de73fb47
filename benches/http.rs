//! How fast billingd is over HTTP, as ratios measured side by side: `cargo bench --bench http` (`-- --quick`).
//!
//! Distinct signed `invoice.paid` of 3 KB are sent by `wrk` over 64 connections of loopback. The variants take turns
//! in short rounds, each round with another order, so that what else the machine does hits all of them; a ratio is
//! made within one round, and the median and the range of the rounds are told. Every answer is checked, and at the
//! end the books are: each 200 is a row, and `verify` finds nothing.
//!
//! | variant | what it does |
//! |---|---|
//! | billingd | all: one durable transaction for what is waiting |
//! | bare | the same HTTP server with the same settings: reads the body and verifies the signature, stores nothing |
//! | one by one | billingd, but one event per commit |
//! | duplicates | billingd, sent the same events again |
//! | no key, hangs, 429 | billingd while some hundred events wait for an API that is not there, hangs, or refuses all |
//! | reconciling | billingd while it compares its books with Stripe, one run after the other |
//!
//! `-- --api` measures the last two lines alone. A server stands still while another one is measured.
//!
//! Needs `wrk` and `cc` (Debian: `apt-get install wrk gcc libc6-dev`), and 3 GB of disk below `target/` meanwhile.

#![allow(clippy::expect_used, clippy::float_arithmetic, reason = "a benchmark that cannot go on shall stop")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use billingd::ops::verify;
use billingd::store::reader::Reader;
use billingd::stripe::signature;

#[path = "support/account.rs"]
mod account;
#[path = "support/api.rs"]
mod api;
#[path = "support/load.rs"]
mod load;
#[path = "support/prefill.rs"]
mod prefill;
#[path = "support/server.rs"]
mod server;
mod support;

use account::Account;
use api::{Api, Does};
use load::{Requests, Seen};
use prefill::prefill;
use server::{Role, Server};
use support::Events;

const CONNECTIONS: u32 = 64;

/// More events than the fastest server takes in a second; they must not run out.
const EVENTS_PER_SECOND_MAX: u64 = 60_000;

/// How many events wait for an API that fails.
const WAITING: usize = 300;

/// A run begins in the second after the one before has ended.
const RECONCILING: &str = "[tiers]\norder = [\"basic\"]\n[[price]]\nid = \"price_basic\"\ntier = \"basic\"\n\
                           [jobs]\nreconcile = \"* * * * * *\"\n";

/// What is read off a run.
type Figure = fn(&Seen) -> f64;

/// How much is measured.
struct Effort {
    rounds: usize,
    seconds: u64,
    prefilled: u64,
}

fn main() {
    if server::play_role() {
        return;
    }
    if !load::is_there() {
        println!("This benchmark needs wrk, the load tool. On Debian and Ubuntu: apt-get install wrk");
        return;
    }
    let quick = std::env::args().any(|argument| argument == "--quick");
    let effort = if quick {
        Effort { rounds: 3, seconds: 1, prefilled: 100_000 }
    } else {
        Effort { rounds: 7, seconds: 2, prefilled: 1_000_000 }
    };
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let bench = Bench { folder: folder.path().to_owned(), effort };
    let began = Instant::now();
    println!(
        "wrk, 1 thread, {CONNECTIONS} connections, 3 KB events; median (range) of {} rounds\n",
        bench.effort.rounds
    );
    if std::env::args().any(|argument| argument == "--api") {
        bench.asking();
        return;
    }
    bench.main_figures();
    bench.asking();
    bench.mixed_load();
    bench.many_accounts();
    bench.slow_flushes();
    bench.many_events();
    bench.footprint();
    println!("\ntook {} s", began.elapsed().as_secs());
}

struct Bench {
    folder: PathBuf,
    effort: Effort,
}

/// A server under test, and what was seen of it in each round.
struct Variant {
    name: &'static str,
    server: Server,
    /// Gets the events of the variant before it again.
    repeats: bool,
    seen: Vec<Seen>,
}

impl Bench {
    fn main_figures(&self) {
        let books = self.folder("main");
        let mut variants = vec![
            variant("billingd", Server::start(Role::Books, &books, None)),
            variant("bare", Server::start(Role::Bare, &self.folder("bare"), None)),
            variant("one by one", Server::start(Role::OneByOne, &self.folder("single"), None)),
        ];
        let idle = variants[0].server.resident_bytes();
        let mut again = Vec::new();
        self.rounds(&mut variants, &Events::of(1_000), 0, |requests, variant, seen| {
            if variant.name == "billingd" {
                // What the end of the run cut off may not be stored.
                let stored = seen.answers.saturating_sub(u64::from(CONNECTIONS)).max(1);
                again.push(load::run(
                    variant.server.address,
                    &requests.path,
                    stored,
                    self.effort.seconds,
                    CONNECTIONS,
                    true,
                ));
            }
        });
        let loaded = variants[0].server.resident_bytes();
        let [books_seen, bare, single] = [0, 1, 2].map(|index| variants[index].seen.clone());
        println!("## 1,000 accounts");
        ratio("billingd / bare", &books_seen, &bare, throughput, Bar::AtLeast(0.20));
        ratio("billingd / one by one", &books_seen, &single, throughput, Bar::AtLeast(2.8));
        ratio("duplicates / bare", &again, &bare, throughput, Bar::AtLeast(0.5));
        ratio("p99: billingd / bare", &books_seen, &bare, p99, Bar::AtMost(4.0));
        for variant in &variants {
            figures(variant.name, &variant.seen);
        }
        figures("duplicates", &again);
        bytes("memory idle", idle, 20 << 20);
        bytes("memory loaded", loaded, 100 << 20);
        let answers = books_seen.iter().map(|seen| seen.answers).sum();
        drop(variants);
        check_books(&books, answers);
    }

    /// What is asked of Stripe's API must not slow down what Stripe delivers.
    fn asking(&self) {
        let [hanging, limiting, telling] = [Does::Hang, Does::Limit, Does::Tell(Account::new())].map(Api::start);
        let asking = |name, api: &Api, more| variant(name, Server::start_asking(&self.folder(name), &api.url(), more));
        let mut variants = vec![
            variant("no key", Server::start(Role::Books, &self.folder("no key"), None)),
            asking("hangs", &hanging, ""),
            asking("429", &limiting, ""),
            asking("reconciling", &telling, RECONCILING),
        ];
        variants[..3].iter().for_each(|variant| send_refunds(&variant.server));
        self.rounds(&mut variants, &Events::of(1_000), 0, |_, _, _| ());
        println!("\n## Stripe's API fails, and {WAITING} events wait for it; or the books are compared with it");
        for asking in &variants[1..] {
            for (figure, name, bar) in [(throughput as Figure, "", Bar::AtLeast(0.9)), (p99, "p99: ", Bar::AtMost(1.2))]
            {
                ratio(&format!("{name}{} / no key", asking.name), &asking.seen, &variants[0].seen, figure, bar);
            }
        }
        variants.iter().for_each(|variant| figures(variant.name, &variant.seen));
        for (name, api) in [("hanging", &hanging), ("429", &limiting), ("telling", &telling)] {
            assert!(api.asked() > 0, "nobody asked");
            println!("{:<34} {} requests", format!("asked, {name}"), api.asked());
        }
        let all: Vec<(&str, u64)> =
            variants.iter().map(|variant| (variant.name, variant.seen.iter().map(|seen| seen.answers).sum())).collect();
        drop(variants);
        all.into_iter().for_each(|(name, answers)| check_books(&self.folder(name), answers));
        check_reconciliation(&self.folder("reconciling"));
    }

    fn mixed_load(&self) {
        let mut variants = vec![
            variant("billingd", Server::start(Role::Books, &self.folder("mixed"), None)),
            variant("bare", Server::start(Role::Bare, &self.folder("mixed bare"), None)),
            variant("one by one", Server::start(Role::OneByOne, &self.folder("mixed single"), None)),
        ];
        self.rounds(&mut variants, &Events::mixed(1_000), 0, |_, _, _| ());
        println!("\n## Invoices, subscriptions and charges, 2 : 1 : 1");
        ratio("billingd / bare", &variants[0].seen, &variants[1].seen, throughput, Bar::AtLeast(0.20));
        ratio("billingd / one by one", &variants[0].seen, &variants[2].seen, throughput, Bar::AtLeast(2.8));
        variants.iter().for_each(|variant| figures(variant.name, &variant.seen));
    }

    fn many_accounts(&self) {
        let mut variants = vec![
            variant("billingd", Server::start(Role::Books, &self.folder("many"), None)),
            variant("bare", Server::start(Role::Bare, &self.folder("many bare"), None)),
            variant("one by one", Server::start(Role::OneByOne, &self.folder("many single"), None)),
        ];
        self.rounds(&mut variants, &Events::of(100_000), 0, |_, _, _| ());
        println!("\n## 100,000 accounts");
        ratio("billingd / bare", &variants[0].seen, &variants[1].seen, throughput, Bar::AtLeast(0.20));
        ratio("billingd / one by one", &variants[0].seen, &variants[2].seen, throughput, Bar::AtLeast(2.8));
        ratio("p99: billingd / bare", &variants[0].seen, &variants[1].seen, p99, Bar::AtMost(4.0));
        variants.iter().for_each(|variant| figures(variant.name, &variant.seen));
    }

    fn slow_flushes(&self) {
        println!("\n## Each flush of the disk 2 ms slower");
        let Some(library) = self.slow_flush_library() else { return };
        let mut variants = vec![
            variant("billingd", Server::start(Role::Books, &self.folder("slow"), Some(&library))),
            variant("one by one", Server::start(Role::OneByOne, &self.folder("slow single"), Some(&library))),
        ];
        self.rounds(&mut variants, &Events::of(1_000), 0, |_, _, _| ());
        ratio("billingd / one by one", &variants[0].seen, &variants[1].seen, throughput, Bar::AtLeast(15.0));
        variants.iter().for_each(|variant| figures(variant.name, &variant.seen));
    }

    fn slow_flush_library(&self) -> Option<PathBuf> {
        let library = self.folder.join("slow_flush.so");
        let compiled = Command::new("cc")
            .args(["-O2", "-shared", "-fPIC", "-o"])
            .arg(&library)
            .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/benches/slow_flush.c"))
            .status();
        if compiled.is_ok_and(|status| status.success()) {
            return Some(library);
        }
        println!("left out: it needs a C compiler. On Debian and Ubuntu: apt-get install gcc libc6-dev");
        None
    }

    fn many_events(&self) {
        let stored = self.effort.prefilled;
        println!("\n## {stored} events stored already");
        let full = self.folder("full");
        prefill(&full, stored, billingd::clock::now());
        let mut variants = vec![
            variant("prefilled", Server::start(Role::Books, &full, None)),
            variant("empty", Server::start(Role::Books, &self.folder("empty"), None)),
        ];
        self.rounds(&mut variants, &Events::of(1_000), stored, |_, _, _| ());
        ratio("prefilled / empty", &variants[0].seen, &variants[1].seen, throughput, Bar::AtLeast(0.8));
        variants.iter().for_each(|variant| figures(variant.name, &variant.seen));
        drop(variants);
        let size = std::fs::metadata(full.join("books.db")).expect("a database").len();
        println!("{:<34} {} B per event", "size of the database", size / stored);
    }

    fn footprint(&self) {
        println!("\n## The binary, on the database of the section before");
        let mut started: Vec<_> = (0..5).map(|_| server::start_binary(&self.folder("full"))).collect();
        started.sort();
        let (listening, _) = started[started.len() / 2];
        let milliseconds = listening.as_secs_f64() * 1e3;
        println!("{:<34} {milliseconds:.1} ms{}", "start to listening", Bar::AtMost(50.0).told(milliseconds));
        bytes("memory idle", started.iter().map(|(_, idle)| *idle).max().unwrap_or_default(), 20 << 20);
        bytes("size", std::fs::metadata(server::BINARY).expect("the binary").len(), 15_000_000);
    }

    fn folder(&self, name: &str) -> PathBuf {
        let folder = self.folder.join(name);
        std::fs::create_dir_all(&folder).expect("a folder");
        folder
    }

    /// Lets the variants take turns; `after` is called after each turn.
    fn rounds(
        &self,
        variants: &mut [Variant],
        events: &Events,
        first: u64,
        mut after: impl FnMut(&Requests, &Variant, Seen),
    ) {
        let count = EVENTS_PER_SECOND_MAX * self.effort.seconds;
        variants.iter().for_each(|variant| variant.server.stand_still());
        for round in 0..self.effort.rounds {
            let number = first + count * u64::try_from(round).expect("a small number");
            let requests = Requests::write(self.folder.join("requests"), events, number, count);
            let turns = variants.len();
            for turn in 0..turns {
                let variant = &mut variants[(round + turn) % turns];
                variant.server.go_on();
                let seen = load::run(
                    variant.server.address,
                    &requests.path,
                    count,
                    self.effort.seconds,
                    CONNECTIONS,
                    variant.repeats,
                );
                variant.seen.push(seen);
                after(&requests, variant, seen);
                variant.server.stand_still();
            }
        }
    }
}

fn variant(name: &'static str, server: Server) -> Variant {
    // Only a server that stores nothing may get an event twice.
    Variant { name, server, repeats: name == "bare", seen: Vec::new() }
}

/// Refunds whose payments nobody knows.
fn send_refunds(server: &Server) {
    let now = billingd::clock::now() / 1000;
    for number in 0..WAITING {
        let body = format!(
            r#"{{"id":"evt_refund_{number}","object":"event","type":"refund.created","created":{now},"livemode":false,
            "data":{{"object":{{"id":"re_{number}","object":"refund","amount":100,"currency":"usd","created":{now},
            "status":"succeeded","charge":"ch_refund_{number}","payment_intent":"pi_refund_{number}"}}}}}}"#
        );
        let response = ureq::post(format!("http://{}/webhooks/stripe", server.address))
            .header("Stripe-Signature", signature::sign(support::SECRET, now, body.as_bytes()))
            .send(body)
            .expect("an answer");
        assert_eq!(response.status().as_u16(), 202, "a refund waits");
    }
}

/// Every 200 is a row of the books, and the books are in order.
fn check_books(folder: &Path, answers: u64) {
    let reader = Reader::open(&folder.join("books.db"), 1).expect("the books");
    let applied: i64 = reader
        .read_at_leisure(|connection| {
            Ok(connection.query_row("SELECT count(*) FROM v_events WHERE outcome = 'applied'", [], |row| row.get(0))?)
        })
        .expect("a count");
    let applied = u64::try_from(applied).expect("a count");
    assert!(applied >= answers, "{answers} answers of 200, but {applied} events in the books");
    let report = reader.read_at_leisure(verify::verify).expect("a verification");
    assert!(report.clean, "the books are not in order: {report:?}");
    println!("{:<34} {answers} answers of 200, {applied} events applied, 0 violations", "the books");
}

/// The books and Stripe agree, as all runs saw but the last one, which the end of the server may have cut short.
fn check_reconciliation(folder: &Path) {
    const SQL: &str = "SELECT count(*), count(*) FILTER (WHERE result <> 'ok' AND run_id < last),
                              (SELECT count(*) FROM events WHERE source = 'backfill'), (SELECT count(*) FROM findings)
                       FROM reconciliation_runs, (SELECT max(run_id) AS last FROM reconciliation_runs)
                       WHERE finished_at IS NOT NULL";
    let reader = Reader::open(&folder.join("books.db"), 1).expect("the books");
    let [ended, cut_short, fetched, findings]: [i64; 4] = reader
        .read(|connection| {
            Ok(connection.query_row(SQL, [], |row| Ok([row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?]))?)
        })
        .expect("the runs");
    assert!(ended > 0 && cut_short == 0 && findings == 0, "{ended} runs, {cut_short} cut short, {findings} findings");
    println!("{:<34} {ended} runs, {fetched} events fetched, 0 findings", "reconciliation");
}

/// What a figure is held to.
enum Bar {
    AtLeast(f64),
    AtMost(f64),
}

impl Bar {
    fn told(&self, value: f64) -> String {
        let (holds, sign, bar) = match self {
            Self::AtLeast(bar) => (value >= *bar, '≥', bar),
            Self::AtMost(bar) => (value <= *bar, '≤', bar),
        };
        format!("   [{sign} {bar}: {}]", if holds { "held" } else { "MISSED" })
    }
}

fn throughput(seen: &Seen) -> f64 {
    seen.per_second
}

fn p99(seen: &Seen) -> f64 {
    seen.p99_ms
}

/// Prints the ratio of two variants: the median and the range of the ratios of single rounds.
fn ratio(name: &str, one: &[Seen], other: &[Seen], figure: Figure, bar: Bar) {
    let ratios = sorted(one.iter().zip(other).map(|(one, other)| figure(one) / figure(other)));
    let median = middle(&ratios);
    println!("{name:<34} {median:>6.2} ({:.2}–{:.2}){}", ratios[0], ratios[ratios.len() - 1], bar.told(median));
}

fn figures(name: &str, seen: &[Seen]) {
    let median = |figure: fn(&Seen) -> f64| middle(&sorted(seen.iter().map(figure)));
    println!(
        "{name:<34} {:>6.0} req/s, p50 {:.2} ms, p99 {:.2} ms",
        median(throughput),
        median(|seen| seen.p50_ms),
        median(p99)
    );
}

fn bytes(name: &str, bytes: u64, most: u64) {
    let told = Bar::AtMost(most as f64 / 1e6).told(bytes as f64 / 1e6);
    println!("{name:<34} {:.1} MB{told}", bytes as f64 / 1e6);
}

fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<_> = values.collect();
    values.sort_by(f64::total_cmp);
    values
}

fn middle(sorted: &[f64]) -> f64 {
    sorted[sorted.len() / 2]
}
