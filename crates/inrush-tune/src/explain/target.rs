//! The table whose scan is studied: where it is, how large, with which indexes, and what its tablespace says.

use super::plan::{Access, Node, TableScan};
use super::session::{Session, get};
use super::{Index, Mask, Table};
use inrush_core::{Code, Error, Excerpt, Result, quote_ident};
use std::collections::BTreeMap;
use tokio_postgres::types::Type;

/// A table, or a partition, that a plan scans.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Relation {
    pub(super) oid: u32,
    pub(super) schema: String,
    pub(super) name: String,
    /// Pages of its main fork now.
    pub(super) pages: u64,
    /// Rows as the planner believes; below 0 if nobody has counted.
    pub(super) tuples: f64,
    /// The uppermost partitioned table, or itself.
    root: u32,
    tablespace: u32,
}

/// What is studied: one table, or those partitions of one that the plan scans.
#[derive(Debug, Clone, Default)]
pub(super) struct Target {
    /// The relations with pages, largest first.
    pub(super) relations: Vec<Relation>,
    /// Their indexes.
    pub(super) indexes: Vec<IndexOf>,
    /// Oid of the table that is named: the partitioned one.
    root: u32,
    /// Bytes of a page.
    pub(super) page_bytes: u64,
    /// Bytes of all tables of the query with their TOAST, and of the indexes that its plan uses, each once.
    pub(super) query_bytes: u64,
}

/// An index of one of the relations.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct IndexOf {
    pub(super) oid: u32,
    pub(super) schema: String,
    pub(super) name: String,
    pub(super) method: String,
    pub(super) pages: u64,
    /// Its first key: a column or an expression.
    pub(super) first_key: String,
    /// How far the values of that column follow the order of rows, from -1 to 1.
    pub(super) correlation: Option<f64>,
}

/// A tablespace of the target, with the options that mask settings.
#[derive(Debug, Clone)]
pub(super) struct Space {
    pub(super) name: String,
    pub(super) options: Vec<(String, String)>,
    /// Whether this role may alter it.
    pub(super) may_alter: bool,
}

impl Target {
    /// Finds what to study: of the tables that the plan scans the one with the most pages, its partitions
    /// taken together.
    ///
    /// # Errors
    /// `usage` where no table is scanned.
    pub(super) async fn find(session: &Session, top: &Node) -> Result<Target> {
        let scans = top.scans();
        let (schemas, names): (Vec<&str>, Vec<&str>) = scans
            .iter()
            .filter(|scan| scan.access != Access::Other)
            .map(|scan| (scan.schema, scan.table))
            .unzip();
        let nothing = || {
            let others: Vec<&str> = top
                .all()
                .iter()
                .map(|node| node.kind())
                .filter(|kind| kind.ends_with("Scan") && *kind != "Subquery Scan")
                .collect();
            let found = if others.is_empty() { String::new() } else { format!(": {}", others.join(", ")) };
            Error::new(Code::Usage, format!("the plan has no scan of a table to study{found}"))
                .hint("A query is needed that reads an ordinary table of this server.")
        };
        if names.is_empty() {
            return Err(nothing());
        }
        let rows = session
            .rows(
                "SELECT c.oid, n.nspname::pg_catalog.text, c.relname::pg_catalog.text, \
                        coalesce(pg_catalog.pg_relation_size(c.oid::pg_catalog.regclass), 0), c.reltuples, \
                        coalesce(pg_catalog.pg_partition_root(c.oid::pg_catalog.regclass)::pg_catalog.oid, \
                        c.oid), \
                        CASE WHEN c.reltablespace OPERATOR(pg_catalog.=) 0::pg_catalog.oid \
                             THEN d.dattablespace ELSE c.reltablespace END, \
                        pg_catalog.current_setting('block_size')::pg_catalog.int8 \
                   FROM (SELECT DISTINCT u.s, u.r \
                           FROM ROWS FROM (pg_catalog.unnest($1::pg_catalog.text[]), \
                                           pg_catalog.unnest($2::pg_catalog.text[])) u(s, r)) w \
                   JOIN pg_catalog.pg_namespace n ON n.nspname::pg_catalog.text OPERATOR(pg_catalog.=) w.s \
                   JOIN pg_catalog.pg_class c ON c.relnamespace OPERATOR(pg_catalog.=) n.oid \
                    AND c.relname::pg_catalog.text OPERATOR(pg_catalog.=) w.r \
                   JOIN pg_catalog.pg_database d \
                     ON d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database() \
                  ORDER BY 4 DESC, 1",
                &[(&schemas, Type::TEXT_ARRAY), (&names, Type::TEXT_ARRAY)],
            )
            .await?;
        let mut relations = Vec::new();
        let mut page_bytes = 8192;
        for row in &rows {
            let bytes = get::<i64>(row, 3)?.unsigned_abs();
            page_bytes = get::<i64>(row, 7)?.unsigned_abs().max(1);
            relations.push(Relation {
                oid: get(row, 0)?,
                schema: get(row, 1)?,
                name: get(row, 2)?,
                pages: bytes / page_bytes,
                tuples: f64::from(get::<f32>(row, 4)?),
                root: get(row, 5)?,
                tablespace: get(row, 6)?,
            });
        }
        let mut pages: BTreeMap<u32, u64> = BTreeMap::new();
        relations.iter().for_each(|one| *pages.entry(one.root).or_default() += one.pages);
        let root = *pages.iter().max_by_key(|(_, pages)| **pages).ok_or_else(nothing)?.0;
        relations.retain(|one| one.root == root);
        if relations.iter().all(|one| one.pages == 0) {
            return Err(Error::new(Code::Usage, "the tables of the query are empty")
                .hint("There is nothing to measure."));
        }
        let query_bytes = bytes(session, &scans).await?;
        let mut target = Target { relations, root, page_bytes, query_bytes, ..Target::default() };
        target.indexes = target.indexes(session).await?;
        Ok(target)
    }

