//! The operator's pages: the truth in one screen, and from there to everything that it speaks of.
//!
//! A handler parses, calls one operation and renders. What renders is pure: data in, markup out. Whatever asks the books
//! does so beside the thread that serves.

mod account;
mod accounts;
mod audit;
mod event;
mod events;
mod fault;
mod findings;
mod home;
mod jobs;
mod parts;
mod shell;

use std::sync::Arc;

use actix_web::http::header::CONTENT_TYPE;
use actix_web::{HttpResponse, Resource, web};
use rusqlite::Connection;

use crate::http::login::see_other;
use crate::http::private::{Operator, Private, method_not_allowed, reads};
use crate::ops::ingest::{Errand, Ingest};
use crate::store::StoreError;
use crate::store::writer::Writer;

use fault::Fault;

pub(super) use shell::document;

/// So many rows stand on a page; the next ones are a link away.
const ROWS: i64 = 50;

/// The pages.
pub(super) fn configure(routes: &mut web::ServiceConfig, _private: &Arc<Private>) {
    routes
        .service(reads("/", home::show))
        .service(reads("/events", events::show))
        .service(reads("/events/{id}", event::show))
        .service(takes("/events/{id}/try", web::post().to(event::rehearse)))
        .service(takes("/events/{id}/replay", web::post().to(event::replay)))
        .service(takes("/events/{id}/dismiss", web::post().to(event::dismiss)))
        .service(reads("/accounts", accounts::show))
        .service(reads("/accounts/{id}", account::show))
        .service(takes("/accounts/{id}/adjust", web::post().to(account::adjust)))
        .service(reads("/findings", findings::show))
        .service(takes("/findings/{id}/acknowledge", web::post().to(findings::acknowledge)))
        .service(reads("/jobs", jobs::show))
        .service(reads("/audit", audit::show));
}

/// The style sheet of all pages. It tells nothing, so that the form to log in has it, too.
pub(super) fn style() -> Resource {
    reads(shell::STYLE, || async {
        HttpResponse::Ok().insert_header((CONTENT_TYPE, "text/css; charset=utf-8")).body(include_str!("page/style.css"))
    })
}

fn takes(path: &str, route: actix_web::Route) -> Resource {
    web::resource(path).route(route).default_service(web::to(|| async { method_not_allowed("POST") }))
}

/// Reads the books.
async fn read<T: Send + 'static>(
    private: &web::Data<Private>,
    work: impl FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
) -> Result<T, Fault> {
    Ok(private.read(move |reader| reader.read(work)).await?)
}

/// Calls an operation that writes. What it refuses, by an `E`, is the page's to tell.
async fn write<T: Send + 'static, E: Send + 'static>(
    private: &web::Data<Private>,
    work: impl FnOnce(&mut Writer<Ingest>) -> Result<T, E> + Send + 'static,
) -> Result<Result<T, E>, Fault> {
    Ok(private.write(move |desk| Ok::<_, StoreError>(work(desk))).await?)
}

/// What runs events on behalf of an operator.
fn errand(private: &Private, operator: &Operator) -> Errand {
    Errand::new(private.rules.clone(), &format!("operator:{}", operator.name))
}

/// To the page that shows what was done; `done` is a word of ours.
fn to_the_story(path: &str, done: &str) -> HttpResponse {
    see_other(&parts::query(path, &[("done", done)]))
}
