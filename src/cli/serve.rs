//! The service, from its start to its end.

use anyhow::Context as _;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::signal::unix::{SignalKind, signal};

use crate::app::{Service, Surroundings};
use crate::config::Config;
use crate::log;

use super::DONE;

pub(super) fn run(config: &Config) -> anyhow::Result<u8> {
    log::start(&config.log);
    if let Err(error) = raise_open_files() {
        tracing::warn!(%error, "the limit of open files stays as it is; many idle connections could use them up");
    }
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
    let mut user_signal = signal(SignalKind::user_defined1()).context("SIGUSR1 cannot be watched")?;
    let surroundings = Surroundings { on_beat: tell_watchdog, ..Surroundings::default() };
    let (service, server) = Service::start(config, surroundings)?;
    tell_systemd(&[sd_notify::NotifyState::Ready]);
    let handle = service.handle();
    let server = tokio::spawn(server);
    loop {
        tokio::select! {
            _ = terminate.recv() => tracing::info!("SIGTERM: finishing what runs"),
            _ = interrupt.recv() => tracing::info!("SIGINT: finishing what runs"),
            _ = hang_up.recv() => {
                tracing::warn!("SIGHUP changes nothing: restart billingd to read the config again");
                continue;
            }
            _ = user_signal.recv() => {
                if !service.ask_for_backup() {
                    tracing::info!("SIGUSR1: a backup is being written already");
                }
                continue;
            }
        }
        break;
    }
    service.stop_work();
    tell_systemd(&[sd_notify::NotifyState::Stopping]);
    handle.stop(true).await;
    server.await.context("the listener ended badly")?.context("the listener ended badly")?;
    service.drain().await?;
    tracing::info!("stopped; all that was answered is on disk");
    Ok(())
}

/// The soft limit is 1,024 on most systems, and each connection is an open file: what idles must not leave none for
/// webhooks. The listeners' own limits are lower than what this allows.
fn raise_open_files() -> std::io::Result<()> {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    Ok(setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })?)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_files_may_be_open_as_the_system_allows() {
        let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
        setrlimit(Resource::Nofile, Rlimit { current: maximum.map(|most| most / 2), maximum }).unwrap();
        raise_open_files().unwrap();
        assert_eq!(getrlimit(Resource::Nofile), Rlimit { current: maximum, maximum });
    }
}
