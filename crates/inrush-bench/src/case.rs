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
    /// Values of `synchronous_commit` to run with.
    pub synchronous_commit: Vec<String>,
    /// Settings of servers that the bench starts.
    #[serde(default)]
    pub settings: BTreeMap<String, String>,
    /// Who runs.
    #[serde(rename = "contender")]
    pub contenders: Vec<Contender>,
    /// What is to be reached.
    #[serde(rename = "goal", default)]
    pub goals: Vec<Goal>,
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
    /// The form it reads; its MB/s count these bytes.
    pub input: Input,
    /// Programs that must be on PATH; without them it is left out, and the record says so.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub needs: Vec<String>,
    /// Extension the server must have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extension: Option<String>,
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Input {
    /// Comma-separated, no header.
    Csv,
    /// COPY text.
    Text,
}

/// Something a case must reach.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Goal {
    /// Major version it is for; without it all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<u32>,
    /// Who must reach it.
    pub contender: String,
    /// Whom `ratio` compares with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub against: Option<String>,
    /// At least this many times as fast to COMMIT as `against`, by medians.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ratio: Option<f64>,
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
            std::fs::read_to_string(name)
                .map_err(|e| Error::new(Code::SourceOpen, format!("cannot read {name}: {e}")))?
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
        let known = |name: &String| case.contenders.iter().any(|c| c.name == *name);
        let named = case
            .goals
            .iter()
            .flat_map(|goal| std::iter::once(&goal.contender).chain(&goal.against))
            .chain(std::iter::once(&case.baseline));
        for name in named {
            if !known(name) {
                return Err(format!("{name} is not a contender"));
            }
        }
        if let Some(goal) = case.goals.iter().find(|goal| goal.ratio.is_some() != goal.against.is_some()) {
            return Err(format!("a goal of {} has only one of `ratio` and `against`", goal.contender));
        }
        // It becomes part of a statement.
        if let Some(value) =
            case.synchronous_commit.iter().find(|v| !v.chars().all(|c| c.is_ascii_lowercase() || c == '_'))
        {
            return Err(format!("synchronous_commit cannot be {value}"));
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
        }
    }

    #[test]
    fn a_case_that_names_nobody_is_refused() {
        let text = BUILT_IN[0].1;
        assert!(Case::parse(&text.replace("baseline = \"psql-text\"", "baseline = \"psqltext\"")).is_err());
        assert!(Case::parse(&text.replace("ratio = 1.8", "")).is_err());
        assert!(Case::parse(&text.replace("\"off\", \"on\"", "\"off; drop\"")).is_err());
        assert!(Case::find("c9").unwrap_err().hint_text().unwrap().contains("c1"));
    }
}
