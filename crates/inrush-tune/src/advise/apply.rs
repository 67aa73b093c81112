//! Makes the changes that need no restart, and takes them back.
//!
//! ALTER SYSTEM cannot be given in a transaction, so a change is recorded in the ledger before it is made, with what
//! postgresql.auto.conf had: whatever happens in between, [`undo`] knows what to put back. It puts back only what is
//! still ours.

use super::facts::ServerFacts;
use super::{Advice, Effect, Report, rules};
use crate::io;
use crate::settings::{alone, auto_conf, refused, reload, seen, set_sql, why_not};
use inrush_core::{Code, Error, Result, quote_ident};
use inrush_sink::failure::server_error;
use inrush_sink::ledger::{AppliedSetting, Ledger};
use serde::Serialize;
use tokio_postgres::Client;

/// The settings that are ever set from here. A ledger that belongs to the owner of a database must not be able to make
/// a superuser's `--undo` set any other.
const OURS: &[&str] = &[
    "checkpoint_completion_target",
    "checkpoint_timeout",
    "maintenance_work_mem",
    "max_parallel_maintenance_workers",
    "max_wal_size",
    "wal_compression",
];

/// A change that was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Change {
    /// The setting.
    pub setting: String,
    /// The value it had.
    pub before: String,
    /// The value it was given.
    pub value: String,
    /// The value it has now, as this session sees it.
    pub now: String,
    /// Why that is another one.
    pub overruled: Option<String>,
}

/// What became of a recorded change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Undone {
    /// The setting.
    pub setting: String,
    /// What it had been given.
    pub value: String,
    /// What was there before; `None`: postgresql.auto.conf had no entry.
    pub previous: Option<String>,
    /// What was done.
    pub outcome: Outcome,
    /// The value it has now, as this session sees it.
    pub now: String,
}

/// What was done about a recorded change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// What was there before has been put back.
    Restored,
    /// It was as before: the change had never been made, or somebody else took it back.
    AsBefore,
    /// Somebody else has set it since: left alone. postgresql.auto.conf has this; `None`: no entry.
    ChangedSince {
        /// What postgresql.auto.conf has.
        found: Option<String>,
    },
    /// What it was a setting of is gone.
    Gone,
}

/// The advice that [`apply`] follows: what takes effect with a reload and gives nothing up.
pub fn applicable(report: &Report) -> Vec<&Advice> {
    report
        .advice
        .iter()
        .filter(|advice| advice.effect == Effect::Reload && advice.obstacle.is_none() && advice.may)
        .filter(|advice| advice.advised.is_some() && OURS.contains(&advice.setting))
        .collect()
}

/// Whether this role can make the changes that are advised, and take them back. To be asked before anything is written.
///
/// # Errors
/// `server`, with what is missing and who can give it.
pub fn check(report: &Report) -> Result<()> {
    let wanted = |advice: &&Advice| advice.effect == Effect::Reload && advice.obstacle.is_none();
    let wanted: Vec<&str> = report.advice.iter().filter(wanted).map(|advice| advice.setting).collect();
    may_change(&report.facts, &wanted)
}

/// Whether what is recorded on this server commits.
pub(crate) fn can_record(facts: &ServerFacts) -> Result<()> {
    if facts.standby {
        return Err(Error::new(Code::Server, "the server is a standby: nothing can be recorded there").hint(
            "Name its primary with --to; settings of the standby itself are for ALTER SYSTEM by hand.",
        ));
    }
    if rules::followers::standby_missing(facts) {
        return Err(Error::new(
            Code::Server,
            "commits on this server wait for a synchronous standby, and none is connected",
        )
        .hint("Bring the standby back, or take it out of synchronous_standby_names."));
    }
    Ok(())
}

