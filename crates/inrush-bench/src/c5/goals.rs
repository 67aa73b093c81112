//! What was reached of what was wanted, and beside what was published.

use crate::c5::{Goal, Published, Record};

/// The scan that goals are about.
const SCAN: &str = "dense bitmap";

/// How `inrush tune io` calls storage with so many reads a second.
const CAPPED: &str = "iops_capped";

/// A goal that was looked at.
#[derive(Debug, Clone, PartialEq)]
pub struct Judged {
    pub wanted: String,
    pub found: String,
    /// `None`: it could not be seen.
    pub met: Option<bool>,
}

impl Judged {
    fn unseen(wanted: String, why: &str) -> Judged {
        Judged { wanted, found: why.to_owned(), met: None }
    }
}

/// Each part of a goal.
pub fn judge(record: &Record, goal: &Goal) -> Vec<Judged> {
    let seconds = |server: &str, value: u32| record.seconds(&goal.rung, server, SCAN, Some(value));
    // A rung that did not run.
    let Some(stored) = record.storage_of(&goal.rung, &goal.server) else { return Vec::new() };
    let asked = &stored.asked;
    let advised = asked.concurrency();
    let why = asked.absent.as_deref().unwrap_or("nothing is recommended");
    let mut judged = Vec::new();
    if let Some(wanted) = goal.over_one {
        let text = format!("the recommended value is {wanted} times as fast as 1");
        let figures =
            advised.and_then(|value| Some((value, seconds(&goal.server, 1)?, seconds(&goal.server, value)?)));
        judged.push(match figures {
            Some((value, one, ours)) => Judged {
                wanted: text,
                found: format!("{value}: {:.1} times", one / ours),
                met: Some(one / ours >= wanted),
            },
            None => Judged::unseen(text, why),
        });
    }
    if let Some(wanted) = goal.of_best {
        let text = format!("it takes at most {wanted} times as long as the best value");
        let values = record.values(&goal.rung, &goal.server, SCAN);
        let all = values.iter().filter_map(|value| Some((*value, seconds(&goal.server, *value)?)));
        let best = all.min_by(|a, b| a.1.total_cmp(&b.1));
        let ours = advised.and_then(|value| seconds(&goal.server, value));
        judged.push(match best.zip(ours) {
            Some(((value, best), ours)) => Judged {
                wanted: text,
                found: format!("{:.2} times as long as {value}", ours / best),
                met: Some(ours / best <= wanted),
            },
            None => Judged::unseen(text, why),
        });
    }
    if let Some(wanted) = goal.workers {
        let text = format!("the recommended io_workers are {wanted} times as fast");
        let workers = asked.advised("io_workers");
        let with = workers.as_deref().and_then(|workers| record.case.with_workers(&goal.server, workers));
        let value = advised.or_else(|| {
            record.of(&goal.rung, &goal.server, "dense planner", None).next().map(|t| t.concurrency)
        });
        let figures = with.zip(value).and_then(|(setup, value)| {
            Some((value, seconds(&goal.server, value)?, seconds(&setup.name, value)?))
        });
        judged.push(match figures {
            Some((value, without, with)) => Judged {
                wanted: text,
                found: format!(
                    "{}, with {value}: {:.1} times",
                    workers.as_deref().unwrap_or_default(),
                    without / with
                ),
                met: Some(without / with >= wanted),
            },
            None if asked.target.is_some() => {
                Judged { wanted: text, found: "io_workers are not named".to_owned(), met: Some(false) }
            }
            None => Judged::unseen(text, why),
        });
    }
    if goal.steered {
        let text = "it is called capped, and seq or 0 is named for dense scans".to_owned();
        judged.push(match &asked.target {
            Some(_) => {
                let class = asked.class().unwrap_or("no class");
                let words = asked.words().to_lowercase();
                let named = ["seq", "effective_io_concurrency 0", "effective_io_concurrency = 0"]
                    .iter()
                    .find(|word| words.contains(*word));
                Judged {
                    wanted: text,
                    found: format!(
                        "{class}; {}",
                        named.map_or("names neither".to_owned(), |word| format!("says {word}"))
                    ),
                    met: Some(class == CAPPED && named.is_some()),
                }
            }
            None => Judged::unseen(text, why),
        });
    }
    judged
}

