//! What an input probably is: format, dialect, columns and types, from a bounded sample of its head.
//!
//! What the user states always wins; what then makes no sense is an error that names both sides. Types are
//! chosen to be safe rather than narrow: a column is typed only if every sampled value has the type's
//! unambiguous form, and everything else is text. The phases are one module each: `dialect` (format,
//! delimiter, quote, line ends), `header` (names), `types`.

mod dialect;
mod header;
mod types;

use crate::binary::{BinaryDecoder, read_header};
use crate::csv::CsvDecoder;
use crate::ndjson::{Key, NdjsonDecoder, ObservedKey, keys_of};
use crate::text::TextDecoder;
use crate::{Decoder, MAX_FIELDS};
use inrush_core::{BaseType, Fields, Format, Record, Result};
use types::Evidence;

/// Bytes of a sample that are looked at, and records of these.
const MAX_BYTES: usize = 1 << 20;
const MAX_RECORDS: usize = 10_000;

/// The head of an input.
#[derive(Debug, Clone, Copy)]
pub struct Sample<'a> {
    /// Uncompressed bytes from the input's first on. Of more than a MiB only the first is looked at.
    pub bytes: &'a [u8],
    /// Whether that is all of the input; if not, the last record is taken to be cut off.
    pub complete: bool,
    /// The input's name without what says how it is compressed; its ending is a weak hint.
    pub name_hint: Option<&'a str>,
}

/// A format as the user names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum FormatName {
    Csv,
    Tsv,
    Text,
    Binary,
    Ndjson,
    Parquet,
    Arrow,
}

impl FormatName {
    /// The name used with `--format`.
    pub fn as_str(self) -> &'static str {
        match self {
            FormatName::Csv => "csv",
            FormatName::Tsv => "tsv",
            FormatName::Text => "text",
            FormatName::Binary => "binary",
            FormatName::Ndjson => "ndjson",
            FormatName::Parquet => "parquet",
            FormatName::Arrow => "arrow",
        }
    }
}

/// What the user said about an input. `None` is left to the sniffer.
#[derive(Debug, Clone, Default)]
pub struct Stated {
    /// `--format`
    pub format: Option<FormatName>,
    /// `--delimiter`
    pub delimiter: Option<u8>,
    /// `--quote`
    pub quote: Option<u8>,
    /// `--escape`
    pub escape: Option<u8>,
    /// `--null`
    pub null: Option<String>,
    /// `--header` or `--no-header`
    pub header: Option<bool>,
}

/// A column as the sample shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SniffedColumn {
    /// Its name from the header or key, else `column1`, `column2`, ... as VALUES has them.
    pub name: String,
    /// The narrowest safe type.
    pub ty: BaseType,
    /// Whether a NULL was seen. That none was seen proves nothing about the rest of the input: no NOT NULL
    /// should be built on it.
    pub nullable: bool,
}

/// What an input probably is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sniffed {
    /// Format and dialect; its `header` is set as `header` is.
    pub format: Format,
    /// The columns; empty for Parquet and Arrow, whose files say it themselves.
    pub columns: Vec<SniffedColumn>,
    /// Whether the first record names the columns.
    pub header: bool,
    /// Bytes of a byte order mark at the start.
    pub bom: usize,
    /// Records looked at, the header not counted.
    pub records: usize,
    /// Of these, how many do not fit the format or the number of columns.
    pub misfits: usize,
    /// What each choice rests on, one sentence without a stop each.
    pub evidence: Vec<String>,
}

/// Looks at a sample.
///
/// Errors: [`Clash`](inrush_core::Code::Clash) where `stated` and the sample contradict each other,
/// [`Encoding`](inrush_core::Code::Encoding) for UTF-16, [`Format`](inrush_core::Code::Format) for what
/// begins like a known format and is none.
pub fn sniff(sample: &Sample<'_>, stated: &Stated) -> Result<Sniffed> {
    let mut sample = *sample;
    if sample.bytes.len() > MAX_BYTES {
        (sample.bytes, sample.complete) = (&sample.bytes[..MAX_BYTES], false);
    }
    let mut evidence = Vec::new();
    let bom = dialect::byte_order_mark(sample.bytes)?;
    if bom > 0 {
        evidence.push("a UTF-8 byte order mark stands at the start".to_owned());
    }
    sample.bytes = &sample.bytes[bom..];
    let format = dialect::format(&sample, stated, &mut evidence)?;
    let empty = Sniffed { format, columns: Vec::new(), header: false, bom, records: 0, misfits: 0, evidence };
    match &empty.format {
        Format::Csv(_) | Format::Text(_) => Ok(delimited(&sample, stated, empty)),
        Format::Ndjson => Ok(ndjson(&sample, empty)),
        Format::Binary => binary(&sample, empty),
        Format::Parquet | Format::Arrow => Ok(empty),
    }
}

/// Shows each record of a sample to `see`, without the last where it may be cut off; `None`: refused by the
/// decoder.
fn each_record(decoder: &mut dyn Decoder, sample: &Sample<'_>, mut see: impl FnMut(Option<&Record<'_>>)) {
    let chunk = sample.bytes;
    let mut fields = Fields::new();
    decoder.begin(chunk);
    for _ in 0..MAX_RECORDS {
        let Some(step) = decoder.next(chunk, &mut fields) else { break };
        if step.range.end == chunk.len() && !sample.complete {
            break;
        }
        let record = Record { input: chunk, fields: &fields };
        see(step.result.is_ok().then_some(&record));
    }
}

/// How many fields the records have.
#[derive(Default)]
struct Widths {
    /// Records, those that were refused among them.
    records: usize,
    counts: std::collections::BTreeMap<usize, usize>,
}

