//! What of a table stands in the way of a fast load, and what a lever would have to put back: its indexes, foreign
//! keys, persistence and storage options.

use super::Target;
use crate::failure::server_error;
use inrush_core::{Code, Error, Result};
use serde::{Deserialize, Serialize};
use tokio_postgres::{Client, Transaction};

/// A table as levers see it. Read with an empty search_path, so that the definitions name everything in full.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct TableState {
    /// pg_class.relpersistence: `p`, `u` or `t`.
    pub persistence: char,
    /// pg_class.relreplident.
    pub replica_identity: char,
    /// Bytes of the table with its leaves, without TOAST and indexes; 0 for one that is new or truncated.
    pub bytes: i64,
    /// Storage options as in pg_class.reloptions: `fillfactor=70`.
    pub options: Vec<String>,
    /// Those of its TOAST table; none without one.
    pub toast_options: Option<Vec<String>>,
    /// Publications that publish it.
    pub publications: Vec<String>,
    /// Its indexes, by name.
    pub indexes: Vec<Index>,
    /// Its foreign keys, by name.
    pub foreign_keys: Vec<ForeignKey>,
    /// Other tables with a foreign key to it, as SQL names them.
    pub referenced_by: Vec<String>,
    /// Those of them that are logged.
    pub referenced_by_logged: Vec<String>,
}

/// An index and what is needed to make it again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Index {
    /// Name (not quoted).
    pub name: String,
    /// Name with schema, as SQL reads it.
    pub qualified: String,
    /// pg_get_indexdef.
    pub definition: String,
    /// UNIQUE, a primary key included.
    pub unique: bool,
    /// The columns that are unique together, where ON CONFLICT can name them: no expression, no predicate, checked at
    /// once. Empty for other indexes.
    #[serde(default)]
    pub key: Vec<String>,
    /// Behind a PRIMARY KEY.
    pub primary: bool,
    /// Behind an EXCLUDE constraint.
    pub exclusion: bool,
    /// Name of the constraint it is behind.
    pub constraint: Option<String>,
    /// pg_get_constraintdef of it.
    #[serde(default)]
    pub constraint_definition: Option<String>,
    /// COMMENT ON CONSTRAINT.
    #[serde(default)]
    pub constraint_comment: Option<String>,
    /// Valid and ready: queries use it.
    pub valid: bool,
    /// REPLICA IDENTITY USING INDEX.
    pub replica_identity: bool,
    /// Foreign keys of other tables (or this one) that depend on it.
    pub depending_keys: Vec<String>,
    /// CLUSTER ON.
    pub clustered: bool,
    /// Tablespace, if it is not the database's.
    pub tablespace: Option<String>,
    /// COMMENT ON INDEX.
    pub comment: Option<String>,
    /// Statistics targets of its columns, by number from 1.
    pub statistics: Vec<(i16, i32)>,
    /// It belongs to an index of the partitioned table above.
    pub inherited: bool,
}

/// A foreign key of the table and what is needed to make it again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForeignKey {
    /// Name (not quoted).
    pub name: String,
    /// pg_get_constraintdef.
    pub definition: String,
    /// Not NOT VALID.
    pub validated: bool,
    /// COMMENT ON CONSTRAINT.
    pub comment: Option<String>,
    /// It belongs to a foreign key of the partitioned table above.
    pub inherited: bool,
}