/// What was published, and the same here: how many times as fast.
pub fn beside(record: &Record, it: &Published, rung: &str, server: &str) -> Option<f64> {
    let against = record.seconds(rung, server, &it.against, Some(it.against_concurrency))?;
    Some(against / record.seconds(rung, server, &it.scan, it.concurrency)?)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::Host;
    use crate::c5::{Asked, Case, Curve, KIND, Stored, Turn, VERSION};
    use serde_json::json;
    use std::collections::BTreeMap;
    use std::path::Path;

    pub fn turn(rung: &str, server: &str, scan: &str, concurrency: u32, seconds: f64) -> Turn {
        Turn {
            rung: rung.to_owned(),
            server: server.to_owned(),
            scan: scan.to_owned(),
            concurrency,
            round: 1,
            seconds,
            device_reads: Some(1000),
            plan: "Bitmap Heap Scan".to_owned(),
            exact_pages: Some(530),
            warm_seconds: Some(0.01),
            ..Turn::default()
        }
    }

    pub fn record(turns: Vec<Turn>, asked: &Asked) -> Record {
        let stored = |rung: &str, server: &str| Stored {
            rung: rung.to_owned(),
            server: server.to_owned(),
            counted: "the layer".to_owned(),
            bytes: BTreeMap::from([(format!("tbx_{rung}"), 8_192_000)]),
            fio: Curve::without("fio is not installed"),
            asked: asked.clone(),
        };
        Record {
            kind: KIND.to_owned(),
            version: VERSION,
            case: Case::built_in().unwrap(),
            began: "2026-11-22 03:04:05".to_owned(),
            command: "inrush bench c5".to_owned(),
            host: Host::here(Path::new("/tmp")),
            servers: BTreeMap::new(),
            absent: Vec::new(),
            storage: vec![
                stored("local", "15"),
                stored("latency", "15"),
                stored("latency", "18 worker 3"),
                stored("capped", "15"),
            ],
            turns,
            predictions: Vec::new(),
            ended_early: None,
        }
    }

    pub fn asked() -> Asked {
        let target = json!({
            "verdict": { "class": "iops_capped", "text": "dense scans: sequential" },
            "advice": [
                { "setting": "effective_io_concurrency", "advised": "64" },
                { "setting": "io_workers", "advised": "32" },
            ],
        });
        Asked { target: Some(target), seconds: 30.0, absent: None }
    }

    fn judge_all(record: &Record) -> Vec<(String, Option<bool>)> {
        record.case.goals.iter().flat_map(|goal| judge(record, goal)).map(|it| (it.found, it.met)).collect()
    }

    #[test]
    fn goals_are_of_medians_of_the_recommended_value() {
        let mut failed = turn("local", "15", SCAN, 64, 0.01);
        failed.failure = Some("no".to_owned());
        let turns = vec![
            turn("local", "15", SCAN, 1, 4.0),
            turn("local", "15", SCAN, 64, 1.3),
            turn("local", "15", SCAN, 64, 1.2),
            turn("local", "15", SCAN, 64, 1.0),
            failed,
            turn("local", "15", SCAN, 128, 1.0),
            turn("latency", "15", SCAN, 1, 9.5),
            turn("latency", "15", SCAN, 64, 0.2),
            turn("latency", "18 worker 3", SCAN, 64, 1.6),
            turn("latency", "18 worker 32", SCAN, 64, 0.2),
        ];
        let found = judge_all(&record(turns.clone(), &asked()));
        let expected = [
            ("64: 3.3 times", Some(true)),
            ("1.20 times as long as 128", Some(false)),
            ("64: 47.5 times", Some(true)),
            ("32, with 64: 8.0 times", Some(true)),
            ("iops_capped; says seq", Some(true)),
        ];
        let found: Vec<_> = found.iter().map(|(found, met)| (found.as_str(), *met)).collect();
        assert_eq!(found, expected);
        let it = &record(turns, &asked()).case.published[0].clone();
        let other =
            record(vec![turn("local", "15", SCAN, 1, 4.0), turn("local", "15", SCAN, 8, 1.0)], &asked());
        assert_eq!(beside(&other, it, "local", "15"), Some(4.0));
        assert_eq!(beside(&other, it, "latency", "15"), None);
    }

    #[test]
    fn without_an_answer_goals_are_not_judged() {
        let found =
            judge_all(&record(vec![turn("local", "15", SCAN, 1, 4.0)], &Asked::without("no such command")));
        assert_eq!(found.len(), 5);
        assert!(found.iter().all(|(_, met)| met.is_none()), "{found:?}");
        assert_eq!(found[0].0, "no such command");
    }
}
