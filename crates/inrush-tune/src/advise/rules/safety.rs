//! What endangers data whether or not something is loaded, and what a reader of the advice should know.

use crate::advise::facts::ServerFacts;
use crate::advise::{Finding, Weight};

pub(super) fn findings(facts: &ServerFacts, found: &mut Vec<Finding>) {
    if facts.is("fsync", "off") {
        found.push(Finding {
            about: "fsync-off",
            weight: Weight::Danger,
            text: "fsync is off: a crash of the machine can destroy every database of this server.".into(),
            remedy: Some("ALTER SYSTEM SET fsync = 'on';".into()),
        });
    }
    if facts.is("full_page_writes", "off") {
        found.push(Finding {
            about: "full-page-writes-off",
            weight: Weight::Danger,
            text: "full_page_writes is off: a page half written when the machine crashes stays broken, unless the file \
                   system excludes that."
                .into(),
            remedy: Some("ALTER SYSTEM SET full_page_writes = 'on';".into()),
        });
    }
    if facts.is("autovacuum", "off") {
        found.push(Finding {
            about: "autovacuum-off",
            weight: Weight::Danger,
            text: "autovacuum is off: what is loaded is neither frozen nor made visible to index-only scans, until \
                   somebody runs VACUUM or the server has to, at the worst time."
                .into(),
            remedy: Some("ALTER SYSTEM SET autovacuum = 'on';".into()),
        });
    }
    if let Some(error) = &facts.configuration_error {
        found.push(Finding {
            about: "configuration-error",
            weight: Weight::Danger,
            text: format!(
                "The server takes nothing from its configuration files, and would not start with them: {error}."
            ),
            remedy: Some("Mend that file.".into()),
        });
    }
    let waiting: Vec<&str> = facts
        .settings
        .iter()
        .filter(|(_, setting)| setting.pending_restart)
        .map(|(name, _)| name.as_str())
        .collect();
    if !waiting.is_empty() {
        found.push(Finding {
            about: "pending-restart",
            weight: Weight::Fact,
            text: format!("Changed in the configuration and waiting for a restart: {}.", waiting.join(", ")),
            remedy: None,
        });
    }
    if facts.is("wal_level", "minimal") {
        found.push(Finding {
            about: "wal-level-minimal",
            weight: Weight::Fact,
            text: "wal_level is minimal: no standby can be made and no archive be kept.".into(),
            remedy: None,
        });
    }
    if let Some(service) = &facts.managed {
        found.push(Finding {
            about: "managed",
            weight: Weight::Fact,
            text: format!(
                "The server looks like {service}: there, settings are parameters of its console or command line rather \
                 than ALTER SYSTEM."
            ),
            remedy: None,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::super::made_up::{about, server, set};
    use super::*;

    #[test]
    fn what_is_unsafe_is_said() {
        let mut facts = server();
        let mut none = Vec::new();
        findings(&facts, &mut none);
        assert_eq!(none, []);
        for (setting, kind) in [
            ("fsync", "fsync-off"),
            ("full_page_writes", "full-page-writes-off"),
            ("autovacuum", "autovacuum-off"),
        ] {
            set(&mut facts, setting, "off", "off");
            let found = about(&facts, kind).unwrap();
            assert_eq!(found.weight, Weight::Danger);
            assert_eq!(found.remedy, Some(format!("ALTER SYSTEM SET {setting} = 'on';")));
        }
    }

    #[test]
    fn what_waits_for_a_restart_is_named() {
        let mut facts = server();
        facts.settings.get_mut("wal_buffers").unwrap().pending_restart = true;
        assert!(about(&facts, "pending-restart").unwrap().text.ends_with(": wal_buffers."));
    }

    #[test]
    fn a_configuration_that_is_not_taken_is_a_danger() {
        let mut facts = server();
        facts.configuration_error = Some("/c line 3: syntax error".into());
        assert!(about(&facts, "configuration-error").unwrap().text.ends_with("/c line 3: syntax error."));
    }

    #[test]
    fn managed_services_and_minimal_wal() {
        let mut facts = server();
        facts.managed = Some("Amazon RDS or Aurora".into());
        assert!(about(&facts, "managed").unwrap().text.contains("Amazon RDS"));
        set(&mut facts, "wal_level", "minimal", "minimal");
        assert!(about(&facts, "wal-level-minimal").is_some());
    }
}