impl Widths {
    fn see(&mut self, record: Option<&Record<'_>>) {
        self.records += 1;
        if let Some(record) = record {
            *self.counts.entry(record.fields.len()).or_insert(0) += 1;
        }
    }

    /// How many fields most of the records have, and how many records have these.
    fn usual(&self) -> (usize, usize) {
        // Of equally frequent ones the largest: max_by_key gives the last.
        self.counts.iter().map(|(&width, &count)| (width, count)).max_by_key(|&(_, n)| n).unwrap_or((0, 0))
    }
}

fn delimited(sample: &Sample<'_>, stated: &Stated, mut sniffed: Sniffed) -> Sniffed {
    let decoder = || -> Box<dyn Decoder> {
        match &sniffed.format {
            Format::Text(dialect) => Box::new(TextDecoder::new(dialect, None)),
            Format::Csv(dialect) => Box::new(CsvDecoder::new(dialect, None)),
            other => unreachable!("{other:?} has no fields with delimiters"),
        }
    };
    let mut widths = Widths::default();
    each_record(&mut *decoder(), sample, |record| widths.see(record));
    let (width, fitting) = widths.usual();

    let mut first = None;
    let mut columns = vec![Evidence::default(); width];
    let mut number = 0;
    each_record(&mut *decoder(), sample, |record| {
        number += 1;
        let Some(record) = record.filter(|record| record.fields.len() == width) else { return };
        if number == 1 {
            first = Some((0..width).map(|i| record.get(i).map(<[u8]>::to_vec)).collect::<Vec<_>>());
            return;
        }
        for (i, column) in columns.iter_mut().enumerate() {
            column.see(record.get(i));
        }
    });
    let (header, reason) = header::decide(stated.header, first.as_deref(), &columns);
    sniffed.evidence.push(reason);
    sniffed.header = header;
    match &mut sniffed.format {
        Format::Csv(dialect) => dialect.header = header,
        Format::Text(dialect) => dialect.header = header,
        _ => {}
    }
    sniffed.misfits = widths.records - fitting;
    sniffed.records = widths.records;
    if header && widths.records > 0 {
        sniffed.records -= 1;
        sniffed.misfits -= usize::from(first.is_none());
    } else if let Some(first) = &first {
        columns.iter_mut().zip(first).for_each(|(column, value)| column.see(value.as_deref()));
    }
    let names = header::names(first.as_deref().filter(|_| header), width);
    sniffed.columns = columns.iter().zip(names).map(|(seen, name)| column(name, seen)).collect();
    sniffed
}

fn column(name: String, seen: &Evidence) -> SniffedColumn {
    SniffedColumn { name, ty: seen.narrowest(), nullable: seen.nulls > 0 }
}

fn ndjson(sample: &Sample<'_>, mut sniffed: Sniffed) -> Sniffed {
    let keys = keys_of(dialect::whole_lines(sample)).keys;
    let mut decoder = NdjsonDecoder::new(keys.iter().map(|key| Key::new(key.name.clone())).collect());
    let mut seen = vec![Evidence::default(); keys.len()];
    each_record(&mut decoder, sample, |record| {
        sniffed.records += 1;
        sniffed.misfits += usize::from(record.is_none());
        let Some(record) = record else { return };
        for (i, column) in seen.iter_mut().enumerate().take(record.fields.len()) {
            column.see(record.get(i));
        }
    });
    sniffed.columns = keys
        .iter()
        .zip(&seen)
        .map(|(key, seen)| {
            let name = String::from_utf8_lossy(&key.name).into_owned();
            SniffedColumn { ty: json_type(key, seen), ..column(name, seen) }
        })
        .collect();
    sniffed
}

/// The type for the values of a key. JSON says more than text does: what stands in quotes is no number and
/// no truth value, whatever it looks like.
fn json_type(key: &ObservedKey, seen: &Evidence) -> BaseType {
    if key.objects + key.arrays > 0 {
        return BaseType::Json;
    }
    match (key.strings > 0, key.numbers > 0, key.booleans > 0) {
        (false, false, true) => BaseType::Bool,
        (false, true, false) => seen.narrowest(),
        (true, false, false) => match seen.narrowest() {
            ty @ (BaseType::Date
            | BaseType::Timestamp
            | BaseType::Timestamptz
            | BaseType::Time
            | BaseType::Uuid
            | BaseType::Inet) => ty,
            _ => BaseType::Text,
        },
        _ => BaseType::Text,
    }
}

/// A binary file tells how many columns it has, not of which types. `bytea` holds every field as it stands.
fn binary(sample: &Sample<'_>, mut sniffed: Sniffed) -> Result<Sniffed> {
    let Some(start) = read_header(sample.bytes)? else { return Ok(sniffed) };
    let tuples = Sample { bytes: &sample.bytes[start..], ..*sample };
    let mut widths = Widths::default();
    each_record(&mut BinaryDecoder::new(None), &tuples, |record| widths.see(record));
    let (width, fitting) = widths.usual();
    let mut nullable = vec![false; width.min(MAX_FIELDS)];
    each_record(&mut BinaryDecoder::new(None), &tuples, |record| {
        let Some(record) = record else { return };
        for (i, nullable) in nullable.iter_mut().enumerate().take(record.fields.len()) {
            *nullable |= record.get(i).is_none();
        }
    });
    let names = header::names(None, nullable.len());
    let columns = names.into_iter().zip(nullable);
    sniffed.columns =
        columns.map(|(name, nullable)| SniffedColumn { name, ty: BaseType::Bytea, nullable }).collect();
    sniffed.records = widths.records;
    sniffed.misfits = widths.records - fitting;
    sniffed.evidence.push("a binary COPY file does not tell the types of its columns".to_owned());
    Ok(sniffed)
}
