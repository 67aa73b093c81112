use crate::case_file;
use inrush_core::{Code, Error, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The case that is built in.
const BUILT_IN: &str = include_str!("../../../../bench/c5.toml");

/// The case, as its file declares it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// `c5`
    pub name: String,
    /// One line.
    pub about: String,
    /// Milliseconds of each depth of fio.
    #[serde(default = "second")]
    pub fio_ms: u32,
    /// Sizes of tables, by name.
    pub tables: BTreeMap<String, Tables>,
    /// How servers are set up.
    #[serde(rename = "server")]
    pub servers: Vec<Setup>,
    /// Kinds of storage, in order.
    #[serde(rename = "rung")]
    pub rungs: Vec<Rung>,
    /// What is run.
    #[serde(rename = "scan")]
    pub scans: Vec<Scan>,
    /// What the studies measured.
    #[serde(default)]
    pub published: Vec<Published>,
    /// What is to be reached.
    #[serde(rename = "goal", default)]
    pub goals: Vec<Goal>,
}

fn second() -> u32 {
    1000
}

/// Rows of the tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tables {
    /// Of the published table.
    pub tbx: u64,
    /// In the order of their time.
    pub events: u64,
    /// Of TPC-H.
    pub lineitem: u64,
}

/// How a server is set up.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Setup {
    /// Its name in tables.
    pub name: String,
    /// Its major version.
    pub version: u32,
    /// Whether it has every scan.
    #[serde(default)]
    pub full: bool,
    /// What differs from the others of its version.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub settings: BTreeMap<String, String>,
}

/// Storage.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rung {
    /// Its name.
    pub name: String,
    /// One line.
    pub about: String,
    /// What kind.
    pub storage: Kind,
    /// Milliseconds that a read takes longer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay_ms: Option<f64>,
    /// Reads a second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iops: Option<u32>,
    /// Name of the tables' sizes.
    pub tables: String,
    /// Turns of each scan.
    pub runs: u32,
    /// Names of servers.
    pub servers: Vec<String>,
    /// Only these values of effective_io_concurrency.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub concurrency: Vec<u32>,
}

/// A kind of storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Where TMPDIR is.
    Local,
    /// A layer whose reads take longer.
    Latency,
    /// A disk with so many reads a second.
    Capped,
}

/// Something to scan for, in one way.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scan {
    /// Its name.
    pub name: String,
    /// What for.
    pub query: Query,
    /// How.
    pub method: Method,
    /// Values of effective_io_concurrency; none: the server's own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub concurrency: Vec<u32>,
    /// The same on a server that is not full; empty: without one. `None`: not there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub brief: Option<Vec<u32>>,
    /// Whether the recommended value is a further one.
    #[serde(default)]
    pub recommended: bool,
    /// Instead of a work_mem that keeps every bitmap exact.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work_mem: Option<String>,
}

/// A query.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Query {
    /// The value that is on 53 % of the pages.
    Dense,
    /// The value that is on 1 %.
    Sparse,
    /// 1 % of a time.
    Events,
    /// TPC-H's sixth.
    Q6,
}

/// A way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// What the planner takes.
    Planner,
    /// A sequential scan.
    Sequential,
    /// An index scan.
    Index,
    /// A bitmap heap scan with a btree index.
    Bitmap,
    /// A bitmap heap scan with a BRIN index.
    Brin,
}

/// What a study measured.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    /// Of which scan.
    pub scan: String,
    /// With which effective_io_concurrency here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<u32>,
    /// Compared with which.
    pub against: String,
    /// With which effective_io_concurrency.
    pub against_concurrency: u32,
    /// How many times as fast.
    pub ratio: f64,
    /// Its own figures.
    pub note: String,
}

/// Something to be reached, of the dense bitmap scan.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Goal {
    /// On which storage.
    pub rung: String,
    /// On which server.
    pub server: String,
    /// The recommended value is so many times as fast as 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub over_one: Option<f64>,
    /// It takes at most so many times as long as the best that was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of_best: Option<f64>,
    /// With the recommended io_workers it is so many times as fast as without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workers: Option<f64>,
    /// The storage is said to be capped, and sequential scans or 0 are named for dense scans.
    #[serde(default)]
    pub steered: bool,
}

impl Case {
    /// The one that is built in.
    ///
    /// # Errors
    /// Never, once its test has passed.
    pub fn built_in() -> Result<Case> {
        Case::parse(BUILT_IN)
    }

