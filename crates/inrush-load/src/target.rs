//! The table that inputs ask for where there is none: to create it, or to decode against without a server.

use crate::create::{SniffedInput, merged_columns, sniff_opened};
use crate::inputs::Opened;
use crate::options::{ColumnSpec, Options};
use inrush_core::{
    BaseType, Code, Column, Default, Error, Generated, Identity, PgType, RelKind, Result, Table,
};
use inrush_decode::sniff::SniffedColumn;
use inrush_sink::catalog::TableName;
use inrush_source::InputSpec;

/// Inputs that are looked at to make a table: the columns of the others are not asked.
const LOOKED_AT: usize = 64;

/// The columns of the table that the inputs ask for, with names and constants as the user stated them.
///
/// Looks at bounded samples, of streams without consuming them.
pub(crate) fn columns_of(
    options: &Options,
    specs: &[InputSpec],
    opened: &Opened,
) -> Result<Vec<SniffedColumn>> {
    let mut sniffed: Vec<SniffedInput> = Vec::new();
    for spec in specs.iter().take(LOOKED_AT) {
        let mut input = opened.open(spec, &options.limits)?;
        sniffed.push(sniff_opened(&mut input, spec, &options.stated)?);
        opened.keep(spec, input);
    }
    let columns = merged_columns(&sniffed);
    if columns.is_empty() {
        let name = specs.first().map_or("", |spec| &spec.name);
        return Err(Error::new(Code::Columns, format!("{name} shows no columns to make a table of"))
            .hint("Create the table first and name it with --table."));
    }
    stated_columns(options, &columns)
}

fn stated_columns(options: &Options, sniffed: &[SniffedColumn]) -> Result<Vec<SniffedColumn>> {
    let text = |name: &str| SniffedColumn { name: name.to_owned(), ty: BaseType::Text, nullable: true };
    let mut columns = Vec::new();
    match &options.columns {
        None => columns.extend_from_slice(sniffed),
        Some(specs) => {
            for (i, spec) in specs.iter().enumerate() {
                let (name, field) = match spec {
                    ColumnSpec::Skip => continue,
                    ColumnSpec::Column(name) => {
                        let by_name = sniffed.iter().find(|c| c.name == *name);
                        (name, by_name.or(sniffed.get(i)))
                    }
                    ColumnSpec::Named { column, field } => {
                        (column, sniffed.iter().find(|c| c.name == *field))
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
