//! What was reached of what was wanted, and beside what was published.

use crate::c4::{Goal, Published, Record};

/// A goal that was looked at.
#[derive(Debug, Clone, PartialEq)]
pub struct Judged {
    pub wanted: String,
    pub found: String,
    pub met: bool,
}

/// With which `synchronous_commit` goals are judged.
const JUDGED: &str = "off";

/// Each part of a goal that there are figures for.
pub fn judge(record: &Record, goal: &Goal) -> Vec<Judged> {
    let rate = |name: &str| record.median(&goal.rung, JUDGED, name, |turn| Some(turn.rate()));
    // The fastest of them.
    let against =
        goal.against.iter().filter_map(|name| Some((name, rate(name)?))).max_by(|a, b| a.1.total_cmp(&b.1));
    let (Some((name, theirs)), Some(ours)) = (against, rate(&goal.contender)) else { return Vec::new() };
    let mut judged = Vec::new();
    if let Some(wanted) = goal.ratio {
        let found = ours / theirs;
        judged.push(Judged {
            wanted: format!("{wanted} times {name}"),
            found: format!("{found:.2}"),
            met: found >= wanted,
        });
    }
    if let Some(wanted) = goal.coordinator_cpu
        && let Some(found) = coordinator_over(record, &goal.rung, JUDGED, &goal.contender, name)
    {
        judged.push(Judged {
            wanted: format!("at most {wanted} of {name}'s coordinator CPU"),
            found: format!("{found:.3}"),
            met: found <= wanted,
        });
    }
    judged
}

/// Of the coordinator's CPU for each operation, how much a contender takes over another.
pub fn coordinator_over(
    record: &Record,
    rung: &str,
    synchronous_commit: &str,
    contender: &str,
    against: &str,
) -> Option<f64> {
    let each = |name: &str| {
        record.median(rung, synchronous_commit, name, |turn| Some(turn.each(turn.coordinator_cpu_seconds?)))
    };
    let theirs = each(against)?;
    // Hundredths of a second are all that is known.
    (theirs > 0.0).then(|| each(contender).map(|ours| ours / theirs)).flatten()
}

/// What was published, and the same here: operations a second, and operations for each CPU second of the coordinator.
pub fn beside(record: &Record, it: &Published, synchronous_commit: &str) -> Option<(f64, Option<f64>)> {
    let rate = |name: &str| record.median(&it.rung, synchronous_commit, name, |turn| Some(turn.rate()));
    let ratio = rate(&it.contender)? / rate(&it.against)?;
    let part = coordinator_over(record, &it.rung, synchronous_commit, &it.contender, &it.against);
    Some((ratio, part.filter(|part| *part > 0.0 && it.work.is_some()).map(|part| 1.0 / part)))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::Host;
    use crate::c4::{Case, KIND, Turn, VERSION};
    use std::path::Path;

    pub fn turn(rung: &str, contender: &str, operations: u64, coordinator: Option<f64>) -> Turn {
        Turn {
            rung: rung.to_owned(),
            contender: contender.to_owned(),
            synchronous_commit: "off".to_owned(),
            round: 1,
            seconds: 2.0,
            operations,
            coordinator_cpu_seconds: coordinator,
            workers_cpu_seconds: coordinator,
            client_cpu_seconds: 0.5,
            ..Turn::default()
        }
    }

    pub fn record(turns: Vec<Turn>) -> Record {
        Record {
            kind: KIND.to_owned(),
            version: VERSION,
            case: Case::built_in().unwrap(),
            began: "2026-11-22 03:04:05".to_owned(),
            command: "inrush bench c4".to_owned(),
            host: Host::here(Path::new("/tmp")),
            nodes: Vec::new(),
            absent: Vec::new(),
            turns,
            ended_early: None,
        }
    }

    #[test]
    fn goals_are_of_medians_and_of_the_fastest() {
        let mut failed = turn("fdw", "inrush", 1, None);
        failed.failure = Some("no".to_owned());
        let record = record(vec![
            turn("fdw", "inrush", 5000, None),
            turn("fdw", "inrush", 6000, None),
            turn("fdw", "inrush", 9000, None),
            failed,
            turn("fdw", "fdw-copy", 100, None),
            turn("fdw", "fdw-insert-select", 2000, None),
            turn("copy", "psql-1", 1000, Some(2.0)),
            turn("copy", "inrush", 1900, Some(0.019)),
            turn("insert", "coord-simple", 1000, Some(1.0)),
            turn("insert", "fn-auto", 2000, Some(0.5)),
        ]);
        let judged: Vec<_> = record.case.goals.iter().flat_map(|goal| judge(&record, goal)).collect();
        let words: Vec<_> = judged.iter().map(|it| (it.wanted.as_str(), it.found.as_str(), it.met)).collect();
        assert_eq!(
            words,
            [
                ("2 times psql-1", "1.90", false),
                ("at most 0.02 of psql-1's coordinator CPU", "0.005", true),
                ("2.5 times fdw-insert-select", "3.00", true),
            ]
        );
        let it = &record.case.published[0];
        assert_eq!(beside(&record, it, "off"), Some((2.0, Some(4.0))));
        assert_eq!(beside(&record, it, "on"), None);
    }
}
