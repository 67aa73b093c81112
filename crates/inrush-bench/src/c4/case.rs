use crate::case_file;
use inrush_core::{Code, Error, Result};
use serde::{Deserialize, Serialize};

/// The case that is built in.
const BUILT_IN: &str = include_str!("../../../../bench/c4.toml");

/// The case, as its file declares it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// `c4`
    pub name: String,
    /// One line.
    pub about: String,
    /// Of every table that is spread.
    pub shards: u32,
    /// Of a turn with statements.
    pub seconds: u32,
    /// Turns of each contender.
    pub runs: u32,
    /// Rows of the file.
    pub copy_rows: u64,
    /// Rows of the table of 384 columns.
    pub update_rows: u32,
    /// Kinds of work, in order.
    #[serde(rename = "rung")]
    pub rungs: Vec<Rung>,
    /// Who runs.
    #[serde(rename = "contender")]
    pub contenders: Vec<Contender>,
    /// What is to be reached.
    #[serde(rename = "goal", default)]
    pub goals: Vec<Goal>,
    /// What the study measured.
    #[serde(default)]
    pub published: Vec<Published>,
}

/// A kind of work.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rung {
    /// Its name.
    pub name: String,
    /// One line.
    pub about: String,
    /// What kind of cluster it needs.
    pub on: On,
    /// What is done.
    pub job: Job,
    /// Clients at once, where they send statements.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub threads: u32,
    /// Values to go through.
    pub synchronous_commit: Vec<String>,
    /// Who: the first is what the others are divided by.
    pub contenders: Vec<String>,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde's signature
fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// A kind of cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum On {
    /// Citus.
    #[serde(rename = "citus")]
    Citus,
    /// Partitions on other servers.
    #[serde(rename = "postgres_fdw")]
    Foreign,
}

/// What is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Job {
    /// Single-row INSERTs.
    Insert,
    /// UPDATEs of many columns of a row.
    Update,
    /// A file.
    Load,
}

/// Who runs: statements (`to`, `form`), or a command.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Contender {
    /// Its name in tables.
    pub name: String,
    /// One line.
    pub about: String,
    /// Where statements are sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<To>,
    /// What they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub form: Option<Form>,
    /// What keeps the shard in its place.
    #[serde(default)]
    pub guard: Hold,
    /// Statements of a transaction.
    #[serde(default = "one")]
    pub transaction: u32,
    /// Whether they are one message.
    #[serde(default)]
    pub together: bool,
    /// For `sh`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// It loads one row in so many.
    #[serde(default = "one")]
    pub part: u32,
    /// Whether it is for the client that every row is where it belongs, and so has to be looked at.
    #[serde(default)]
    pub audited: bool,
    /// Programs it needs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub needs: Vec<String>,
}

fn one() -> u32 {
    1
}

/// Where statements are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum To {
    /// The server that was named.
    Coordinator,
    /// Any other that knows the shards.
    Worker,
    /// The one that has the row.
    Shard,
    /// A worker, into a table of its own.
    Plain,
}

/// What statements are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Form {
    /// Text with literals.
    Simple,
    /// Prepared.
    Prepared,
    /// Text for `inrush.distribute_dml()`.
    Function,
}

/// What keeps a shard in its place.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Hold {
    /// Nothing, or the server.
    #[default]
    None,
    /// For each statement, by Citus' own functions on the worker.
    Row,
    /// For each statement, by `inrush.dml_guard()` on the worker.
    Function,
    /// For each transaction, on the coordinator.
    Coordinator,
}

/// Something to be reached, with `synchronous_commit` off.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Goal {
    /// Where.
    pub rung: String,
    /// Who.
    pub contender: String,
    /// Whom it is compared with: the fastest of them.
    pub against: Vec<String>,
    /// At least this many times the operations a second, by medians.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ratio: Option<f64>,
    /// At most this part of the coordinator's CPU for each operation, by medians.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub coordinator_cpu: Option<f64>,
}