    async fn indexes(&self, session: &Session) -> Result<Vec<IndexOf>> {
        let oids: Vec<u32> = self.relations.iter().map(|one| one.oid).collect();
        let rows = session
            .rows(
                "SELECT c.oid, n.nspname::pg_catalog.text, c.relname::pg_catalog.text, \
                 a.amname::pg_catalog.text, \
                        coalesce(pg_catalog.pg_relation_size(c.oid::pg_catalog.regclass), 0), \
                        pg_catalog.pg_get_indexdef(c.oid, 1, true), \
                        (SELECT s.correlation FROM pg_catalog.pg_stats s \
                           JOIN pg_catalog.pg_attribute t ON t.attrelid OPERATOR(pg_catalog.=) i.indrelid \
                            AND t.attnum OPERATOR(pg_catalog.=) i.indkey[0] \
                            AND t.attname OPERATOR(pg_catalog.=) s.attname \
                          WHERE s.schemaname OPERATOR(pg_catalog.=) n.nspname \
                            AND s.tablename OPERATOR(pg_catalog.=) r.relname \
                          ORDER BY s.inherited LIMIT 1) \
                   FROM pg_catalog.pg_index i \
                   JOIN pg_catalog.pg_class c ON c.oid OPERATOR(pg_catalog.=) i.indexrelid \
                   JOIN pg_catalog.pg_class r ON r.oid OPERATOR(pg_catalog.=) i.indrelid \
                   JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace \
                   JOIN pg_catalog.pg_am a ON a.oid OPERATOR(pg_catalog.=) c.relam \
                  WHERE i.indrelid OPERATOR(pg_catalog.=) ANY ($1::pg_catalog.oid[]) AND i.indisvalid \
                  ORDER BY 2, 3",
                &[(&oids, Type::OID_ARRAY)],
            )
            .await?;
        rows.iter()
            .map(|row| {
                Ok(IndexOf {
                    oid: get(row, 0)?,
                    schema: get(row, 1)?,
                    name: get(row, 2)?,
                    method: get(row, 3)?,
                    pages: get::<i64>(row, 4)?.unsigned_abs() / self.page_bytes,
                    first_key: get::<Option<String>>(row, 5)?.unwrap_or_default(),
                    correlation: get::<Option<f32>>(row, 6)?.map(f64::from),
                })
            })
            .collect()
    }

    /// The tablespaces that the relations are in.
    pub(super) async fn spaces(&self, session: &Session) -> Result<Vec<Space>> {
        let mut oids: Vec<u32> = self.relations.iter().map(|one| one.tablespace).collect();
        oids.sort_unstable();
        oids.dedup();
        let rows = session
            .rows(
                "SELECT t.spcname::pg_catalog.text, coalesce(t.spcoptions, '{}'), \
                        pg_catalog.pg_has_role(t.spcowner, 'USAGE') AND NOT pg_catalog.pg_is_in_recovery() \
                   FROM pg_catalog.pg_tablespace t \
                  WHERE t.oid OPERATOR(pg_catalog.=) ANY ($1::pg_catalog.oid[]) ORDER BY t.spcname",
                &[(&oids, Type::OID_ARRAY)],
            )
            .await?;
        rows.iter()
            .map(|row| {
                let options: Vec<String> = get(row, 1)?;
                let pair = |one: &String| one.split_once('=').map(|(a, b)| (a.to_owned(), b.to_owned()));
                Ok(Space {
                    name: get(row, 0)?,
                    options: options.iter().filter_map(pair).collect(),
                    may_alter: get(row, 2)?,
                })
            })
            .collect()
    }

