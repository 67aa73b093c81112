use crate::case_file;
use crate::rung::{PublishedRatio, Rung};
use inrush_core::{Code, Error, Result};
use inrush_testkit::fixtures;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The cases that are built in: the files of `bench/`.
const BUILT_IN: [(&str, &str); 2] =
    [("c1", include_str!("../../../bench/c1.toml")), ("c2", include_str!("../../../bench/c2.toml"))];

/// A case, as its file declares it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// Its name, also of the file a run is kept in.
    pub name: String,
    /// One line.
    pub about: String,
    /// Which writer makes the file: `c1`, `c2`.
    pub data: String,
    /// Rows of the file, unless the user says otherwise.
    pub rows: u64,
    /// The columns of the table, as in CREATE TABLE.
    pub columns: String,
    /// The contender the others are compared with.
    pub baseline: String,
    /// The rung whose MB/s the others' are divided by, here and in the study.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ladder_base: Option<String>,
    /// Values of `synchronous_commit` to run with.
    pub synchronous_commit: Vec<String>,
    /// Settings of servers that the bench starts.
    #[serde(default)]
    pub settings: BTreeMap<String, String>,
    /// The experiments in order; empty: one, with a plain table and every contender.
    #[serde(rename = "rung", default, skip_serializing_if = "Vec::is_empty")]
    pub rungs: Vec<Rung>,
    /// Who runs.
    #[serde(rename = "contender")]
    pub contenders: Vec<Contender>,
    /// What is to be reached.
    #[serde(rename = "goal", default)]
    pub goals: Vec<Goal>,
    /// Published comparisons of contenders.
    #[serde(rename = "published", default, skip_serializing_if = "Vec::is_empty")]
    pub published: Vec<PublishedRatio>,
}

/// One way to load the rows.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Contender {
    /// Its name in tables.
    pub name: String,
    /// What is not plain from the name and the command.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub about: String,
    /// The form it reads.
    pub input: Input,
    /// Rows instead of the rung's, if those are more: for ways so slow that nobody would wait. It is compared by
    /// rows a second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rows: Option<u64>,
    /// Programs that must be on PATH; without them it is left out, and the record says so.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub needs: Vec<String>,
    /// Extension the server must have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extension: Option<String>,
    /// Whether it loads the rung's table without its indexes: what they cost shows beside it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub without_indexes: bool,
    /// Command that prints its version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Whether it loads the table; `false` for limits of the machine.
    #[serde(default = "yes")]
    pub server: bool,
    /// The command, for sh.
    pub command: String,
}

fn yes() -> bool {
    true
}

/// A form of the rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Input {
    /// Comma-separated, no header.
    Csv,
    /// COPY text.
    Text,
    /// INSERT statements with this many rows each, written `insert-100`. Its megabytes are those of the same rows
    /// as COPY text: the words of the statements are not what anybody wants loaded.
    Insert(u32),
}

impl TryFrom<String> for Input {
    type Error = String;

    fn try_from(text: String) -> std::result::Result<Input, String> {
        let rows = text.strip_prefix("insert-").and_then(|rows| rows.parse().ok()).filter(|&rows| rows > 0);
        match (text.as_str(), rows) {
            ("csv", _) => Ok(Input::Csv),
            ("text", _) => Ok(Input::Text),
            (_, Some(rows)) => Ok(Input::Insert(rows)),
            _ => Err(format!("there is no input {text}: csv, text, insert-ROWS")),
        }
    }
}

impl From<Input> for String {
    fn from(input: Input) -> String {
        match input {
            Input::Csv => "csv".to_owned(),
            Input::Text => "text".to_owned(),
            Input::Insert(rows) => format!("insert-{rows}"),
        }
    }
}