/// Whether this role can change one of these settings at least.
pub(crate) fn may_change(facts: &ServerFacts, settings: &[&str]) -> Result<()> {
    can_record(facts)?;
    if facts.is("allow_alter_system", "off") {
        return Err(Error::new(
            Code::Server,
            "the server does not take ALTER SYSTEM: allow_alter_system is off",
        )
        .hint("Its configuration is managed from outside: put the values there."));
    }
    if let Some(error) = &facts.configuration_error {
        return Err(refused(error));
    }
    let may_alter = |setting: &&str| facts.setting(setting).is_some_and(|setting| setting.may_alter);
    let role = quote_ident(&facts.role);
    let mut grants = Vec::new();
    if !settings.is_empty() && !settings.iter().any(may_alter) {
        grants.push(format!("GRANT ALTER SYSTEM ON PARAMETER {} TO {role}", settings.join(", ")));
    }
    if !facts.sees_files {
        // What is in postgresql.auto.conf now is what has to be put back one day.
        grants.push(format!("GRANT SELECT ON pg_file_settings TO {role}"));
        grants.push(format!("GRANT EXECUTE ON FUNCTION pg_show_all_file_settings() TO {role}"));
    }
    if !facts.may_reload {
        grants.push(format!("GRANT EXECUTE ON FUNCTION pg_reload_conf() TO {role}"));
    }
    if grants.is_empty() {
        return Ok(());
    }
    let hint = match &facts.managed {
        Some(service) => format!(
            "On {service} settings are parameters of its console or command line: give them there the values that \
             `inrush advise` names."
        ),
        None => format!("A superuser may, or can let this role in this database: {}.", grants.join("; ")),
    };
    Err(Error::new(Code::Server, format!("role {role} may not change settings of the server")).hint(hint))
}

/// Records each change, makes them, has the server read its configuration, and looks whether they took effect.
///
/// # Errors
/// `server` where a statement fails; what had been changed until then is recorded and can be undone.
pub async fn apply(client: &mut Client, ledger: &Ledger, advice: &[&Advice]) -> Result<Vec<Change>> {
    alone(client).await?;
    let mut made = Vec::new();
    for advice in advice {
        let Some(value) = &advice.advised else { continue };
        let previous = auto_conf(client).await?.remove(advice.setting);
        // What is in the file already only has to be read: recorded again, it would be put back to itself.
        if previous.as_ref() != Some(value) {
            ledger.record_setting(client, advice.setting, value, previous.as_deref()).await?;
            client.batch_execute(&set_sql(advice.setting, value)).await.map_err(server_error)?;
        }
        made.push((advice.setting, &advice.now, value));
    }
    if !made.is_empty() {
        reload(client).await?;
    }
    let mut changes = Vec::new();
    for (setting, before, value) in made {
        let (now, source) = seen(client, setting).await?;
        let overruled = if now == *value { None } else { Some(why_not(client, &source).await?) };
        changes.push(Change {
            setting: setting.to_owned(),
            before: before.clone(),
            value: value.clone(),
            now,
            overruled,
        });
    }
    Ok(changes)
}

/// Goes through the recorded changes, newest first, and puts back what was there before where the change still stands.
///
/// # Errors
/// `server` where the role may not, or a statement fails: what is left then is left recorded. `ledger` for a record
/// that nothing here has written.
pub async fn undo(client: &mut Client, ledger: &Ledger, facts: &ServerFacts) -> Result<Vec<Undone>> {
    // What `inrush tune io` has set is taken back by it.
    let mut recorded = ledger.applied_settings(client).await?;
    recorded.retain(|change| !io::apply::is_ours(&change.name));
    if recorded.is_empty() {
        return Ok(Vec::new());
    }
    let names: Vec<&str> = recorded.iter().map(|change| change.name.as_str()).collect();
    may_change(facts, &names)?;
    if let Some(odd) = recorded.iter().find(|change| !OURS.contains(&change.name.as_str())) {
        return Err(Error::new(
            Code::Ledger,
            format!("the ledger has a change of {:?}, which Inrush does not set", odd.name),
        )
        .hint("Somebody else has written it; nothing was changed."));
    }
    alone(client).await?;
    let mut outcomes = Vec::new();
    for AppliedSetting { id, name, value, previous, .. } in recorded {
        let found = auto_conf(client).await?.remove(&name);
        let outcome = if found == previous {
            Outcome::AsBefore
        } else if found.as_ref() == Some(&value) {
            let sql = match &previous {
                Some(previous) => set_sql(&name, previous),
                None => format!("ALTER SYSTEM RESET {name};"),
            };
            client.batch_execute(&sql).await.map_err(server_error)?;
            Outcome::Restored
        } else {
            Outcome::ChangedSince { found }
        };
        ledger.close_setting(client, id).await?;
        outcomes.push((name, value, previous, outcome));
    }
    if outcomes.iter().any(|(.., outcome)| *outcome == Outcome::Restored) {
        reload(client).await?;
    }
    let mut undone = Vec::new();
    for (setting, value, previous, outcome) in outcomes {
        let (now, _) = seen(client, &setting).await?;
        undone.push(Undone { setting, value, previous, outcome, now });
    }
    Ok(undone)
}

