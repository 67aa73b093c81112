use crate::case_file;
use inrush_core::{Code, Error, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The case that is built in.
const BUILT_IN: &str = include_str!("../../../../bench/c3.toml");

/// The case, as its file declares it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// `c3`
    pub name: String,
    /// One line.
    pub about: String,
    /// Of every table.
    pub columns: String,
    /// Bytes of the text of a row.
    pub info_bytes: usize,
    /// Connections of pgbench, and as many tables.
    pub clients: u32,
    /// Rows of an INSERT.
    pub statement_rows: u32,
    /// Of the BRIN index of tables that are not windowed.
    pub pages_per_range: u32,
    /// psql at once.
    pub copy_sessions: u32,
    /// Rows of a COPY.
    pub copy_rows: u64,
    /// Tables are truncated when they are larger than this together.
    pub bound_mib: u64,
    /// Size of the table that is asked by time.
    pub window_mib: u64,
    /// Of the servers.
    pub settings: BTreeMap<String, String>,
    /// Of `inrush serve`.
    pub serve: ServeSettings,
    /// Kinds of tables and settings, in order.
    #[serde(rename = "rung")]
    pub rungs: Vec<Rung>,
    /// Who runs.
    #[serde(rename = "contender")]
    pub contenders: Vec<Contender>,
    /// What is to be reached.
    #[serde(rename = "goal", default)]
    pub goals: Vec<Goal>,
}

/// How serve and its senders are set up.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServeSettings {
    /// Connections to the server.
    pub lanes: u32,
    /// Windowed tables.
    pub tables: u32,
    /// Senders.
    pub connections: u32,
    /// Of a body, about.
    pub body_kib: usize,
    /// `batch.linger`
    pub linger: String,
    /// `limits.memory`
    pub memory: String,
    /// Of the BRIN index.
    pub pages_per_range: u32,
    /// `batch.linger` at half of the top rate.
    pub paced_linger: String,
    /// Senders at half of the top rate.
    pub paced_connections: u32,
}

/// A kind of tables.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rung {
    /// Its name.
    pub name: String,
    /// One line.
    pub about: String,
    /// Whether the tables are unlogged.
    #[serde(default)]
    pub unlogged: bool,
    /// Of every session.
    pub synchronous_commit: String,
    /// Of the server.
    pub autovacuum: String,
}

/// Who runs.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Contender {
    /// Its name in tables.
    pub name: String,
    /// One line.
    pub about: String,
    /// What it does.
    pub kind: Kind,
    /// Extension the server must have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extension: Option<String>,
    /// `server.via` of serve; `auto` if missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub via: Option<String>,
}

/// What a contender does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// INSERT ... SELECT of constants.
    PgbenchConstants,
    /// INSERT ... VALUES.
    PgbenchData,
    /// COPY into one table.
    Copy,
    /// `inrush serve`, by HTTP.
    ServeHttp,
    /// `inrush serve`, on standard input.
    ServeStdin,
}

/// Something to be reached.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Goal {
    /// Where.
    pub rung: String,
    /// Who: the best of them.
    pub contenders: Vec<String>,
    /// Whom `ratio` compares with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub against: Option<String>,
    /// At least this many times the rows a second, by medians.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ratio: Option<f64>,
    /// At most this many seconds for 99 % of the answers at half of the top rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer_p99_s: Option<f64>,
    /// At most this part of a window's pages for a sixtieth of its time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub brin_pages: Option<f64>,
}

impl Case {
    /// The one that is built in.
    ///
    /// # Errors
    /// Never, once its test has passed.
    pub fn built_in() -> Result<Case> {
        Case::parse(BUILT_IN)
    }

    /// The one that `name` names: `c3`, or a file that ends in `.toml` and says how serve is set up. `None` if it is not
    /// a case like this.
    ///
    /// # Errors
    /// Of a file that is not one, or cannot be read.
    pub fn find(name: &str) -> Result<Option<Case>> {
        if name == "c3" {
            return Case::built_in().map(Some);
        }
        case_file::read_with(name, "serve")?.as_deref().map(Case::parse).transpose()
    }

    /// From the text of a case file.
    ///
    /// # Errors
    /// Of a file that is not one.
    pub fn parse(text: &str) -> Result<Case> {
        let wrong = |fact: String| Error::new(Code::Usage, format!("case c3: {fact}"));
        let case: Case = toml::from_str(text).map_err(|e| wrong(e.to_string()))?;
        for goal in &case.goals {
            if case.rung(&goal.rung).is_none() {
                return Err(wrong(format!("{} is not a rung", goal.rung)));
            }
            for name in goal.contenders.iter().chain(&goal.against) {
                if case.contender(name).is_none() {
                    return Err(wrong(format!("{name} is not a contender")));
                }
            }
            if goal.ratio.is_some() != goal.against.is_some() {
                return Err(wrong("a goal has `ratio` without `against`, or the other way round".to_owned()));
            }
        }
        Ok(case)
    }

    /// The rung of this name.
    pub fn rung(&self, name: &str) -> Option<&Rung> {
        self.rungs.iter().find(|rung| rung.name == name)
    }

    /// The contender of this name.
    pub fn contender(&self, name: &str) -> Option<&Contender> {
        self.contenders.iter().find(|contender| contender.name == name)
    }

    /// Keeps these rungs, and contenders whose names contain one of these; all, if none is named. Goals of what is
    /// left out go with it.
    ///
    /// # Errors
    /// If there is no such rung or contender.
    pub fn select(&mut self, rungs: &[String], only: &[String]) -> Result<()> {
        if let Some(name) = rungs.iter().find(|name| self.rung(name).is_none()) {
            let known: Vec<_> = self.rungs.iter().map(|rung| rung.name.as_str()).collect();
            return Err(Error::new(Code::Usage, format!("there is no rung {name}"))
                .hint(format!("The rungs are {}.", known.join(", "))));
        }
        self.rungs.retain(|rung| rungs.is_empty() || rungs.contains(&rung.name));
        self.contenders.retain(|one| only.is_empty() || only.iter().any(|part| one.name.contains(part)));
        if self.contenders.is_empty() {
            return Err(Error::new(Code::Usage, "no contender is left"));
        }
        let (rungs, contenders) = (&self.rungs, &self.contenders);
        let has = |name: &String| contenders.iter().any(|one| one.name == *name);
        self.goals.retain_mut(|goal| {
            goal.contenders.retain(&has);
            rungs.iter().any(|rung| rung.name == goal.rung)
                && !goal.contenders.is_empty()
                && goal.against.as_ref().is_none_or(&has)
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_one_is_right() {
        let mut case = Case::built_in().unwrap();
        assert_eq!(case.goals.len(), 6);
        case.select(&["unlogged".to_owned()], &["copy".to_owned(), "data".to_owned()]).unwrap();
        assert_eq!(case.contenders.len(), 3);
        assert_eq!(case.goals.len(), 1, "{:?}", case.goals);
        assert!(case.select(&["none".to_owned()], &[]).is_err());
        assert!(Case::parse("name = 1").is_err());
    }
}
