//! The progress display: a bar on a terminal, a line every few seconds elsewhere.

use crate::grid::bytes;
use crate::say;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use inrush_load::{Progress, grouped};
use std::collections::VecDeque;
use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// With a known end. The bar takes what the figures leave.
const BAR: &str = "{percent:>3}% {wide_bar} {msg}";
/// Without one: standard input and pipes.
const SPINNER: &str = "{spinner} {msg}";

/// Draws the progress of a load until it is finished.
pub struct Display {
    notices: Notices,
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// Shows lines while the bar is drawn, without spoiling it. Cheap to clone.
#[derive(Clone)]
pub struct Notices {
    bar: Option<ProgressBar>,
}

impl Notices {
    /// Shows a line above the bar.
    pub fn show(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| say::note(text)),
            None => say::note(text),
        }
    }
}

impl Display {
    /// Starts drawing on its own thread.
    pub fn start(progress: &Arc<Progress>, quiet: bool) -> Display {
        let ended = Arc::new(AtomicBool::new(false));
        let terminal = std::io::stderr().is_terminal();
        let bar = (!quiet && terminal)
            .then(|| ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(8)));
        let thread = (!quiet).then(|| {
            let (progress, ended, bar) = (Arc::clone(progress), Arc::clone(&ended), bar.clone());
            std::thread::spawn(move || match bar {
                Some(bar) => draw(&progress, &ended, &bar),
                None => print_lines(&progress, &ended),
            })
        });
        Display { notices: Notices { bar }, ended, thread }
    }

    /// For whoever has to say something while it draws.
    pub fn notices(&self) -> Notices {
        self.notices.clone()
    }

    /// Stops drawing and removes the bar.
    pub fn finish(mut self) {
        self.ended.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic of the drawing thread has printed itself and is no reason to fail a load.
            let _ = thread.join();
        }
        if let Some(bar) = &self.notices.bar {
            bar.finish_and_clear();
        }
    }
}

fn draw(progress: &Progress, ended: &AtomicBool, bar: &ProgressBar) {
    let mut speed = Speed::default();
    let mut template = "";
    while !ended.load(Relaxed) {
        let look = Look::at(progress, &mut speed);
        // Nothing is known before the inputs have been looked at.
        let wanted = if look.total > 0 { BAR } else { SPINNER };
        if template != wanted {
            template = wanted;
            if let Ok(style) = ProgressStyle::with_template(wanted) {
                bar.set_style(style.progress_chars("━╸─"));
            }
        }
        if look.total > 0 {
            bar.set_length(look.total);
            bar.set_position(look.read.min(look.total));
        }
        bar.set_message(look.figures());
        bar.tick();
        std::thread::sleep(Duration::from_millis(125));
    }
}

fn print_lines(progress: &Progress, ended: &AtomicBool) {
    const EVERY: Duration = Duration::from_secs(5);
    let mut next = Instant::now() + EVERY;
    let mut speed = Speed::default();
    // The first line has a speed, too.
    Look::at(progress, &mut speed);
    while !ended.load(Relaxed) {
        std::thread::sleep(Duration::from_millis(50));
        if Instant::now() >= next {
            next += EVERY;
            let look = Look::at(progress, &mut speed);
            let share = (look.read.min(look.total) * 100).checked_div(look.total);
            let share = share.map_or_else(String::new, |percent| format!("{percent}% "));
            say::note(&format!("{share}{}", look.figures()));
        }
    }
}

/// The counters at one moment.
struct Look {
    /// Bytes of the inputs as stored, 0 if not known, and how many of these have been read.
    total: u64,
    read: u64,
    bytes_in: u64,
    rows: u64,
    rejects: u64,
    /// Input bytes per second of late.
    rate: f64,
    left: Option<Duration>,
    elapsed: Duration,
}

impl Look {
    #[allow(clippy::cast_precision_loss)] // figures for a person
    fn at(progress: &Progress, speed: &mut Speed) -> Look {
        let total = progress.bytes_total.load(Relaxed);
        let read = progress.bytes_read.load(Relaxed);
        let bytes_in = progress.bytes_in.load(Relaxed);
        let (rate, stored_rate) = speed.after(Instant::now(), bytes_in, read);
        let left = (total > read && stored_rate > 0.0)
            .then(|| Duration::try_from_secs_f64((total - read) as f64 / stored_rate).ok())
            .flatten();
        Look {
            total,
            read,
            bytes_in,
            rows: progress.rows.load(Relaxed) + progress.rows_before.load(Relaxed),
            rejects: progress.rejects.load(Relaxed),
            rate,
            left,
            elapsed: progress.started.elapsed(),
        }
    }

