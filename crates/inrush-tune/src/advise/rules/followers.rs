//! Who follows the WAL: standbys that commits wait for, slots, the archiver.

use crate::advise::facts::{ServerFacts, Slot};
use crate::advise::figures::bytes;
use crate::advise::{Advice, Effect, Finding, Weight};
use inrush_core::quote_ident;

/// WAL kept for a slot that nobody uses from which it endangers the server.
const HELD: i64 = 1 << 30;
/// WAL that a replica has not replayed yet from which that is worth a word.
const BEHIND: i64 = 1 << 30;

/// Whether a commit of this session waits for a standby.
fn commits_wait(facts: &ServerFacts) -> bool {
    let waits = ["on", "remote_write", "remote_apply"];
    facts.setting("synchronous_standby_names").is_some_and(|names| !names.value.is_empty())
        && facts.setting("synchronous_commit").is_some_and(|level| waits.contains(&level.value.as_str()))
}

/// Commits that need not wait: for a role of its own that loads, never for the server.
pub(super) fn synchronous_commit(facts: &ServerFacts) -> Option<Advice> {
    let level = facts.setting("synchronous_commit")?;
    let wal_turns = facts.machine.as_ref().and_then(|machine| machine.wal()?.rotational) == Some(true);
    let (value, why, price) = if commits_wait(facts) {
        (
            "local",
            "Each unit of a load, about one a second on each connection, waits for a synchronous standby. A role that \
             only loads can do without."
                .to_owned(),
            "If the primary is lost and the standby takes over, the last units that were reported as loaded may be \
             missing there. Their record in the ledger is missing with them: the same command loads them."
                .to_owned(),
        )
    } else if wal_turns && level.value != "off" {
        let delay = facts.milliseconds("wal_writer_delay").unwrap_or(200) * 3;
        (
            "off",
            "Each unit of a load, about one a second on each connection, waits for a disk that turns."
                .to_owned(),
            format!(
                "If the server crashes, what was committed within the last {delay} ms may be lost: rows and their \
                 record in the ledger together, so that the same command loads them again. Nothing else is at risk."
            ),
        )
    } else {
        return None;
    };
    let price = format!("{price} It holds for every session of role {}.", facts.role);
    Some(Advice {
        setting: "synchronous_commit",
        now: level.shown.clone(),
        advised: Some(value.to_owned()),
        why,
        price,
        effect: Effect::Session,
        sql: vec![format!("ALTER ROLE {} SET synchronous_commit = '{value}';", quote_ident(&facts.role))],
        // A role may change its own settings of this kind.
        may: true,
        obstacle: None,
    })
}

pub(super) fn findings(facts: &ServerFacts, found: &mut Vec<Finding>) {
    if facts.standby {
        found.push(Finding {
            about: "standby",
            weight: Weight::Limit,
            text: "The server is a standby: nothing can be loaded into it.".into(),
            remedy: Some("Name its primary with --to; the settings of that one count.".into()),
        });
    }
    found.extend(synchronous_standbys(facts));
    found.extend(facts.slots.iter().filter_map(|slot| slot_finding(slot, facts)));
    found.extend(archiver(facts));
    for replica in &facts.replicas {
        let Some(behind) = replica.behind_bytes.filter(|behind| *behind >= BEHIND) else { continue };
        found.push(Finding {
            about: "replica-behind",
            weight: Weight::Fact,
            text: format!(
                "Replica {} has {} of WAL to replay.",
                replica.name.as_deref().unwrap_or("?"),
                size(behind)
            ),
            remedy: Some("`inrush load --max-lag` pauses a load while replicas fall behind.".into()),
        });
    }
}

/// Whether a commit of this session waits for a standby that is not connected: it would wait without end.
pub(in crate::advise) fn standby_missing(facts: &ServerFacts) -> bool {
    let may_be_it = |state: Option<&str>| matches!(state, None | Some("sync" | "quorum"));
    !facts.standby
        && commits_wait(facts)
        && !facts.replicas.iter().any(|replica| may_be_it(replica.sync_state.as_deref()))
}

