use inrush_testkit::USUAL_BLOCK_SIZE;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// An experiment of a case: one form of the table on one kind of server, and who runs on it. A case without
/// any has one without a name: a plain table, every contender.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rung {
    /// Its name in tables, and for `--rung`.
    pub name: String,
    /// One line.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub about: String,
    /// The table is unlogged.
    #[serde(default, skip_serializing_if = "is_false")]
    pub unlogged: bool,
    /// Statements that make its indexes before the run, with `{table}` for its name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub index: Vec<String>,
    /// A column with a foreign key, to a table that has all values of it and no other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub foreign_key: Option<String>,
    /// The table has been filled with the same rows, all but the last of them deleted, and vacuumed: a load finds
    /// its pages there, and the relation need not grow.
    #[serde(default, skip_serializing_if = "is_false")]
    pub pre_extended: bool,
    /// Numbers of sessions to run with; contenders find each as `SESSIONS`. Empty: a contender has the number that
    /// its command says.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sessions: Vec<u32>,
    /// Bytes of a block of the server it needs.
    #[serde(default = "usual_block_size", skip_serializing_if = "is_usual")]
    pub block_size: u32,
    /// Settings beside or instead of the case's: the bench starts a server with them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub settings: BTreeMap<String, String>,
    /// Values of `synchronous_commit`; empty: the case's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub synchronous_commit: Vec<String>,
    /// Rows instead of the case's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rows: Option<u64>,
    /// Names of those who run; empty: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub contenders: Vec<String>,
    /// The contender the others are compared with here; without it the case's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub baseline: Option<String>,
    /// What the study found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub published: Option<Published>,
}

/// A published figure of a rung: on other machines and versions, so only its ratio to that of the ladder's base
/// says something here.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    /// Megabytes (10^6 bytes) of input a second.
    pub mbps: f64,
    /// Rows a second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rows_per_s: Option<f64>,
    /// What was different there.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
}

/// A published comparison of two ways to load on one machine, for cases that compare contenders.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublishedRatio {
    /// What it compares, in the study's words.
    pub what: String,
    /// Whose rows a second, here.
    pub contender: String,
    /// Over whose.
    pub against: String,
    /// Value of `synchronous_commit` it was measured with.
    pub synchronous_commit: String,
    /// How many times as many rows a second.
    pub ratio: f64,
    /// What was different there.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
}

impl Rung {
    /// The one of a case that names none.
    pub(crate) fn unnamed() -> Rung {
        Rung {
            name: String::new(),
            about: String::new(),
            unlogged: false,
            index: Vec::new(),
            foreign_key: None,
            pre_extended: false,
            sessions: Vec::new(),
            block_size: USUAL_BLOCK_SIZE,
            settings: BTreeMap::new(),
            synchronous_commit: Vec::new(),
            rows: None,
            contenders: Vec::new(),
            baseline: None,
            published: None,
        }
    }

    /// Whether this contender runs on it.
    pub fn has(&self, contender: &str) -> bool {
        self.contenders.is_empty() || self.contenders.iter().any(|name| name == contender)
    }

    /// The numbers of sessions to go through; one `None` where contenders have their own.
    pub fn each_sessions(&self) -> Vec<Option<u32>> {
        if self.sessions.is_empty() { vec![None] } else { self.sessions.iter().copied().map(Some).collect() }
    }

    /// The table in words: `unlogged, 1 index, pre-extended`.
    pub fn table_form(&self) -> String {
        let mut words = vec![if self.unlogged { "unlogged" } else { "logged" }.to_owned()];
        words.push(match self.index.len() {
            0 => "no index".to_owned(),
            1 => "1 index".to_owned(),
            n => format!("{n} indexes"),
        });
        if self.foreign_key.is_some() {
            words.push("foreign key".to_owned());
        }
        if self.pre_extended {
            words.push("pre-extended".to_owned());
        }
        if self.block_size != USUAL_BLOCK_SIZE {
            words.push(format!("{} KB blocks", self.block_size / 1024));
        }
        words.join(", ")
    }
}

fn usual_block_size() -> u32 {
    USUAL_BLOCK_SIZE
}

// serde hands out references.
#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_usual(block_size: &u32) -> bool {
    *block_size == USUAL_BLOCK_SIZE
}

#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_false(value: &bool) -> bool {
    !value
}
