//! A real service on a free port, with a database of its own, and everything that a test does to it from outside.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use actix_web::dev::ServerHandle;
use billingd::app::{Service, Surroundings};
use billingd::config::{self, Config};
use billingd::ops;
use billingd::ops::ingest::{Errand, Rules};
use billingd::store::open::{self, Binding, CommandConnection};
use billingd::store::reader::Reader;
use billingd::store::writer::Limits;
use billingd::stripe::signature;
use rusqlite::Connection;
use rusqlite::types::Value as Column;
use serde_json::Value;

/// The secret of the endpoint.
pub(crate) const SECRET: &str = "whsec_of_the_harness";

/// The path of the endpoint.
pub(crate) const PATH: &str = "/webhooks/stripe";

/// The time of day in seconds; it stands still, unless a test brings a clock of its own.
pub(crate) const NOW: i64 = 1_790_000_000;

/// Whatever is waited for comes long before this.
const PATIENCE: Duration = Duration::from_secs(60);

/// Holds up the writer where it looks at the clock, which it does before it takes anything from its queue.
pub(crate) struct Gate {
    closed: AtomicBool,
    reached: AtomicBool,
}

impl Gate {
    pub(crate) const fn open_at_first() -> Self {
        Self { closed: AtomicBool::new(false), reached: AtomicBool::new(false) }
    }

    /// The time of day, which the writer gets to know only while the gate is open.
    pub(crate) fn clock(&self) -> i64 {
        if std::thread::current().name() == Some("writer") {
            while self.closed.load(Ordering::SeqCst) {
                self.reached.store(true, Ordering::SeqCst);
                std::thread::park_timeout(Duration::from_millis(1));
            }
        }
        frozen()
    }

    /// Returns when the writer stands at the gate, with empty hands, as long as nobody sends anything meanwhile.
    pub(crate) fn close(&self) {
        self.reached.store(false, Ordering::SeqCst);
        self.closed.store(true, Ordering::SeqCst);
        wait_until("the writer stands at the gate", || self.reached.load(Ordering::SeqCst));
    }

    pub(crate) fn open(&self) {
        self.closed.store(false, Ordering::SeqCst);
    }
}

/// A gate, and a clock for a service that has to pass it.
macro_rules! gated_clock {
    ($gate:ident, $clock:ident) => {
        static $gate: super::harness::Gate = super::harness::Gate::open_at_first();

        fn $clock() -> i64 {
            $gate.clock()
        }
    };
}
pub(crate) use gated_clock;

fn frozen() -> i64 {
    NOW * 1000
}

/// Test mode, its own events: the books of every test.
pub(crate) fn binding() -> Binding {
    Binding { livemode: false, connected_account: None }
}

/// What a service starts with.
pub(crate) struct Setup {
    toml: String,
    environment: Vec<(String, String)>,
    surroundings: Surroundings,
}

/// A service with the usual setup.
pub(crate) fn spawn() -> Billing {
    Setup::new().spawn()
}

impl Setup {
    pub(crate) fn new() -> Self {
        // Nobody watches, unless a test asks for it: what is written besides would be counted.
        let watch_every = Duration::from_secs(3_600);
        let surroundings =
            Surroundings { clock: frozen, environment: |_| None, watch_every, ..Surroundings::default() };
        Self { toml: String::new(), environment: Vec::new(), surroundings }
    }

    /// Sets one key, such as `server.request_timeout`.
    pub(crate) fn with(mut self, key: &str, value: &str) -> Self {
        self.environment.push((format!("BILLINGD__{}", key.to_uppercase().replace('.', "__")), value.to_owned()));
        self
    }

    /// Adds text to the config file.
    pub(crate) fn toml(mut self, text: &str) -> Self {
        self.toml.push_str(text);
        self
    }

    pub(crate) fn clock(mut self, clock: fn() -> i64) -> Self {
        self.surroundings.clock = clock;
        self
    }