fn synchronous_standbys(facts: &ServerFacts) -> Option<Finding> {
    if facts.standby || !commits_wait(facts) {
        return None;
    }
    let waited_for: Vec<&str> = facts
        .replicas
        .iter()
        .filter(|replica| matches!(replica.sync_state.as_deref(), Some("sync" | "quorum")))
        .filter_map(|replica| replica.name.as_deref())
        .collect();
    if standby_missing(facts) {
        let names = &facts.setting("synchronous_standby_names")?.value;
        return Some(Finding {
            about: "synchronous-standby-missing",
            weight: Weight::Danger,
            text: format!(
                "Commits wait for a synchronous standby (synchronous_standby_names is {names}), and none is connected: \
                 every load hangs at its first commit."
            ),
            remedy: Some("Bring the standby back, or take it out of synchronous_standby_names.".into()),
        });
    }
    let who = if waited_for.is_empty() { "a standby".to_owned() } else { waited_for.join(", ") };
    Some(Finding {
        about: "synchronous-standby",
        weight: Weight::Limit,
        text: format!(
            "Every commit waits until {who} has the WAL: a load is no faster than the network to it and its disk."
        ),
        remedy: Some("More connections (--jobs) wait side by side.".into()),
    })
}

fn slot_finding(slot: &Slot, facts: &ServerFacts) -> Option<Finding> {
    if slot.active {
        return None;
    }
    let name = &slot.name;
    let drop = format!("SELECT pg_catalog.pg_drop_replication_slot({});", inrush_core::quote_literal(name));
    if slot.wal_status.as_deref() == Some("lost") {
        return Some(Finding {
            about: "lost-slot",
            weight: Weight::Fact,
            text: format!("Slot {name} has lost WAL that it needed and can no longer be used."),
            remedy: Some(drop),
        });
    }
    let held = slot.held_bytes?;
    let bounded = facts.bytes("max_slot_wal_keep_size");
    let bound = match bounded {
        Some(most) => format!("max_slot_wal_keep_size lets it keep {}", bytes(most)),
        None => "nothing bounds that: a load fills the disk with WAL that nobody reads".to_owned(),
    };
    let grave = held >= HELD || bounded.is_none();
    Some(Finding {
        about: "idle-slot",
        weight: if grave { Weight::Danger } else { Weight::Fact },
        text: format!(
            "Nobody uses slot {name} ({}), and {} of WAL are kept for it; {bound}.",
            slot.kind,
            size(held)
        ),
        remedy: Some(format!("If nobody comes back to it: {drop}")),
    })
}

fn archiver(facts: &ServerFacts) -> Option<Finding> {
    let archiver = facts.archiver.as_ref()?;
    let unset = |name: &str| facts.setting(name).is_some_and(|setting| setting.value.is_empty());
    if unset("archive_command")
        && facts.setting("archive_library").is_none_or(|library| library.value.is_empty())
    {
        return Some(Finding {
            about: "archiver-without-command",
            weight: Weight::Danger,
            text: "archive_mode is on and archive_command is empty: WAL is kept until there is one, and a load fills \
                   the disk with it."
                .into(),
            remedy: Some("Set archive_command or archive_library, or archive_mode off.".into()),
        });
    }
    if archiver.failing {
        return Some(Finding {
            about: "archiver-failing",
            weight: Weight::Danger,
            text: format!(
                "The archiver fails at segment {} ({} failures): WAL is kept until it succeeds, and a load fills the \
                 disk with it.",
                archiver.last_failed.as_deref().unwrap_or("?"),
                archiver.failed
            ),
            remedy: Some("The log of the server has the message of archive_command.".into()),
        });
    }
    Some(Finding {
        about: "archiver",
        weight: Weight::Limit,
        text: "Every segment of WAL goes through the archiver, one after the other: what it does not keep up with stays \
               in pg_wal."
            .into(),
        remedy: Some("`inrush load --max-lag` pauses a load while it falls behind.".into()),
    })
}

