//! What `inrush tune io` says of storage.

use crate::c5::storage::Storage;
use inrush_testkit::ServerUser;
use inrush_tune::io::Measured;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

/// Its answer; or why there is none.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Asked {
    /// What it said of the tablespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<Value>,
    /// Seconds that it took.
    pub seconds: f64,
    /// Why there is no answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub absent: Option<String>,
}

impl Asked {
    /// Without an answer.
    pub fn without(reason: impl Into<String>) -> Asked {
        Asked { absent: Some(reason.into()), ..Asked::default() }
    }

    /// Asks about a tablespace, as the account of the server.
    pub fn about(inrush: &Path, dsn: &str, tablespace: &str, storage: &Storage) -> Asked {
        let began = Instant::now();
        let answer = ask(inrush, dsn, tablespace, storage);
        let seconds = began.elapsed().as_secs_f64();
        match answer {
            Ok(target) => Asked { target: Some(target), seconds, absent: None },
            Err(reason) => Asked { target: None, seconds, absent: Some(reason) },
        }
    }

    /// What was measured, in the form that the model takes.
    pub fn measured(&self) -> Option<Measured> {
        serde_json::from_value(self.target.as_ref()?.get("measured")?.clone()).ok()
    }

    /// The value that is recommended for a setting: another one, or the one it has.
    pub fn advised(&self, setting: &str) -> Option<String> {
        let value = |list: &str, name: &str| {
            let items = self.target.as_ref()?[list].as_array()?;
            let value = items.iter().find(|item| item["setting"] == setting)?.get(name)?;
            // A number would be as good.
            value.as_str().map(str::to_owned).or_else(|| value.as_u64().map(|number| number.to_string()))
        };
        value("advice", "advised").or_else(|| value("already_right", "now"))
    }

    /// The recommended effective_io_concurrency.
    pub fn concurrency(&self) -> Option<u32> {
        self.advised("effective_io_concurrency")?.parse().ok()
    }

    /// The class of the storage, as `iops_capped`.
    pub fn class(&self) -> Option<&str> {
        self.target.as_ref()?["verdict"]["class"].as_str()
    }

    /// Everything that is said about the storage, about settings, and about dense scans.
    pub fn words(&self) -> String {
        let mut words = Vec::new();
        if let Some(target) = &self.target {
            for part in ["verdict", "advice", "dense"] {
                gather(&target[part], &mut words);
            }
        }
        words.join(" ")
    }
}

/// All texts in a value.
fn gather(value: &Value, words: &mut Vec<String>) {
    match value {
        Value::String(text) => words.push(text.clone()),
        Value::Array(all) => all.iter().for_each(|one| gather(one, words)),
        Value::Object(all) => all.values().for_each(|one| gather(one, words)),
        _ => {}
    }
}

fn ask(inrush: &Path, dsn: &str, tablespace: &str, storage: &Storage) -> Result<Value, String> {
    let mut command = Command::new(inrush);
    ServerUser::get()
        .run(&mut command)
        .args(["tune", "io", "--to", dsn, "--tablespace", tablespace, "--json"])
        // Somewhere that every account may be.
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    crate::server::remove_server_variables(&mut command);
    let child = command.spawn().map_err(|e| format!("{} cannot be run: {e}", inrush.display()))?;
    // It has to connect first.
    storage.add(child.id()).map_err(|e| e.to_string())?;
    let output = child.wait_with_output().map_err(|e| e.to_string())?;
    let said = serde_json::from_slice::<Value>(&output.stdout).ok();
    let target = said.as_ref().and_then(|said| said["targets"].get(0)).cloned();
    target.ok_or_else(|| {
        let text = String::from_utf8_lossy(&output.stderr);
        let first =
            text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("no target in its answer");
        format!("inrush tune io: {first}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values_are_found_by_their_setting() {
        let asked = Asked {
            target: Some(json!({
                "measured": Measured { version: 1, ..Measured::default() },
                "verdict": { "class": "iops_capped", "text": "so many" },
                "advice": [
                    { "setting": "io_workers", "advised": "32", "why": "few workers" },
                    { "setting": "effective_io_concurrency", "advised": 2 },
                ],
                "already_right": [{ "setting": "maintenance_io_concurrency", "now": "16", "why": "enough" }],
                "dense": { "above": 0.06, "text": "take a sequential scan" },
            })),
            ..Asked::default()
        };
        assert_eq!((asked.advised("io_workers").as_deref(), asked.concurrency()), (Some("32"), Some(2)));
        assert_eq!((asked.class(), asked.measured().map(|it| it.version)), (Some("iops_capped"), Some(1)));
        assert_eq!(asked.advised("random_page_cost"), None);
        assert_eq!(asked.advised("maintenance_io_concurrency").as_deref(), Some("16"));
        for said in ["few workers", "so many", "sequential scan"] {
            assert!(asked.words().contains(said), "{}", asked.words());
        }
        assert_eq!(Asked::without("no").concurrency(), None);
    }
}
