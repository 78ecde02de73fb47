//! The operator's page.

use std::sync::Arc;

use actix_web::{HttpResponse, web};
use maud::{DOCTYPE, html};

use crate::http::private::{Operator, Private, reads};

/// The page at `/`.
pub(super) fn configure(routes: &mut web::ServiceConfig, _private: &Arc<Private>) {
    routes.service(reads("/", home));
}

async fn home(operator: Operator) -> HttpResponse {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head { meta charset="utf-8"; title { "billingd" } }
            body {
                main {
                    h1 { "billingd" }
                    p { "You are " (operator.name) "." }
                    form method="post" action="/logout" {
                        input type="hidden" name="csrf" value=(operator.csrf);
                        button { "Log out" }
                    }
                }
            }
        }
    };
    HttpResponse::Ok().content_type("text/html; charset=utf-8").body(page.into_string())
}
