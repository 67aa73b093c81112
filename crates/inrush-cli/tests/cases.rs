//! Runs the declarative loads of `tests/cases`; `tests/cases/README.md` says what a case is made of.
//!
//! `INRUSH_CASE=name` runs the cases whose name contains `name`.

mod harness;

use harness::{Outcome, run, without_server_variables};
use inrush_testkit::{Database, Installation, Postgres, Version};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::Duration;

/// How long one command of a case may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// One folder of `tests/cases`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    /// What it shows.
    #[allow(dead_code)] // for readers
    about: String,
    /// Smallest major version of the server.
    since: Option<u32>,
    /// SQL before the first step.
    #[serde(default)]
    setup: String,
    /// Files by name.
    #[serde(default)]
    files: BTreeMap<String, Content>,
    step: Vec<Step>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged, deny_unknown_fields)]
enum Content {
    Text(String),
    /// Bytes that are not text, in hexadecimal; spaces are left out.
    Hex {
        hex: String,
    },
    /// What psql writes to standard output: for `COPY ... TO STDOUT (FORMAT binary)`.
    Sql {
        sql: String,
    },
}

/// What is done, then what must be so afterwards.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Step {
    /// Files to write first.
    #[serde(default)]
    files: BTreeMap<String, Content>,
    /// SQL to run first.
    sql: Option<String>,
    /// A shell command; `inrush` is the program, `$via` the path under test.
    run: Option<String>,
    /// Role to connect as.
    user: Option<String>,
    #[serde(default)]
    exit: i32,
    /// The whole of standard error.
    stderr: Option<String>,
    #[serde(default)]
    stderr_has: Vec<String>,
    #[serde(default)]
    stdout_has: Vec<String>,
    /// A query after the command, and what psql -At gives for it, with NULL for NULL.
    query: Option<String>,
    rows: Option<String>,
    /// A rejects file: the objects its `.jsonl` must hold; only the fields named here are compared.
    #[serde(default)]
    rejects: BTreeMap<String, Vec<toml::Table>>,
    /// Files and all they must hold.
    #[serde(default)]
    written: BTreeMap<String, String>,
}

#[test]
fn cases() {
    let only = std::env::var("INRUSH_CASE").unwrap_or_default();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/cases");
    let mut folders: Vec<PathBuf> = std::fs::read_dir(&folder)
        .expect("tests/cases")
        .map(|entry| entry.expect("an entry of tests/cases").path())
        .filter(|path| path.is_dir() && name_of(path).contains(&only))
        .collect();
    folders.sort();
    assert!(!folders.is_empty(), "no case is called *{only}*");
    let todo = Mutex::new(folders.clone().into_iter());
    let failures = Mutex::new(Vec::new());
    let direct = Installation::have_or_say_skipped(Version::WithExtension(15));
    let server = Postgres::shared(if direct { Version::WithExtension(15) } else { Version::Any });
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                loop {
                    let next = todo.lock().expect("the list of cases").next();
                    let Some(folder) = next else { break };
                    for failure in check(server, direct, &folder) {
                        failures.lock().expect("the failures").push(failure);
                    }
                }
            });
        }
    });
    let mut failures = failures.into_inner().expect("the failures");
    failures.sort();
    assert!(failures.is_empty(), "{} of {} cases:\n\n{}", failures.len(), folders.len(), failures.join("\n"));
}

fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// What is not as the case says.
fn check(server: &Postgres, with_extension: bool, folder: &Path) -> Vec<String> {
    let name = name_of(folder);
    let text = std::fs::read_to_string(folder.join("case.toml")).expect("case.toml");
    let case: Case = match toml::from_str(&text) {
        Ok(case) => case,
        Err(error) => return vec![format!("== {name}: {error}")],
    };
    if case.since.is_some_and(|since| server.installation().major() < since) {
        eprintln!("SKIPPED: case {name} needs PostgreSQL {}", case.since.unwrap_or_default());
        return Vec::new();
    }
    let ways: &[&str] = match text.contains("$via") {
        // The last is the direct path, where the table qualifies: see below.
        true if with_extension => &["--via copy-text", "--via copy-binary", "--via auto"],
        true => &["--via copy-text", "--via copy-binary"],
        false => &[""],
    };
    let mut failures = Vec::new();
    for via in ways {
        let database = server.fresh_database();
        if *via == "--via auto" {
            database.psql("CREATE EXTENSION inrush");
        }
        let dir = tempfile::tempdir().expect("a directory");
        let run = Run { case: &case, folder, via, database: &database, dir: dir.path() };
        let mut said = String::new();
        if let Err(error) = run.all(&mut said) {
            failures.push(format!("== {name} {via}\n{error}\n{said}"));
        }
    }
    failures
}

struct Run<'a> {
    case: &'a Case,
    folder: &'a Path,
    via: &'a str,
    database: &'a Database<'a>,
    dir: &'a Path,
}

