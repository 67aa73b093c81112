//! Whether COPY takes rows for a table, decided before anything is written.

use super::{Facts, Target};
use inrush_core::{Code, Error, Generated, RelKind, Result, quote_ident};
use serde::Deserialize;

/// Privileges, triggers and partitions of the target.
#[derive(Debug, Clone)]
pub struct Access {
    /// Whether the current role has the privileges of the table's owner: ANALYZE and some ALTER TABLE need it.
    pub owned: bool,
    /// INSERT on the whole table.
    pub insert: bool,
    /// Names of the columns the role may INSERT into; all of them when `insert`.
    pub insert_columns: Vec<String>,
    /// TRUNCATE on the table.
    pub truncate: bool,
    /// SELECT on the table.
    pub select: bool,
    /// Row-level security is in force for the current role: COPY FROM refuses the table.
    pub row_security: bool,
    /// The table itself is a partition of another.
    pub is_partition: bool,
    /// User triggers of the table itself, in name order.
    pub triggers: Vec<Trigger>,
    /// Names of the table's foreign keys.
    pub foreign_keys: Vec<String>,
    /// For a foreign table: what its wrapper can do.
    pub foreign: Option<Foreign>,
    /// Where the rows are stored: the leaves of a partitioned table, else the table itself; none for a view.
    pub leaves: Vec<Leaf>,
}

/// A trigger that somebody created (not those behind constraints).
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Trigger {
    /// Name.
    pub name: String,
    /// pg_trigger.tgtype.
    pub bits: u16,
    /// Fires in sessions with session_replication_role = origin.
    pub enabled: bool,
}

impl Trigger {
    /// FOR EACH ROW (pg_trigger.h, TRIGGER_TYPE_ROW).
    pub fn per_row(&self) -> bool {
        self.bits & 1 != 0
    }

    /// BEFORE: may change or drop the row.
    pub fn before(&self) -> bool {
        self.bits & 2 != 0
    }

    /// Fires on INSERT, and so on COPY FROM.
    pub fn on_insert(&self) -> bool {
        self.bits & 4 != 0
    }

    /// INSTEAD OF, on views.
    pub fn instead_of(&self) -> bool {
        self.bits & 64 != 0
    }
}

/// What the foreign-data wrapper of a foreign table can do.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Foreign {
    /// Whether it takes inserts.
    pub insert: bool,
}

/// A table that stores rows of the target.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Leaf {
    /// pg_class.oid.
    pub oid: u32,
    /// pg_class.relfilenode: changes when the table is truncated or rewritten; 0 for foreign tables.
    pub relfilenode: u32,
    /// Schema name (not quoted).
    pub schema: String,
    /// Table name (not quoted).
    pub name: String,
    /// pg_class.relpersistence = 'u'.
    pub unlogged: bool,
    /// A foreign table.
    pub foreign: bool,
    /// Whether the current role may INSERT into the leaf itself: through the root it need not.
    pub insert: bool,
    /// Row-level security of the leaf itself is in force: it counts only when the leaf is loaded directly.
    pub row_security: bool,
    /// The leaf has user triggers of its own.
    pub triggers: bool,
}

impl Leaf {
    /// `schema.name`, quoted where SQL needs it.
    pub fn qualified(&self) -> String {
        format!("{}.{}", quote_ident(&self.schema), quote_ident(&self.name))
    }
}

impl Target {
    /// Whether some leaf, or the table itself, is unlogged; and whether some is not.
    pub fn persistence(&self) -> (bool, bool) {
        let unlogged = self.access.leaves.iter().any(|leaf| leaf.unlogged);
        (unlogged, self.access.leaves.iter().any(|leaf| !leaf.unlogged))
    }