/// What the study measured.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    /// Where.
    pub rung: String,
    /// Who.
    pub contender: String,
    /// Over whom.
    pub against: String,
    /// Operations a second.
    pub ratio: f64,
    /// Operations for each CPU second of the coordinator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work: Option<f64>,
    /// Its own figures.
    pub note: String,
}

impl Case {
    /// The one that is built in.
    ///
    /// # Errors
    /// Never, once its test has passed.
    pub fn built_in() -> Result<Case> {
        Case::parse(BUILT_IN)
    }

    /// The one that `name` names: `c4`, or a file that ends in `.toml` and says how many shards there are. `None` if it is not
    /// a case like this.
    ///
    /// # Errors
    /// Of a file that is not one, or cannot be read.
    pub fn find(name: &str) -> Result<Option<Case>> {
        if name == "c4" {
            return Case::built_in().map(Some);
        }
        case_file::read_with(name, "shards")?.as_deref().map(Case::parse).transpose()
    }

    /// From the text of a case file.
    ///
    /// # Errors
    /// Of a file that is not one.
    pub fn parse(text: &str) -> Result<Case> {
        let wrong = |fact: String| Error::new(Code::Usage, format!("case c4: {fact}"));
        let case: Case = toml::from_str(text).map_err(|e| wrong(e.to_string()))?;
        for contender in &case.contenders {
            contender.check().map_err(|fact| wrong(format!("{}: {fact}", contender.name)))?;
        }
        for rung in &case.rungs {
            if rung.contenders.is_empty() || rung.synchronous_commit.is_empty() {
                return Err(wrong(format!("rung {} has nothing to run", rung.name)));
            }
            if (rung.job != Job::Load) != (rung.threads > 0) {
                return Err(wrong(format!("rung {} has threads without statements, or none", rung.name)));
            }
            for name in &rung.contenders {
                let Some(contender) = case.contender(name) else {
                    return Err(wrong(format!("{name} is not a contender")));
                };
                if contender.command.is_some() != (rung.job == Job::Load) {
                    return Err(wrong(format!("{name} is not for rung {}", rung.name)));
                }
            }
        }
        let compared =
            case.goals.iter().map(|goal| (&goal.rung, goal.against.iter().chain([&goal.contender])));
        for (rung, names) in compared {
            case.check_names(rung, names).map_err(wrong)?;
        }
        for it in &case.published {
            case.check_names(&it.rung, [&it.contender, &it.against]).map_err(wrong)?;
        }
        if case.goals.iter().any(|goal| goal.against.is_empty()) {
            return Err(wrong("a goal compares with nobody".to_owned()));
        }
        Ok(case)
    }

    fn check_names<'n>(&self, rung: &str, names: impl IntoIterator<Item = &'n String>) -> Result<(), String> {
        let rung = self.rung(rung).ok_or_else(|| format!("{rung} is not a rung"))?;
        match names.into_iter().find(|name| !rung.contenders.contains(name)) {
            Some(name) => Err(format!("{name} does not run on rung {}", rung.name)),
            None => Ok(()),
        }
    }

    /// The rung of this name.
    pub fn rung(&self, name: &str) -> Option<&Rung> {
        self.rungs.iter().find(|rung| rung.name == name)
    }

    /// The contender of this name.
    pub fn contender(&self, name: &str) -> Option<&Contender> {
        self.contenders.iter().find(|contender| contender.name == name)
    }

    /// Keeps these rungs, and of their contenders the first and those whose names contain one of `only`; all, if none is
    /// named. Goals and published figures of what is left out go with it.
    ///
    /// # Errors
    /// If there is no such rung.
    pub fn select(&mut self, rungs: &[String], only: &[String]) -> Result<()> {
        if let Some(name) = rungs.iter().find(|name| self.rung(name).is_none()) {
            let known: Vec<_> = self.rungs.iter().map(|rung| rung.name.as_str()).collect();
            return Err(Error::new(Code::Usage, format!("there is no rung {name}"))
                .hint(format!("The rungs are {}.", known.join(", "))));
        }
        self.rungs.retain(|rung| rungs.is_empty() || rungs.contains(&rung.name));
        for rung in &mut self.rungs {
            let first = rung.contenders[0].clone();
            rung.contenders.retain(|name| {
                only.is_empty() || *name == first || only.iter().any(|part| name.contains(part.as_str()))
            });
        }
        let rungs = &self.rungs;
        self.contenders.retain(|one| rungs.iter().any(|rung| rung.contenders.contains(&one.name)));
        let has = |rung: &str, name: &String| {
            rungs.iter().any(|known| known.name == rung && known.contenders.contains(name))
        };
        self.goals.retain_mut(|goal| {
            goal.against.retain(|name| has(&goal.rung, name));
            has(&goal.rung, &goal.contender) && !goal.against.is_empty()
        });
        self.published.retain(|it| has(&it.rung, &it.contender) && has(&it.rung, &it.against));
        Ok(())
    }
}

