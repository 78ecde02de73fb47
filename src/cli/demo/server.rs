//! The server of the demo: the real one, on a thread of its own.
//!
//! Its config is read as an operator's file is; nothing of this machine's environment reaches it.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread::JoinHandle;

use anyhow::{Context as _, anyhow};
use tokio::sync::oneshot;

use crate::app::{Service, Surroundings};
use crate::config::{self, Config};

use super::script;

/// A server that runs until it is stopped.
#[derive(Debug)]
pub(super) struct Running {
    config: Config,
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    thread: JoinHandle<anyhow::Result<()>>,
}

impl Running {
    /// Starts it with its books in `folder`; returns once it listens.
    pub(super) fn start(folder: &Path) -> anyhow::Result<Self> {
        let config = config_in(folder)?;
        let (stop, stopped) = oneshot::channel();
        let (tell, told) = mpsc::channel();
        let for_thread = config.clone();
        let thread = std::thread::Builder::new()
            .name("server".to_owned())
            .spawn(move || actix_web::rt::System::new().block_on(serve(for_thread, tell, stopped)))?;
        match told.recv() {
            Ok(address) => Ok(Self { config, address, stop, thread }),
            // It has ended before it could tell.
            Err(_) => Err(joined(thread).err().unwrap_or_else(|| anyhow!("the server did not start"))),
        }
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(super) fn config(&self) -> &Config {
        &self.config
    }

    /// Drains it: afterwards everything is on disk.
    pub(super) fn stop(self) -> anyhow::Result<()> {
        // A server that has ended by itself tells why.
        self.stop.send(()).ok();
        joined(self.thread)
    }
}

fn joined(thread: JoinHandle<anyhow::Result<()>>) -> anyhow::Result<()> {
    thread.join().map_err(|_| anyhow!("the server panicked"))?
}

async fn serve(config: Config, tell: mpsc::Sender<SocketAddr>, stopped: oneshot::Receiver<()>) -> anyhow::Result<()> {
    let (service, server) = Service::start(&config, Surroundings::default())?;
    let handle = service.handle();
    let server = tokio::spawn(server);
    tell.send(service.address())?;
    stopped.await.ok();
    handle.stop(true).await;
    server.await.context("the listener ended badly")?.context("the listener ended badly")?;
    service.drain().await
}

/// Read as an operator's file is, but without the environment.
fn config_in(folder: &Path) -> anyhow::Result<Config> {
    let file: PathBuf = folder.join("billingd.toml");
    std::fs::write(&file, script::CONFIG).with_context(|| format!("{} cannot be written", file.display()))?;
    let mut config = config::load(Some(&file), std::iter::empty())?;
    config.database.path = folder.join("billingd.db");
    Ok(config)
}
