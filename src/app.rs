//! The composition root: config → store → writer → jobs → listener, in this order, and back in the other one.
//!
//! Reads like a packing list. Policy lives below, doors live in `http` and `cli`.

mod private;
mod resolver;
mod watch;

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use actix_web::dev::{Server, ServerHandle};
use anyhow::Context as _;

use crate::clock::{self, UnixMillis};
use crate::config::{Basis, Config, Downgrade, Per, Proration, UnlistedPrice, UrlSource};
use crate::domain::alert::{Alert, DELIVERIES_MIN, MISMATCHED_HOURS_MIN, Thresholds};
use crate::domain::event::UnixSeconds;
use crate::domain::exchange::Conversion;
use crate::domain::money::{Currency, UnitAmount};
use crate::domain::policy::{self, Catalogue, Credits, Policy, PriceRule, Tiers};
use crate::http::{self, Budget, Deliveries, Endpoint, Public, Rejections};
use crate::jobs::{self, Jobs};
use crate::notify::Sink;
use crate::ops::alerts::{Scope, Tally};
use crate::ops::ingest::{self, Duplicates, Ingest, Rules, Verified};
use crate::ops::reconcile;
use crate::stop::Stop;
use crate::store;
use crate::store::files;
use crate::store::meta;
use crate::store::open::{self, Binding, ServerConnection};
use crate::store::payload;
use crate::store::reader::Reader;
use crate::store::writer::{Limits, Writer};
use crate::stripe::client::{Client, Settings};
use crate::stripe::signature::Verifier;

/// Threads that talk to clients. One is enough for most; two keep one busy client from holding up the others.
const WORKERS: usize = 2;

/// Connections that look up repeats: one for each worker, and one for whoever comes beside them.
const READERS: u32 = 3;

/// The listener, the jobs and the writer end one after the other, each within its part of `shutdown_grace`.
const PHASES: u32 = 3;

/// How often to look whether a thread has ended.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// The name under which a database keeps the digest of its server's catalogue.
pub const CATALOGUE_DIGEST: &str = "catalogue_digest";

/// The name under which a database keeps whether its server asks Stripe.
const ASKS_STRIPE: &str = "asks_stripe";

/// What a service takes from its surroundings instead of from its config.
#[derive(Debug, Clone, Copy)]
pub struct Surroundings {
    /// The time of day.
    pub clock: fn() -> UnixMillis,
    /// Looks up an environment variable.
    pub environment: fn(&str) -> Option<String>,
    /// Limits of the writer.
    pub limits: Limits,
    /// Called while the writer lives.
    pub on_beat: fn(),
    /// How often to look whether a person should be called.
    pub watch_every: Duration,
}

impl Default for Surroundings {
    fn default() -> Self {
        Self {
            clock: clock::now,
            environment: |name| std::env::var(name).ok(),
            limits: Limits::default(),
            on_beat: || (),
            watch_every: watch::LOOK_EVERY,
        }
    }
}

/// A running service.
#[derive(Debug)]
pub struct Service {
    address: SocketAddr,
    handle: ServerHandle,
    private: Option<private::Running>,
    writer: Writer<Ingest>,
    writer_thread: JoinHandle<()>,
    jobs: Jobs,
    watch: watch::Running,
    /// Ends the jobs and the resolver.
    stop: Stop,
    grace: Duration,
}

impl Service {
    /// Starts everything; returns once the listener takes connections. The server is a future that must be polled
    /// beside the service.
    ///
    /// # Errors
    /// What is wrong with a secret, the database or the address, and what to do about it.
    pub fn start(config: &Config, surroundings: Surroundings) -> anyhow::Result<(Self, Server)> {
        let Surroundings { clock, environment, watch_every, .. } = surroundings;
        let (path, grace) = (&config.database.path, config.server.shutdown_grace);
        let rules = rules(config)?;
        let endpoints = endpoints(config, environment)?;
        let alert_sink = sink("webhook_url", &config.alerts.webhook_url, environment)?;
        let heart = sink("heartbeat_url", &config.alerts.heartbeat_url, environment)?;
        let stop = Stop::default();
        let client = client(config, environment, stop.clone())?;

        let (database, left) = books(config, &rules, &endpoints, clock())?;
        let shared = Shared::between(&endpoints);
        let (writer, writer_thread) = start_writer(database, &rules, &shared, surroundings)?;
        let reader = Reader::open(path, READERS)?;
        if let Some(client) = client.clone() {
            resolver::start(client, stop.clone(), reader.clone(), writer.clone(), clock)
                .context("the resolver's thread cannot be started")?;
        }
        let (listener, address) = listen(config)?;
        let table = schedule(config, &rules, client, heart);
        let jobs = Jobs::start(table, writer.clone(), Reader::open(path, 1)?, clock, left.jobs_since, stop.clone())
            .context("the thread of the jobs cannot be started")?;
        let watch = watch::Watch {
            scope: scope(config),
            health: writer.health().clone(),
            reader: Reader::open(path, 1)?,
            sink: alert_sink,
            who: who(config),
            held: left.alerts,
            tally: shared.tally.clone(),
        };
        let watch = watch::start(watch, writer.clone(), clock, watch_every)
            .context("the thread of the watch cannot be started")?;
        let public = Arc::new(public(config, endpoints, writer.clone(), reader, shared, clock));
        let server = http::serve_public(Arc::clone(&public), listener, WORKERS, grace / PHASES)?;
        let private = private::start(config, surroundings, rules, public)?;
        let handle = server.handle();
        log_ready(config, address);
        Ok((Self { address, handle, private, writer, writer_thread, jobs, watch, stop, grace }, server))
    }