    /// Has the service look so often whether a person should be called.
    pub(crate) fn watched_every(mut self, time: Duration) -> Self {
        self.surroundings.watch_every = time;
        self
    }

    pub(crate) fn limits(mut self, batch_max: usize, queue_max: usize) -> Self {
        self.surroundings.limits = Limits { batch_max, queue_max };
        self
    }

    /// The config of this setup, with its database in `folder`.
    pub(crate) fn config_in(&self, folder: &Path) -> (PathBuf, Config) {
        let file = folder.join("billingd.toml");
        let webhook = if self.toml.contains("[[webhook]]") {
            String::new()
        } else {
            format!("[[webhook]]\npath = \"{PATH}\"\nsigning_secrets = [\"{SECRET}\"]\n")
        };
        let text = format!(
            "[server]\nlisten = \"127.0.0.1:0\"\n[database]\npath = \"{}\"\n[stripe]\nlivemode = false\n{webhook}{}",
            folder.join("books.db").display(),
            self.toml
        );
        fs::write(&file, text).expect("a config file");
        let config = config::load(Some(&file), self.environment.clone().into_iter()).expect("a valid config");
        (file, config)
    }

    pub(crate) fn spawn(self) -> Billing {
        let folder = tempfile::tempdir().expect("a folder");
        let (_, config) = self.config_in(folder.path());
        let running = Some(Running::start(&config, self.surroundings));
        Billing { folder, config, surroundings: self.surroundings, running, agent: agent(), broken_on_purpose: false }
    }
}

/// A client that takes every status for an answer.
pub(crate) fn agent() -> ureq::Agent {
    ureq::Agent::config_builder()
        .http_status_as_error(false)
        .timeout_global(Some(PATIENCE))
        .max_idle_connections_per_host(64)
        .build()
        .into()
}

struct Running {
    address: SocketAddr,
    admin_address: Option<SocketAddr>,
    handle: ServerHandle,
    thread: JoinHandle<()>,
}

impl Running {
    fn start(config: &Config, surroundings: Surroundings) -> Self {
        let (started, told) = channel();
        let config = config.clone();
        let thread = std::thread::spawn(move || {
            actix_web::rt::System::new().block_on(async move {
                let (service, server) = Service::start(&config, surroundings).expect("a service");
                let told = (service.address(), service.admin_address(), service.handle());
                started.send(told).expect("a test that waits");
                server.await.expect("a listener that ends well");
                service.drain().await.expect("a writer that ends well");
            });
        });
        let (address, admin_address, handle) = told.recv().expect("a service that starts");
        Self { address, admin_address, handle, thread }
    }

    fn stop(self) {
        // The order to stop is given by the call itself; the future only tells when it is done.
        drop(self.handle.stop(true));
        self.thread.join().expect("a service that ends well");
    }
}

/// A running service. When it is dropped, its books must be whole.
pub(crate) struct Billing {
    folder: tempfile::TempDir,
    config: Config,
    surroundings: Surroundings,
    running: Option<Running>,
    agent: ureq::Agent,
    broken_on_purpose: bool,
}

/// What came back.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: Value,
    pub(crate) headers: Vec<(String, String)>,
}

