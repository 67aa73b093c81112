//! Ours beside the published figures. Only ratios are compared: theirs are of other machines and versions.

use crate::{Place, Record};

/// The rungs that are divided by one base.
#[derive(Debug, Clone)]
pub struct Ladder {
    /// What it climbs, server and `synchronous_commit` of the base.
    pub title: String,
    /// What is divided by what.
    pub about: String,
    /// What the others are divided by.
    pub foot: Place,
    /// Rung by rung, contender by contender.
    pub lines: Vec<LadderLine>,
}

impl Ladder {
    /// Whether the study has figures for any of its rungs.
    pub fn has_published(&self) -> bool {
        self.lines.iter().any(|line| line.published.is_some())
    }
}

/// A contender on a rung.
#[derive(Debug, Clone)]
pub struct LadderLine {
    /// The rung's name, with the number of sessions where it has several.
    pub rung: String,
    /// The table in words.
    pub table: String,
    /// Who.
    pub contender: String,
    /// Its MB/s here.
    pub mbps: Option<f64>,
    /// The same over that of the same contender on the base.
    pub ours: Option<f64>,
    /// The study's MB/s.
    pub published_mbps: Option<f64>,
    /// The same over the study's base.
    pub published: Option<f64>,
    /// What was different there.
    pub note: String,
}

/// A published comparison of contenders, and ours.
#[derive(Debug, Clone)]
pub struct Beside {
    /// What the study compares.
    pub what: String,
    /// Our servers and contenders.
    pub here: String,
    /// How many times as many rows a second; `None` when one of the two has no run.
    pub ours: Option<f64>,
    /// The same in the study.
    pub published: f64,
    /// What was different there.
    pub note: String,
}

/// The ladders of a record: of its rungs over their base, and of every rung with several numbers of sessions over its
/// fewest; one for each server and value of `synchronous_commit`.
pub fn ladders(record: &Record) -> Vec<Ladder> {
    let mut ladders = of_rungs(record);
    ladders.extend(of_sessions(record));
    ladders
}

fn of_rungs(record: &Record) -> Vec<Ladder> {
    let Some(base) = &record.case.ladder_base else { return Vec::new() };
    let places = record.places();
    let base_mbps = record
        .case
        .rungs
        .iter()
        .find(|rung| rung.name == *base)
        .and_then(|rung| Some(rung.published.as_ref()?.mbps));
    let mut ladders = Vec::new();
    for foot in places.iter().filter(|place| place.rung == *base) {
        let above: Vec<&Place> = places
            .iter()
            .filter(|place| place.sessions.is_none())
            .filter(|place| foot_of(record, &places, base, place) == Some(foot))
            .collect();
        if above.len() < 2 {
            continue;
        }
        ladders.push(Ladder {
            title: format!("The ladder: {}", place_of(record, foot)),
            about: format!(
                "MB/s of a rung over MB/s of the same contender on {base}, here and in the study."
            ),
            foot: foot.clone(),
            lines: above.iter().flat_map(|place| lines(record, foot, place, base_mbps)).collect(),
        });
    }
    ladders
}

fn of_sessions(record: &Record) -> Vec<Ladder> {
    let places = record.places();
    let mut ladders = Vec::new();
    for rung in record.case.rungs.iter().filter(|rung| rung.sessions.len() > 1) {
        let fewest = rung.sessions.iter().min().copied();
        for foot in places.iter().filter(|place| place.rung == rung.name && place.sessions == fewest) {
            let above = places.iter().filter(|place| {
                place.rung == rung.name
                    && place.server == foot.server
                    && place.synchronous_commit == foot.synchronous_commit
            });
            ladders.push(Ladder {
                title: format!("{}: {}", rung.name, place_of(record, foot)),
                about: "MB/s over MB/s of the same contender with the fewest sessions.".to_owned(),
                foot: foot.clone(),
                lines: above.flat_map(|place| lines(record, foot, place, None)).collect(),
            });
        }
    }
    ladders
}

fn place_of(record: &Record, place: &Place) -> String {
    format!("{}, synchronous_commit {}", record.server_title(place.server), place.synchronous_commit)
}

/// The place of the base that a place is divided by: on the same server, else (other blocks are another server) on one
/// of the same major version that the bench started, too.
fn foot_of<'p>(record: &Record, places: &'p [Place], base: &str, place: &Place) -> Option<&'p Place> {
    let facts = |place: &Place| &record.servers[place.server];
    let feet = || {
        places.iter().filter(|foot| foot.rung == base && foot.synchronous_commit == place.synchronous_commit)
    };
    feet().find(|foot| foot.server == place.server).or_else(|| {
        feet().find(|foot| {
            facts(foot).major == facts(place).major
                && facts(foot).started_for_this
                && facts(place).started_for_this
        })
    })
}