    /// Where the public listener is.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where the private listener is, if there is a token.
    #[must_use]
    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.private.as_ref().map(|private| private.address)
    }

    /// A way to stop the public listener from elsewhere.
    #[must_use]
    pub fn handle(&self) -> ServerHandle {
        self.handle.clone()
    }

    /// Has the jobs write a backup now. False: one is being written already.
    pub fn ask_for_backup(&self) -> bool {
        self.jobs.ask(jobs::BACKUP)
    }

    /// Tells the jobs, the resolver and the private listener to end; the public one may still serve, and what it answers
    /// is watched.
    pub fn stop_work(&self) {
        self.stop.set();
        self.jobs.stop();
        if let Some(private) = &self.private {
            private.stop();
        }
    }

    /// Waits for the running job, the private listener, the watch and the writer, once the public listener has ended: what
    /// was taken is on disk when this returns, and how it was answered.
    ///
    /// # Errors
    /// When the writer does not end in time; nothing that was answered is lost.
    pub async fn drain(self) -> anyhow::Result<()> {
        self.stop_work();
        self.watch.stop();
        let (now, phase) = (Instant::now(), self.grace / PHASES);
        // A request to Stripe that hangs holds up its thread, but nobody else: what it would have told is asked again.
        if !ends_until(&self.jobs.into_thread(), now + phase).await {
            tracing::warn!("a job did not end in time; the next start makes up for it");
        }
        if let Some(private) = self.private {
            private.ended(now + phase).await;
        }
        if !ends_until(&self.watch.thread, now + phase).await {
            tracing::warn!("what was told and answered last is not written; the next start may tell it again");
        }
        let writer = self.writer;
        let stopping = tokio::task::spawn_blocking(move || writer.stop());
        if !ends_until(&self.writer_thread, now + 2 * phase).await {
            anyhow::bail!("the writer did not end within shutdown_grace; nothing that was answered is lost");
        }
        stopping.await?;
        self.writer_thread.join().map_err(|_| anyhow::anyhow!("the writer ended badly; run `billingd verify`"))
    }
}

/// What former servers have left in the books.
struct Left {
    alerts: Vec<Alert>,
    jobs_since: UnixSeconds,
}

/// Opens the books, and notes in them what commands should know of this server.
fn books(
    config: &Config,
    rules: &Rules,
    endpoints: &[Endpoint],
    now: UnixMillis,
) -> anyhow::Result<(ServerConnection, Left)> {
    let database = open::server(&config.database.path, &binding(config))?;
    let books = database.connection();
    payload::keep_dictionary(books)?;
    meta::set(books, CATALOGUE_DIGEST, &config.catalogue_digest())?;
    meta::set(books, ASKS_STRIPE, if rules.policy.asks_stripe { "yes" } else { "no" })?;
    for endpoint in endpoints {
        ingest::forget_verified(books, &endpoint.path)?;
    }
    store::jobs::end_cut_short(books)?;
    let left = Left { alerts: store::alerts::held(books)?, jobs_since: store::jobs::since(books, now / 1000)? };
    Ok((database, left))
}

/// What the public listener notes, and others write.
struct Shared {
    duplicates: Duplicates,
    verified: Verified,
    tally: Tally,
}

impl Shared {
    fn between(endpoints: &[Endpoint]) -> Self {
        Self {
            duplicates: Duplicates::default(),
            verified: Verified::new(endpoints.iter().map(|endpoint| endpoint.path.clone())),
            tally: Tally::default(),
        }
    }
}

