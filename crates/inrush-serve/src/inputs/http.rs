//! HTTP: NDJSON, CSV and Influx line protocol.
//!
//! | request | body |
//! |---|---|
//! | `POST /ingest/TABLE` | by Content-Type: application/x-ndjson (or application/json), text/csv with a header, line protocol |
//! | `POST /write` | line protocol, as InfluxDB 1 takes it: `db`, `precision`, `u` and `p` |
//! | `POST /api/v2/write` | line protocol, as InfluxDB 2 takes it: `org`, `bucket`, `precision` |
//! | `GET /ping`, `GET /health` | none |
//!
//! A body is cut into parts as it comes; memory for a part is taken before it is read. The answer is given when all of
//! them are stored: 204, or 400 if rows were refused (they are dead letters, the others are stored). With an
//! Idempotency-Key a body is stored once, however often it comes.

mod answer;
mod body;
mod listen;

pub(crate) use listen::{acceptor, bind, open, serve};

use super::{Feeder, allowed};
use crate::config::Http;
use crate::part::{Reading, Source};
use answer::Answer;
use body::{Ingest, RowsOf};
use hyper::body::Incoming;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE};
use hyper::{Method, Request};
use inrush_core::{Code, Error, Result};
use inrush_decode::line::Precision;
use std::collections::HashSet;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use tokio_rustls::TlsAcceptor;

/// One HTTP input.
pub(crate) struct HttpInput {
    pub config: Http,
    pub source: Arc<Source>,
    pub feeder: Feeder,
    /// What can be changed while it runs.
    live: RwLock<Live>,
    /// Keys of requests that are under way.
    busy: Mutex<HashSet<String>>,
}

/// What can be changed while an input runs.
struct Live {
    tokens: Vec<String>,
    tls: Option<TlsAcceptor>,
}

impl Live {
    fn of(config: &Http) -> Result<Live> {
        Ok(Live { tokens: config.tokens.clone(), tls: listen::acceptor(config)? })
    }
}

/// A key that is under way until this is dropped.
struct Busy<'a> {
    input: &'a HttpInput,
    key: String,
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.input.busy.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.key);
    }
}

impl HttpInput {
    /// An input that does not listen yet.
    ///
    /// # Errors
    /// Code `usage`, for a certificate or key that is not one.
    pub fn new(config: Http, source: Arc<Source>, feeder: Feeder) -> Result<HttpInput> {
        let live = RwLock::new(Live::of(&config)?);
        Ok(HttpInput { config, source, feeder, live, busy: Mutex::default() })
    }

    /// Takes over tokens and certificates; requests that have begun keep theirs.
    ///
    /// # Errors
    /// As [`HttpInput::new`]; everything stays as it was then.
    pub fn reload(&self, config: &Http) -> Result<()> {
        let fresh = Live::of(config)?;
        if fresh.tls.is_some() != self.tls().is_some() {
            return Err(Error::new(
                Code::Usage,
                format!("input {:?}: TLS cannot come or go while it runs", config.name),
            ));
        }
        *self.live.write().unwrap_or_else(PoisonError::into_inner) = fresh;
        Ok(())
    }

    /// TLS, if the input has it.
    pub fn tls(&self) -> Option<TlsAcceptor> {
        self.live.read().unwrap_or_else(PoisonError::into_inner).tls.clone()
    }