impl Contender {
    /// What is wrong with it.
    fn check(&self) -> Result<(), &'static str> {
        let (Some(to), Some(form)) = (self.to, self.form) else {
            let statements = self.to.is_some() || self.form.is_some() || self.guard != Hold::None;
            return match (&self.command, statements || self.transaction != 1 || self.part == 0) {
                (Some(_), false) => Ok(()),
                (None, _) => Err("it has neither a command nor statements"),
                (Some(_), true) => Err("it has a command and what belongs to statements"),
            };
        };
        if self.command.is_some() || self.part != 1 {
            return Err("it has statements and what belongs to a command");
        }
        if self.transaction == 0 {
            return Err("a transaction has a statement");
        }
        if self.together && (form != Form::Prepared || to == To::Shard || self.transaction == 1) {
            return Err("what is sent together is prepared, and not for shards");
        }
        if to == To::Shard {
            if form == Form::Function {
                return Err("a shard takes no call of a function");
            }
            if (self.transaction > 1) != (self.guard == Hold::Coordinator) {
                return Err("what goes to several shards in a transaction has a guard on the coordinator");
            }
        } else if self.guard != Hold::None {
            return Err("a guard is for statements to a shard");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_one_is_right() {
        let mut case = Case::built_in().unwrap();
        assert_eq!((case.rungs.len(), case.goals.len(), case.published.len()), (4, 8, 3));
        case.select(&["insert".to_owned(), "fdw".to_owned()], &["guard".to_owned(), "copy".to_owned()])
            .unwrap();
        assert_eq!(case.rungs[0].contenders, ["coord-simple", "direct-guard", "direct-guard-fn"]);
        assert_eq!(case.rungs[1].contenders, ["fdw-insert-select", "fdw-copy"]);
        assert_eq!((case.contenders.len(), case.goals.len(), case.published.len()), (5, 1, 0));
        assert!(case.select(&["none".to_owned()], &[]).is_err());
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let with = |from: &str, to: &str| {
            assert!(BUILT_IN.contains(from), "{from}");
            Case::parse(&BUILT_IN.replacen(from, to, 1)).unwrap_err().to_string()
        };
        assert!(with("to = \"coordinator\"\n", "").contains("neither"));
        assert!(
            with("guard = \"row\"", "guard = \"row\"\ntransaction = 2").contains("guard on the coordinator")
        );
        assert!(with("part = 20", "part = 20\nto = \"plain\"").contains("belongs to statements"));
        assert!(with("threads = 8", "threads = 0").contains("threads"));
        assert!(with("[\"psql-1\"]\n", "[\"plain\"]\n").contains("plain does not run on rung copy"));
        assert!(with("\"psql-1\", \"psql-2\"", "\"plain\"").contains("plain is not for rung copy"));
        assert!(Case::parse("name = 1").is_err());
    }
}
