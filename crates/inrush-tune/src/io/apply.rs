//! Makes what is advised where it holds, and takes it back.
//!
//! An option of a tablespace is set in the transaction that records what it was: there is never one without the other.
//! ALTER SYSTEM cannot be given in a transaction, so its record comes first. [`undo`] puts back only what is still ours.

use super::advice::{Advice, Place};
use super::server::{Found, OPTIONS, option_of};
use crate::advise::ServerFacts;
use crate::advise::apply::{Change, Outcome, Undone, can_record, may_change};
use crate::settings::{alone, auto_conf, reload, seen, set_sql, why_not};
use inrush_core::{Code, Error, Result, quote_ident};
use inrush_sink::failure::server_error;
use inrush_sink::ledger::{AppliedSetting, Ledger};
use tokio_postgres::Client;

/// The settings of the server that are ever set from here. A ledger that belongs to the owner of a database must not be
/// able to make a superuser's `--undo` set any other.
const OURS: &[&str] = &["io_workers"];

/// What a record in the ledger is about.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Subject {
    /// A setting of the server.
    System(String),
    /// An option of a tablespace.
    Option {
        /// The tablespace's OID: its name may change.
        oid: u32,
        /// Its name, when the option was set.
        tablespace: String,
        /// The option.
        name: String,
    },
}

impl Subject {
    /// The name that the ledger has for it: `io_workers`, or `tablespace OID NAME OPTION`. Options have no spaces.
    fn name(&self) -> String {
        match self {
            Subject::System(name) => name.clone(),
            Subject::Option { oid, tablespace, name } => format!("tablespace {oid} {tablespace} {name}"),
        }
    }

    /// What a name in the ledger is about; `None` for what is not set from here.
    fn of(recorded: &str) -> Option<Subject> {
        if OURS.contains(&recorded) {
            return Some(Subject::System(recorded.to_owned()));
        }
        let (oid, rest) = recorded.strip_prefix("tablespace ")?.split_once(' ')?;
        let (tablespace, name) = rest.rsplit_once(' ')?;
        let (oid, tablespace) = (oid.parse().ok()?, tablespace.to_owned());
        OPTIONS.contains(&name).then(|| Subject::Option { oid, tablespace, name: name.to_owned() })
    }
}

/// Whether a change that the ledger has recorded was made here.
pub fn is_ours(recorded: &str) -> bool {
    Subject::of(recorded).is_some()
}

/// The advice that [`apply`] follows.
pub fn applicable<'a>(advice: impl IntoIterator<Item = &'a Advice>) -> Vec<&'a Advice> {
    advice
        .into_iter()
        .filter(|one| one.applied && one.may && one.obstacle.is_none() && one.place_is_ours())
        .collect()
}

impl Advice {
    fn place_is_ours(&self) -> bool {
        match self.place {
            Place::Tablespace { .. } => OPTIONS.contains(&self.setting),
            Place::System => OURS.contains(&self.setting),
            Place::Device { .. } => false,
        }
    }
}

/// Whether the advice can be followed by this role. To be asked before anything is written.
///
/// # Errors
/// `server`, with what is missing and who can give it.
pub fn check(facts: &ServerFacts, advice: &[&Advice]) -> Result<()> {
    can_record(facts)?;
    let system: Vec<&str> =
        advice.iter().filter(|one| one.place == Place::System).map(|one| one.setting).collect();
    if system.is_empty() { Ok(()) } else { may_change(facts, &system) }
}