fn start_writer(
    database: ServerConnection,
    rules: &Rules,
    shared: &Shared,
    surroundings: Surroundings,
) -> anyhow::Result<(Writer<Ingest>, JoinHandle<()>)> {
    let Surroundings { clock, limits, on_beat, .. } = surroundings;
    let ingest = Ingest::new(rules.policy.clone(), rules.metadata_key.clone(), shared.duplicates.clone());
    Writer::start(database, ingest.writing(shared.verified.clone()), limits, clock, on_beat)
        .context("the writer thread cannot be started")
}

/// The address is told with the port that the system gave, if the config leaves it open.
fn listen(config: &Config) -> anyhow::Result<(TcpListener, SocketAddr)> {
    let listener = TcpListener::bind(config.server.listen)
        .with_context(|| format!("[server] listen = {} cannot be bound", config.server.listen))?;
    let address = listener.local_addr()?;
    Ok((listener, address))
}

fn schedule(
    config: &Config,
    rules: &Rules,
    client: Option<Client>,
    heart: Option<Sink>,
) -> Vec<jobs::Job<Writer<Ingest>>> {
    let stripe = client.map(|client| jobs::Stripe { client, rules: reconciliation(config, rules.clone()) });
    jobs::table(config, rules, stripe, heart)
}

/// What the public listener works with.
fn public(
    config: &Config,
    endpoints: Vec<Endpoint>,
    writer: Writer<Ingest>,
    reader: Reader,
    shared: Shared,
    clock: fn() -> UnixMillis,
) -> Public {
    let body_bytes_max = usize::try_from(config.server.max_body.as_u64()).unwrap_or(usize::MAX);
    Public {
        endpoints,
        writer,
        reader,
        duplicates: shared.duplicates,
        verified: shared.verified,
        deliveries: Deliveries::default(),
        tally: shared.tally,
        rejections: Rejections::of("deliveries"),
        budget: Budget::new(body_bytes_max),
        metadata_key: config.accounts.metadata_key.clone(),
        body_bytes_max,
        request_timeout: config.server.request_timeout,
        folder: files::folder_of(&config.database.path).to_owned(),
        clock,
    }
}

fn log_ready(config: &Config, address: SocketAddr) {
    let secrets: usize = config.webhooks.iter().map(|webhook| webhook.signing_secrets.len()).sum();
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        database = %config.database.path.display(),
        mode = if config.stripe.livemode { "live" } else { "test" },
        listen = %address,
        secrets,
        asks_stripe = config.stripe.api_key.is_some(),
        "billingd is ready"
    );
}

/// Not joined before it has ended: nobody could stop waiting then.
async fn ends_until(thread: &JoinHandle<()>, deadline: Instant) -> bool {
    while !thread.is_finished() {
        if Instant::now() > deadline {
            return false;
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    true
}

/// Which books the config is about.
#[must_use]
pub fn binding(config: &Config) -> Binding {
    Binding { livemode: config.stripe.livemode, connected_account: config.stripe.connected_account.clone() }
}

/// Who asks Stripe, if there is a key; `stop` ends all waiting.
///
/// # Errors
/// What is wrong with the key or the address.
pub fn client(config: &Config, environment: fn(&str) -> Option<String>, stop: Stop) -> anyhow::Result<Option<Client>> {
    let Some(key) = &config.stripe.api_key else { return Ok(None) };
    let key = key.resolve(&environment).context("[stripe] api_key")?;
    let base = config.stripe.api_base.resolve(&environment).context("[stripe] api_base")?;
    let connected_account = config.stripe.connected_account.clone();
    let settings = Settings { connected_account, stop, ..Settings::new(base, key) };
    Ok(Some(Client::new(settings)?))
}

/// What a run of reconciliation goes by; `rules` decide about what it fetches.
#[must_use]
pub fn reconciliation(config: &Config, rules: Rules) -> reconcile::Rules {
    let Rules { policy, metadata_key } = rules;
    reconcile::Rules {
        policy,
        metadata_key,
        lookback_s: seconds(config.reconcile.lookback),
        grace_s: seconds(config.reconcile.grace),
        paths: config.webhooks.iter().map(|webhook| webhook.path.clone()).collect(),
    }
}

/// What a person is called for.
#[must_use]
pub fn scope(config: &Config) -> Scope {
    let scheduled = config.clone();
    Scope {
        database: config.database.path.clone(),
        thresholds: Thresholds {
            pending_count: config.alerts.pending_count.into(),
            pending_age_s: seconds(config.alerts.pending_age),
            failed_age_s: seconds(config.alerts.failed_age),
            success_rate_millionths: config.alerts.success_rate.millionths(),
            mismatched_count: DELIVERIES_MIN,
            mismatched_hours: MISMATCHED_HOURS_MIN,
        },
        due: Arc::new(move |now| jobs::due(&scheduled, now)),
    }
}

/// Where something of `[alerts]` is told, if its key is set.
///
/// # Errors
/// What is wrong with the address.
pub fn sink(
    key: &str,
    url: &Option<UrlSource>,
    environment: fn(&str) -> Option<String>,
) -> anyhow::Result<Option<Sink>> {
    let url = url.as_ref().map(|url| url.resolve(&environment)).transpose();
    Ok(url.with_context(|| format!("[alerts] {key}"))?.map(Sink::new))
}

/// How alerts name this service: one channel may hear several.
#[must_use]
pub fn who(config: &Config) -> String {
    format!("billingd, {} mode", if config.stripe.livemode { "live" } else { "test" })
}

fn seconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_secs()).unwrap_or(i64::MAX)
}