/// One JSON object. The definitions depend on the search_path, which the caller has emptied.
const STATE: &str = "
    SELECT pg_catalog.json_build_object(
      'persistence', c.relpersistence,
      'replica_identity', c.relreplident,
      'bytes', (SELECT coalesce(sum(pg_catalog.pg_relation_size(t.relid)), 0)
                  FROM (SELECT c.oid AS relid UNION SELECT relid FROM pg_catalog.pg_partition_tree(c.oid)) t),
      'options', coalesce(pg_catalog.to_json(c.reloptions), '[]'),
      'toast_options', (SELECT coalesce(pg_catalog.to_json(t.reloptions), '[]')
                          FROM pg_catalog.pg_class t WHERE t.oid = c.reltoastrelid),
      'publications', (
        SELECT coalesce(pg_catalog.json_agg(p.pubname ORDER BY p.pubname), '[]')
          FROM pg_catalog.pg_publication p
         WHERE p.puballtables
            OR EXISTS (SELECT 1 FROM pg_catalog.pg_publication_rel r
                        WHERE r.prpubid = p.oid
                          AND (r.prrelid = c.oid
                               OR r.prrelid IN (SELECT relid FROM pg_catalog.pg_partition_ancestors(c.oid))))
            OR EXISTS (SELECT 1 FROM pg_catalog.pg_publication_namespace n
                        WHERE n.pnpubid = p.oid AND n.pnnspid = c.relnamespace)),
      'indexes', (
        SELECT coalesce(pg_catalog.json_agg(pg_catalog.json_build_object(
                 'name', i.relname,
                 'qualified', pg_catalog.quote_ident(n.nspname) || '.' || pg_catalog.quote_ident(i.relname),
                 'definition', pg_catalog.pg_get_indexdef(x.indexrelid),
                 'unique', x.indisunique,
                 'key', CASE WHEN x.indisunique AND x.indisvalid AND x.indimmediate AND x.indexprs IS NULL
                                  AND x.indpred IS NULL
                        THEN (SELECT pg_catalog.json_agg(a.attname ORDER BY k.n)
                                FROM pg_catalog.unnest(x.indkey) WITH ORDINALITY AS k (attnum, n)
                                JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum = k.attnum
                               WHERE k.n <= x.indnkeyatts)
                        ELSE '[]' END,
                 'primary', x.indisprimary,
                 'exclusion', x.indisexclusion,
                 'constraint', (SELECT k.conname FROM pg_catalog.pg_constraint k
                                 WHERE k.conindid = x.indexrelid AND k.conrelid = c.oid AND k.contype IN ('p', 'u', 'x')
                                 LIMIT 1),
                 'constraint_definition', (SELECT pg_catalog.pg_get_constraintdef(k.oid) FROM pg_catalog.pg_constraint k
                                            WHERE k.conindid = x.indexrelid AND k.conrelid = c.oid
                                              AND k.contype IN ('p', 'u', 'x') LIMIT 1),
                 'constraint_comment', (SELECT pg_catalog.obj_description(k.oid, 'pg_constraint')
                                          FROM pg_catalog.pg_constraint k
                                         WHERE k.conindid = x.indexrelid AND k.conrelid = c.oid
                                           AND k.contype IN ('p', 'u', 'x') LIMIT 1),
                 'valid', x.indisvalid AND x.indisready,
                 'replica_identity', x.indisreplident,
                 'depending_keys', (SELECT coalesce(pg_catalog.json_agg(k.conname ORDER BY k.conname), '[]')
                                      FROM pg_catalog.pg_constraint k
                                     WHERE k.conindid = x.indexrelid AND k.contype = 'f'),
                 'clustered', x.indisclustered,
                 'tablespace', (SELECT s.spcname FROM pg_catalog.pg_tablespace s WHERE s.oid = i.reltablespace),
                 'comment', pg_catalog.obj_description(i.oid, 'pg_class'),
                 'statistics', (SELECT coalesce(pg_catalog.json_agg(pg_catalog.json_build_array(a.attnum, a.attstattarget)
                                                                    ORDER BY a.attnum), '[]')
                                  FROM pg_catalog.pg_attribute a
                                 WHERE a.attrelid = i.oid AND a.attstattarget >= 0),
                 'inherited', EXISTS (SELECT 1 FROM pg_catalog.pg_inherits h WHERE h.inhrelid = i.oid)
               ) ORDER BY i.relname), '[]')
          FROM pg_catalog.pg_index x
          JOIN pg_catalog.pg_class i ON i.oid = x.indexrelid
          JOIN pg_catalog.pg_namespace n ON n.oid = i.relnamespace
         WHERE x.indrelid = c.oid),
      'foreign_keys', (
        SELECT coalesce(pg_catalog.json_agg(pg_catalog.json_build_object(
                 'name', k.conname,
                 'definition', pg_catalog.pg_get_constraintdef(k.oid),
                 'validated', k.convalidated,
                 'comment', pg_catalog.obj_description(k.oid, 'pg_constraint'),
                 'inherited', k.conparentid <> 0
               ) ORDER BY k.conname), '[]')
          FROM pg_catalog.pg_constraint k WHERE k.conrelid = c.oid AND k.contype = 'f'),
      'referenced_by', (
        SELECT coalesce(pg_catalog.json_agg(DISTINCT k.conrelid::pg_catalog.regclass::text), '[]')
          FROM pg_catalog.pg_constraint k JOIN pg_catalog.pg_class o ON o.oid = k.conrelid
         WHERE k.confrelid = c.oid AND k.contype = 'f' AND k.conrelid <> c.oid),
      'referenced_by_logged', (
        SELECT coalesce(pg_catalog.json_agg(DISTINCT k.conrelid::pg_catalog.regclass::text), '[]')
          FROM pg_catalog.pg_constraint k JOIN pg_catalog.pg_class o ON o.oid = k.conrelid
         WHERE k.confrelid = c.oid AND k.contype = 'f' AND k.conrelid <> c.oid AND o.relpersistence = 'p')
    )::text
      FROM pg_catalog.pg_class c WHERE c.oid = $1";

/// Makes definitions name everything in full, until the transaction ends. Names in `pg_catalog` stay short.
pub const EMPTY_PATH: &str = "SET LOCAL search_path = ''";

/// Reads the state of a table in a transaction of the caller, which has emptied its search_path ([`EMPTY_PATH`]).
pub async fn table_state(tx: &Transaction<'_>, table: u32) -> Result<TableState> {
    let row = tx.query_opt(STATE, &[&table]).await.map_err(server_error)?;
    let Some(row) = row else {
        return Err(Error::new(Code::Table, "the table has been dropped"));
    };
    serde_json::from_str(row.get(0))
        .map_err(|e| Error::new(Code::Internal, format!("the state of a table cannot be read: {e}")))
}

impl Target {
    /// The state of the target, in a transaction of its own. Waits while somebody has the table locked for himself.
    pub async fn state(&self, client: &mut Client) -> Result<TableState> {
        self.state_within(client, "0").await
    }

    /// As [`Target::state`], but fails if the lock does not go within this time (a value of lock_timeout).
    pub async fn state_within(&self, client: &mut Client, lock_timeout: &str) -> Result<TableState> {
        let tx = client.transaction().await.map_err(server_error)?;
        let timeout = format!("SET LOCAL lock_timeout = '{lock_timeout}'; {EMPTY_PATH}");
        tx.batch_execute(&timeout).await.map_err(server_error)?;
        let state = table_state(&tx, self.table.oid).await?;
        tx.rollback().await.map_err(server_error)?;
        Ok(state)
    }
}

impl TableState {
    /// The value of a storage option, of the table or (`toast.`) of its TOAST table.
    pub fn option(&self, name: &str) -> Option<&str> {
        let (options, name) = match name.strip_prefix("toast.") {
            Some(name) => (self.toast_options.as_deref().unwrap_or_default(), name),
            None => (&self.options[..], name),
        };
        options.iter().find_map(|option| option.strip_prefix(name)?.strip_prefix('='))
    }
}