#[cfg(test)]
mod tests {
    use super::super::rules::made_up::{server, set};
    use super::*;

    #[test]
    fn only_what_needs_no_restart_and_gives_nothing_up_is_applied() {
        let mut facts = server();
        let report = Report::of(facts.clone());
        let names: Vec<&str> = applicable(&report).iter().map(|advice| advice.setting).collect();
        assert_eq!(
            names,
            [
                "max_wal_size",
                "checkpoint_timeout",
                "maintenance_work_mem",
                "max_parallel_maintenance_workers"
            ]
        );
        assert!(report.advice.iter().any(|advice| advice.effect == Effect::Restart));
        assert!(!report.options.is_empty());
        facts.settings.get_mut("max_wal_size").unwrap().source = "command line".into();
        let report = Report::of(facts);
        assert!(!applicable(&report).iter().any(|advice| advice.setting == "max_wal_size"));
    }

    #[test]
    fn every_reloadable_advice_may_be_applied_and_undone() {
        for rule in super::super::rules::ADVICE.iter().filter(|rule| !rule.option) {
            let Some(setting) = server().settings.remove(rule.setting) else { panic!("{}", rule.setting) };
            assert_eq!(OURS.contains(&rule.setting), setting.context != "postmaster", "{}", rule.setting);
        }
    }

    #[test]
    fn who_may_not_is_told_what_is_missing() {
        let refused = |change: fn(&mut ServerFacts)| {
            let mut facts = server();
            change(&mut facts);
            check(&Report::of(facts)).unwrap_err().to_string()
        };
        assert!(refused(|facts| facts.standby = true).contains("standby"));
        let waiting = |facts: &mut ServerFacts| set(facts, "synchronous_standby_names", "there", "there");
        assert!(refused(waiting).contains("none is connected"));
        assert!(refused(|facts| facts.may_reload = false).contains("pg_reload_conf"));
        assert!(refused(|facts| facts.sees_files = false).contains("pg_file_settings"));
        let ordinary = |facts: &mut ServerFacts| {
            facts.superuser = false;
            facts.role = "app".into();
            facts.settings.values_mut().for_each(|setting| setting.may_alter = false);
        };
        let text = refused(ordinary);
        assert!(
            text.contains("role app may not change settings") && text.contains("PARAMETER max_wal_size, "),
            "{text}"
        );
        // One that none of the advice is about does not help.
        let mut facts = server();
        ordinary(&mut facts);
        facts.settings.get_mut("wal_level").unwrap().may_alter = true;
        assert!(check(&Report::of(facts.clone())).is_err());
        facts.settings.get_mut("max_wal_size").unwrap().may_alter = true;
        let report = Report::of(facts);
        check(&report).unwrap();
        assert_eq!(applicable(&report).len(), 1);

        let managed = |facts: &mut ServerFacts| {
            facts.sees_files = false;
            facts.managed = Some("Neon".into());
        };
        let mut facts = server();
        managed(&mut facts);
        assert!(check(&Report::of(facts)).unwrap_err().to_string().contains("console"));
    }

    #[test]
    fn a_server_with_nothing_to_improve_has_nothing_to_apply() {
        let mut facts = server();
        set(&mut facts, "max_wal_size", "16384", "16GB");
        set(&mut facts, "checkpoint_timeout", "900", "15min");
        facts.machine = None;
        let report = Report::of(facts);
        assert!(applicable(&report).is_empty());
        assert!(
            report.already_right.iter().any(|right| right.setting == "max_wal_size" && right.now == "16GB")
        );
    }
}