/// Makes each change and records it, and looks whether it took effect.
///
/// # Errors
/// `server` where a statement fails; what had been changed until then is recorded and can be undone.
pub async fn apply(client: &mut Client, ledger: &Ledger, advice: &[&Advice]) -> Result<Vec<Change>> {
    alone(client).await?;
    let mut changes = Vec::new();
    let mut system = Vec::new();
    for one in advice {
        match &one.place {
            Place::Tablespace { name } => {
                set_option(client, ledger, name, one.setting, &one.advised).await?;
                let now = option_of(client, name, one.setting).await?.unwrap_or_default();
                changes.push(Change {
                    setting: format!("{} of tablespace {name}", one.setting),
                    before: one.now.clone().unwrap_or_default(),
                    value: one.advised.clone(),
                    overruled: (now != one.advised)
                        .then(|| "somebody else has set the option meanwhile".to_owned()),
                    now,
                });
            }
            Place::System => {
                let previous = auto_conf(client).await?.remove(one.setting);
                // What is in the file already only has to be read: recorded again, it would be put back to itself.
                if previous.as_ref() != Some(&one.advised) {
                    ledger.record_setting(client, one.setting, &one.advised, previous.as_deref()).await?;
                    client.batch_execute(&set_sql(one.setting, &one.advised)).await.map_err(server_error)?;
                }
                system.push(*one);
            }
            Place::Device { .. } => {}
        }
    }
    if !system.is_empty() {
        reload(client).await?;
    }
    for one in system {
        let (now, source) = seen(client, one.setting).await?;
        let overruled = if now == one.advised { None } else { Some(why_not(client, &source).await?) };
        changes.push(Change {
            setting: one.setting.to_owned(),
            before: one.now.clone().unwrap_or_default(),
            value: one.advised.clone(),
            now,
            overruled,
        });
    }
    Ok(changes)
}

/// Sets an option and records what it was, in one transaction.
async fn set_option(
    client: &mut Client,
    ledger: &Ledger,
    tablespace: &str,
    name: &str,
    value: &str,
) -> Result<()> {
    let found = Found::named(client, tablespace).await?.ok_or_else(|| {
        Error::new(Code::Server, format!("tablespace {tablespace:?} is gone")).hint("Measure again.")
    })?;
    let previous = found.option(name);
    if previous.as_deref() == Some(value) {
        return Ok(());
    }
    let subject =
        Subject::Option { oid: found.oid, tablespace: tablespace.to_owned(), name: name.to_owned() };
    let tx = client.transaction().await.map_err(server_error)?;
    ledger.record_setting_in(&tx, &subject.name(), value, previous.as_deref()).await?;
    tx.batch_execute(&option_sql(tablespace, name, Some(value))).await.map_err(server_error)?;
    tx.commit().await.map_err(server_error)
}

/// `ALTER TABLESPACE ... SET` or `RESET`. The name of the option is one of ours.
fn option_sql(tablespace: &str, name: &str, value: Option<&str>) -> String {
    let tablespace = quote_ident(tablespace);
    match value {
        // Options take a number or a quoted text, and check it themselves.
        Some(value) => {
            format!("ALTER TABLESPACE {tablespace} SET ({name} = {})", inrush_core::quote_literal(value))
        }
        None => format!("ALTER TABLESPACE {tablespace} RESET ({name})"),
    }
}

/// What came of taking changes back.
#[derive(Debug)]
pub struct Undoing {
    /// What was done about each recorded change.
    pub undone: Vec<Undone>,
    /// Why some are still recorded.
    pub left: Option<Error>,
}

/// Goes through the recorded changes, newest first, and puts back what was there before where the change still stands.
/// One that this role may not put back stays recorded, and does not keep the others from being put back.
///
/// # Errors
/// `server` where nothing can be recorded on the server, or a statement fails.
pub async fn undo(client: &mut Client, ledger: &Ledger, facts: &ServerFacts) -> Result<Undoing> {
    let mut undoing = Undoing { undone: Vec::new(), left: None };
    let recorded: Vec<(AppliedSetting, Subject)> = ledger
        .applied_settings(client)
        .await?
        .into_iter()
        .filter_map(|change| {
            Some((Subject::of(&change.name)?, change)).map(|(subject, change)| (change, subject))
        })
        .collect();
    if recorded.is_empty() {
        return Ok(undoing);
    }
    can_record(facts)?;
    alone(client).await?;
    let mut done = Vec::new();
    let mut changed = false;
    for (change, subject) in recorded {
        let outcome = match &subject {
            Subject::System(name) => match may_change(facts, &[name]) {
                Ok(()) => undo_system(client, ledger, &change, name).await,
                Err(error) => Err(error),
            },
            Subject::Option { oid, name, .. } => undo_option(client, ledger, &change, *oid, name).await,
        };
        match outcome {
            Ok(outcome) => {
                changed |= outcome == Outcome::Restored && matches!(subject, Subject::System(_));
                done.push((change, subject, outcome));
            }
            Err(error) if client.is_closed() => return Err(error),
            Err(error) => undoing.left = Some(error),
        }
    }
    if changed {
        reload(client).await?;
    }
    for (AppliedSetting { value, previous, .. }, subject, outcome) in done {
        let (setting, now) = match &subject {
            Subject::System(name) => (name.clone(), seen(client, name).await?.0),
            Subject::Option { oid, tablespace, name } => match Found::of(client, *oid).await? {
                Some(found) => (
                    format!("{name} of tablespace {}", found.name),
                    found.option(name).unwrap_or_else(|| "no option".to_owned()),
                ),
                None => (format!("{name} of tablespace {tablespace}"), "gone".to_owned()),
            },
        };
        undoing.undone.push(Undone { setting, value, previous, outcome, now });
    }
    Ok(undoing)
}