    /// Refuses what `COPY table (columns) FROM STDIN` would refuse, with the server's SQLSTATE; an empty list means
    /// no column list. Follows DoCopy (copy.c), BeginCopyFrom and CopyFrom (copyfrom.c), CheckValidResultRel
    /// (execMain.c). What can only be known later (constraints, a wrapper's remote side) is left to the server.
    pub fn check_loadable(&self, columns: &[&str], facts: &Facts) -> Result<()> {
        let table = &self.table;
        let name = table.qualified();
        let refuse = |sqlstate: &str, fact: String| Error::new(Code::Table, fact).sqlstate(sqlstate);

        if facts.in_recovery {
            return Err(refuse("25006", "the server is a standby and takes no rows".into()).hint(
                "Connect to the primary, for example with several hosts and target_session_attrs=read-write.",
            ));
        }
        if facts.read_only {
            return Err(refuse("25006", "transactions of this session are read-only".into())
                .hint("Switch default_transaction_read_only off for this role or database, or connect with another."));
        }
        for (i, wanted) in columns.iter().enumerate() {
            let Some(column) = table.column(wanted) else {
                return Err(Error::new(
                    Code::Columns,
                    format!("column {} of {name} does not exist", quote_ident(wanted)),
                )
                .sqlstate("42703"));
            };
            if column.generated != Generated::No {
                return Err(Error::new(
                    Code::Columns,
                    format!("column {} of {name} is a generated column", quote_ident(wanted)),
                )
                .sqlstate("42P10")
                .hint("Leave the column out: the server computes it."));
            }
            if columns[..i].contains(wanted) {
                return Err(Error::new(
                    Code::Columns,
                    format!("column {} of {name} is named more than once", quote_ident(wanted)),
                )
                .sqlstate("42701"));
            }
        }
        if !self.access.insert {
            let every: Vec<&str> = table
                .columns
                .iter()
                .filter(|c| c.generated == Generated::No)
                .map(|c| c.name.as_str())
                .collect();
            let needed = if columns.is_empty() { &every[..] } else { columns };
            let missing: Vec<_> = needed
                .iter()
                .filter(|wanted| !self.access.insert_columns.iter().any(|have| have == *wanted))
                .map(|wanted| quote_ident(wanted))
                .collect();
            if !missing.is_empty() || needed.is_empty() {
                let error =
                    refuse("42501", format!("role {} may not insert into {name}", quote_ident(&facts.role)));
                let grant = format!("GRANT INSERT ON {name} TO {}", quote_ident(&facts.role));
                return Err(if missing.len() == needed.len() {
                    error.hint(format!("Ask the owner for: {grant}."))
                } else {
                    error.hint(format!(
                        "Columns without the privilege: {}. Ask the owner for: {grant}.",
                        missing.join(", ")
                    ))
                });
            }
        }
        if self.access.row_security {
            return Err(refuse("0A000", format!("row-level security of {name} is in force for role {}, and COPY does not apply it", quote_ident(&facts.role)))
                .hint("Load as a role that the policies do not apply to: the table's owner (without FORCE ROW LEVEL SECURITY) or one with BYPASSRLS."));
        }
        match table.kind {
            RelKind::View
                if !self.access.triggers.iter().any(|t| t.instead_of() && t.on_insert() && t.per_row()) =>
            {
                Err(refuse("42809", format!("{name} is a view without an INSTEAD OF INSERT trigger")).hint(
                    "Load into the table under the view, or give the view an INSTEAD OF INSERT trigger.",
                ))
            }
            RelKind::Foreign if !self.access.foreign.as_ref().is_some_and(|f| f.insert) => {
                Err(refuse("0A000", format!("the foreign table {name} takes no inserts"))
                    .hint("Its foreign-data wrapper, or its option \"updatable\", does not allow them."))
            }
            RelKind::Partitioned if self.access.leaves.is_empty() => {
                Err(refuse("23514", format!("the partitioned table {name} has no partition to hold a row"))
                    .hint("Create its partitions first."))
            }
            _ => Ok(()),
        }
    }
}
