//! What a server says about itself.
//!
//! Anybody who may connect gets facts: what a role may not see is listed in [`ServerFacts::not_visible`] and is no
//! error.

mod read;

pub(crate) use read::files;
pub use read::read;

use super::machine::Machine;
use serde::Serialize;
use std::collections::BTreeMap;

/// A server as far as it can be seen.
#[derive(Debug, Clone, Default, Serialize)]
pub struct ServerFacts {
    /// server_version_num: 150004 for 15.4.
    pub version_num: u32,
    /// The version as the server prints it.
    pub version: String,
    /// The current role.
    pub role: String,
    /// Whether it is a superuser.
    pub superuser: bool,
    /// The managed service that the roles of the server tell of.
    pub managed: Option<String>,
    /// Whether the server is a standby.
    pub standby: bool,
    /// Whether this role may make the server read its configuration again.
    pub may_reload: bool,
    /// Whether this role may read the configuration files (pg_file_settings).
    pub sees_files: bool,
    /// Why the server does not take anything from its configuration files, where it does not: place and reason.
    pub configuration_error: Option<String>,
    /// When the server was started, in seconds since 1970.
    pub started: f64,
    /// What initdb gave the cluster to tell it by.
    pub system_identifier: Option<i64>,
    /// Settings by name. One that is missing does not exist in this version or is not visible.
    pub settings: BTreeMap<String, Setting>,
    /// What the counters of checkpoints say.
    pub checkpoints: Checkpoints,
    /// What the counters of WAL say.
    pub wal: WalCounters,
    /// Bytes in pg_wal.
    pub wal_directory_bytes: Option<u64>,
    /// What receives WAL now.
    pub replicas: Vec<Replica>,
    /// Replication slots.
    pub slots: Vec<Slot>,
    /// The archiver, where archive_mode is not off.
    pub archiver: Option<Archiver>,
    /// Tablespaces outside the data directory.
    pub tablespaces: Vec<Tablespace>,
    /// The machine, where the server is known to run on this one.
    pub machine: Option<Machine>,
    /// What this role, or this account of this machine, may not see, and what would let it.
    pub not_visible: Vec<String>,
}

/// A setting as pg_settings has it, seen from this session.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Setting {
    /// The value in `unit`s.
    pub value: String,
    /// The value as SHOW prints it.
    pub shown: String,
    /// kB, MB, 8kB, ms, s, min.
    pub unit: Option<String>,
    /// When it can be changed: postmaster means at the start of the server.
    pub context: String,
    /// Where the value comes from: default, configuration file, command line, user ...
    pub source: String,
    /// Whether a configuration file has another value, which waits for a restart.
    pub pending_restart: bool,
    /// The values this build of the server takes, for a setting that has a list of them.
    pub choices: Vec<String>,
    /// Whether this role may change it with ALTER SYSTEM.
    pub may_alter: bool,
    /// What postgresql.auto.conf has, where that may be read.
    pub in_auto_conf: Option<String>,
}

/// Counters of checkpoints.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Checkpoints {
    /// Those that came by time.
    pub timed: u64,
    /// Those that were asked for, nearly always by the volume of WAL.
    pub requested: u64,
    /// Day from which they are counted.
    pub since: Option<String>,
}

/// Counters of WAL.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct WalCounters {
    /// Whole pages written into the WAL.
    pub page_images: u64,
    /// Bytes of WAL.
    pub bytes: u64,
    /// How often WAL had to be written because the buffers were full.
    pub buffers_full: u64,
    /// Day from which they are counted.
    pub since: Option<String>,
}

/// A receiver of WAL.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Replica {
    /// application_name; `None` where this role may not see it.
    pub name: Option<String>,
    /// streaming, catchup, backup; `None` where this role may not see it.
    pub state: Option<String>,
    /// async, sync, quorum, potential; `None` where this role may not see it.
    pub sync_state: Option<String>,
    /// WAL it has not replayed yet.
    pub behind_bytes: Option<i64>,
}

/// A replication slot.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Slot {
    /// Its name.
    pub name: String,
    /// physical or logical.
    pub kind: String,
    /// Whether somebody uses it.
    pub active: bool,
    /// reserved, extended, unreserved, lost.
    pub wal_status: Option<String>,
    /// WAL that is kept for it.
    pub held_bytes: Option<i64>,
}

/// The archiver.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Archiver {
    /// Segments archived.
    pub archived: i64,
    /// Attempts that failed.
    pub failed: i64,
    /// The last segment archived.
    pub last_archived: Option<String>,
    /// When.
    pub last_archived_at: Option<String>,
    /// Whether its latest attempt failed.
    pub failing: bool,
    /// The segment it fails at.
    pub last_failed: Option<String>,
}

/// A tablespace outside the data directory.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Tablespace {
    /// Its name.
    pub name: String,
    /// Its directory on the server's machine.
    pub location: String,
}

impl ServerFacts {
    /// A setting, if it exists and is visible.
    pub fn setting(&self, name: &str) -> Option<&Setting> {
        self.settings.get(name)
    }

    /// A setting that is a size, in bytes.
    pub fn bytes(&self, name: &str) -> Option<u64> {
        let setting = self.setting(name)?;
        let unit = setting.unit.as_deref()?;
        let digits = unit.find(|c: char| !c.is_ascii_digit())?;
        let count = if digits == 0 { 1 } else { unit[..digits].parse().ok()? };
        let scale: u64 = match &unit[digits..] {
            "B" => 1,
            "kB" => 1 << 10,
            "MB" => 1 << 20,
            _ => return None,
        };
        setting.value.parse::<u64>().ok()?.checked_mul(count)?.checked_mul(scale)
    }

    /// A setting that is a time, in milliseconds.
    pub fn milliseconds(&self, name: &str) -> Option<u64> {
        let setting = self.setting(name)?;
        let scale = match setting.unit.as_deref()? {
            "ms" => 1,
            "s" => 1000,
            "min" => 60_000,
            _ => return None,
        };
        setting.value.parse::<u64>().ok()?.checked_mul(scale)
    }

    /// A setting that is a number.
    pub fn number(&self, name: &str) -> Option<f64> {
        self.setting(name)?.value.parse().ok()
    }

    /// Whether a setting has this value.
    pub fn is(&self, name: &str, value: &str) -> bool {
        self.setting(name).is_some_and(|setting| setting.value == value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_read() {
        let mut facts = ServerFacts::default();
        let mut add = |name: &str, value: &str, unit: &str| {
            let setting = Setting { value: value.into(), unit: Some(unit.into()), ..Setting::default() };
            facts.settings.insert(name.into(), setting);
        };
        add("shared_buffers", "16384", "8kB");
        add("max_wal_size", "1024", "MB");
        add("wal_segment_size", "16777216", "B");
        add("max_slot_wal_keep_size", "-1", "MB");
        add("checkpoint_timeout", "300", "s");
        assert_eq!(facts.bytes("shared_buffers"), Some(128 << 20));
        assert_eq!(facts.bytes("max_wal_size"), Some(1 << 30));
        assert_eq!(facts.bytes("wal_segment_size"), Some(16 << 20));
        assert_eq!(facts.bytes("max_slot_wal_keep_size"), None);
        assert_eq!(facts.milliseconds("checkpoint_timeout"), Some(300_000));
        assert_eq!(facts.bytes("no_such_setting"), None);
    }
}
