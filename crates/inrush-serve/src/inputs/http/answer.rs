//! What a sender is told.

use crate::ack::Outcome;
use bytes::Bytes;
use http_body_util::Full;
use hyper::Response;
use hyper::header::{CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use inrush_core::{Code, Error};
use serde_json::json;

/// An answer.
pub(crate) struct Answer {
    pub status: u16,
    body: Option<String>,
    /// What is wrong, for formats of others.
    fact: String,
    headers: Vec<(HeaderName, String)>,
    /// Whether the connection is of use for another request.
    pub close: bool,
}

impl Answer {
    fn new(status: u16) -> Answer {
        Answer { status, body: None, fact: String::new(), headers: Vec::new(), close: false }
    }

    pub fn empty(status: u16) -> Answer {
        // Clients of InfluxDB look at its version before they send.
        Answer::new(status).header("x-influxdb-version", "1.8.10")
    }

    pub fn json(status: u16, body: &str) -> Answer {
        Answer { body: Some(body.to_owned()), ..Answer::new(status) }
    }

    pub fn healthy() -> Answer {
        Answer::json(
            200,
            r#"{"name":"inrush","status":"pass","message":"ready for writes","version":"1.8.10"}"#,
        )
    }

    /// A refusal.
    pub fn error(status: u16, fact: &str) -> Answer {
        Answer {
            body: Some(json!({ "error": fact }).to_string()),
            fact: fact.to_owned(),
            ..Answer::new(status)
        }
    }

    pub fn unauthorized() -> Answer {
        Answer::error(401, "no token, or a wrong one").header_of(WWW_AUTHENTICATE, "Bearer".to_owned())
    }

    /// Come back later.
    pub fn later(status: u16, seconds: u64, fact: &str) -> Answer {
        Answer::error(status, fact).header_of(RETRY_AFTER, seconds.max(1).to_string())
    }

    fn header(self, name: &'static str, value: &str) -> Answer {
        self.header_of(HeaderName::from_static(name), value.to_owned())
    }

    fn header_of(mut self, name: HeaderName, value: String) -> Answer {
        self.headers.push((name, value));
        self
    }

    /// The connection is closed after it: not all of the request was read.
    pub fn closing(mut self) -> Answer {
        self.close = true;
        self
    }

    /// What became of a body.
    pub fn of(outcome: &Outcome, durability: &'static str) -> Answer {
        if let Some(error) = &outcome.failed {
            return Answer::failed(error);
        }
        let rows = (outcome.rows + outcome.known).to_string();
        let mut answer = if outcome.rejects == 0 {
            Answer::empty(204)
        } else {
            let refused: Vec<_> = outcome
                .refused
                .iter()
                .map(|one| json!({ "line": one.line, "sqlstate": one.sqlstate, "reason": one.reason }))
                .collect();
            let line = outcome.refused.first().and_then(|one| one.line);
            let reason = outcome.refused.first().map_or("", |one| &one.reason);
            let place = line.map_or(String::new(), |line| format!("line {line}: "));
            let fact = format!("partial write: {} rows refused: {place}{reason}", outcome.rejects);
            let body = json!({
                "error": fact, "rows": outcome.rows + outcome.known, "rejects": outcome.rejects, "refused": refused,
            });
            Answer { body: Some(body.to_string()), fact, ..Answer::new(400) }
        };
        answer = answer.header("inrush-rows", &rows).header("inrush-durability", durability);
        if outcome.known > 0 {
            answer = answer.header("inrush-known-rows", &outcome.known.to_string());
        }
        if outcome.dropped > 0 {
            answer = answer.header("inrush-dropped-rows", &outcome.dropped.to_string());
        }
        answer
    }

    /// Why nothing, or not everything, is stored.
    pub fn failed(error: &Error) -> Answer {
        let fact = match error.sqlstate_text() {
            Some(sqlstate) => format!("{} (SQLSTATE {sqlstate})", error.fact()),
            None => error.fact().to_owned(),
        };
        match error.code() {
            Code::Table => Answer::error(404, &fact),
            Code::Columns | Code::Clash | Code::Usage => Answer::error(422, &fact),
            Code::Fenced => Answer::later(409, 1, &fact),
            _ => Answer::later(503, 1, &fact),
        }
    }

    /// As InfluxDB words its errors.
    pub fn influx(mut self) -> Answer {
        if self.status >= 400 {
            let code = match self.status {
                400 | 422 => "invalid",
                401 => "unauthorized",
                403 => "forbidden",
                404 => "not found",
                413 => "request too large",
                429 => "too many requests",
                503 => "unavailable",
                _ => "internal error",
            };
            self.body = Some(json!({ "code": code, "message": self.fact, "error": self.fact }).to_string());
            let header = self.fact.replace(|c: char| c.is_control() || !c.is_ascii(), "?");
            self = self.header("x-influxdb-error", &header);
        }
        self
    }

    /// As it goes over the wire.
    pub fn response(self) -> Response<Full<Bytes>> {
        let mut response = Response::new(Full::new(Bytes::from(self.body.clone().unwrap_or_default())));
        *response.status_mut() =
            hyper::StatusCode::from_u16(self.status).unwrap_or(hyper::StatusCode::INTERNAL_SERVER_ERROR);
        let headers = response.headers_mut();
        if self.body.is_some() {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        for (name, value) in self.headers {
            if let Ok(value) = HeaderValue::from_str(&value) {
                headers.insert(name, value);
            }
        }
        if self.close {
            headers.insert(hyper::header::CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}