impl Run<'_> {
    /// Runs every step; `said` takes what the last command said.
    fn all(&self, said: &mut String) -> Result<(), String> {
        self.database.try_psql(&self.case.setup)?;
        // Files beside case.toml are there as they are.
        for entry in std::fs::read_dir(self.folder).map_err(|e| e.to_string())?.flatten() {
            if entry.file_name() != "case.toml" {
                let to = self.dir.join(entry.file_name());
                std::fs::copy(entry.path(), to).map_err(|e| e.to_string())?;
            }
        }
        self.write(&self.case.files)?;
        for (i, step) in self.case.step.iter().enumerate() {
            self.step(step, said).map_err(|error| format!("step {}: {error}", i + 1))?;
        }
        Ok(())
    }

    fn step(&self, step: &Step, said: &mut String) -> Result<(), String> {
        self.write(&step.files)?;
        if let Some(sql) = &step.sql {
            self.database.try_psql(sql)?;
        }
        if let Some(command) = &step.run {
            let outcome = self.command(command, step.user.as_deref());
            *said = format!("-- {command}\n{}{}", outcome.stdout, outcome.stderr);
            self.judge(step, &outcome)?;
        }
        if let Some(query) = &step.query {
            let expected = step.rows.as_deref().unwrap_or_default();
            let rows = self.database.try_psql(&format!("\\pset null NULL\n{query}"))?;
            same("rows", expected.trim_end_matches('\n'), &rows)?;
        }
        for (file, expected) in &step.rejects {
            self.rejects(file, expected)?;
        }
        for (file, expected) in &step.written {
            let bytes = std::fs::read(self.dir.join(file)).map_err(|e| format!("{file}: {e}"))?;
            same(file, expected, &String::from_utf8_lossy(&bytes))?;
        }
        Ok(())
    }

    fn judge(&self, step: &Step, outcome: &Outcome) -> Result<(), String> {
        if outcome.panicked() {
            return Err("it panicked".to_owned());
        }
        if outcome.code != Some(step.exit) {
            return Err(format!("exit code {:?} instead of {}", outcome.code, step.exit));
        }
        if let Some(expected) = &step.stderr {
            same("standard error", expected.trim_end_matches('\n'), outcome.stderr.trim_end_matches('\n'))?;
        }
        for (which, text, parts) in [
            ("standard error", &outcome.stderr, &step.stderr_has),
            ("standard output", &outcome.stdout, &step.stdout_has),
        ] {
            for part in parts {
                if !text.contains(part) {
                    return Err(format!("{which} lacks {part:?}"));
                }
            }
        }
        Ok(())
    }

    fn command(&self, command: &str, user: Option<&str>) -> Outcome {
        let mut shell = Command::new("sh");
        without_server_variables(&mut shell);
        let program = Path::new(harness::INRUSH);
        let path = std::env::var("PATH").unwrap_or_default();
        let mut url = self.database.url();
        if let Some(user) = user {
            url = url.replacen("postgres@", &format!("{user}@"), 1);
        }
        shell
            .args(["-c", command])
            .current_dir(self.dir)
            .env("PATH", format!("{}:{path}", program.parent().unwrap_or(program).display()))
            .env("DATABASE_URL", url)
            .env("via", self.via);
        run(&mut shell, None, PATIENCE)
    }

    fn rejects(&self, file: &str, expected: &[toml::Table]) -> Result<(), String> {
        let path = self.dir.join(format!("{file}.jsonl"));
        let text = std::fs::read_to_string(&path).map_err(|e| format!("{file}.jsonl: {e}"))?;
        let found: Vec<serde_json::Value> = text
            .lines()
            .map(|line| serde_json::from_str(line).map_err(|e| format!("{line}: {e}")))
            .collect::<Result<_, _>>()?;
        if found.len() != expected.len() {
            return Err(format!("{} rejects instead of {}:\n{text}", found.len(), expected.len()));
        }
        for (found, expected) in found.iter().zip(expected) {
            for (name, value) in expected {
                let value = serde_json::to_value(value).map_err(|e| e.to_string())?;
                if found.get(name) != Some(&value) {
                    return Err(format!("{name} of a reject is not {value}:\n{found}"));
                }
            }
        }
        Ok(())
    }

    fn write(&self, files: &BTreeMap<String, Content>) -> Result<(), String> {
        for (name, content) in files {
            let path = self.dir.join(name);
            if let Some(parent) = path.parent() {
                std::fs::create_dir_all(parent).map_err(|e| e.to_string())?;
            }
            let bytes = match content {
                Content::Text(text) => text.clone().into_bytes(),
                Content::Hex { hex } => unhex(hex)?,
                Content::Sql { sql } => {
                    let mut psql = self.database.server().psql_command(self.database.name());
                    let output = psql.args(["-q", "-v", "ON_ERROR_STOP=1", "-c", sql]).output();
                    let output = output.map_err(|e| e.to_string())?;
                    if !output.status.success() {
                        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
                    }
                    output.stdout
                }
            };
            std::fs::write(&path, bytes).map_err(|e| format!("{name}: {e}"))?;
        }
        Ok(())
    }
}

fn unhex(text: &str) -> Result<Vec<u8>, String> {
    let digits: String = text.chars().filter(|c| !c.is_whitespace()).collect();
    let pair = |i: usize| digits.get(i..i + 2).and_then(|two| u8::from_str_radix(two, 16).ok());
    (0..digits.len()).step_by(2).map(|i| pair(i).ok_or_else(|| format!("not hexadecimal: {text}"))).collect()
}

fn same(what: &str, expected: &str, found: &str) -> Result<(), String> {
    if expected == found {
        return Ok(());
    }
    let mut text = format!("{what} differ");
    let _ = write!(text, "\n-- expected\n{expected}\n-- found\n{found}");
    Err(text)
}
