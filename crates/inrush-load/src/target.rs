//! The table that inputs ask for where there is none: to create it, or to decode against without a server.

use crate::format::sniff_sample;
use crate::inputs::SAMPLE;
use crate::options::{ColumnSpec, Options};
use inrush_core::{
    BaseType, Code, Column, Default, Error, Generated, Identity, PgType, RelKind, Result, Table,
};
use inrush_decode::sniff::{Sniffed, SniffedColumn};
use inrush_sink::catalog::TableName;
use inrush_source::{Input, InputSpec};

/// The columns of the table that the first input asks for, with names and constants as the user stated them.
///
/// Reads a bounded sample. Standard input is sampled without consuming it only within the same process, so a
/// missing table is not created from it.
pub(crate) fn columns_of(options: &Options, specs: &[InputSpec]) -> Result<Vec<SniffedColumn>> {
    let Some(spec) = specs.first() else {
        return Err(Error::new(Code::Usage, "there is no input"));
    };
    let mut input = Input::open(spec, &options.limits)?;
    let sample = input.peek(SAMPLE)?;
    let complete = input.peek(SAMPLE + 1)?.len() <= SAMPLE;
    let sniffed = sniff_sample(options, &spec.name, &sample, complete)?;
    if sniffed.columns.is_empty() {
        return Err(Error::new(Code::Columns, format!("{} shows no columns", spec.name))
            .hint("Create the table first and name it with --table."));
    }
    stated_columns(options, &sniffed)
}

fn stated_columns(options: &Options, sniffed: &Sniffed) -> Result<Vec<SniffedColumn>> {
    let text = |name: &str| SniffedColumn { name: name.to_owned(), ty: BaseType::Text, nullable: true };
    let mut columns = Vec::new();
    match &options.columns {
        None => columns.clone_from(&sniffed.columns),
        Some(specs) => {
            for (i, spec) in specs.iter().enumerate() {
                let (name, field) = match spec {
                    ColumnSpec::Skip => continue,
                    ColumnSpec::Column(name) => {
                        let by_name = sniffed.columns.iter().find(|c| c.name == *name);
                        (name, by_name.or(sniffed.columns.get(i)))
                    }
                    ColumnSpec::Named { column, field } => {
                        (column, sniffed.columns.iter().find(|c| c.name == *field))
                    }
                };
                let ty = field.map_or(BaseType::Text, |c| c.ty);
                columns.push(SniffedColumn { name: name.clone(), ty, nullable: true });
            }
        }
    }
    for name in options.constants.iter().map(|(name, _)| name).chain(&options.filename_column) {
        if !columns.iter().any(|c| c.name == *name) {
            columns.push(text(name));
        }
    }
    for (i, column) in columns.iter().enumerate() {
        if columns[..i].iter().any(|c| c.name == column.name) {
            return Err(Error::new(Code::Columns, format!("two fields are named {:?}", column.name))
                .hint("Name the columns with --columns."));
        }
    }
    Ok(columns)
}

/// A table of these columns that exists nowhere.
pub(crate) fn imagined(name: &TableName, columns: &[SniffedColumn]) -> Table {
    let column = |(i, c): (usize, &SniffedColumn)| Column {
        name: c.name.clone(),
        attnum: i16::try_from(i + 1).unwrap_or(i16::MAX),
        ty: PgType::base(c.ty),
        typmod: -1,
        not_null: false,
        default: Default::None,
        generated: Generated::No,
        identity: Identity::No,
    };
    Table {
        oid: 0,
        schema: name.schema.clone().unwrap_or_else(|| "public".to_owned()),
        name: name.name.clone(),
        kind: RelKind::Table,
        unlogged: false,
        columns: columns.iter().enumerate().map(column).collect(),
    }
}