    pub(super) fn pages(&self) -> u64 {
        self.relations.iter().map(|one| one.pages).sum()
    }

    /// Pages of one of the relations.
    pub(super) fn pages_of(&self, schema: &str, table: &str) -> u64 {
        self.relations.iter().find(|one| one.schema == schema && one.name == table).map_or(0, |one| one.pages)
    }

    /// Whether a node's table is part of what is studied.
    pub(super) fn has(&self, schema: &str, table: &str) -> bool {
        self.relations.iter().any(|one| one.schema == schema && one.name == table)
    }

    pub(super) fn index(&self, schema: &str, name: &str) -> Option<&IndexOf> {
        self.indexes.iter().find(|one| one.schema == schema && one.name == name)
    }

    /// What the report says of it.
    pub(super) async fn table(&self, session: &Session, others: usize) -> Result<Table> {
        let row = session
            .row(
                "SELECT n.nspname::pg_catalog.text, c.relname::pg_catalog.text FROM pg_catalog.pg_class c \
                   JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace \
                  WHERE c.oid OPERATOR(pg_catalog.=) $1",
                &[(&self.root, Type::OID)],
            )
            .await?;
        let (schema, name): (String, String) = (get(&row, 0)?, get(&row, 1)?);
        let index = |one: &IndexOf| Index {
            name: format!("{}.{}", quote_ident(&one.schema), quote_ident(&one.name)),
            method: one.method.clone(),
            pages: one.pages,
            first_key: Excerpt(one.first_key.as_bytes()).to_string(),
            correlation: one.correlation,
        };
        let partitioned = self.relations.iter().any(|one| one.oid != self.root);
        Ok(Table {
            name: format!("{}.{}", quote_ident(&schema), quote_ident(&name)),
            partitions: partitioned.then_some(self.relations.len()),
            pages: self.pages(),
            bytes: self.pages() * self.page_bytes,
            rows_estimated: self.relations.iter().map(|one| one.tuples.max(0.0)).sum(),
            indexes: self.indexes.iter().map(index).collect(),
            other_tables: others,
        })
    }
}

/// Bytes of what these scans read: tables with all their forks and TOAST, and indexes.
async fn bytes(session: &Session, scans: &[TableScan<'_>]) -> Result<u64> {
    let of = |scan: &TableScan<'_>| {
        let names = std::iter::once(scan.table).chain(scan.indexes.iter().copied());
        names.map(|name| (scan.schema.to_owned(), name.to_owned())).collect::<Vec<_>>()
    };
    let (schemas, names): (Vec<String>, Vec<String>) = scans.iter().flat_map(of).unzip();
    let row = session
        .row(
            "SELECT coalesce(pg_catalog.sum(pg_catalog.pg_table_size(c.oid::pg_catalog.regclass)), \
                             0)::pg_catalog.int8 \
               FROM (SELECT DISTINCT u.s, u.r \
                       FROM ROWS FROM (pg_catalog.unnest($1::pg_catalog.text[]), \
                                       pg_catalog.unnest($2::pg_catalog.text[])) u(s, r)) w \
               JOIN pg_catalog.pg_namespace n ON n.nspname::pg_catalog.text OPERATOR(pg_catalog.=) w.s \
               JOIN pg_catalog.pg_class c ON c.relnamespace OPERATOR(pg_catalog.=) n.oid \
                AND c.relname::pg_catalog.text OPERATOR(pg_catalog.=) w.r",
            &[(&schemas, Type::TEXT_ARRAY), (&names, Type::TEXT_ARRAY)],
        )
        .await?;
    Ok(get::<i64>(&row, 0)?.unsigned_abs())
}

impl Space {
    pub(super) fn option(&self, name: &str) -> Option<&str> {
        self.options.iter().find(|(option, _)| option == name).map(|(_, value)| value.as_str())
    }

    /// The options that win over what a session sets.
    pub(super) fn masks(&self) -> Vec<Mask> {
        let mask = |(option, value): &(String, String)| Mask {
            tablespace: self.name.clone(),
            option: option.clone(),
            value: value.clone(),
            may_alter: self.may_alter,
        };
        self.options.iter().map(mask).collect()
    }
}