impl Answer {
    /// `200 completed applied`, `503 overloaded`: the parts that the contract names.
    pub(crate) fn short(&self) -> String {
        let mut text = self.status.to_string();
        for key in ["status", "outcome", "needs", "error"] {
            if let Some(word) = self.body.get(key).and_then(Value::as_str) {
                text.push(' ');
                text.push_str(word);
            }
        }
        text
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

impl Billing {
    pub(crate) fn address(&self) -> SocketAddr {
        self.running.as_ref().expect("a running service").address
    }

    /// Where the private listener is, if there is a token.
    pub(crate) fn admin_address(&self) -> Option<SocketAddr> {
        self.running.as_ref().expect("a running service").admin_address
    }

    pub(crate) fn config(&self) -> &Config {
        &self.config
    }

    /// The config file of this service.
    pub(crate) fn config_file(&self) -> PathBuf {
        self.folder.path().join("billingd.toml")
    }

    pub(crate) fn database(&self) -> PathBuf {
        self.config.database.path.clone()
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address())
    }

    /// Stripe delivers an event, signed now.
    pub(crate) fn stripe_sends(&self, event: &Value) -> Answer {
        self.stripe_sends_to(PATH, event)
    }

    pub(crate) fn stripe_sends_to(&self, path: &str, event: &Value) -> Answer {
        self.stripe_sends_signed_with(path, event, SECRET, (self.surroundings.clock)() / 1000)
    }

    pub(crate) fn stripe_sends_signed_with(&self, path: &str, event: &Value, secret: &str, at: i64) -> Answer {
        let body = event.to_string();
        let header = signature::sign(secret, at, body.as_bytes());
        self.posts(path, &[("Stripe-Signature", &header)], body.as_bytes())
    }

    /// Anybody posts anything.
    pub(crate) fn posts(&self, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
        let mut request = self.agent.post(self.url(path));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        read(request.send(body).expect("an answer"))
    }

    pub(crate) fn gets(&self, path: &str) -> Answer {
        read(self.agent.get(self.url(path)).call().expect("an answer"))
    }

    /// A connection that knows nothing of billingd, as a person with a shell would use it.
    pub(crate) fn outside(&self) -> Connection {
        open_outside(&self.database())
    }

    /// Somebody with a shell runs some SQL.
    pub(crate) fn somebody_runs(&self, sql: &str) {
        self.outside().execute_batch(sql).expect(sql);
    }

    /// What a query gives: the columns of a row between bars, nothing for NULL.
    pub(crate) fn rows(&self, sql: &str) -> Vec<String> {
        rows(&self.outside(), sql)
    }

    /// The only row of a query.
    pub(crate) fn row(&self, sql: &str) -> String {
        let rows = self.rows(sql);
        assert_eq!(rows.len(), 1, "{sql}");
        rows.into_iter().next().unwrap_or_default()
    }

    /// Holds the write lock of the database until the connection is dropped.
    pub(crate) fn somebody_locks(&self) -> Connection {
        let connection = self.outside();
        connection.execute_batch("BEGIN IMMEDIATE").expect("the write lock");
        connection
    }

    /// The commits that the write-ahead log holds.
    pub(crate) fn commits(&self) -> usize {
        commits_in(&self.database().with_extension("db-wal"))
    }

    pub(crate) fn stop(&mut self) {
        self.agent = agent();
        if let Some(running) = self.running.take() {
            running.stop();
        }
    }

    /// Stops and starts again on the same books; the port is another one.
    pub(crate) fn restart(&mut self) {
        self.stop();
        self.running = Some(Running::start(&self.config, self.surroundings));
    }

    /// Stops, and starts again on the same books with the config of another setup.
    pub(crate) fn restart_with(&mut self, setup: Setup) {
        self.stop();
        (_, self.config) = setup.config_in(self.folder.path());
        self.running = Some(Running::start(&self.config, self.surroundings));
    }

    /// What runs events on behalf of an operator, by the rules of this service.
    pub(crate) fn errand_of(&self, operator: &str) -> Errand {
        let policy = Arc::new(billingd::app::policy(&self.config).expect("a policy"));
        let rules = Rules { policy, metadata_key: self.config.accounts.metadata_key.clone() };
        Errand::new(rules, &format!("operator:{operator}"))
    }

    /// A connection as a command beside the server has it.
    pub(crate) fn beside(&self) -> CommandConnection {
        open::beside(&self.database(), &binding()).expect("a connection beside the server")
    }

    pub(crate) fn reader(&self) -> Reader {
        Reader::open(&self.database(), 1).expect("a reader")
    }

    /// What `verify` finds.
    pub(crate) fn violations(&self) -> Vec<String> {
        violations(&self.database())
    }

    /// The books may be violated in the end.
    pub(crate) fn is_broken_on_purpose(&mut self) {
        self.broken_on_purpose = true;
    }
}

impl Drop for Billing {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        self.stop();
        assert_eq!(rows(&self.outside(), "PRAGMA integrity_check"), ["ok"]);
        if !self.broken_on_purpose {
            assert_eq!(self.violations(), Vec::<String>::new());
            let unfound = "SELECT a.seq FROM audit_log a JOIN events e USING (event_id)
                           WHERE a.action NOT LIKE 'event.%' AND a.at <> e.processed_at / 1000";
            assert_eq!(self.rows(unfound), [""; 0], "rows of an event that its story leaves out");
        }
        assert!(self.folder.path().exists());
    }
}