fn endpoints(config: &Config, environment: fn(&str) -> Option<String>) -> anyhow::Result<Vec<Endpoint>> {
    config
        .webhooks
        .iter()
        .map(|webhook| {
            let secrets = webhook
                .signing_secrets
                .iter()
                .map(|source| source.resolve(&environment).map(|secret| secret.expose().to_owned()))
                .collect::<Result<Vec<_>, _>>()
                .with_context(|| format!("a signing secret of the webhook at {}", webhook.path))?;
            let tolerance_s = seconds(webhook.tolerance);
            let verifier = Verifier::new(&secrets, tolerance_s)
                .with_context(|| format!("the signing secrets of the webhook at {}", webhook.path))?;
            Ok(Endpoint { path: webhook.path.trim_end_matches('/').to_owned(), verifier })
        })
        .collect()
}

/// How payments are converted, if they are.
fn conversion(config: &Config) -> anyhow::Result<Option<Conversion>> {
    let Some(unit) = &config.credits.unit else { return Ok(None) };
    Ok(Some(Conversion {
        into: Currency::parse(unit).context("[credits] unit")?,
        base: Currency::parse(&config.fx.base).context("[fx] base")?,
        max_age_days: i64::try_from(config.fx.max_age.as_secs() / 86_400).unwrap_or(i64::MAX),
    }))
}

/// What decides about events, as a config asks for it.
///
/// # Errors
/// As [`policy()`].
pub fn rules(config: &Config) -> anyhow::Result<Rules> {
    Ok(Rules { policy: Arc::new(policy(config)?), metadata_key: config.accounts.metadata_key.clone() })
}

/// The same beside a server: whether it asks Stripe decides what its events wait for, not whether a command could.
///
/// # Errors
/// As [`rules`]; when the database cannot be read.
pub fn rules_beside(config: &Config) -> anyhow::Result<Rules> {
    let mut rules = rules(config)?;
    let asks = Reader::open(&config.database.path, 1)?.read(|connection| meta::get(connection, ASKS_STRIPE))?;
    if let Some(asks) = asks {
        Arc::make_mut(&mut rules.policy).asks_stripe = asks == "yes";
    }
    Ok(rules)
}

/// The rules that a config asks for.
///
/// # Errors
/// When a value is no currency or amount after all.
pub fn policy(config: &Config) -> anyhow::Result<Policy> {
    let conversion = conversion(config)?;
    let prices = config
        .prices
        .iter()
        .map(|price| {
            let unit_amount = price
                .unit_amount
                .map(UnitAmount::whole)
                .transpose()
                .with_context(|| format!("[[price]] {}: unit_amount", price.id))?;
            let rule = PriceRule {
                tier: price.tier.clone(),
                credits: price.credits.unwrap_or_default(),
                per_invoice: price.per == Per::Invoice,
                unit: price.unit.clone(),
                unit_amount,
                foreign: price.foreign,
            };
            Ok((price.id.clone(), rule))
        })
        .collect::<anyhow::Result<Vec<_>>>()?;
    Ok(Policy {
        livemode: config.stripe.livemode,
        connected_account: config.stripe.connected_account.clone(),
        credits: Credits {
            since: config.credits.since,
            basis: match config.credits.basis {
                Basis::AmountPaid => policy::Basis::AmountPaid(conversion),
                Basis::Catalogue => policy::Basis::Catalogue,
            },
            prorate: config.credits.proration == Proration::Prorate,
            unlisted_price_fails: config.credits.unlisted_price == UnlistedPrice::Fail,
        },
        catalogue: Catalogue::new(prices),
        tiers: Tiers {
            order: config.tiers.order.clone(),
            keep_until_period_end: config.tiers.downgrade == Downgrade::PeriodEnd,
            access_trialing: config.access.trialing,
            access_past_due: config.access.past_due,
            access_unpaid: config.access.unpaid,
            access_collection_paused: config.access.collection_paused,
        },
        max_attempts: config.processing.max_attempts,
        asks_stripe: config.stripe.api_key.is_some(),
    })
}
