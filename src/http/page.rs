//! The operator's pages: the truth in one screen, and from there to everything that it speaks of.
//!
//! A handler parses, calls one operation and renders. What renders is pure: data in, markup out. Whatever asks the books
//! does so beside the thread that serves.

mod account;
mod accounts;
mod audit;
mod books;
mod event;
mod events;
mod fault;
mod findings;
mod home;
mod jobs;
mod parts;
mod shell;
mod verdict;

use actix_web::http::header::CONTENT_TYPE;
use actix_web::{HttpResponse, Resource, ResponseError as _, web};

use self::fault::Fault;
use crate::http::private::{BODY_BYTES_MAX, forms, parameters, posts, reads};

pub(super) use shell::{document, mode};

/// The pages.
pub(super) fn configure(routes: &mut web::ServiceConfig) {
    routes
        .app_data(forms(BODY_BYTES_MAX, |problem| Fault::from(problem).into()))
        .app_data(parameters(|problem| Fault::from(problem).into()))
        .service(reads("/", home::show))
        .service(reads("/events", events::show))
        .service(reads("/events/{id}", event::show))
        .service(posts("/events/{id}/try", event::rehearse))
        .service(posts("/events/{id}/replay", event::replay))
        .service(posts("/events/{id}/dismiss", event::dismiss))
        .service(reads("/accounts", accounts::show))
        .service(reads("/accounts/{id}", account::show))
        .service(posts("/accounts/{id}/adjust", account::adjust))
        .service(reads("/findings", findings::show))
        .service(posts("/findings/{id}/acknowledge", findings::acknowledge))
        .service(reads("/jobs", jobs::show))
        .service(reads("/audit", audit::show));
}

/// There is no such page.
pub(super) fn not_found() -> HttpResponse {
    Fault::not_found("there is nothing at this address; the pages above are all there are").error_response()
}

/// The style sheet of all pages. It tells nothing, so that the form to log in has it, too.
pub(super) fn style() -> Resource {
    reads(shell::STYLE, || async {
        HttpResponse::Ok().insert_header((CONTENT_TYPE, "text/css; charset=utf-8")).body(include_str!("page/style.css"))
    })
}