    /// The one that `name` names: `c5`, or a file that ends in `.toml` and has scans. `None` if it is not a
    /// case like this.
    ///
    /// # Errors
    /// Of a file that is not one, or cannot be read.
    pub fn find(name: &str) -> Result<Option<Case>> {
        if name == "c5" {
            return Case::built_in().map(Some);
        }
        case_file::read_with(name, "scan")?.as_deref().map(Case::parse).transpose()
    }

    /// From the text of a case file.
    ///
    /// # Errors
    /// Of a file that is not one.
    pub fn parse(text: &str) -> Result<Case> {
        let wrong = |fact: String| Error::new(Code::Usage, format!("case c5: {fact}"));
        let case: Case = toml::from_str(text).map_err(|e| wrong(e.to_string()))?;
        for rung in &case.rungs {
            if !case.tables.contains_key(&rung.tables) {
                return Err(wrong(format!("rung {} has no tables", rung.name)));
            }
            let fits = match rung.storage {
                Kind::Local => rung.delay_ms.is_none() && rung.iops.is_none(),
                Kind::Latency => {
                    rung.delay_ms.is_some_and(|ms| ms > 0.0 && ms <= 1000.0) && rung.iops.is_none()
                }
                Kind::Capped => rung.delay_ms.is_none() && rung.iops.is_some_and(|iops| iops > 0),
            };
            if !fits || rung.runs == 0 {
                return Err(wrong(format!("rung {} is not what its storage needs", rung.name)));
            }
            if let Some(name) = rung.servers.iter().find(|name| case.server(name).is_none()) {
                return Err(wrong(format!("{name} is not a server")));
            }
        }
        for scan in &case.scans {
            let needs_index = matches!(scan.method, Method::Brin) != (scan.query == Query::Events);
            if scan.method == Method::Brin && needs_index {
                return Err(wrong(format!("{}: only events have a BRIN index", scan.name)));
            }
            if scan.query == Query::Q6 && scan.method == Method::Index {
                return Err(wrong(format!("{}: it would read every row's page again and again", scan.name)));
            }
        }
        for it in &case.published {
            for name in [&it.scan, &it.against] {
                case.scan(name).ok_or_else(|| wrong(format!("{name} is not a scan")))?;
            }
        }
        for goal in &case.goals {
            let rung = case.rungs.iter().find(|rung| rung.name == goal.rung);
            if !rung.is_some_and(|rung| rung.servers.contains(&goal.server)) {
                return Err(wrong(format!("there is no server {} on rung {}", goal.server, goal.rung)));
            }
        }
        Ok(case)
    }

    /// The server of this name.
    pub fn server(&self, name: &str) -> Option<&Setup> {
        self.servers.iter().find(|one| one.name == name)
    }

    /// The scan of this name.
    pub fn scan(&self, name: &str) -> Option<&Scan> {
        self.scans.iter().find(|one| one.name == name)
    }

    /// The server that is like this one but for so many io_workers.
    pub fn with_workers(&self, server: &str, workers: &str) -> Option<&Setup> {
        let version = self.server(server)?.version;
        let fits = |setup: &&Setup| {
            let is = |name: &str, value: &str| setup.settings.get(name).is_some_and(|it| it == value);
            setup.version == version && is("io_method", "worker") && is("io_workers", workers)
        };
        self.servers.iter().find(fits)
    }

    /// The same, made for this rung if there is none.
    pub fn add_workers(&mut self, rung: &Rung, like: &Setup, workers: &str) -> Setup {
        let setup = self.with_workers(&like.name, workers).cloned().unwrap_or_else(|| {
            let mut setup =
                Setup { name: format!("{} worker {workers}", like.version), full: false, ..like.clone() };
            setup.settings.insert("io_method".to_owned(), "worker".to_owned());
            setup.settings.insert("io_workers".to_owned(), workers.to_owned());
            self.servers.push(setup.clone());
            setup
        });
        if let Some(rung) = self.rungs.iter_mut().find(|one| one.name == rung.name)
            && !rung.servers.contains(&setup.name)
        {
            rung.servers.push(setup.name.clone());
        }
        setup
    }

    /// Rows of the tables of a rung.
    pub fn tables_of(&self, rung: &Rung) -> Tables {
        self.tables.get(&rung.tables).copied().unwrap_or(Tables { tbx: 1, events: 1, lineitem: 1 })
    }

