//! `/metrics`, `/health` and `/ready`.

use crate::inputs::Feeder;
use crate::inputs::http::bind;
use crate::spill::SpillLog;
use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use inrush_core::Result;
use serde_json::json;
use std::convert::Infallible;
use std::sync::{Arc, PoisonError};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// Connections at once: whoever asks is expected to be one.
const CONNECTIONS: usize = 32;

/// Opens the socket.
pub(crate) async fn listen(address: &str) -> Result<TcpListener> {
    bind("admin", address).await
}

/// Answers until the task is dropped, and its connections with it: each has a feeder, which keeps splitters waiting.
pub(crate) async fn serve(listener: TcpListener, feeder: Feeder) {
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    let mut connections = JoinSet::new();
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        let Ok((socket, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        while connections.try_join_next().is_some() {}
        let feeder = feeder.clone();
        connections.spawn(async move {
            let service = service_fn(|request: Request<Incoming>| {
                let response = answer(&feeder, request.uri().path());
                async move { Ok::<_, Infallible>(response) }
            });
            let served = hyper::server::conn::http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(Duration::from_secs(10))
                .serve_connection(TokioIo::new(socket), service)
                .await;
            drop((served, place));
        });
    }
}

fn answer(feeder: &Feeder, path: &str) -> Response<Full<Bytes>> {
    let metrics = &feeder.metrics;
    let (status, kind, body) = match path {
        "/metrics" => {
            let memory = (feeder.memory.used(), feeder.memory.all());
            (
                StatusCode::OK,
                "text/plain; version=0.0.4",
                metrics.prometheus(memory, feeder.spill.as_ref().map(SpillLog::figures)),
            )
        }
        "/health" => (StatusCode::OK, "application/json", json!({ "status": "pass" }).to_string()),
        "/ready" => {
            let mut why = metrics.not_ready(feeder.limits.rejects_per_minute);
            why.extend(
                feeder.spill.as_ref().and_then(SpillLog::held).map(|why| format!("the spill is held: {why}")),
            );
            let spill = feeder.spill.as_ref().map(SpillLog::figures);
            let spill = spill.map(|s| json!({ "bytes": s.bytes, "disk": s.disk, "age_seconds": s.age }));
            let limit = metrics.limit.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let body = json!({
                "ready": why.is_empty(), "why": why, "limit": limit,
                "spill": spill,
                "memory": { "used": feeder.memory.used(), "limit": feeder.memory.all() },
            });
            let status = if why.is_empty() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
            (status, "application/json", body.to_string())
        }
        _ => (StatusCode::NOT_FOUND, "text/plain", "/metrics, /health and /ready are here\n".to_owned()),
    };
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}
