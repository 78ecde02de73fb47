//! Starts and stops the private listener, if there is a token.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Instant;

use actix_web::dev::ServerHandle;
use anyhow::Context as _;
use tokio::task::JoinHandle;

use crate::app::{self, PHASES, Surroundings};
use crate::config::Config;
use crate::http::{self, Access, Private, Public, Readers, Rejections, Token, Turns};
use crate::jobs;
use crate::ops::ingest::Rules;
use crate::ops::overview::Scene;

/// Connections for the app's accounts and the metrics, which no page holds up.
const QUICK_READERS: u32 = 2;

/// Connections for pages and lists, some of which read at length.
const LIST_READERS: u32 = 2;

/// A private listener that serves.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) address: SocketAddr,
    handle: ServerHandle,
    task: JoinHandle<std::io::Result<()>>,
}

impl Running {
    /// Tells it to take no more.
    pub(super) fn stop(&self) {
        // The order is given by the call itself; the future only tells when it is done.
        drop(self.handle.stop(true));
    }

    /// Waits until it has ended, or until the deadline.
    pub(super) async fn ended(self, deadline: Instant) {
        match tokio::time::timeout_at(deadline.into(), self.task).await {
            Ok(Ok(Ok(()))) => {}
            Ok(Ok(Err(error))) => tracing::warn!(%error, "the private listener ended badly"),
            Ok(Err(_)) | Err(_) => tracing::warn!("the private listener did not end in time"),
        }
    }
}

/// Starts it; without a token it stays off, and the log says how to turn it on.
pub(super) fn start(
    config: &Config,
    surroundings: Surroundings,
    rules: Rules,
    public: Arc<Public>,
) -> anyhow::Result<Option<Running>> {
    let tokens = tokens(config, surroundings.environment)?;
    if let Some(problem) = config.admin.shared_secret(&surroundings.environment) {
        anyhow::bail!(problem);
    }
    if tokens.is_empty() {
        tracing::info!(
            "the private side (page, API, metrics) is off: give the config an [[admin.token]]; `billingd init` writes one"
        );
        return Ok(None);
    }
    let listener = TcpListener::bind(config.admin.listen)
        .with_context(|| format!("[admin] listen = {} cannot be bound", config.admin.listen))?;
    let address = listener.local_addr()?;
    let private = Private {
        access: Access {
            tokens,
            hosts: config.admin.hosts.clone(),
            trusted_proxies: config.server.trusted_proxies.clone(),
        },
        writer: public.writer.clone(),
        quick: Readers::open(&config.database.path, QUICK_READERS)?,
        lists: Readers::open(&config.database.path, LIST_READERS)?,
        rules,
        public,
        turns: Turns::default(),
        refusals: Rejections::of("requests to the private listener"),
        request_timeout: config.server.request_timeout,
        database: config.database.path.clone(),
        started: (surroundings.clock)(),
        scene: scene(config),
        clock: surroundings.clock,
    };
    let server = http::serve_private(Arc::new(private), listener, config.server.shutdown_grace / PHASES)?;
    let handle = server.handle();
    let task = tokio::spawn(server);
    tracing::info!(listen = %address, "the private side is open to whoever has a token: http://{address}");
    Ok(Some(Running { address, handle, task }))
}

/// What the one screen is about.
fn scene(config: &Config) -> Scene {
    let scheduled = config.clone();
    Scene {
        alerts: app::scope(config),
        backups: jobs::shelf(config).folder,
        webhooks: config.webhooks.iter().map(|one| (one.path.clone(), one.signing_secrets.len())).collect(),
        plan: Arc::new(move |now| jobs::plan(&scheduled, now)),
    }
}

fn tokens(config: &Config, environment: fn(&str) -> Option<String>) -> anyhow::Result<Vec<Token>> {
    config
        .admin
        .tokens
        .iter()
        .map(|token| {
            let secret = token.resolve(&environment).with_context(|| format!("[[admin.token]] {}", token.name))?;
            Token::new(&token.name, token.scope, &secret).with_context(|| format!("[[admin.token]] {}", token.name))
        })
        .collect()
}
