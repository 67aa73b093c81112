//! Who sends to serve.

use crate::c3::blocks::{Block, now};
use crate::c3::counter::Histogram;
use crate::c3::http::Connection;
use std::io::Write;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

/// What is sent by whom.
#[derive(Debug)]
pub struct Senders<'s> {
    pub socket: &'s Path,
    pub tables: u32,
    pub connections: u32,
    pub block: Block,
    /// Rows a second of all together.
    pub paced_to: Option<f64>,
}

/// What they were told.
#[derive(Debug, Default)]
pub struct Told {
    pub answers: Histogram,
    pub to_come_back: AtomicU64,
    pub failure: Mutex<Option<String>>,
}

impl Senders<'_> {
    /// Sends until then, or until told to stop; every row that is answered for is counted.
    pub fn run(&self, until: Instant, stop: &AtomicBool, rows: &AtomicU64) -> Told {
        let told = Told::default();
        let began = Instant::now();
        thread::scope(|scope| {
            for number in 0..self.connections {
                let told = &told;
                scope.spawn(move || {
                    if let Err(e) = self.one(number, began, until, stop, rows, told) {
                        stop.store(true, Relaxed);
                        let mut failure =
                            told.failure.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                        failure.get_or_insert(e);
                    }
                });
            }
        });
        told
    }

    fn one(
        &self,
        number: u32,
        began: Instant,
        until: Instant,
        stop: &AtomicBool,
        rows: &AtomicU64,
        told: &Told,
    ) -> Result<(), String> {
        let table = format!("t{}", number % self.tables);
        let mut block = self.block.clone();
        let mut connection = Connection::open(self.socket).map_err(|e| format!("no connection: {e}"))?;
        #[allow(clippy::cast_precision_loss)] // rows of a block
        let pause = self
            .paced_to
            .map(|rate| Duration::from_secs_f64(block.rows as f64 * f64::from(self.connections) / rate));
        let mut due = began + pause.unwrap_or_default() * number / self.connections;
        while !stop.load(Relaxed) {
            if pause.is_some() {
                thread::sleep(due.saturating_duration_since(Instant::now()));
            } else {
                due = Instant::now();
            }
            if Instant::now() >= until {
                break;
            }
            block.stamp(now());
            loop {
                let answer = connection.post(&table, block.bytes()).map_err(|e| format!("no answer: {e}"))?;
                match answer.status {
                    204 if answer.rows == block.rows => break,
                    429 | 503 if Instant::now() < until => {
                        told.to_come_back.fetch_add(1, Relaxed);
                        thread::sleep(Duration::from_millis(100));
                    }
                    status => {
                        return Err(format!("answer {status} for {} rows: {}", answer.rows, answer.body));
                    }
                }
            }
            rows.fetch_add(block.rows, Relaxed);
            told.answers.add(due.elapsed(), block.rows);
            due += pause.unwrap_or_default();
        }
        Ok(())
    }
}

/// Writes blocks into a pipe, as standard input is written; how many rows.
pub fn pipe(
    input: &mut impl Write,
    header: &[u8],
    block: &mut Block,
    until: Instant,
    stop: &AtomicBool,
) -> std::io::Result<u64> {
    input.write_all(header)?;
    let mut rows = 0;
    while Instant::now() < until && !stop.load(Relaxed) {
        block.stamp(now());
        input.write_all(block.bytes())?;
        rows += block.rows;
    }
    Ok(rows)
}
