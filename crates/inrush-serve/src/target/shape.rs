//! Which columns the rows of an input fill, and from where.

use super::Target;
use crate::config::{Into, Unknown};
use inrush_core::{
    BaseType, Code, Column, Default, Error, FieldSource, Generated, Identity, PgType, Result, TypeKind,
};
use inrush_decode::{line, ndjson};
use inrush_encode::EncodeColumn;
use xxhash_rust::xxh3::xxh3_64;

/// The columns of one COPY, in the order they are sent.
#[derive(Debug)]
pub(crate) struct Shape {
    pub columns: Vec<Column>,
    pub sources: Vec<FieldSource>,
    pub names: Vec<String>,
    /// Tells shapes apart.
    pub id: u64,
}

/// How an input names its values.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Wish<'a> {
    /// By keys; of columns with a default only those in this list are filled.
    Keys(&'a [Vec<u8>]),
    /// By the fields of a header.
    Header(&'a [String]),
}

/// The columns and the keys that fill them.
fn filled<'a>(target: &'a Target, into: &'a Into) -> impl Iterator<Item = (&'a Column, &'a str)> {
    target
        .table
        .columns
        .iter()
        .filter(|column| column.generated == Generated::No && !into.constants.contains_key(&column.name))
        .map(|column| {
            let key = into.columns.get(&column.name).map_or(column.name.as_str(), String::as_str);
            (column, key)
        })
}

/// Whether the server knows what to store where no value comes.
fn fills_itself(column: &Column) -> bool {
    column.default != Default::None || column.identity != Identity::No
}

impl Shape {
    /// Whether the columns that the configuration names are there and take values.
    pub fn names_fit(target: &Target, into: &Into) -> Result<()> {
        for column in into.columns.keys().chain(into.constants.keys()) {
            match target.table.column(column) {
                None => {
                    return Err(Error::new(
                        Code::Columns,
                        format!("table {} has no column {column:?}", target.table.qualified()),
                    )
                    .hint("Correct into.columns or into.constants of the input, or add the column."));
                }
                Some(found) if found.generated != Generated::No => {
                    return Err(Error::new(
                        Code::Columns,
                        format!("column {column:?} of {} is generated", target.table.qualified()),
                    ));
                }
                Some(_) => {}
            }
        }
        Ok(())
    }

    /// The columns that an input fills. Fields of the decoder are in the same order, or in that of the header.
    pub fn fit(target: &Target, into: &Into, wish: Wish<'_>) -> Result<Shape> {
        Shape::names_fit(target, into)?;
        let mut columns = Vec::new();
        let mut sources = Vec::new();
        match wish {
            Wish::Keys(present) => {
                for (column, key) in filled(target, into) {
                    let stated = into.columns.contains_key(&column.name);
                    let here = present.iter().any(|name| name == key.as_bytes());
                    if stated || here || !fills_itself(column) {
                        sources.push(FieldSource::Field(columns.len()));
                        columns.push(column.clone());
                    }
                }
            }
            Wish::Header(header) => {
                for (field, name) in header.iter().enumerate() {
                    let found = filled(target, into).find(|(_, key)| key == name).map(|(column, _)| column);
                    match found {
                        Some(column) if columns.iter().any(|c: &Column| c.name == column.name) => {
                            return Err(Error::new(
                                Code::Columns,
                                format!("two fields of the header are named {name:?}"),
                            ));
                        }
                        Some(column) => {
                            sources.push(FieldSource::Field(field));
                            columns.push(column.clone());
                        }
                        None if into.unknown == Unknown::Ignore => {}
                        None => {
                            return Err(Error::new(
                                Code::Columns,
                                format!(
                                    "table {} has no column for the field {name:?}",
                                    target.table.qualified()
                                ),
                            )
                            .hint(
                                "Add the column, or leave such fields out with into.unknown = \"ignore\".",
                            ));
                        }
                    }
                }
            }
        }
        for (name, value) in &into.constants {
            if let Some(column) = target.table.column(name) {
                sources.push(FieldSource::Constant(Some(value.clone().into_bytes())));
                columns.push(column.clone());
            }
        }
        if columns.is_empty() {
            return Err(Error::new(
                Code::Columns,
                format!("no field of the input goes to a column of {}", target.table.qualified()),
            ));
        }
        let names: Vec<String> = columns.iter().map(|column| column.name.clone()).collect();
        // The types, too: a batch must not have rows of before ALTER TABLE and of after it.
        let kinds =
            columns.iter().map(|column| format!("{}\0{}\0{}", column.name, column.ty.oid, column.typmod));
        let id = xxh3_64(kinds.collect::<Vec<_>>().join("\0").as_bytes());
        Ok(Shape { columns, sources, names, id })
    }