fn size(n: i64) -> String {
    bytes(u64::try_from(n).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::super::made_up::{about, server, set};
    use super::*;
    use crate::advise::facts::{Archiver, Replica, Setting};

    fn replica(name: &str, sync_state: Option<&str>) -> Replica {
        Replica { name: Some(name.into()), sync_state: sync_state.map(str::to_owned), ..Replica::default() }
    }

    #[test]
    fn a_lonely_server_has_no_followers() {
        let mut none = Vec::new();
        findings(&server(), &mut none);
        assert_eq!(none, []);
        assert_eq!(synchronous_commit(&server()), None);
    }

    #[test]
    fn synchronous_standbys_are_named() {
        let mut facts = server();
        set(&mut facts, "synchronous_standby_names", "ANY 1 (a, b)", "ANY 1 (a, b)");
        let missing = about(&facts, "synchronous-standby-missing").unwrap();
        assert_eq!(missing.weight, Weight::Danger);
        facts.replicas = vec![replica("a", Some("quorum")), replica("c", Some("async"))];
        let there = about(&facts, "synchronous-standby").unwrap();
        assert!(there.text.contains("until a has") && there.weight == Weight::Limit, "{}", there.text);
        let option = synchronous_commit(&facts).unwrap();
        assert_eq!(option.sql, ["ALTER ROLE postgres SET synchronous_commit = 'local';"]);
        assert_eq!(option.effect, Effect::Session);

        // A role that does not see the states is not told that there is none.
        facts.replicas = vec![replica("a", None)];
        assert!(about(&facts, "synchronous-standby").unwrap().text.contains("a standby"));
        set(&mut facts, "synchronous_commit", "local", "local");
        assert_eq!(about(&facts, "synchronous-standby"), None);
        assert_eq!(synchronous_commit(&facts), None);
    }

    #[test]
    fn a_disk_that_turns_makes_commits_slow() {
        let mut facts = server();
        facts.machine.as_mut().unwrap().directories[1].rotational = Some(true);
        let option = synchronous_commit(&facts).unwrap();
        assert_eq!(option.advised.as_deref(), Some("off"));
        assert!(option.price.contains("600 ms"), "{}", option.price);
    }

    #[test]
    fn slots_that_nobody_uses() {
        let mut facts = server();
        let slot =
            Slot { name: "it's".into(), kind: "physical".into(), held_bytes: Some(5_000), ..Slot::default() };
        facts.slots = vec![Slot { active: true, ..slot.clone() }];
        assert_eq!(about(&facts, "idle-slot"), None);
        facts.slots = vec![slot.clone()];
        let idle = about(&facts, "idle-slot").unwrap();
        assert_eq!(idle.weight, Weight::Danger);
        assert!(idle.remedy.unwrap().contains("pg_drop_replication_slot('it''s')"));
        let bound = Setting { value: "1024".into(), unit: Some("MB".into()), ..Setting::default() };
        facts.settings.insert("max_slot_wal_keep_size".into(), bound);
        assert_eq!(about(&facts, "idle-slot").unwrap().weight, Weight::Fact);
        facts.slots = vec![Slot { wal_status: Some("lost".into()), ..slot }];
        assert_eq!(about(&facts, "lost-slot").unwrap().weight, Weight::Fact);
    }

    #[test]
    fn an_archiver_that_fails_endangers_the_server() {
        let mut facts = server();
        set(&mut facts, "archive_mode", "on", "on");
        facts.archiver = Some(Archiver::default());
        assert_eq!(about(&facts, "archiver").unwrap().weight, Weight::Limit);
        let failing =
            Archiver { failing: true, failed: 9, last_failed: Some("0001".into()), ..Archiver::default() };
        facts.archiver = Some(failing);
        let found = about(&facts, "archiver-failing").unwrap();
        assert!(found.text.contains("segment 0001 (9 failures)"), "{}", found.text);
        facts.settings.insert("archive_command".into(), Setting::default());
        assert!(about(&facts, "archiver-without-command").is_some());
    }

    #[test]
    fn lag_and_standbys() {
        let mut facts = server();
        facts.replicas = vec![Replica { behind_bytes: Some(3 << 30), ..replica("r", Some("async")) }];
        assert!(about(&facts, "replica-behind").unwrap().text.contains("3.2 GB"));
        facts.standby = true;
        assert_eq!(about(&facts, "standby").unwrap().weight, Weight::Limit);
    }
}
