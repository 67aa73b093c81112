//! Which columns of the table an input fills, and from where.

use crate::options::{ColumnSpec, Options};
use inrush_core::{Code, Column, Error, FieldSource, Generated, Result, Table};

/// Column list of one COPY statement and where each value comes from. Inputs with the same columns in the
/// same order share statements.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shape {
    /// Target columns in the order they are sent.
    pub columns: Vec<Column>,
    /// Source of each, aligned with `columns`.
    pub sources: Vec<FieldSource>,
    /// Name of each field of a record, for messages; numbers where the file has no names.
    pub fields: Vec<String>,
    /// Fields a record must have; `None` where they are found by key.
    pub expected_fields: Option<usize>,
    /// The fields are already in binary form.
    pub raw: bool,
}

/// What an input says about its fields.
#[derive(Debug, Clone, Copy)]
pub enum FieldNames<'a> {
    /// Header or schema: one name per field.
    Header(&'a [String]),
    /// Keys seen in a sample; others may come.
    Keys(&'a [String]),
    /// Nothing: fields are told by their place.
    Unnamed,
}

impl Shape {
    /// Names of the columns, in the order they are sent.
    pub fn names(&self) -> Vec<&str> {
        self.columns.iter().map(|column| column.name.as_str()).collect()
    }

    /// Fits the fields of an input to the columns of the table.
    ///
    /// `source` is the input's name, for messages and for `--filename`.
    pub fn fit(table: &Table, names: FieldNames<'_>, options: &Options, source: &str) -> Result<Shape> {
        let mut shape = Shape {
            columns: Vec::new(),
            sources: Vec::new(),
            fields: Vec::new(),
            expected_fields: None,
            raw: false,
        };
        let constants = constants(table, options, source)?;
        match (&options.columns, names) {
            (Some(specs), names) if specs.iter().any(|s| matches!(s, ColumnSpec::Named { .. })) => {
                shape.by_map(table, specs, names)?;
            }
            (Some(specs), FieldNames::Keys(_)) => shape.by_chosen_keys(table, specs)?,
            (Some(specs), names) => shape.by_list(table, specs, names)?,
            (None, FieldNames::Header(header)) => shape.by_header(table, header, options, &constants)?,
            (None, FieldNames::Keys(keys)) => shape.by_keys(table, keys, options, &constants)?,
            (None, FieldNames::Unnamed) => shape.by_place(table, &constants),
        }
        for (column, value) in constants {
            if let Some(i) = shape.columns.iter().position(|c| c.name == column.name) {
                // The statement of the user wins over the file.
                shape.sources[i] = FieldSource::Constant(Some(value));
            } else {
                shape.columns.push(column);
                shape.sources.push(FieldSource::Constant(Some(value)));
            }
        }
        if shape.columns.is_empty() {
            return Err(Error::new(
                Code::Columns,
                format!("no field of {source} goes to a column of the table"),
            )
            .hint("Name the columns with --columns."));
        }
        Ok(shape)
    }

    fn push(&mut self, column: Column, field: usize) -> Result<()> {
        if self.columns.iter().any(|c| c.name == column.name) {
            return Err(Error::new(Code::Columns, format!("column {:?} is filled twice", column.name))
                .hint("Leave one of the fields out with --columns."));
        }
        self.columns.push(column);
        self.sources.push(FieldSource::Field(field));
        Ok(())
    }

    fn by_map(&mut self, table: &Table, specs: &[ColumnSpec], names: FieldNames<'_>) -> Result<()> {
        let fields: Vec<String> = match names {
            FieldNames::Header(header) => header.to_vec(),
            // Keys need not occur in the sample: only the ones asked for are looked at.
            FieldNames::Keys(_) => specs
                .iter()
                .filter_map(|s| match s {
                    ColumnSpec::Column(name) => Some(name.clone()),
                    ColumnSpec::Named { field, .. } => Some(field.clone()),
                    ColumnSpec::Skip => None,
                })
                .collect(),
            FieldNames::Unnamed => {
                return Err(Error::new(Code::Columns, "--columns names fields, but the file has no names for them")
                    .hint("List the columns in the order of the fields, or say --header if the first line names them."));
            }
        };
        for spec in specs {
            let (column, field) = match spec {
                ColumnSpec::Column(name) => (name, name),
                ColumnSpec::Named { column, field } => (column, field),
                ColumnSpec::Skip => {
                    return Err(Error::new(Code::Usage, "--columns has both `-` and `column=field`")
                        .hint("With names every field that is not listed is left out; `-` is not needed."));
                }
            };
            let Some(i) = fields.iter().position(|f| f == field) else {
                return Err(Error::new(Code::Columns, format!("the file has no field {field:?}"))
                    .hint(format!("Its fields are: {}.", fields.join(", "))));
            };
            self.push(find(table, column)?, i)?;
        }
        if matches!(names, FieldNames::Header(_)) {
            self.expected_fields = Some(fields.len());
        }
        self.fields = fields;
        Ok(())
    }

    fn by_list(&mut self, table: &Table, specs: &[ColumnSpec], names: FieldNames<'_>) -> Result<()> {
        if let FieldNames::Header(header) = names
            && header.len() != specs.len()
        {
            return Err(Error::new(
                Code::Columns,
                format!("--columns lists {} fields, the header has {}", specs.len(), header.len()),
            )
            .hint(
                "List every field in order, with `-` for those to leave out, or map by name: column=field.",
            ));
        }
        for (i, spec) in specs.iter().enumerate() {
            match spec {
                ColumnSpec::Column(name) => {
                    self.push(find(table, name)?, i)?;
                    self.fields.push(name.clone());
                }
                _ => self.fields.push(format!("field {}", i + 1)),
            }
        }
        self.expected_fields = Some(specs.len());
        Ok(())
    }

    fn by_chosen_keys(&mut self, table: &Table, specs: &[ColumnSpec]) -> Result<()> {
        for spec in specs {
            let ColumnSpec::Column(name) = spec else {
                return Err(Error::new(Code::Usage, "`-` in --columns needs fields that come in order")
                    .hint("Keys that are not listed are left out."));
            };
            let i = self.fields.len();
            self.push(find(table, name)?, i)?;
            self.fields.push(name.clone());
        }
        Ok(())
    }

    fn by_header(
        &mut self,
        table: &Table,
        header: &[String],
        options: &Options,
        constants: &[(Column, Vec<u8>)],
    ) -> Result<()> {
        for (i, name) in header.iter().enumerate() {
            match matching(table, name) {
                Some(column) if constants.iter().any(|(c, _)| c.name == column.name) => {}
                Some(column) => self.push(insertable(column)?, i)?,
                None if options.ignore_unknown => {}
                None => return Err(unknown_field(table, name, "field")),
            }
        }
        self.fields = header.to_vec();
        self.expected_fields = Some(header.len());
        Ok(())
    }

    /// Keys may come in any record. Columns of the sample's keys are sent; so are the other columns that
    /// have no default, since an absent key then means the same as an absent column.
    fn by_keys(
        &mut self,
        table: &Table,
        keys: &[String],
        options: &Options,
        constants: &[(Column, Vec<u8>)],
    ) -> Result<()> {
        let constant = |c: &Column| constants.iter().any(|(k, _)| k.name == c.name);
        for key in keys {
            match matching(table, key) {
                Some(column) if constant(column) => {}
                Some(column) => {
                    let i = self.fields.len();
                    self.push(insertable(column)?, i)?;
                    self.fields.push(key.clone());
                }
                None if options.ignore_unknown => {}
                None => return Err(unknown_field(table, key, "key")),
            }
        }
        for column in &table.columns {
            let plain = column.generated == Generated::No
                && column.default == inrush_core::Default::None
                && column.identity == inrush_core::Identity::No;
            if plain && !constant(column) && !self.columns.iter().any(|c| c.name == column.name) {
                let i = self.fields.len();
                self.push(column.clone(), i)?;
                self.fields.push(column.name.clone());
            }
        }
        Ok(())
    }

    /// As COPY without a column list: every column that is not generated, in order.
    fn by_place(&mut self, table: &Table, constants: &[(Column, Vec<u8>)]) {
        for column in &table.columns {
            if column.generated == Generated::No && !constants.iter().any(|(c, _)| c.name == column.name) {
                self.sources.push(FieldSource::Field(self.columns.len()));
                self.columns.push(column.clone());
                self.fields.push(column.name.clone());
            }
        }
        self.expected_fields = Some(self.columns.len());
    }
}

fn constants(table: &Table, options: &Options, source: &str) -> Result<Vec<(Column, Vec<u8>)>> {
    let mut constants = Vec::new();
    for (name, value) in &options.constants {
        constants.push((find(table, name)?, value.clone().into_bytes()));
    }
    if let Some(name) = &options.filename_column {
        constants.push((find(table, name)?, source.as_bytes().to_vec()));
    }
    Ok(constants)
}

/// The column a header or key means: the same name, else the only one that differs in case alone.
pub(crate) fn matching<'a>(table: &'a Table, name: &str) -> Option<&'a Column> {
    let name = name.trim();
    table.column(name).or_else(|| {
        let lower = name.to_lowercase();
        let mut same = table.columns.iter().filter(|c| c.name.to_lowercase() == lower);
        let first = same.next();
        if same.next().is_some() { None } else { first }
    })
}