    /// The names, as SQL is made of them.
    pub fn column_names(&self) -> Vec<&str> {
        self.names.iter().map(String::as_str).collect()
    }

    /// As encoders take them.
    pub fn encode_columns(&self) -> Vec<EncodeColumn> {
        let columns = self.columns.iter().zip(&self.sources);
        columns
            .map(|(column, source)| EncodeColumn {
                source: source.clone(),
                ty: column.ty.clone(),
                typmod: column.typmod,
            })
            .collect()
    }

    /// Where the value of a column comes from, if the rows have it.
    pub fn source(&self, column: &str) -> Option<&FieldSource> {
        let at = self.names.iter().position(|name| name == column)?;
        self.sources.get(at)
    }

    fn fields(&self) -> impl Iterator<Item = &Column> {
        let columns = self.columns.iter().zip(&self.sources);
        columns.filter(|(_, source)| matches!(source, FieldSource::Field(_))).map(|(column, _)| column)
    }

    /// The keys by which NDJSON fills the fields.
    pub fn ndjson_keys(&self, into: &Into) -> Vec<ndjson::Key> {
        let key = |column: &Column| {
            let name = into.columns.get(&column.name).unwrap_or(&column.name);
            let (ty, _) = column.ty.under_domains(column.typmod);
            let (json, array) = match &ty.kind {
                TypeKind::Array { element } => (is_json(element), true),
                _ => (is_json(ty), false),
            };
            ndjson::Key { name: name.clone().into_bytes(), json, array }
        };
        self.fields().map(key).collect()
    }

    /// The keys by which line protocol fills the fields. `{measurement}`, `{time}`, `{tags}` and `{fields}` in
    /// `into.columns` stand for what has no key there; a column of the name of the time column takes the time.
    pub fn line_keys(&self, target: &Target, into: &Into) -> Vec<line::Key> {
        let key = |column: &Column| match into.columns.get(&column.name).map(String::as_str) {
            Some("{measurement}") => line::Key::Measurement,
            Some("{time}") => line::Key::Time,
            Some("{tags}") => line::Key::TagsJson { rest: true },
            Some("{fields}") => line::Key::FieldsJson { rest: true },
            Some(other) => match other.split_once(':') {
                Some(("tag", name)) => line::Key::Tag(name.as_bytes().to_vec()),
                Some(("field", name)) => line::Key::Field(name.as_bytes().to_vec()),
                _ => line::Key::Any(other.as_bytes().to_vec()),
            },
            None if is_line_time(target, &column.name) => line::Key::Time,
            None => line::Key::Any(column.name.as_bytes().to_vec()),
        };
        self.fields().map(key).collect()
    }

    /// Whether the time of line protocol is to be a number: the column is one.
    pub fn time_is_number(&self, target: &Target, into: &Into) -> bool {
        let keys = self.line_keys(target, into);
        let time = keys.iter().zip(self.fields()).find(|(key, _)| matches!(key, line::Key::Time));
        time.is_some_and(|(_, column)| {
            let (ty, _) = column.ty.under_domains(column.typmod);
            matches!(ty.kind, TypeKind::Base(BaseType::Int8 | BaseType::Numeric | BaseType::Float8))
        })
    }
}

/// Whether a column takes the time of a line where the configuration does not say which.
pub(crate) fn is_line_time(target: &Target, column: &str) -> bool {
    match &target.windows {
        Some(windows) => windows.windowed.time_column == column,
        None => column == "time",
    }
}

fn is_json(ty: &PgType) -> bool {
    matches!(ty.under_domains(-1).0.kind, TypeKind::Base(BaseType::Json | BaseType::Jsonb))
}
