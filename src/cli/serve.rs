//! The service, from its start to its end.

use std::io::IsTerminal as _;

use anyhow::Context as _;
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::app::{Service, Surroundings};
use crate::config::{Config, LogFormat, LogLevel};

use super::DONE;

pub(super) fn run(config: &Config) -> anyhow::Result<u8> {
    start_log(config);
    // The text of a panic may quote what it stumbled over, which belongs into no log.
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        tracing::error!(place, "a bug: something panicked");
    }));
    actix_web::rt::System::new().block_on(serve(config))?;
    Ok(DONE)
}

async fn serve(config: &Config) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("SIGTERM cannot be watched")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("SIGINT cannot be watched")?;
    let mut hang_up = signal(SignalKind::hangup()).context("SIGHUP cannot be watched")?;
    let surroundings = Surroundings { on_beat: tell_watchdog, ..Surroundings::default() };
    let (service, server) = Service::start(config, surroundings)?;
    tell_systemd(&[sd_notify::NotifyState::Ready]);
    let handle = service.handle();
    let server = tokio::spawn(server);
    loop {
        tokio::select! {
            _ = terminate.recv() => tracing::info!("SIGTERM: draining"),
            _ = interrupt.recv() => tracing::info!("SIGINT: draining"),
            _ = hang_up.recv() => {
                tracing::warn!("SIGHUP changes nothing: restart billingd to read the config again");
                continue;
            }
        }
        break;
    }
    tell_systemd(&[sd_notify::NotifyState::Stopping]);
    handle.stop(true).await;
    server.await.context("the listener ended badly")?.context("the listener ended badly")?;
    service.drain().await?;
    tracing::info!("drained; all that was answered is on disk");
    Ok(())
}

/// Fed by the writer's own heartbeat, so that systemd restarts a service whose writer is stuck.
fn tell_watchdog() {
    tell_systemd(&[sd_notify::NotifyState::Watchdog]);
}

/// Does nothing when systemd did not start this process.
fn tell_systemd(states: &[sd_notify::NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::debug!(%error, "systemd was not told");
    }
}

fn start_log(config: &Config) {
    let level = match config.log.level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    };
    let json = match config.log.format {
        LogFormat::Auto => !std::io::stderr().is_terminal(),
        LogFormat::Text => false,
        LogFormat::Json => true,
    };
    // Of the libraries only what is wrong: the start-up line is ours.
    let filter = Targets::new().with_default(level.min(LevelFilter::WARN)).with_target("billingd", level);
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_target(false);
    let started = if json {
        let lines = lines.json().flatten_event(true).with_current_span(false).with_span_list(false);
        tracing_subscriber::registry().with(lines.with_filter(filter)).try_init()
    } else {
        let lines = lines.with_ansi(std::io::stderr().is_terminal());
        tracing_subscriber::registry().with(lines.with_filter(filter)).try_init()
    };
    // Only a second start in one process could find a log already there, and would use that.
    drop(started);
}
