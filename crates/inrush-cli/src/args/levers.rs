//! The levers of `inrush load`: what makes it faster, and what it costs.

use clap::Args;
use clap::ValueEnum;
use inrush_load::{LeverOptions, OnConflict};

/// Changes of the table for the time of the load. Each is recorded, and taken back at the end or with `inrush recover`.
#[derive(Debug, Args)]
pub struct LeverArgs {
    /// Choose levers by the state of the table and the first seconds; says which and why
    ///
    /// Never one that weakens durability or uniqueness, and none that the user has to know of: indexes that nothing
    /// depends on are made at the end where that is faster, and autovacuum waits.
    #[arg(long, conflicts_with_all = ["no_ledger", "atomic"])]
    pub fast: bool,

    /// Make the table unlogged first: no WAL, and after a crash of the server no rows
    ///
    /// The table must be empty (or --truncate given). It stays unlogged unless --then-logged is said.
    #[arg(long, conflicts_with = "no_ledger")]
    pub unlogged: bool,

    /// With --unlogged: make it logged again at the end
    ///
    /// Writes the table once more. Free of WAL with wal_level=minimal; elsewhere all of it goes to WAL then, 1.1 to 1.6
    /// times what a logged load writes.
    #[arg(long, requires = "unlogged")]
    pub then_logged: bool,

    /// Empty the table first, once, however often the load is resumed
    ///
    /// What the ledger has of earlier loads of the table is forgotten in the same transaction.
    #[arg(long)]
    pub truncate: bool,

    /// Write rows frozen, so that VACUUM need not; one connection and one transaction
    ///
    /// The table must be new or empty (or --truncate given): the server allows it only in the transaction that
    /// created or truncated the table. A row that the server refuses stops the load.
    #[arg(long)]
    pub freeze: bool,

    /// Drop indexes, and make them again at the end, several at once; all that can be, or these
    ///
    /// Never a primary key, an exclusion or unique index, or one that a foreign key or the replica identity depends on.
    /// Queries do without the indexes meanwhile, and writers wait while they are made.
    #[arg(long, value_name = "INDEXES", num_args = 0..=1, require_equals = true, default_missing_value = "",
          value_delimiter = ',', conflicts_with = "no_ledger")]
    pub defer_indexes: Option<Vec<String>>,

    /// Drop the table's foreign keys; at the end make them again, then validate them
    #[arg(long, conflicts_with = "no_ledger")]
    pub defer_foreign_keys: bool,

    /// Keep autovacuum away from the table; at the end VACUUM it
    #[arg(long, conflicts_with = "no_ledger")]
    pub quiet_autovacuum: bool,

    /// Rows whose key is there already: pass them over, or let them take the place of what is there
    ///
    /// As INSERT ... ON CONFLICT a row after the other: with update the later row of the source wins, with nothing the
    /// first. Rows are merged unit by unit from a temporary table, over one connection. A load that updates cannot be
    /// undone.
    #[arg(long, value_enum, value_name = "ACTION")]
    pub on_conflict: Option<OnConflictName>,

    /// The columns of the unique index that decides [default: the primary key]
    #[arg(long, value_name = "COLUMNS", value_delimiter = ',', requires = "on_conflict")]
    pub conflict_key: Option<Vec<String>>,

    /// synchronous_commit of the connections that load
    ///
    /// With off a crash of the server may lose the last units, and with them what is recorded of them: the same command
    /// loads them again. The last commit of the load waits for all of them.
    #[arg(long, value_enum, value_name = "VALUE")]
    pub sync_commit: Option<SyncCommitName>,

    /// Do not leave the files in the machine's page cache
    #[arg(long)]
    pub drop_cache: bool,
}

/// What to do with rows whose key is there already.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum OnConflictName {
    /// Pass them over
    Nothing,
    /// They take the place of what is there
    Update,
}

impl OnConflictName {
    /// As the load library takes it.
    pub fn action(self) -> OnConflict {
        match self {
            OnConflictName::Nothing => OnConflict::Nothing,
            OnConflictName::Update => OnConflict::Update,
        }
    }
}

/// Values of synchronous_commit.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum SyncCommitName {
    /// Commits do not wait for the disk
    Off,
    /// Commits wait for this server's disk, not for replicas
    Local,
    /// Commits wait for the disk, and for replicas to have written
    RemoteWrite,
    /// As the server has it by default
    On,
    /// Commits wait until replicas have replayed
    RemoteApply,
}

impl LeverArgs {
    /// As the load library takes them.
    pub fn options(&self) -> LeverOptions {
        let sync_commit = self.sync_commit.map(|value| match value {
            SyncCommitName::Off => "off",
            SyncCommitName::Local => "local",
            SyncCommitName::RemoteWrite => "remote_write",
            SyncCommitName::On => "on",
            SyncCommitName::RemoteApply => "remote_apply",
        });
        let names = |names: &Vec<String>| names.iter().filter(|name| !name.is_empty()).cloned().collect();
        LeverOptions {
            unlogged: self.unlogged,
            then_logged: self.then_logged,
            truncate: self.truncate,
            freeze: self.freeze,
            defer_indexes: self.defer_indexes.as_ref().map(names),
            defer_foreign_keys: self.defer_foreign_keys,
            quiet_autovacuum: self.quiet_autovacuum,
            sync_commit: sync_commit.map(str::to_owned),
            drop_cache: self.drop_cache,
            fast: self.fast,
        }
    }
}
