//! Format, dialect and header of an input: what the user stated, else what its bytes show.

use crate::create::{wishes, without_compression};
use crate::options::Options;
use crate::shape::matching;
use inrush_core::{CsvDialect, Eol, Fields, Format, Generated, Record, Result, Table, TextDialect};
use inrush_decode::Decoder;
use inrush_decode::csv::CsvDecoder;
use inrush_decode::sniff::{self, Sample, Sniffed};
use inrush_decode::text::TextDecoder;
use inrush_source::{Borders, detect_eol};

/// What a sample of an input shows, with what the user stated kept as it is.
pub(crate) fn sniff_sample(options: &Options, name: &str, sample: &[u8], complete: bool) -> Result<Sniffed> {
    let sample = Sample { bytes: sample, complete, name_hint: Some(without_compression(name)) };
    let sniffed = sniff::sniff(&sample, &wishes(&options.stated)?).map_err(|error| {
        if error.position().is_some() { error } else { error.at(inrush_core::Position::source(name)) }
    })?;
    match &sniffed.format {
        Format::Csv(dialect) => inrush_decode::csv::check_dialect(dialect)?,
        Format::Text(dialect) => inrush_decode::text::check_dialect(dialect)?,
        _ => {}
    }
    Ok(sniffed)
}

/// The sniffed format, corrected by what is known of the table: where commas give as many fields as the
/// table has columns, the file is plain CSV, whatever else might be read into a small sample.
pub(crate) fn dialect_for(options: &Options, table: &Table, sniffed: &Format, sample: &[u8]) -> Format {
    let Format::Csv(dialect) = sniffed else { return sniffed.clone() };
    if options.stated.delimiter.is_some()
        || dialect.delimiter == b','
        || options.stated.format.as_deref() == Some("tsv")
    {
        return sniffed.clone();
    }
    let wanted = match &options.columns {
        Some(columns) => columns.len(),
        None => table.columns.iter().filter(|c| c.generated == Generated::No).count(),
    };
    let plain = Format::Csv(CsvDialect { delimiter: b',', ..dialect.clone() });
    match first_record(&plain, sample) {
        Some((_, fields)) if fields.len() == wanted => plain,
        _ => sniffed.clone(),
    }
}

/// The bytes and the fields of the first record, if it decodes.
pub(crate) fn first_record(format: &Format, sample: &[u8]) -> Option<(Vec<u8>, Vec<String>)> {
    let sample = sample.strip_prefix(b"\xef\xbb\xbf").unwrap_or(sample);
    let mut decoder: Box<dyn Decoder> = match format {
        Format::Csv(dialect) => {
            let dialect = CsvDialect { eol: eol_of(format, sample), ..dialect.clone() };
            Box::new(CsvDecoder::new(&dialect, None))
        }
        Format::Text(dialect) => {
            let dialect = TextDialect { eol: eol_of(format, sample), ..dialect.clone() };
            Box::new(TextDecoder::new(&dialect, None))
        }
        _ => return None,
    };
    let mut fields = Fields::new();
    decoder.begin(sample);
    let step = decoder.next(sample, &mut fields)?;
    step.result.ok()?;
    let record = Record { input: sample, fields: &fields };
    let text = |i| record.get(i).map(|f| String::from_utf8_lossy(f).into_owned()).unwrap_or_default();
    Some((sample[step.range].to_vec(), (0..fields.len()).map(text).collect()))
}

/// How the sample's first record ends.
pub(crate) fn eol_of(format: &Format, sample: &[u8]) -> Eol {
    Borders::of(format).and_then(|borders| detect_eol(sample, borders)).unwrap_or_default()
}

/// Stated; else a first line whose every field names a different column of the table is a header (no row of
/// data looks like that but one made to); else what the sample shows. A header that is seen and whose names do
/// not fit the table is an error later on, never a row that vanishes.
pub(crate) fn decide_header(
    options: &Options,
    table: &Table,
    format: &Format,
    first: Option<&[String]>,
    sniffed: bool,
) -> bool {
    if !matches!(format, Format::Csv(_) | Format::Text(_)) {
        return false;
    }
    if let Some(header) = options.stated.header {
        return header;
    }
    let Some(first) = first else { return false };
    let mut seen = Vec::new();
    let names_columns = !first.is_empty()
        && first.iter().all(|name| match matching(table, name) {
            Some(column) if !seen.contains(&column.attnum) => {
                seen.push(column.attnum);
                true
            }
            _ => false,
        });
    names_columns || sniffed
}