/// Something a case must reach.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Goal {
    /// Major version it is for; without it all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<u32>,
    /// Rung it is for; without it the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rung: Option<String>,
    /// Who must reach it.
    pub contender: String,
    /// Whom `ratio` and `server_cpu` compare with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub against: Option<String>,
    /// At least this many times as fast to COMMIT as `against`, by medians.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ratio: Option<f64>,
    /// At most this many times the server CPU of `against`, by medians.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_cpu: Option<f64>,
    /// At most this many client CPU seconds for a gigabyte (10^9 bytes) of its input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_cpu_per_gb: Option<f64>,
    /// At most this much memory of the client, in MiB, in any run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_mib: Option<f64>,
}

impl Case {
    /// The names of the built-in cases.
    pub fn names() -> impl Iterator<Item = &'static str> {
        BUILT_IN.iter().map(|(name, _)| *name)
    }

    /// The case of this name, or in this file if the name ends in `.toml`.
    pub fn find(name: &str) -> Result<Case> {
        let text = if name.ends_with(".toml") {
            case_file::read(name)?
        } else {
            let built_in = BUILT_IN.iter().find(|(known, _)| *known == name).ok_or_else(|| {
                let names: Vec<_> = Case::names().collect();
                Error::new(Code::Usage, format!("there is no case {name}")).hint(format!(
                    "The cases are {}; or name a file that ends in .toml.",
                    names.join(" and ")
                ))
            })?;
            built_in.1.to_owned()
        };
        Case::parse(&text).map_err(|fact| Error::new(Code::Usage, format!("case {name}: {fact}")))
    }

    fn parse(text: &str) -> std::result::Result<Case, String> {
        let case: Case = toml::from_str(text).map_err(|e| e.to_string())?;
        let named = case
            .goals
            .iter()
            .flat_map(|goal| std::iter::once(&goal.contender).chain(&goal.against))
            .chain(case.rungs.iter().flat_map(|rung| rung.contenders.iter().chain(&rung.baseline)))
            .chain(case.published.iter().flat_map(|one| [&one.contender, &one.against]))
            .chain(std::iter::once(&case.baseline));
        for name in named {
            if case.contender(name).is_none() {
                return Err(format!("{name} is not a contender"));
            }
        }
        for rung in case.goals.iter().filter_map(|goal| goal.rung.as_ref()).chain(&case.ladder_base) {
            if !case.rungs.iter().any(|one| one.name == *rung) {
                return Err(format!("{rung} is not a rung"));
            }
        }
        for (i, rung) in case.rungs.iter().enumerate() {
            if case.rungs[..i].iter().any(|earlier| earlier.name == rung.name) {
                return Err(format!("two rungs are called {}", rung.name));
            }
            if !rung.has(case.baseline_of(rung)) {
                return Err(format!("{} does not run on rung {}", case.baseline_of(rung), rung.name));
            }
            if let Some(statement) = rung.index.iter().find(|statement| !statement.contains("{table}")) {
                return Err(format!("rung {}: {statement} does not name {{table}}", rung.name));
            }
            if rung.sessions.contains(&0) {
                return Err(format!("rung {}: no session loads nothing", rung.name));
            }
        }
        let compares = |goal: &&Goal| goal.ratio.is_some() || goal.server_cpu.is_some();
        if let Some(goal) = case.goals.iter().find(|goal| compares(goal) != goal.against.is_some()) {
            return Err(format!(
                "a goal of {} has `against` without `ratio` or `server_cpu`, or the other way round",
                goal.contender
            ));
        }
        // It becomes part of a statement.
        let values =
            case.synchronous_commit.iter().chain(case.rungs.iter().flat_map(|rung| &rung.synchronous_commit));
        for value in values {
            if !value.chars().all(|c| c.is_ascii_lowercase() || c == '_') {
                return Err(format!("synchronous_commit cannot be {value}"));
            }
        }
        case.writer()?;
        Ok(case)
    }

    /// The writer of its data.
    pub(crate) fn writer(&self) -> std::result::Result<fixtures::Case, String> {
        match self.data.as_str() {
            "c1" => Ok(fixtures::Case::C1),
            "c2" => Ok(fixtures::Case::C2),
            other => Err(format!("there is no writer {other}")),
        }
    }

    /// Its rungs; one without a name if it declares none.
    pub fn each_rung(&self) -> Vec<Rung> {
        if self.rungs.is_empty() { vec![Rung::unnamed()] } else { self.rungs.clone() }
    }

    /// The contender of this name.
    pub fn contender(&self, name: &str) -> Option<&Contender> {
        self.contenders.iter().find(|contender| contender.name == name)
    }

    /// Whom the others are compared with on a rung.
    pub fn baseline_of<'c>(&'c self, rung: &'c Rung) -> &'c str {
        rung.baseline.as_deref().unwrap_or(&self.baseline)
    }

    /// The values of `synchronous_commit` of a rung.
    pub fn synchronous_commit_of<'c>(&'c self, rung: &'c Rung) -> &'c [String] {
        if rung.synchronous_commit.is_empty() { &self.synchronous_commit } else { &rung.synchronous_commit }
    }

    /// Rows of a rung.
    pub fn rows_of(&self, rung: &Rung) -> u64 {
        rung.rows.unwrap_or(self.rows)
    }

    /// Rows a contender loads on a rung.
    pub fn rows_for(&self, rung: &Rung, contender: &Contender) -> u64 {
        self.rows_of(rung).min(contender.rows.unwrap_or(u64::MAX))
    }

    /// Takes other rows. Rungs and contenders that declare fewer of their own keep them.
    pub(crate) fn set_rows(&mut self, rows: u64) {
        self.rows = rows;
        for rung in &mut self.rungs {
            rung.rows = rung.rows.map(|own| own.min(rows));
        }
    }

    /// Leaves only these rungs, with what is compared on them.
    pub(crate) fn select_rungs(&mut self, names: &[String]) -> Result<()> {
        if names.is_empty() {
            return Ok(());
        }
        if let Some(unknown) = names.iter().find(|name| !self.rungs.iter().any(|rung| rung.name == **name)) {
            let known: Vec<_> = self.rungs.iter().map(|rung| rung.name.as_str()).collect();
            let hint = if known.is_empty() {
                format!("Case {} has no rungs to select from.", self.name)
            } else {
                format!("The rungs of case {} are {}.", self.name, known.join(", "))
            };
            return Err(Error::new(Code::Usage, format!("there is no rung {unknown}")).hint(hint));
        }
        // A goal that names no rung is for the first of the file, whether that is selected or not.
        let first = self.rungs.first().map(|rung| rung.name.clone());
        for goal in &mut self.goals {
            goal.rung = goal.rung.take().or_else(|| first.clone());
        }
        self.rungs.retain(|rung| names.contains(&rung.name));
        self.goals.retain(|goal| goal.rung.as_ref().is_some_and(|rung| names.contains(rung)));
        Ok(())
    }

    /// Leaves only the contenders whose names contain one of these parts, and the baselines.
    pub(crate) fn select_contenders(&mut self, parts: &[String]) {
        if parts.is_empty() {
            return;
        }
        let baselines: Vec<String> =
            self.each_rung().iter().map(|rung| self.baseline_of(rung).to_owned()).collect();
        self.contenders.retain(|contender| {
            baselines.contains(&contender.name) || parts.iter().any(|part| contender.name.contains(part))
        });
        let left: Vec<String> = self.contenders.iter().map(|contender| contender.name.clone()).collect();
        for rung in &mut self.rungs {
            // An empty list would mean all; the baseline is always left.
            rung.contenders.retain(|name| left.contains(name));
        }
        self.goals.retain(|goal| {
            left.contains(&goal.contender) && goal.against.as_ref().is_none_or(|name| left.contains(name))
        });
        self.published.retain(|one| left.contains(&one.contender) && left.contains(&one.against));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_in_cases_are_whole() {
        for name in Case::names() {
            let case = Case::find(name).unwrap();
            assert_eq!(case.name, name);
            assert_eq!(case.columns, case.writer().unwrap().columns());
            for rung in case.each_rung() {
                assert!(case.contender(case.baseline_of(&rung)).unwrap().server, "{}", rung.name);
            }
            // Every contender has a rung, and every line of the study a base to be divided by.
            for contender in &case.contenders {
                assert!(case.each_rung().iter().any(|rung| rung.has(&contender.name)), "{}", contender.name);
            }
            if case.rungs.iter().any(|rung| rung.published.is_some()) {
                let base = case.rungs.iter().find(|rung| case.ladder_base.as_ref() == Some(&rung.name));
                assert!(base.unwrap().published.is_some());
            }
            // What a record keeps of it is what was read.
            let json = serde_json::to_string(&case).unwrap();
            let again: Case = serde_json::from_str(&json).unwrap();
            assert_eq!(again.rungs, case.rungs);
        }
    }

    #[test]
    fn a_case_that_names_nobody_is_refused() {
        let text = BUILT_IN[0].1;
        assert!(Case::parse(&text.replace("baseline = \"psql-text\"", "baseline = \"psqltext\"")).is_err());
        assert!(Case::parse(&text.replace("ratio = 1.8", "")).is_err());
        assert!(Case::parse(&text.replace("\"off\", \"on\"", "\"off; drop\"")).is_err());
        assert!(Case::parse(&text.replace("ladder_base = \"btree\"", "ladder_base = \"tree\"")).is_err());
        assert!(Case::parse(&text.replace("name = \"unlogged\"", "name = \"btree\"")).is_err());
        assert!(Case::parse(&text.replace("ON {table}", "ON t")).is_err());
        assert!(Case::parse(&text.replace("sessions = [1, ", "sessions = [0, ")).is_err());
        assert!(Case::parse(&text.replace("input = \"csv\"", "input = \"insert-0\"")).is_err());
        assert!(Case::find("c9").unwrap_err().hint_text().unwrap().contains("c1"));
    }

    #[test]
    fn rungs_are_selected_by_name() {
        let mut case = Case::find("c1").unwrap();
        let of_first = case.goals.iter().filter(|goal| goal.rung.is_none()).count();
        let of_btree = case.goals.iter().filter(|goal| goal.rung.as_deref() == Some("btree")).count();
        let all = case.rungs.len();
        case.select_rungs(&[]).unwrap();
        assert_eq!(case.rungs.len(), all);
        let unknown = case.select_rungs(&["btree".to_owned(), "b-tree".to_owned()]).unwrap_err();
        assert!(unknown.to_string().contains("b-tree") && unknown.hint_text().unwrap().contains("unlogged"));
        let mut first = case.clone();
        first.select_rungs(&["no-index".to_owned(), "btree".to_owned()]).unwrap();
        assert_eq!((first.rungs.len(), first.goals.len()), (2, of_first + of_btree));
        // A goal that names no rung is of the first one of the file.
        case.select_rungs(&["btree".to_owned()]).unwrap();
        assert_eq!((case.rungs.len(), case.goals.len()), (1, of_btree));
        assert!(Case::find("c2").unwrap().select_rungs(&["btree".to_owned()]).is_err());
    }

    #[test]
    fn contenders_are_selected_on_every_rung() {
        let mut case = Case::find("c1").unwrap();
        case.select_contenders(&["inrush".to_owned()]);
        for rung in case.each_rung() {
            assert!(rung.has(case.baseline_of(&rung)) && !rung.contenders.is_empty(), "{}", rung.name);
            assert!(rung.contenders.iter().all(|name| case.contender(name).is_some()));
        }
    }

    #[test]
    fn fewer_rows_are_kept() {
        let mut case = Case::find("c2").unwrap();
        let slow = case.contenders.iter().find(|c| c.rows == Some(20_000)).unwrap().clone();
        let rung = &case.each_rung()[0];
        assert_eq!(case.rows_for(rung, &slow), 20_000);
        case.set_rows(500);
        assert_eq!(case.rows_for(rung, &slow), 500);
    }
}