async fn undo_system(
    client: &mut Client,
    ledger: &Ledger,
    change: &AppliedSetting,
    name: &str,
) -> Result<Outcome> {
    let found = auto_conf(client).await?.remove(name);
    let outcome = outcome(change, found);
    if outcome == Outcome::Restored {
        let sql = match &change.previous {
            Some(previous) => set_sql(name, previous),
            None => format!("ALTER SYSTEM RESET {name};"),
        };
        client.batch_execute(&sql).await.map_err(server_error)?;
    }
    ledger.close_setting(client, change.id).await?;
    Ok(outcome)
}

async fn undo_option(
    client: &mut Client,
    ledger: &Ledger,
    change: &AppliedSetting,
    oid: u32,
    name: &str,
) -> Result<Outcome> {
    let found = Found::of(client, oid).await?;
    let outcome = match &found {
        Some(found) => outcome(change, found.option(name)),
        None => Outcome::Gone,
    };
    let tx = client.transaction().await.map_err(server_error)?;
    // As when it was set: on disk, and without a wait for standbys.
    tx.batch_execute("SET LOCAL synchronous_commit = 'local'").await.map_err(server_error)?;
    if let (Outcome::Restored, Some(found)) = (&outcome, &found) {
        let sql = option_sql(&found.name, name, change.previous.as_deref());
        tx.batch_execute(&sql).await.map_err(|e| {
            let error = server_error(e);
            let hint = format!("A superuser, or the owner of the tablespace, can: {sql};");
            Error::new(Code::Server, error.fact()).hint(hint)
        })?;
    }
    ledger.close_setting(&tx, change.id).await?;
    tx.commit().await.map_err(server_error)?;
    Ok(outcome)
}

/// What is to be done about a change, by what is there now.
fn outcome(change: &AppliedSetting, found: Option<String>) -> Outcome {
    if found == change.previous {
        Outcome::AsBefore
    } else if found.as_ref() == Some(&change.value) {
        Outcome::Restored
    } else {
        Outcome::ChangedSince { found }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_told_apart_by_their_names() {
        for subject in [
            Subject::System("io_workers".into()),
            Subject::Option {
                oid: 1663,
                tablespace: "pg_default".into(),
                name: "effective_io_concurrency".into(),
            },
            Subject::Option {
                oid: 4_000_000_000,
                tablespace: "my \"fast\" one ".into(),
                name: "random_page_cost".into(),
            },
        ] {
            assert_eq!(Subject::of(&subject.name()), Some(subject));
        }
        for other in [
            "max_wal_size",
            "tablespace 1 x seq_page_cost",
            "tablespace x random_page_cost",
            "tablespace",
            "shared_preload_libraries",
        ] {
            assert!(!is_ours(other), "{other}");
        }
    }

    #[test]
    fn only_what_is_still_ours_is_put_back() {
        let change = |value: &str, previous: Option<&str>| AppliedSetting {
            id: 1,
            name: "io_workers".into(),
            value: value.into(),
            previous: previous.map(str::to_owned),
            applied_at: String::new(),
        };
        assert_eq!(outcome(&change("32", None), Some("32".into())), Outcome::Restored);
        assert_eq!(outcome(&change("32", None), None), Outcome::AsBefore);
        assert_eq!(outcome(&change("32", Some("3")), Some("3".into())), Outcome::AsBefore);
        let found = Some("8".to_owned());
        assert_eq!(outcome(&change("32", None), found.clone()), Outcome::ChangedSince { found });
    }
}