fn find(table: &Table, name: &str) -> Result<Column> {
    match matching(table, name) {
        Some(column) => insertable(column),
        None => Err(Error::new(
            Code::Columns,
            format!("column {name:?} of relation {} does not exist", table.qualified()),
        )
        .hint(format!("Its columns are: {}.", column_names(table)))),
    }
}

fn insertable(column: &Column) -> Result<Column> {
    if column.generated != Generated::No {
        return Err(Error::new(Code::Columns, format!("column {:?} is a generated column", column.name))
            .hint("The server computes it; leave its field out with --columns."));
    }
    Ok(column.clone())
}

fn unknown_field(table: &Table, name: &str, what: &str) -> Error {
    Error::new(Code::Columns, format!("{} has no column for {what} {name:?}", table.qualified())).hint(
        format!(
            "Its columns are: {}. Leave such fields out with --ignore-unknown, map them with --columns \
         column={what}, or say --no-header if the first line is data.",
            column_names(table)
        ),
    )
}

fn column_names(table: &Table) -> String {
    table.columns.iter().map(|c| c.name.as_str()).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use inrush_core::{BaseType, Default, Identity, PgType, RelKind};

    fn table() -> Table {
        let column = |name: &str, attnum| Column {
            name: name.into(),
            attnum,
            ty: PgType::base(BaseType::Text),
            typmod: -1,
            not_null: false,
            default: Default::None,
            generated: Generated::No,
            identity: Identity::No,
        };
        let mut sum = column("sum", 3);
        sum.generated = Generated::Stored;
        let mut made = column("made", 4);
        made.default = Default::Expression;
        Table {
            oid: 1,
            schema: "public".into(),
            name: "t".into(),
            kind: RelKind::Table,
            unlogged: false,
            columns: vec![column("a", 1), column("B", 2), sum, made, column("src", 5)],
        }
    }

    fn fit(names: FieldNames<'_>, change: impl Fn(&mut Options)) -> Result<Vec<String>> {
        let mut options = Options::new(vec![]);
        change(&mut options);
        Shape::fit(&table(), names, &options, "x.csv").map(|shape| {
            shape
                .columns
                .iter()
                .zip(&shape.sources)
                .map(|(c, s)| match s {
                    FieldSource::Field(i) => format!("{}={i}", c.name),
                    FieldSource::Constant(v) => {
                        format!("{}={}", c.name, String::from_utf8_lossy(v.as_deref().unwrap_or(b"NULL")))
                    }
                })
                .collect()
        })
    }

    fn names(list: &[&str]) -> Vec<String> {
        list.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn without_names_every_column_but_generated_ones_in_order() {
        assert_eq!(fit(FieldNames::Unnamed, |_| ()).unwrap(), ["a=0", "B=1", "made=2", "src=3"]);
    }

    #[test]
    fn a_header_is_matched_by_name_and_missing_columns_take_their_default() {
        let header = names(&["b", "a"]);
        assert_eq!(fit(FieldNames::Header(&header), |_| ()).unwrap(), ["B=0", "a=1"]);
    }

    #[test]
    fn an_unknown_field_is_an_error_unless_told_otherwise() {
        let header = names(&["a", "nope"]);
        let error = fit(FieldNames::Header(&header), |_| ()).unwrap_err();
        assert_eq!(error.fact(), "public.t has no column for field \"nope\"");
        assert_eq!(fit(FieldNames::Header(&header), |o| o.ignore_unknown = true).unwrap(), ["a=0"]);
    }

    #[test]
    fn generated_columns_cannot_be_filled() {
        let header = names(&["a", "sum"]);
        assert!(fit(FieldNames::Header(&header), |_| ()).unwrap_err().fact().contains("generated"));
    }

    #[test]
    fn columns_can_be_listed_mapped_and_set() {
        let list = |o: &mut Options| {
            o.columns = Some(vec![ColumnSpec::Skip, ColumnSpec::Column("a".into())]);
            o.filename_column = Some("src".into());
        };
        assert_eq!(fit(FieldNames::Unnamed, list).unwrap(), ["a=1", "src=x.csv"]);
        let header = names(&["x", "y"]);
        let map = |o: &mut Options| {
            o.columns = Some(vec![ColumnSpec::Named { column: "a".into(), field: "y".into() }]);
            o.constants = vec![("B".into(), "7".into())];
        };
        assert_eq!(fit(FieldNames::Header(&header), map).unwrap(), ["a=1", "B=7"]);
    }

    #[test]
    fn keys_bring_the_columns_without_default_with_them() {
        let keys = names(&["B"]);
        assert_eq!(fit(FieldNames::Keys(&keys), |_| ()).unwrap(), ["B=0", "a=1", "src=2"]);
    }

    #[test]
    fn a_column_is_not_filled_twice() {
        let header = names(&["a", "A"]);
        assert!(fit(FieldNames::Header(&header), |_| ()).unwrap_err().fact().contains("twice"));
    }
}
