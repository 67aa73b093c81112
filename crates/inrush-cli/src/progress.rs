//! The progress display: a bar on a terminal, a line every few seconds elsewhere.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use inrush_load::{Progress, grouped};
use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Draws the progress of a load until it is finished.
pub struct Display {
    bar: Option<ProgressBar>,
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    quiet: bool,
}

impl Display {
    /// Starts drawing on its own thread.
    pub fn start(progress: &Arc<Progress>, quiet: bool) -> Display {
        let ended = Arc::new(AtomicBool::new(false));
        let terminal = std::io::stderr().is_terminal();
        let bar = (!quiet && terminal).then(|| {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(8));
            let style = ProgressStyle::with_template(
                "{bar:24} {percent:>3}% {binary_bytes}/{binary_total_bytes}  {msg}  eta {eta}",
            );
            if let Ok(style) = style {
                bar.set_style(style);
            }
            bar
        });
        let thread = (!quiet).then(|| {
            let (progress, ended, bar) = (Arc::clone(progress), Arc::clone(&ended), bar.clone());
            std::thread::spawn(move || match bar {
                Some(bar) => draw(&progress, &ended, &bar),
                None => print_lines(&progress, &ended),
            })
        });
        Display { bar, ended, thread, quiet }
    }

    /// Shows a line above the bar.
    pub fn notice(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.println(text),
            None if !self.quiet => eprintln!("{text}"),
            None => {}
        }
    }

    /// Stops drawing and removes the bar.
    pub fn finish(mut self) {
        self.ended.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic of the drawing thread has printed itself and is no reason to fail a load.
            let _ = thread.join();
        }
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

fn draw(progress: &Progress, ended: &AtomicBool, bar: &ProgressBar) {
    while !ended.load(Relaxed) {
        let total = progress.bytes_total.load(Relaxed);
        if total > 0 {
            bar.set_length(total);
        }
        bar.set_position(progress.bytes_read.load(Relaxed));
        bar.set_message(figures(progress));
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn print_lines(progress: &Progress, ended: &AtomicBool) {
    const EVERY: Duration = Duration::from_secs(5);
    let mut next = Instant::now() + EVERY;
    while !ended.load(Relaxed) {
        std::thread::sleep(Duration::from_millis(50));
        if Instant::now() >= next {
            next += EVERY;
            let (read, total) = (progress.bytes_read.load(Relaxed), progress.bytes_total.load(Relaxed));
            let share = if total > 0 { format!("{}% ", read * 100 / total) } else { String::new() };
            eprintln!("{share}{}", figures(progress));
        }
    }
}

#[allow(clippy::cast_precision_loss)] // figures for a person
fn figures(progress: &Progress) -> String {
    let seconds = progress.started.elapsed().as_secs_f64().max(0.001);
    let rejects = progress.rejects.load(Relaxed);
    let rejects = if rejects > 0 { format!(", {} rejects", grouped(rejects)) } else { String::new() };
    format!(
        "{} rows, {:.0} MB/s{rejects}",
        grouped(progress.rows.load(Relaxed)),
        progress.bytes_in.load(Relaxed) as f64 / 1e6 / seconds,
    )
}