    /// `12.3 of 300 MB  1,234,567 rows  210 MB/s  eta 0:03  2 rejects`
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a rate is neither negative nor huge
    fn figures(&self) -> String {
        let amount = match self.total {
            0 => bytes(self.bytes_in),
            total => amount_of(self.read.min(total), total),
        };
        let time = match (self.total, self.left) {
            (0, _) => clock(self.elapsed),
            (_, Some(left)) => format!("eta {}", clock(left)),
            (_, None) => String::new(),
        };
        let rejects = match self.rejects {
            0 => String::new(),
            1 => "1 reject".to_owned(),
            n => format!("{} rejects", grouped(n)),
        };
        let rows = format!("{} rows", grouped(self.rows));
        let rate = format!("{}/s", bytes(self.rate as u64));
        let parts = [amount, rows, rate, time, rejects];
        parts.iter().filter(|part| !part.is_empty()).map(String::as_str).collect::<Vec<_>>().join("  ")
    }
}

/// `12.3 of 300 MB`: the unit once where it is the same.
fn amount_of(part: u64, whole: u64) -> String {
    let (part, whole) = (bytes(part), bytes(whole));
    match (part.split_once(' '), whole.split_once(' ')) {
        (Some((number, unit)), Some((_, of))) if unit == of => format!("{number} of {whole}"),
        _ => format!("{part} of {whole}"),
    }
}

/// `0:07`, `12:34`, `1:02:03`
fn clock(time: Duration) -> String {
    let seconds = time.as_secs();
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, minutes, seconds) => format!("{minutes}:{seconds:02}"),
        (hours, minutes, seconds) => format!("{hours}:{minutes:02}:{seconds:02}"),
    }
}

/// Speed over the last few seconds: what it is now matters, and a resumed load skips what it has in no time.
#[derive(Default)]
struct Speed {
    seen: VecDeque<(Instant, u64, u64)>,
}

impl Speed {
    const WINDOW: Duration = Duration::from_secs(6);

    /// Bytes per second of the two counters, which only grow.
    #[allow(clippy::cast_precision_loss)] // figures for a person
    fn after(&mut self, now: Instant, a: u64, b: u64) -> (f64, f64) {
        self.seen.push_back((now, a, b));
        while self.seen.len() > 2 && self.seen.front().is_some_and(|first| now - first.0 > Self::WINDOW) {
            self.seen.pop_front();
        }
        let Some(&(then, first_a, first_b)) = self.seen.front() else { return (0.0, 0.0) };
        let seconds = (now - then).as_secs_f64();
        if seconds < 0.05 {
            return (0.0, 0.0);
        }
        (a.saturating_sub(first_a) as f64 / seconds, b.saturating_sub(first_b) as f64 / seconds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_for_files_and_streams() {
        let mut look = Look {
            total: 300_000_000,
            read: 150_000_000,
            bytes_in: 150_000_000,
            rows: 1_234_567,
            rejects: 0,
            rate: 210e6,
            left: Some(Duration::from_secs(63)),
            elapsed: Duration::from_secs(3700),
        };
        assert_eq!(look.figures(), "150 of 300 MB  1,234,567 rows  210 MB/s  eta 1:03");
        (look.total, look.rejects) = (0, 2);
        assert_eq!(look.figures(), "150 MB  1,234,567 rows  210 MB/s  1:01:40  2 rejects");
    }

    #[test]
    fn speed_is_that_of_the_last_seconds() {
        let mut speed = Speed::default();
        let start = Instant::now();
        let mut last = (0.0, 0.0);
        for second in 0..20u64 {
            // Ten seconds at 100 bytes per second, then at 10.
            let n = if second < 10 { second * 100 } else { 1000 + (second - 10) * 10 };
            last = speed.after(start + Duration::from_secs(second), n, 2 * n);
        }
        assert!((last.0 - 10.0).abs() < 0.1 && (last.1 - 20.0).abs() < 0.2, "{last:?}");
    }
}
