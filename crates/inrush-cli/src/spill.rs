//! `inrush spill`

use crate::args::{LogForm, SpillCommand};
use crate::{say, serve};
use inrush_core::Result;
use inrush_serve::Switch;
use std::path::Path;
use std::process::ExitCode;

/// Checks or drains.
pub fn run(command: SpillCommand) -> Result<ExitCode> {
    match command {
        SpillCommand::Check { dir, json } => check(&dir, json),
        SpillCommand::Drain { config } => {
            let read = serve::read(&config)?;
            serve::log(LogForm::Text, 0);
            let switch = Switch::new();
            serve::on_signals(&switch, &config)?;
            let stopped = inrush_serve::drain(&read, &switch)?;
            say::out(&format!("drained: {} rows stored, {} refused\n", stopped.rows, stopped.rejects))?;
            Ok(serve::exit_code(&stopped))
        }
    }
}

fn check(dir: &Path, json: bool) -> Result<ExitCode> {
    let report = inrush_spill::check(dir).map_err(|error| match error.hint_text() {
        Some(_) => error,
        None => error
            .hint("Give the directory that spill.dir of the configuration names, as a user who may read it."),
    })?;
    if json {
        say::json(&report)?;
    } else {
        let mut text = format!(
            "spill {}: {} records in {} segments, {} bytes, positions {} to {}\n",
            report.id.as_deref().unwrap_or("without id"),
            report.records,
            report.segments,
            report.bytes,
            report.oldest,
            report.end
        );
        if report.in_use {
            text += "in use by a process: what it writes now may look torn\n";
        }
        if let Some(torn) = &report.torn {
            text += &format!(
                "torn end: {} bytes at position {}, cut off at the next start; never acknowledged\n",
                torn.bytes, torn.position
            );
        }
        match &report.damage {
            Some(damage) => text += &format!("damaged at position {}: {}\n", damage.position, damage.why),
            None => text += "whole\n",
        }
        say::out(&text)?;
    }
    Ok(if report.damage.is_some() { ExitCode::from(2) } else { ExitCode::SUCCESS })
}