/// What `verify` finds in a database.
pub(crate) fn violations(database: &Path) -> Vec<String> {
    let reader = Reader::open(database, 1).expect("a reader");
    let report = reader.read_at_leisure(ops::verify::verify).expect("a report");
    let violations: Vec<String> = report.proofs.into_iter().flat_map(|proof| proof.violations).collect();
    assert_eq!(report.clean, violations.is_empty());
    violations
}

#[expect(clippy::disallowed_methods, reason = "a connection without the pragmas of billingd is the point")]
pub(crate) fn open_outside(database: &Path) -> Connection {
    let connection = Connection::open(database).expect("a connection");
    connection.busy_timeout(PATIENCE).expect("a timeout");
    connection
}

pub(crate) fn rows(connection: &Connection, sql: &str) -> Vec<String> {
    let mut statement = connection.prepare(sql).expect(sql);
    let width = statement.column_count();
    let rows = statement.query_map([], |row| {
        let columns = (0..width).map(|index| {
            Ok(match row.get::<_, Column>(index)? {
                Column::Null => String::new(),
                Column::Integer(number) => number.to_string(),
                Column::Real(number) => number.to_string(),
                Column::Text(text) => text,
                Column::Blob(bytes) => format!("{} bytes", bytes.len()),
            })
        });
        Ok(columns.collect::<rusqlite::Result<Vec<_>>>()?.join("|"))
    });
    rows.expect(sql).collect::<Result<_, _>>().expect(sql)
}

fn read(mut response: ureq::http::Response<ureq::Body>) -> Answer {
    let text = response.body_mut().read_to_string().expect("a body");
    Answer {
        status: response.status().as_u16(),
        body: serde_json::from_str(&text).unwrap_or(Value::String(text)),
        headers: response
            .headers()
            .iter()
            .map(|(name, value)| (name.as_str().to_owned(), value.to_str().expect("a text").to_owned()))
            .collect(),
    }
}

/// Asks until the answer is yes. Only for what nobody tells: everything else is waited for where it is told.
pub(crate) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "waited in vain until {what}");
        std::thread::park_timeout(Duration::from_millis(2));
    }
}

const WAL_HEADER_BYTES: usize = 32;
const FRAME_HEADER_BYTES: usize = 24;

/// Counts the frames that end a transaction: they name the size of the database after it.
fn commits_in(wal: &Path) -> usize {
    let bytes = fs::read(wal).unwrap_or_default();
    let number = |at: usize| bytes.get(at..at + 4).map(|four| u32::from_be_bytes(four.try_into().expect("four bytes")));
    let Some(page_bytes) = number(8) else { return 0 };
    let salt = bytes.get(16..24);
    let frame_bytes = FRAME_HEADER_BYTES + usize::try_from(page_bytes).expect("a page size");
    (WAL_HEADER_BYTES..bytes.len())
        .step_by(frame_bytes)
        .take_while(|at| bytes.get(at + 8..at + 16) == salt)
        .filter(|at| number(at + 4).is_some_and(|pages| pages > 0))
        .count()
}
