//! Missing tables: what an input looks like, and the CREATE TABLE that holds it.

use crate::options::Stated;
use inrush_core::{BaseType, Code, Error, Format, Limits, Result, quote_ident};
use inrush_decode::sniff::{self, FormatName, Sample, Sniffed, SniffedColumn};
use inrush_sink::catalog::TableName;
use inrush_source::{Compression, Input, InputSpec};
use std::fmt::Write as _;

/// Uncompressed bytes of an input that are looked at.
pub const SNIFF_BYTES: usize = 1 << 20;

/// Longest name the server keeps (NAMEDATALEN - 1).
const MAX_NAME: usize = 63;

/// Columns every table has by itself (catalog/heap.c, SysAtt): no other may be called so.
const SYSTEM_COLUMNS: [&str; 6] = ["tableoid", "cmax", "xmax", "cmin", "xmin", "ctid"];

/// One input as its head shows it.
#[derive(Debug, Clone)]
pub struct SniffedInput {
    /// As the user named it.
    pub name: String,
    /// Compression found in its content.
    pub compression: Compression,
    /// Bytes as stored; `None` for a stream.
    pub stored: Option<u64>,
    /// Uncompressed bytes that were looked at.
    pub looked_at: usize,
    /// Whether these were all there are.
    pub complete: bool,
    /// What it probably is.
    pub sniffed: Sniffed,
}

/// Looks at the head of an input, at most [`SNIFF_BYTES`] of it.
///
/// Errors: those of opening and reading; `clash` where what is stated and what is seen contradict each other;
/// `format` for a Parquet or Arrow file that is damaged or cannot be read by position.
pub fn sniff_input(spec: &InputSpec, stated: &Stated, limits: &Limits) -> Result<SniffedInput> {
    sniff_opened(&mut Input::open(spec, limits)?, spec, stated)
}

/// [`sniff_input`] of an input that is open; nothing of it is consumed.
pub(crate) fn sniff_opened(input: &mut Input, spec: &InputSpec, stated: &Stated) -> Result<SniffedInput> {
    let (bytes, complete) = head(input)?;
    let name_hint = without_compression(&spec.name);
    let sample = Sample { bytes: &bytes, complete, name_hint: Some(name_hint) };
    let mut sniffed = sniff::sniff(&sample, &wishes(stated)?)?;
    if sniffed.format.is_columnar() {
        let (columns, rows) = crate::columnar::sniffed_columns(stated, spec, input, &bytes)?;
        sniffed.columns = columns;
        sniffed.header = true;
        // A file that tells of no rows still tells its types for certain.
        sniffed.records = rows.and_then(|rows| usize::try_from(rows).ok()).unwrap_or_default().max(1);
    }
    Ok(SniffedInput {
        name: spec.name.clone(),
        compression: input.compression(),
        stored: input.len(),
        looked_at: bytes.len(),
        complete,
        sniffed,
    })
}

/// The bytes of an input that are looked at, and whether these are all.
pub(crate) fn head(input: &mut Input) -> Result<(Vec<u8>, bool)> {
    // One byte more tells whether that was all.
    let mut bytes = input.peek(SNIFF_BYTES + 1)?;
    let complete = bytes.len() <= SNIFF_BYTES;
    bytes.truncate(SNIFF_BYTES);
    Ok((bytes, complete))
}

/// The columns of a table that holds rows of all these inputs: columns are told by their name where the inputs
/// name them, else by their place; where types differ the one that holds both.
pub fn merged_columns(inputs: &[SniffedInput]) -> Vec<SniffedColumn> {
    let mut columns: Vec<SniffedColumn> = Vec::new();
    for input in inputs {
        let sniffed = &input.sniffed;
        let named = sniffed.header || sniffed.format == Format::Ndjson;
        // Nothing was seen of a column without records: whatever type another input shows is right.
        let blind = sniffed.records == 0;
        for (i, column) in sniffed.columns.iter().enumerate() {
            let known = if named {
                columns.iter_mut().find(|known| known.name == column.name)
            } else {
                columns.get_mut(i)
            };
            match known {
                Some(known) => {
                    known.nullable |= column.nullable;
                    if !blind {
                        known.ty = wider(known.ty, column.ty);
                    }
                }
                None => columns.push(column.clone()),
            }
        }
    }
    columns
}

/// The table a load goes to: the one that is named, else one with the name of the first file.
///
/// Errors: `usage`, for a name SQL could not read, and where there is no file to take a name from.
pub fn target_name(stated: Option<&str>, specs: &[InputSpec]) -> Result<TableName> {
    match stated {
        Some(name) => TableName::parse(name),
        None => TableName::parse(&crate::inputs::table_name(specs)?),
    }
}

/// The type that holds the values of both as they are; text where nothing narrower does.
fn wider(a: BaseType, b: BaseType) -> BaseType {
    use BaseType::{Float8, Int4, Int8, Numeric, Text};
    /// Place among the numbers; each holds what those before it do. A double holds an integer of 15 digits and
    /// not one of 18, so the way from `bigint` to numbers with a fraction is `numeric`.
    fn rank(ty: BaseType) -> Option<u8> {
        match ty {
            Int4 => Some(0),
            Int8 => Some(1),
            Numeric => Some(2),
            _ => None,
        }
    }
    match (a, b) {
        (a, b) if a == b => a,
        (Int4, Float8) | (Float8, Int4) => Float8,
        (a, b) => match (rank(a), rank(b)) {
            (Some(first), Some(second)) => {
                if first > second {
                    a
                } else {
                    b
                }
            }
            _ => Text,
        },
    }
}

