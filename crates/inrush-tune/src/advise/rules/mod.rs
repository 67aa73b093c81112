//! The rules: pure functions of the facts. Each file has a family of them, with its tests.

mod checkpoints;
pub(super) mod followers;
mod memory;
mod safety;
mod space;
mod wal;

use super::facts::ServerFacts;
use super::{Advice, Finding};

/// A rule about a setting.
pub(super) struct Rule {
    /// The setting it is about.
    pub(super) setting: &'static str,
    /// Whether its advice gives something up, or serves some loads only.
    pub(super) option: bool,
    /// Whether enough is known to call the setting right.
    pub(super) knows: fn(&ServerFacts) -> bool,
    /// What it says; `None` where the setting is right, not visible, or nothing speaks for a change.
    pub(super) judge: fn(&ServerFacts) -> Option<Advice>,
}

type Judge = fn(&ServerFacts) -> Option<Advice>;

const fn advice(setting: &'static str, judge: Judge) -> Rule {
    Rule { setting, option: false, knows: |_| true, judge }
}

const fn option(setting: &'static str, judge: Judge) -> Rule {
    Rule { setting, option: true, knows: |_| false, judge }
}

/// A rule that goes by the machine.
const fn by_machine(setting: &'static str, judge: Judge) -> Rule {
    Rule { setting, option: false, knows: |facts| facts.machine.is_some(), judge }
}

/// Every rule about a setting, in the order in which advice is given: what helps most loads most comes first.
pub(super) const ADVICE: &[Rule] = &[
    advice("max_wal_size", checkpoints::max_wal_size),
    advice("checkpoint_timeout", checkpoints::checkpoint_timeout),
    advice("checkpoint_completion_target", checkpoints::completion_target),
    advice("wal_buffers", wal::wal_buffers),
    Rule { setting: "wal_compression", option: false, knows: wal::has_figures, judge: wal::wal_compression },
    by_machine("shared_buffers", memory::shared_buffers),
    by_machine("maintenance_work_mem", memory::maintenance_work_mem),
    by_machine("max_parallel_maintenance_workers", memory::maintenance_workers),
    option("synchronous_commit", followers::synchronous_commit),
    option("wal_compression", wal::wal_compression_for_indexes),
    option("wal_level", wal::wal_level),
];

/// Everything that is no setting to change, what matters most first.
pub(super) fn findings(facts: &ServerFacts) -> Vec<Finding> {
    let mut found = Vec::new();
    followers::findings(facts, &mut found);
    space::findings(facts, &mut found);
    safety::findings(facts, &mut found);
    found.sort_by_key(|finding| finding.weight);
    found
}

#[cfg(test)]
pub(super) mod made_up {
    //! Facts for tests: a fresh PostgreSQL 18 on a machine of 64 GB.

    use crate::advise::facts::{ServerFacts, Setting};
    use crate::advise::machine::{Directory, Machine, Space};

    pub(crate) const GB: u64 = 1 << 30;

    pub(crate) fn server() -> ServerFacts {
        let mut facts = ServerFacts {
            version_num: 180_001,
            version: "18.1".into(),
            role: "postgres".into(),
            superuser: true,
            may_reload: true,
            sees_files: true,
            ..ServerFacts::default()
        };
        for (name, value, shown, unit, context) in [
            ("archive_mode", "off", "off", "", "postmaster"),
            ("autovacuum", "on", "on", "", "sighup"),
            ("autovacuum_max_workers", "3", "3", "", "sighup"),
            ("autovacuum_work_mem", "-1", "-1", "kB", "sighup"),
            ("checkpoint_completion_target", "0.9", "0.9", "", "sighup"),
            ("checkpoint_timeout", "300", "5min", "s", "sighup"),
            ("fsync", "on", "on", "", "sighup"),
            ("full_page_writes", "on", "on", "", "sighup"),
            ("maintenance_work_mem", "65536", "64MB", "kB", "user"),
            ("max_parallel_maintenance_workers", "2", "2", "", "user"),
            ("max_parallel_workers", "8", "8", "", "user"),
            ("max_wal_senders", "10", "10", "", "postmaster"),
            ("max_wal_size", "1024", "1GB", "MB", "sighup"),
            ("shared_buffers", "16384", "128MB", "8kB", "postmaster"),
            ("synchronous_commit", "on", "on", "", "user"),
            ("synchronous_standby_names", "", "", "", "sighup"),
            ("wal_buffers", "512", "4MB", "8kB", "postmaster"),
            ("wal_compression", "off", "off", "", "superuser"),
            ("wal_level", "replica", "replica", "", "postmaster"),
            ("wal_writer_delay", "200", "200ms", "ms", "sighup"),
        ] {
            let setting = Setting {
                value: value.into(),
                shown: shown.into(),
                unit: Some(unit.to_owned()).filter(|unit| !unit.is_empty()),
                context: context.into(),
                source: "default".into(),
                may_alter: true,
                ..Setting::default()
            };
            facts.settings.insert(name.into(), setting);
        }
        facts.settings.get_mut("wal_compression").unwrap().choices =
            ["pglz", "lz4", "zstd", "on", "off"].map(str::to_owned).to_vec();
        facts.machine = Some(machine(64 * GB, 400_000_000_000));
        facts
    }

    pub(crate) fn machine(memory: u64, free: u64) -> Machine {
        let directory = |what: &str| Directory {
            what: what.into(),
            path: format!("/data/{what}"),
            device: Some("/dev/nvme0n1".into()),
            mount_point: Some("/data".into()),
            file_system: Some("xfs".into()),
            rotational: Some(false),
            space: Some(Space { free, total: 1_000_000_000_000 }),
        };
        Machine {
            memory: Some(memory),
            processors: Some(16),
            directories: vec![directory("data"), directory("pg_wal")],
        }
    }

    /// Gives a setting a value.
    pub(crate) fn set(facts: &mut ServerFacts, name: &str, value: &str, shown: &str) {
        let setting = facts.settings.get_mut(name).expect("a setting of the made-up server");
        setting.value = value.into();
        setting.shown = shown.into();
    }

    /// The whole text of what was found about something.
    pub(crate) fn about(facts: &ServerFacts, about: &str) -> Option<super::Finding> {
        super::findings(facts).into_iter().find(|finding| finding.about == about)
    }
}