    /// Answers one request.
    pub async fn answer(&self, request: Request<Incoming>) -> Answer {
        let counters = &self.source.counters;
        let path = request.uri().path().to_owned();
        let query = Query::of(request.uri().query().unwrap_or_default());
        let answer = match (request.method(), path.as_str()) {
            (&Method::GET | &Method::HEAD, "/ping") => return Answer::empty(204),
            (&Method::GET | &Method::HEAD, "/health") => return Answer::healthy(),
            // Telegraf's and older clients' CREATE DATABASE: there is none to create.
            (_, "/query") => return Answer::json(200, r#"{"results":[{"statement_id":0}]}"#),
            (&Method::POST, "/write") => {
                counters.requests.fetch_add(1, Relaxed);
                self.lines(request, &query, true).await
            }
            (&Method::POST, "/api/v2/write" | "/api/v3/write_lp") => {
                counters.requests.fetch_add(1, Relaxed);
                self.lines(request, &query, false).await
            }
            (&Method::POST, path) if path.starts_with("/ingest/") => {
                counters.requests.fetch_add(1, Relaxed);
                let table = decoded(&path["/ingest/".len()..]);
                self.rows(request, &query, table).await
            }
            (_, "/write" | "/api/v2/write" | "/api/v3/write_lp") => {
                Answer::error(405, "this path takes POST")
            }
            (_, path) if path.starts_with("/ingest/") => Answer::error(405, "this path takes POST"),
            _ => Answer::error(404, "nothing is here: rows go to /ingest/TABLE, /write or /api/v2/write"),
        };
        if answer.status >= 400 {
            counters.refused.fetch_add(1, Relaxed);
        }
        answer
    }

    /// `POST /write` and its like.
    async fn lines(&self, request: Request<Incoming>, query: &Query, v1: bool) -> Answer {
        if !self.may_send(&request, query) {
            return Answer::unauthorized().influx();
        }
        let precision = match query.get("precision") {
            None | Some("") => Precision::Ns,
            Some(text) => match Precision::parse(text) {
                Some(precision) => precision,
                None => {
                    let known = if v1 { "n, u, ms, s, m or h" } else { "ns, us, ms or s" };
                    return Answer::error(400, &format!("precision {text:?} is not {known}")).influx();
                }
            },
        };
        let table = match &self.config.into.table {
            Some(fixed) if !fixed.contains('{') => Some(fixed.clone()),
            _ => None,
        };
        let rows = RowsOf::Known(Reading::Line { precision });
        self.ingest(request, Ingest { table, rows }).await.influx()
    }

    /// `POST /ingest/TABLE`.
    async fn rows(&self, request: Request<Incoming>, query: &Query, named: String) -> Answer {
        if !self.may_send(&request, query) {
            return Answer::unauthorized();
        }
        if named.is_empty() || named.len() > 63 || named.contains('\0') {
            return Answer::error(404, "the path names no table: POST to /ingest/TABLE");
        }
        if !allowed(&self.config.into, &named) {
            return Answer::error(403, &format!("this input may not write into table {named:?}"));
        }
        let table = match &self.config.into.table {
            Some(template) if template.contains("{tag:") => {
                return Answer::error(
                    422,
                    "tables of this input are named by tags: send line protocol to /write",
                );
            }
            Some(template) => template.replace("{table}", &named).replace("{measurement}", &named),
            None => named,
        };
        let kind = request.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("");
        let kind = kind.split(';').next().unwrap_or("").trim().to_ascii_lowercase();
        let rows = match (query.get("format").unwrap_or(""), kind.as_str()) {
            ("ndjson", _)
            | (
                "",
                "application/x-ndjson"
                | "application/ndjson"
                | "application/jsonl"
                | "application/json-lines"
                | "application/json",
            ) => RowsOf::Known(Reading::Ndjson),
            ("csv", _) | ("", "text/csv" | "application/csv") => match query.get("columns") {
                None => RowsOf::CsvWithHeader,
                Some(columns) => RowsOf::Known(Reading::Csv {
                    dialect: inrush_core::CsvDialect::default(),
                    header: Arc::new(columns.split(',').map(str::to_owned).collect()),
                }),
            },
            ("line", _) | ("", "application/x-influxdb-line-protocol") => {
                RowsOf::Known(Reading::Line { precision: Precision::Ns })
            }
            ("", other) => {
                let fact = format!(
                    "the Content-Type is {other:?}: send application/x-ndjson, text/csv, or say ?format=ndjson, csv or line"
                );
                return Answer::error(415, &fact);
            }
            (other, _) => return Answer::error(400, &format!("format {other:?} is not ndjson, csv or line")),
        };
        self.ingest(request, Ingest { table: Some(table), rows }).await
    }

    /// Whether the request has one of the tokens, if there are any.
    fn may_send(&self, request: &Request<Incoming>, query: &Query) -> bool {
        let live = self.live.read().unwrap_or_else(PoisonError::into_inner);
        if live.tokens.is_empty() {
            return true;
        }
        let header = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        let given = match header.and_then(|value| value.split_once(' ')) {
            Some((scheme, token))
                if scheme.eq_ignore_ascii_case("bearer") || scheme.eq_ignore_ascii_case("token") =>
            {
                Some(token.trim().to_owned())
            }
            Some((scheme, pair)) if scheme.eq_ignore_ascii_case("basic") => basic_password(pair.trim()),
            _ => query.get("p").map(str::to_owned),
        };
        let Some(given) = given else { return false };
        // All are compared, each in the time of its length.
        live.tokens.iter().fold(false, |found, token| found | same(token.as_bytes(), given.as_bytes()))
    }

    /// Takes a key for this request alone. `None` if another request with it is under way.
    fn take_key(&self, key: &str) -> Option<Busy<'_>> {
        let fresh = self.busy.lock().unwrap_or_else(PoisonError::into_inner).insert(key.to_owned());
        fresh.then(|| Busy { input: self, key: key.to_owned() })
    }
}

