//! The listeners: parse a request, call one operation, render its answer. Nothing is decided in here.

mod access;
mod answer;
mod api;
mod body;
mod deliveries;
mod exposition;
mod gates;
mod health;
mod login;
mod metrics;
mod page;
mod private;
mod problem;
mod rejections;
mod webhook;

use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use actix_web::dev::Server;
use actix_web::{App, HttpServer, web};

use crate::clock::UnixMillis;
use crate::ops::alerts::Tally;
use crate::ops::ingest::{Duplicates, Ingest, Verified};
use crate::store::reader::Reader;
use crate::store::writer::Writer;
use crate::stripe::signature::Verifier;

pub use access::{Access, Token};
pub use body::Budget;
pub use deliveries::Deliveries;
pub use gates::serve_private;
pub use private::{Private, Readers, Turns};
pub use rejections::Rejections;

/// How long a client may take for the head of its request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);

/// How long an idle connection is kept.
const KEEP_ALIVE: Duration = Duration::from_secs(75);

/// Connections at a time, for each worker; more wait in the backlog of the system.
pub const CONNECTIONS_MAX: usize = 4_096;

/// Everything that the public listener needs.
#[derive(Debug)]
pub struct Public {
    /// The webhook paths, each with its secrets.
    pub endpoints: Vec<Endpoint>,
    /// Takes deliveries.
    pub writer: Writer<Ingest>,
    /// Answers repeats of completed events.
    pub reader: Reader,
    /// Where such repeats are noted.
    pub duplicates: Duplicates,
    /// Where it is noted which secret verified.
    pub verified: Verified,
    /// Counts what was answered.
    pub deliveries: Deliveries,
    /// Where it is noted how deliveries were answered.
    pub tally: Tally,
    /// Counts what was refused.
    pub rejections: Rejections,
    /// What all bodies may take at a time.
    pub budget: Budget,
    /// The metadata key that carries the user's own id.
    pub metadata_key: String,
    /// The largest body, in bytes.
    pub body_bytes_max: usize,
    /// The longest that a webhook may take.
    pub request_timeout: Duration,
    /// The folder whose disk must have room.
    pub folder: PathBuf,
    /// The time of day.
    pub clock: fn() -> UnixMillis,
}

/// One webhook path.
#[derive(Debug)]
pub struct Endpoint {
    /// Without a trailing slash.
    pub path: String,
    /// Knows its secrets.
    pub verifier: Verifier,
}

/// Serves the public listener until it is told to stop.
///
/// # Errors
/// When the system does not let it listen.
pub fn serve_public(
    public: Arc<Public>,
    listener: TcpListener,
    workers: usize,
    grace: Duration,
) -> std::io::Result<Server> {
    serve(listener, workers, CONNECTIONS_MAX, grace, move |routes| configure(routes, &public))
}

/// Serves `routes` with the limits of every listener of ours, until it is told to stop.
///
/// # Errors
/// When the system does not let it listen.
pub fn serve(
    listener: TcpListener,
    workers: usize,
    connections_max: usize,
    grace: Duration,
    routes: impl Fn(&mut web::ServiceConfig) + Clone + Send + 'static,
) -> std::io::Result<Server> {
    let server = HttpServer::new(move || App::new().configure(routes.clone()));
    Ok(server
        .workers(workers)
        .max_connections(connections_max)
        .client_request_timeout(HEAD_TIMEOUT)
        .keep_alive(KEEP_ALIVE)
        .shutdown_timeout(grace.as_secs())
        .disable_signals()
        .listen(listener)?
        .run())
}

fn configure(routes: &mut web::ServiceConfig, public: &Arc<Public>) {
    for (index, endpoint) in public.endpoints.iter().enumerate() {
        for path in [endpoint.path.clone(), format!("{}/", endpoint.path)] {
            routes.service(webhook::resource(&path, Arc::clone(public), index));
        }
    }
    routes
        .service(health::alive("/healthz"))
        .service(health::ready("/readyz", Arc::clone(public)))
        .default_service(web::to(answer::not_found));
}
