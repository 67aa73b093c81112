//! The sentences under the tables.

use super::tables::gigabytes;
use crate::{Absent, Goal, Place, Record, Run};

/// What stands under the tables: goals, who was absent, what failed, what the preparation did not do, how quiet the
/// machine was.
pub fn notes(record: &Record) -> Vec<String> {
    let mut notes = Vec::new();
    let places = record.places();
    let first = record.case.each_rung().first().map(|rung| rung.name.clone()).unwrap_or_default();
    for goal in &record.case.goals {
        for place in &places {
            let here = goal.rung.as_ref().unwrap_or(&first) == &place.rung;
            if here && goal.server.is_none_or(|major| major == record.servers[place.server].major) {
                notes.extend(judge(record, goal, place));
            }
        }
    }
    notes.extend(record.ended_early.iter().map(|why| format!("ENDED EARLY, the rest did not run: {why}")));
    notes.extend(record.absent.iter().map(Absent::sentence));
    for run in record.runs.iter().filter(|run| run.failure.is_some()) {
        notes.push(format!(
            "failed, not counted: {}: {}, run {}: {}",
            record.title(&run.place()),
            run.contender,
            run.round,
            run.failure.as_deref().unwrap_or_default()
        ));
    }
    for place in &places {
        notes.extend(grown(record, place));
    }
    let foreign: Vec<f64> = record.runs.iter().filter_map(|run| run.foreign_cores).collect();
    let most = foreign.iter().copied().fold(0.0, f64::max);
    if let Some(median) = crate::median(foreign) {
        let noisy =
            if median > 0.2 { ". The machine was not quiet: these figures prove nothing" } else { "" };
        notes.push(format!("foreign CPU during the runs: median {median:.2} cores, most {most:.2}{noisy}"));
    }
    notes
}

/// The last notes of a record of turns: how busy others kept the machine, and why it ended early.
pub fn end_of_notes(foreign_cores: impl Iterator<Item = f64>, ended_early: Option<&str>) -> Vec<String> {
    let most = foreign_cores.fold(0.0, f64::max);
    let foreign = (most > 0.3)
        .then(|| format!("Others used up to {most:.1} cores during a turn: a run like this says little."));
    let early = ended_early.map(|why| format!("Ended early: {why}"));
    foreign.into_iter().chain(early).collect()
}

/// A table that was extended beforehand and had to grow all the same: the rung does not show what it says.
#[allow(clippy::cast_precision_loss)] // figures for a person
fn grown(record: &Record, place: &Place) -> Vec<String> {
    if !record.rung(place).pre_extended {
        return Vec::new();
    }
    let mut notes = Vec::new();
    for contender in record.contenders_at(place) {
        let most = record
            .of(place, &contender.name)
            .filter_map(|run| Some((run.grown_bytes?, record.input_bytes(run))))
            .max();
        if let Some((grown, input)) = most
            && grown > input / 20
        {
            notes.push(format!(
                "{}: with {} the table grew by up to {:.1} MB although it was pre-extended",
                record.title(place),
                contender.name,
                grown as f64 / 1e6
            ));
        }
    }
    notes
}

#[allow(clippy::cast_precision_loss)] // figures for a person
fn judge(record: &Record, goal: &Goal, place: &Place) -> Vec<String> {
    let median = |name: &str, what: &dyn Fn(&Run) -> f64| record.median(place, name, |run| Some(what(run)));
    let where_ = format!("{}: {}", record.title(place), goal.contender);
    let mut notes = Vec::new();
    let mut note = |reached: bool, text: String| {
        notes.push(format!("{}: {where_} {text}", if reached { "reached" } else { "NOT reached" }));
    };
    if let (Some(wanted), Some(against)) = (goal.ratio, &goal.against)
        && let (Some(theirs), Some(ours)) =
            (median(against, &|r| r.seconds), median(&goal.contender, &|r| r.seconds))
    {
        let ratio = theirs / ours;
        note(ratio >= wanted, format!("{ratio:.2} times {against}, wanted {wanted}"));
    }
    let cpu = |name: &str| record.median(place, name, |run| run.server_cpu_seconds);
    if let (Some(wanted), Some(against)) = (goal.server_cpu, &goal.against)
        && let (Some(theirs), Some(ours)) = (cpu(against), cpu(&goal.contender))
    {
        let share = ours / theirs;
        note(share <= wanted, format!("{share:.2} of the server CPU of {against}, wanted at most {wanted}"));
    }
    let per_gb = median(&goal.contender, &|run| run.client_seconds() / gigabytes(record, run));
    if let (Some(wanted), Some(per_gb)) = (goal.client_cpu_per_gb, per_gb) {
        note(per_gb <= wanted, format!("{per_gb:.2} s of client CPU per GB, wanted at most {wanted}"));
    }
    let peak = record.of(place, &goal.contender).map(|run| run.client_peak_bytes).max();
    if let (Some(wanted), Some(peak)) = (goal.peak_mib, peak) {
        let peak = peak as f64 / f64::from(1 << 20);
        note(peak <= wanted, format!("{peak:.0} MiB at most, wanted at most {wanted}"));
    }
    notes
}