/// Compares in a time that does not tell where they differ.
fn same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |differ, (x, y)| differ | (x ^ y)) == 0
}

/// The password of `Authorization: Basic` (RFC 7617): clients of InfluxDB 1 put the token there.
fn basic_password(encoded: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let (mut bits, mut count) = (0u32, 0);
    for byte in encoded.bytes().filter(|byte| *byte != b'=') {
        let six = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        bits = bits << 6 | u32::from(six);
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count & 0xff) as u8);
        }
    }
    let text = String::from_utf8(bytes).ok()?;
    Some(text.split_once(':')?.1.to_owned())
}

/// The parameters of a URL.
struct Query(Vec<(String, String)>);

impl Query {
    fn of(text: &str) -> Query {
        let pairs = text.split('&').filter(|pair| !pair.is_empty());
        Query(
            pairs
                .map(|pair| {
                    let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
                    (decoded(&name.replace('+', " ")), decoded(&value.replace('+', " ")))
                })
                .collect(),
        )
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }
}

/// Percent-encoding undone (RFC 3986, 2.1); what is not valid stays as it is.
fn decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let hex = |byte: u8| (byte as char).to_digit(16);
        match (bytes[at], bytes.get(at + 1), bytes.get(at + 2)) {
            (b'%', Some(high), Some(low)) if hex(*high).is_some() && hex(*low).is_some() => {
                let value = hex(*high).unwrap_or(0) * 16 + hex(*low).unwrap_or(0);
                out.push(u8::try_from(value).unwrap_or(b'?'));
                at += 3;
            }
            (byte, ..) => {
                out.push(byte);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_decoded() {
        let query = Query::of("db=my+db&precision=%6Ds&x");
        assert_eq!((query.get("db"), query.get("precision")), (Some("my db"), Some("ms")));
        assert_eq!((query.get("x"), query.get("y")), (Some(""), None));
        assert_eq!(decoded("a%2Fb%zz%4"), "a/b%zz%4");
    }

    #[test]
    fn passwords_are_read() {
        assert_eq!(basic_password("dTpzM2NyZXQ="), Some("s3cret".into()));
        assert_eq!(basic_password("!"), None);
        assert!(same(b"ab", b"ab") && !same(b"ab", b"ac") && !same(b"ab", b"abc"));
    }
}
