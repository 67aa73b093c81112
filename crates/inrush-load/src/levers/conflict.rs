//! `--on-conflict`: rows whose key is there already are passed over, or take the place of what is there.
//!
//! Rows are copied into a temporary table of the connection and merged from there, one statement for each unit, in the
//! order of their keys. What comes out is what a row after the other with INSERT ... ON CONFLICT would make: with
//! `update` the later row of the source wins, with `nothing` the first. So there is one connection, and rows go as COPY
//! text, in their order.

use crate::options::{OnConflict, Options, Via};
use crate::shape::Shape;
use inrush_core::{Code, Error, Identity, RelKind, Result, Table, quote_ident};
use inrush_sink::catalog::TableState;

/// Name of the option, and of the step in the ledger.
pub(crate) const NAME: &str = "on-conflict";

/// How rows are merged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Merge {
    pub action: OnConflict,
    /// Columns of the unique index that decides.
    pub key: Vec<String>,
}

/// The statements for one list of columns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Statements {
    /// Makes the temporary table.
    pub make: String,
    /// Its name, for COPY.
    pub staging: String,
    /// Moves the rows into the table.
    pub merge: String,
    /// Empties the temporary table.
    pub empty: String,
}

/// Finds the key, and refuses what cannot be merged.
pub(crate) fn plan(options: &Options, table: &Table, state: &TableState) -> Result<Option<Merge>> {
    let Some(action) = options.on_conflict else { return Ok(None) };
    let name = table.qualified();
    if !matches!(table.kind, RelKind::Table | RelKind::Partitioned) {
        return Err(Error::new(Code::Table, format!("--{NAME} is for tables, which {name} is not"))
            .hint("Load into its table."));
    }
    for (said, other) in [
        (options.levers.freeze, "--freeze"),
        (options.via == Via::CopyBinary, "--via copy-binary"),
        (options.jobs.is_some_and(|jobs| jobs > 1), "--jobs"),
    ] {
        if said {
            return Err(Error::new(Code::Usage, format!("--{NAME} contradicts {other}"))
                .hint("Rows are merged in their order, over one connection, as COPY text."));
        }
    }
    let keys: Vec<&Vec<String>> =
        state.indexes.iter().map(|index| &index.key).filter(|key| !key.is_empty()).collect();
    let shown = |keys: &[&Vec<String>]| {
        keys.iter().map(|key| format!("({})", key.join(", "))).collect::<Vec<_>>().join(" and ")
    };
    let key = match &options.conflict_key {
        Some(wanted) => {
            let same = |key: &&&Vec<String>| {
                key.len() == wanted.len() && wanted.iter().all(|column| key.contains(column))
            };
            keys.iter().find(same).map(|key| (*key).clone()).ok_or_else(|| {
                let hint = if keys.is_empty() {
                    "It has no unique index over plain columns.".to_owned()
                } else {
                    format!("Its unique indexes are on {}.", shown(&keys))
                };
                let wanted = wanted.join(", ");
                Error::new(Code::Table, format!("{name} has no unique index on ({wanted})")).hint(hint)
            })?
        }
        None => {
            let primary = state.indexes.iter().find(|index| index.primary && !index.key.is_empty());
            match (primary, &keys[..]) {
                (Some(index), _) => index.key.clone(),
                (None, [key]) => (*key).clone(),
                (None, []) => {
                    return Err(Error::new(
                        Code::Table,
                        format!("--{NAME} needs a unique index, and {name} has none over plain columns"),
                    )
                    .hint("Make one, or load without --on-conflict."));
                }
                (None, _) => {
                    return Err(Error::new(Code::Table, format!("{name} has several unique indexes"))
                        .hint(format!("Say which decides with --conflict-key: {}.", shown(&keys))));
                }
            }
        }
    };
    Ok(Some(Merge { action, key }))
}

impl Merge {
    /// The statements for the columns of a shape; `number` tells the temporary tables of a connection apart.
    pub fn statements(&self, table: &Table, shape: &Shape, number: usize) -> Result<Statements> {
        let names: Vec<&str> = shape.columns.iter().map(|column| &*column.name).collect();
        if let Some(missing) = self.key.iter().find(|key| !names.contains(&key.as_str())) {
            return Err(Error::new(Code::Columns, format!("no field goes to the key column {missing:?}"))
                .hint("Without the whole key rows cannot be told from those that are there; see --columns and --set."));
        }
        let mut order = "n".to_owned();
        while names.contains(&order.as_str()) {
            order.push('_');
        }
        let quoted: Vec<String> = names.iter().map(|name| quote_ident(name)).collect();
        let columns = quoted.join(", ");
        let key = self.key.iter().map(|name| quote_ident(name)).collect::<Vec<_>>().join(", ");
        let nulls = self.key.iter().map(|name| format!("{} IS NULL", quote_ident(name)));
        let nulls = nulls.collect::<Vec<_>>().join(" OR ");
        let target = table.qualified();
        let staging = format!("pg_temp.inrush_rows_{number}");
        // As COPY does, which takes values for identity columns whatever they say.
        let always = shape.columns.iter().any(|column| column.identity == Identity::Always);
        let overriding = if always { " OVERRIDING SYSTEM VALUE" } else { "" };
        let sets: Vec<String> = names
            .iter()
            .filter(|name| !self.key.iter().any(|key| key == *name))
            .map(|name| quote_ident(name))
            .map(|name| format!("{name} = EXCLUDED.{name}"))
            .collect();
        let (direction, action) = match self.action {
            OnConflict::Update if !sets.is_empty() => ("DESC", format!("DO UPDATE SET {}", sets.join(", "))),
            OnConflict::Update | OnConflict::Nothing => ("ASC", "DO NOTHING".to_owned()),
        };
        Ok(Statements {
            make: format!(
                "CREATE TEMP TABLE inrush_rows_{number} ON COMMIT DELETE ROWS AS
                    SELECT {columns} FROM {target} WITH NO DATA;
                 CREATE TEMP SEQUENCE inrush_order_{number} CACHE 1000;
                 ALTER TABLE {staging} ADD COLUMN {order} pg_catalog.int8
                    DEFAULT pg_catalog.nextval('pg_temp.inrush_order_{number}')"
            ),
            // Rows without a whole key are never equal to others.
            merge: format!(
                "INSERT INTO {target} ({columns}){overriding}
                 SELECT {columns} FROM (
                   SELECT DISTINCT ON ({key}, CASE WHEN {nulls} THEN {order} END) {columns} FROM {staging}
                    ORDER BY {key}, CASE WHEN {nulls} THEN {order} END, {order} {direction}) s
                  ORDER BY {key}
                 ON CONFLICT ({key}) {action}"
            ),
            empty: format!("TRUNCATE TABLE {staging}"),
            staging,
        })
    }
}