    /// Keeps these rungs, servers of these versions, and scans whose names contain one of `only`; all, if
    /// none is named.
    ///
    /// # Errors
    /// If there is no such rung, or nothing is left.
    pub fn select(&mut self, rungs: &[String], versions: &[u32], only: &[String]) -> Result<()> {
        let known: Vec<_> = self.rungs.iter().map(|rung| rung.name.as_str()).collect();
        if let Some(name) = rungs.iter().find(|name| !known.contains(&name.as_str())) {
            return Err(Error::new(Code::Usage, format!("there is no rung {name}"))
                .hint(format!("The rungs are {}.", known.join(", "))));
        }
        self.rungs.retain(|rung| rungs.is_empty() || rungs.contains(&rung.name));
        self.servers.retain(|one| versions.is_empty() || versions.contains(&one.version));
        for rung in &mut self.rungs {
            rung.servers.retain(|name| self.servers.iter().any(|one| one.name == *name));
        }
        self.scans
            .retain(|scan| only.is_empty() || only.iter().any(|part| scan.name.contains(part.as_str())));
        if self.scans.is_empty() || self.servers.is_empty() {
            return Err(Error::new(Code::Usage, "no scan or no server is left of case c5").hint(
                "Its servers are of PostgreSQL 15 and 18; --only takes parts of names such as dense, q6.",
            ));
        }
        Ok(())
    }

    /// Gives `tbx` so many rows on every rung, and the other tables as many less or more.
    pub fn set_rows(&mut self, rows: u64) {
        for tables in self.tables.values_mut() {
            let scaled = |other: u64| (other.saturating_mul(rows) / tables.tbx.max(1)).max(100);
            *tables = Tables { tbx: rows, events: scaled(tables.events), lineitem: scaled(tables.lineitem) };
        }
    }
}

impl Scan {
    /// The values of effective_io_concurrency that it runs with; `None` among them is the server's own.
    pub fn values(&self, rung: &Rung, setup: &Setup) -> Vec<Option<u32>> {
        let values = match (&self.brief, setup.full) {
            (_, true) => &self.concurrency,
            (Some(brief), false) => brief,
            (None, false) => return Vec::new(),
        };
        if values.is_empty() {
            return vec![None];
        }
        let wanted = |value: &&u32| {
            values.len() == 1 || rung.concurrency.is_empty() || rung.concurrency.contains(value)
        };
        values.iter().filter(wanted).copied().map(Some).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_one_is_right() {
        let mut case = Case::built_in().unwrap();
        assert_eq!((case.rungs.len(), case.servers.len(), case.goals.len()), (3, 5, 5));
        let (full, brief) = (case.server("15").unwrap(), case.server("18 sync").unwrap());
        let dense = case.scan("dense bitmap").unwrap();
        assert_eq!(
            (dense.values(&case.rungs[0], full).len(), dense.values(&case.rungs[0], brief).len()),
            (10, 5)
        );
        assert_eq!(dense.values(&case.rungs[2], full).len(), 6);
        assert_eq!(case.scan("dense seq").unwrap().values(&case.rungs[0], brief), [None]);
        assert!(case.scan("dense index").unwrap().values(&case.rungs[0], brief).is_empty());
        case.select(&["latency".to_owned()], &[15], &["dense".to_owned()]).unwrap();
        assert_eq!((case.rungs[0].servers.len(), case.scans.len()), (1, 5));
        case.set_rows(15_000);
        assert_eq!(case.tables["small"].lineitem, 2000);
        assert!(
            case.select(&["none".to_owned()], &[], &[]).is_err() && case.select(&[], &[14], &[]).is_err()
        );
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let with = |from: &str, to: &str| {
            assert!(BUILT_IN.contains(from), "{from}");
            Case::parse(&BUILT_IN.replacen(from, to, 1)).unwrap_err().to_string()
        };
        assert!(with("tables = \"large\"", "tables = \"huge\"").contains("no tables"));
        assert!(with("delay_ms = 1.0\n", "").contains("rung latency is not"));
        assert!(with("servers = [\"15\", ", "servers = [\"14\", ").contains("14 is not a server"));
        assert!(
            with("query = \"dense\"\nmethod = \"planner\"", "query = \"dense\"\nmethod = \"brin\"")
                .contains("BRIN")
        );
        assert!(with("scan = \"q6 bitmap\"", "scan = \"q7\"").contains("q7 is not a scan"));
    }
}