/// The CREATE TABLE for these columns, without a final semicolon. No column is NOT NULL: a sample that holds no
/// NULL says nothing about the rest.
pub fn create_table_sql(name: &TableName, columns: &[SniffedColumn]) -> String {
    let names: Vec<String> = column_names(columns).iter().map(|name| quote_ident(name)).collect();
    let width = names.iter().map(|name| name.chars().count()).max().unwrap_or_default();
    let mut sql = format!("CREATE TABLE {name} (");
    for (i, (name, column)) in names.iter().zip(columns).enumerate() {
        let comma = if i == 0 { "" } else { "," };
        let _ = write!(sql, "{comma}\n    {name:width$} {}", short_name(column.ty));
    }
    sql.push_str(if columns.is_empty() { ")" } else { "\n)" });
    sql
}

/// The names the columns get in a new table: those of the input, except where the server would refuse or cut
/// one. A name that is too long is cut as the server would; one that a system column has gets an underscore;
/// names that would then be equal are numbered.
pub fn column_names(columns: &[SniffedColumn]) -> Vec<String> {
    let mut taken = std::collections::HashSet::new();
    columns
        .iter()
        .map(|column| {
            let mut base = column.name.replace('\0', "");
            if SYSTEM_COLUMNS.contains(&base.as_str()) {
                base.push('_');
            }
            let mut name = clipped(&base, MAX_NAME).to_owned();
            let mut n = 1;
            while !taken.insert(name.clone()) {
                n += 1;
                let suffix = format!("_{n}");
                name = format!("{}{suffix}", clipped(&base, MAX_NAME - suffix.len()));
            }
            name
        })
        .collect()
}

/// The name people write for a type.
pub fn short_name(ty: BaseType) -> &'static str {
    match ty {
        BaseType::Timestamp => "timestamp",
        BaseType::Timestamptz => "timestamptz",
        BaseType::Time => "time",
        BaseType::Timetz => "timetz",
        other => other.sql(),
    }
}

/// At most `max` bytes, cut between characters (mbutils.c, pg_mbcliplen).
fn clipped(name: &str, max: usize) -> &str {
    &name[..name.floor_char_boundary(max)]
}

/// A name without the ending that says how it is compressed.
pub(crate) fn without_compression(name: &str) -> &str {
    [".gz", ".zst", ".lz4", ".bz2", ".xz"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name)
}

/// What the user stated, in the sniffer's words.
pub(crate) fn wishes(stated: &Stated) -> Result<sniff::Stated> {
    let format = match stated.format.as_deref() {
        None => None,
        Some("csv") => Some(FormatName::Csv),
        Some("tsv") => Some(FormatName::Tsv),
        Some("text") => Some(FormatName::Text),
        Some("binary") => Some(FormatName::Binary),
        Some("ndjson") => Some(FormatName::Ndjson),
        Some("parquet") => Some(FormatName::Parquet),
        Some("arrow") => Some(FormatName::Arrow),
        Some(other) => {
            return Err(Error::new(Code::Usage, format!("there is no format {other:?}"))
                .hint("The formats are csv, tsv, text, binary, ndjson, parquet and arrow."));
        }
    };
    Ok(sniff::Stated {
        format,
        delimiter: stated.delimiter,
        quote: stated.quote,
        escape: stated.escape,
        null: stated.null.clone(),
        header: stated.header,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(name: &str, ty: BaseType) -> SniffedColumn {
        SniffedColumn { name: name.to_owned(), ty, nullable: false }
    }

    #[test]
    fn creates_a_table_a_person_would_write() {
        let name = TableName { schema: Some("public".into()), name: "trips".into() };
        let columns = [
            column("id", BaseType::Int8),
            column("order", BaseType::Text),
            column("begun at", BaseType::Timestamptz),
        ];
        assert_eq!(
            create_table_sql(&name, &columns),
            "CREATE TABLE public.trips (\n    id         bigint,\n    \"order\"    text,\n    \"begun at\" timestamptz\n)"
        );
    }

    #[test]
    fn names_the_server_would_not_keep_are_changed() {
        let long = "ä".repeat(40);
        let columns = [
            column("ctid", BaseType::Text),
            column(&long, BaseType::Text),
            column(&format!("{long}x"), BaseType::Text),
        ];
        let names = column_names(&columns);
        assert_eq!(names[0], "ctid_");
        assert_eq!(names[1], "ä".repeat(31));
        assert_eq!(names[2], format!("{}_2", "ä".repeat(30)));
        assert!(names.iter().all(|name| name.len() <= MAX_NAME));
    }

    #[test]
    fn the_wider_type_holds_both() {
        use BaseType::*;
        for (a, b, both) in [
            (Int4, Int4, Int4),
            (Int4, Int8, Int8),
            (Int8, Numeric, Numeric),
            (Int4, Float8, Float8),
            (Int8, Float8, Text),
            (Numeric, Float8, Text),
            (Date, Timestamp, Text),
            (Bool, Int4, Text),
        ] {
            assert_eq!((wider(a, b), wider(b, a)), (both, both), "{a:?} {b:?}");
        }
    }
}
