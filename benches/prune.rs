//! What webhooks notice of retention: `cargo bench --bench prune` (`-- --quick`).
//!
//! A database with a million payloads that may go gets a steady load of signed `invoice.paid`, each client at its own
//! moments, whatever the answers take. Latencies are counted from the moment at which a request was to be sent, so that
//! a stall counts for all that it holds up. They are compared within one run: while a pass of retention deletes
//! everything, and after it. The pass is the server's own job first, then the command beside a server.

#![allow(clippy::expect_used, clippy::float_arithmetic, reason = "a benchmark that cannot go on shall stop")]

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use billingd::store::meta;
use billingd::store::open::{self, Binding};
use billingd::store::reader::Reader;
use billingd::{clock, ops};

#[path = "support/prefill.rs"]
mod prefill;
#[allow(dead_code, reason = "the benchmark of HTTP uses all of it")]
#[path = "support/server.rs"]
mod server;
mod support;

use server::{Role, Server};
use support::Events;

const CLIENTS: u64 = 8;

/// Between two requests of one client.
const EVERY: Duration = Duration::from_millis(10);

/// What is not counted: nobody waits for the first moments of a server.
const WARM_UP: Duration = Duration::from_secs(1);

/// What a request met.
const PHASES: usize = 4;
const STARTING: usize = 0;
const PRUNING: usize = 1;
const QUIET: usize = 2;
const OVER: usize = 3;

/// How retention is started.
#[derive(Clone, Copy)]
enum By {
    Job,
    Command,
}

fn main() {
    if server::play_role() {
        return;
    }
    let quick = std::env::args().any(|argument| argument == "--quick");
    let (payloads, quiet) = if quick { (50_000, 5) } else { (1_000_000, 20) };
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let forty_days_ago = clock::now() - 40 * 86_400_000;
    let [job, command] = ["job", "command"].map(|name| folder.path().join(name));
    [&job, &command].into_iter().for_each(|books| std::fs::create_dir(books).expect("a folder"));
    prefill::prefill(&job, payloads, forty_days_ago);
    std::fs::copy(job.join("books.db"), command.join("books.db")).expect("a copy");
    prefill::flush(&command);
    println!("{payloads} payloads to delete; {CLIENTS} clients, together {} webhooks a second", CLIENTS * 100);
    measure("the server's own job", By::Job, &job, payloads, Duration::from_secs(quiet));
    measure("`billingd prune` beside the server", By::Command, &command, payloads, Duration::from_secs(quiet));
}

fn measure(name: &str, by: By, books: &Path, payloads: u64, quiet: Duration) {
    println!("\n## By {name}");
    if matches!(by, By::Job) {
        overdue(books);
    }
    let server = Server::start(Role::Books, books, None);
    let load = Load { events: Events::of(1_000), next: AtomicU64::new(payloads), phase: AtomicUsize::new(STARTING) };
    let seen: Mutex<Vec<Sent>> = Mutex::default();
    let took = std::thread::scope(|scope| {
        let (load, seen, server) = (&load, &seen, &server);
        for client in 0..CLIENTS {
            scope.spawn(move || {
                let sent = load.send(server, client);
                seen.lock().expect("a list").extend(sent);
            });
        }
        let began = Instant::now();
        if matches!(by, By::Command) {
            std::thread::sleep(WARM_UP);
        }
        load.phase.store(PRUNING, Ordering::SeqCst);
        match by {
            By::Job => wait_for_the_job(books),
            By::Command => run_command(books),
        }
        let took = began.elapsed();
        load.phase.store(QUIET, Ordering::SeqCst);
        std::thread::sleep(quiet);
        load.phase.store(OVER, Ordering::SeqCst);
        took
    });
    drop(server);
    report(&seen.into_inner().expect("a list"), took);
    check_books(books);
}

/// One request: what it met, how long after its moment the answer came, and whether that was 2xx.
struct Sent {
    phase: usize,
    latency: Duration,
    is_good: bool,
}

struct Load {
    events: Events,
    next: AtomicU64,
    phase: AtomicUsize,
}

impl Load {
    fn send(&self, server: &Server, client: u64) -> Vec<Sent> {
        let agent: ureq::Agent = ureq::Agent::config_builder().http_status_as_error(false).build().into();
        let url = format!("http://{}/webhooks/stripe", server.address);
        let mut sent = Vec::new();
        let mut due = Instant::now() + EVERY * u32::try_from(client).expect("a small number") / 8;
        loop {
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            let phase = self.phase.load(Ordering::SeqCst);
            if phase == OVER {
                return sent;
            }
            let (body, signature) = self.events.signed(self.next.fetch_add(1, Ordering::SeqCst), clock::now() / 1000);
            let answer = agent.post(&url).header("Stripe-Signature", &signature).send(&body);
            let is_good = answer
                .is_ok_and(|mut answer| answer.status().is_success() && answer.body_mut().read_to_string().is_ok());
            sent.push(Sent { phase, latency: due.elapsed(), is_good });
            due += EVERY;
        }
    }
}

/// Has the next start make up for a night that was missed.
fn overdue(books: &Path) {
    let server = open::server(&books.join("books.db"), &Binding { livemode: false, connected_account: None });
    let server = server.expect("the books");
    meta::set(server.connection(), "jobs_since", "0").expect("a note");
}

fn wait_for_the_job(books: &Path) {
    let reader = Reader::open(&books.join("books.db"), 1).expect("the books");
    let run = loop {
        let runs = reader.read(billingd::store::jobs::last_runs).expect("the runs");
        // Other jobs make up for their nights as well.
        if let Some(run) = runs.into_iter().find(|run| run.job == "retention" && run.finished_at.is_some()) {
            break run;
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    println!("{}: {}", run.job, run.result.unwrap_or_default());
}

fn run_command(books: &Path) {
    let config = server::write_config(books, 0, None);
    let output = Command::new(server::BINARY)
        .args(["--config".as_ref(), config.as_os_str(), "prune".as_ref()])
        .stderr(Stdio::inherit())
        .output()
        .expect("the binary");
    assert!(output.status.success(), "the command failed");
    print!("{}", String::from_utf8_lossy(&output.stdout));
}

fn report(sent: &[Sent], took: Duration) {
    let mut latencies: [Vec<Duration>; PHASES] = Default::default();
    sent.iter().for_each(|one| latencies[one.phase].push(one.latency));
    latencies.iter_mut().for_each(|list| list.sort_unstable());
    let at = |phase: usize, percent: usize| {
        let list: &[Duration] = &latencies[phase];
        list[(list.len() * percent / 100).min(list.len() - 1)].as_secs_f64() * 1e3
    };
    println!("took {:.1} s", took.as_secs_f64());
    for (name, percent) in [("p50", 50), ("p99", 99), ("max", 100)] {
        let (pruning, quiet) = (at(PRUNING, percent), at(QUIET, percent));
        println!("{name}: {pruning:.2} ms meanwhile, {quiet:.2} ms after it, ratio {:.2}", pruning / quiet);
    }
    let bad = sent.iter().filter(|one| !one.is_good).count();
    println!("{bad} of {} answers were not 2xx", sent.len());
    assert_eq!(bad, 0, "no webhook may suffer from retention");
}

fn check_books(books: &Path) {
    let reader = Reader::open(&books.join("books.db"), 1).expect("the books");
    assert!(reader.read_at_leisure(ops::verify::verify).expect("a verification").clean, "the books are not in order");
}
