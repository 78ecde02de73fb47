//! Whether the process runs, and whether it can do its work.

use std::path::Path;
use std::sync::Arc;

use actix_web::http::StatusCode;
use actix_web::{HttpResponse, Resource, web};
use serde_json::json;

use crate::domain::alert::DISK_BYTES_MIN;
use crate::http::{Public, answer};
use crate::store::disk;

/// 200 while the process runs.
pub(super) fn alive(path: &str) -> Resource {
    web::resource(path)
        .route(web::get().to(|| async { HttpResponse::Ok().json(json!({ "status": "alive" })) }))
        .route(web::head().to(HttpResponse::Ok))
        .default_service(web::to(|| async { answer::method_not_allowed("GET, HEAD") }))
}

/// 200 when the writer lives, the database takes writes and the disk has room; else 503 with the reason.
pub(super) fn ready(path: &str, public: Arc<Public>) -> Resource {
    let handler = move || {
        let public = Arc::clone(&public);
        async move {
            match public.writer.health().check().and_then(|()| disk_has_room(&public.folder)) {
                Ok(()) => HttpResponse::Ok().json(json!({ "status": "ready" })),
                Err(reason) => answer::refused(StatusCode::SERVICE_UNAVAILABLE, "not_ready", &reason),
            }
        }
    };
    web::resource(path)
        .route(web::get().to(handler.clone()))
        .route(web::head().to(handler))
        .default_service(web::to(|| async { answer::method_not_allowed("GET, HEAD") }))
}

fn disk_has_room(folder: &Path) -> Result<(), String> {
    let free = disk::free(folder).map_err(|error| format!("the disk cannot be asked for its room: {error}"))?;
    if free < DISK_BYTES_MIN {
        return Err(format!("the disk of the database has only {} MiB left", free >> 20));
    }
    Ok(())
}