fn lines(record: &Record, foot: &Place, place: &Place, base_mbps: Option<f64>) -> Vec<LadderLine> {
    let rung = record.rung(place);
    let name = match place.sessions {
        Some(n) => format!("{} x{n}", rung.name),
        None => rung.name.clone(),
    };
    record
        .contenders_at(place)
        .filter(|contender| contender.server)
        .map(|contender| {
            let mbps = record.mbps(place, &contender.name);
            let base = record.mbps(foot, &contender.name);
            let published = rung.published.as_ref();
            LadderLine {
                rung: name.clone(),
                table: rung.table_form(),
                contender: contender.name.clone(),
                mbps,
                ours: mbps.zip(base).map(|(mbps, base)| mbps / base),
                published_mbps: published.map(|one| one.mbps),
                published: published.map(|one| one.mbps).zip(base_mbps).map(|(mbps, base)| mbps / base),
                note: published.map(|one| one.note.clone()).unwrap_or_default(),
            }
        })
        // Contenders that the base does not have say nothing of the ladder.
        .filter(|line| line.ours.is_some())
        .collect()
}

/// The published comparisons of contenders, on each server.
pub fn beside(record: &Record) -> Vec<Beside> {
    let mut all = Vec::new();
    for one in &record.case.published {
        let (Some(contender), Some(against)) =
            (record.case.contender(&one.contender), record.case.contender(&one.against))
        else {
            continue;
        };
        for place in record.places() {
            let has = |name: &str| record.contenders_at(&place).any(|contender| contender.name == name);
            if place.synchronous_commit == one.synchronous_commit && has(&one.contender) && has(&one.against)
            {
                all.push(Beside {
                    what: format!("{}, synchronous_commit {}", one.what, one.synchronous_commit),
                    here: format!(
                        "{}: {} over {}",
                        record.server_title(place.server),
                        one.contender,
                        one.against
                    ),
                    ours: record.times_as_fast(&place, contender, against),
                    published: one.ratio,
                    note: one.note.clone(),
                });
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Published, Rung};

    fn published(mbps: f64) -> Option<Published> {
        Some(Published { mbps, rows_per_s: None, note: String::new() })
    }

    /// The runs of a kept record as the base's, and again, in half the time, as those of a rung on servers with larger
    /// blocks.
    fn twice() -> Record {
        let kept = include_str!("../tests/version-1.json");
        let mut record: Record = serde_json::from_str(kept).unwrap();
        record.case.ladder_base = Some("base".to_owned());
        record.case.rungs = vec![
            Rung { name: "base".to_owned(), published: published(91.0), ..Rung::unnamed() },
            Rung {
                name: "larger".to_owned(),
                block_size: 32768,
                published: published(212.0),
                ..Rung::unnamed()
            },
        ];
        let servers = record.servers.len();
        for mut facts in record.servers.clone() {
            facts.block_size = 32768;
            record.servers.push(facts);
        }
        for mut run in std::mem::take(&mut record.runs) {
            run.rung = "base".to_owned();
            record.runs.push(run.clone());
            run.rung = "larger".to_owned();
            run.server += servers;
            run.seconds /= 2.0;
            record.runs.push(run);
        }
        record
    }

    #[test]
    fn rungs_are_divided_by_the_base_of_their_version() {
        let record = twice();
        let ladders = ladders(&record);
        // Two versions, synchronous_commit off and on.
        assert_eq!(ladders.len(), 4);
        for ladder in &ladders {
            assert!(ladder.has_published());
            for line in ladder.lines.iter().filter(|line| line.mbps.is_some()) {
                let (ours, theirs) = if line.rung == "larger" { (2.0, 212.0 / 91.0) } else { (1.0, 1.0) };
                assert!((line.ours.unwrap() - ours).abs() < 1e-9, "{line:?}");
                assert!((line.published.unwrap() - theirs).abs() < 1e-9, "{line:?}");
            }
            let who = |rung: &str| ladder.lines.iter().filter(|line| line.rung == rung).count();
            assert!(who("base") == who("larger") && who("base") == 3, "{ladder:?}");
        }
        // The limit of the machine climbs nothing.
        assert!(!ladders.iter().any(|one| one.lines.iter().any(|line| line.contender == "cp-and-sync")));
    }

    #[test]
    fn a_server_that_was_named_is_nobodys_base() {
        let mut record = twice();
        record.servers.iter_mut().for_each(|facts| facts.started_for_this = false);
        assert!(ladders(&record).is_empty());
    }
}
