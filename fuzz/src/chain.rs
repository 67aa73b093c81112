//! Stages after one another, as a load has them.

use crate::choices::Choices;
use crate::dialects::{csv_dialect, text_dialect};
use inrush_core::{BadRecord, BaseType, FieldSource, Fields, Format, Limits, PgType, Record};
use inrush_decode::Decoder;
use inrush_decode::binary::{BinaryDecoder, read_header};
use inrush_decode::csv::{self, CsvDecoder};
use inrush_decode::ndjson::{Key, NdjsonDecoder};
use inrush_decode::sniff::{FormatName, Sample, Sniffed, Stated, sniff as sniff_sample};
use inrush_decode::text::{self, TextDecoder};
use inrush_encode::copy_binary::CopyBinary;
use inrush_encode::{EncodeColumn, RowEncoder, Session};
use inrush_source::{Borders, Compression, Cut, Cutter, Input};
use std::io::Cursor;

type Row = Result<Vec<Option<Vec<u8>>>, BadRecord>;

/// The records of one chunk, and the byte each begins at.
fn rows(decoder: &mut dyn Decoder, chunk: &[u8]) -> Vec<(usize, Row)> {
    let mut fields = Fields::new();
    let mut rows = Vec::new();
    decoder.begin(chunk);
    while let Some(step) = decoder.next(chunk, &mut fields) {
        let record = Record { input: chunk, fields: &fields };
        let values = || (0..fields.len()).map(|i| record.get(i).map(<[u8]>::to_vec)).collect();
        rows.push((step.range.start, step.result.map(|()| values())));
    }
    rows
}

/// First bytes: format, chunk size (two bytes), then `csv_dialect`'s or `text_dialect`'s.
pub fn cut_and_decode(input: &[u8]) {
    let mut choices = Choices::of(input);
    let name = choices.pick(&[FormatName::Csv, FormatName::Text, FormatName::Ndjson]);
    let chunk = choices.number().max(1);
    let (format, mut decoder): (Format, Box<dyn Decoder>) = match name {
        FormatName::Text => {
            let (dialect, expected) = text_dialect(&mut choices);
            if text::check_dialect(&dialect).is_err() {
                return;
            }
            let decoder = TextDecoder::new(&dialect, expected);
            (Format::Text(dialect), Box::new(decoder))
        }
        FormatName::Ndjson => {
            (Format::Ndjson, Box::new(NdjsonDecoder::new(vec![Key::new("a"), Key::new("b")])))
        }
        _ => {
            let (dialect, expected) = csv_dialect(&mut choices);
            if csv::check_dialect(&dialect).is_err() {
                return;
            }
            let decoder = CsvDecoder::new(&dialect, expected);
            (Format::Csv(dialect), Box::new(decoder))
        }
    };
    let bytes = choices.rest();
    if Compression::detect(bytes) != Compression::None {
        return;
    }
    let borders = Borders::of(&format).expect("a format that is cut by bytes");
    let limits = Limits { chunk, ..Limits::default() };
    let input = Input::from_reader("fuzzed", Box::new(Cursor::new(bytes.to_vec())), &limits)
        .expect("in memory, and not compressed");
    // A byte order mark of UTF-16.
    let Ok(mut cutter) = Cutter::new(input, 0, borders, false, &limits) else { return };
    let from = cutter.data_start() as usize;
    let (mut found, mut end) = (Vec::new(), from);
    while let Some(cut) = cutter.next().expect("text has no faults") {
        let Cut::Chunk(chunk) = cut else { panic!("a record too long among {} bytes", bytes.len()) };
        let rows = rows(&mut *decoder, &chunk.bytes);
        if format != Format::Ndjson {
            assert_eq!(chunk.records as usize, rows.len(), "records counted and records decoded");
        }
        found.extend(rows.into_iter().map(|(at, row)| (chunk.start as usize - from + at, row)));
        end = chunk.end() as usize;
    }
    let mut whole = rows(&mut *decoder, &bytes[from..end]);
    if format == Format::Ndjson {
        // Blank lines belong to either neighbour, depending on where the input was cut.
        for (at, _) in found.iter_mut().chain(&mut whole) {
            *at = 0;
        }
    }
    for (found, whole) in found.iter().zip(&whole) {
        assert_eq!(found, whole);
    }
    assert_eq!(found.len(), whole.len());
}

/// First bytes: format stated, delimiter, quote, escape, NULL text and header stated (0: none), the name of
/// the input, whether the sample is only a part of it.
pub fn sniff(input: &[u8]) {
    let mut choices = Choices::of(input);
    let stated = Stated {
        format: choices.pick(&[
            None,
            None,
            Some(FormatName::Csv),
            Some(FormatName::Tsv),
            Some(FormatName::Text),
            Some(FormatName::Binary),
            Some(FormatName::Ndjson),
            Some(FormatName::Parquet),
        ]),
        delimiter: Some(choices.byte()).filter(|b| *b != 0),
        quote: Some(choices.byte()).filter(|b| *b != 0),
        escape: Some(choices.byte()).filter(|b| *b != 0),
        null: choices.pick(&[None, None, Some("NULL"), Some("-")]).map(str::to_owned),
        header: choices.pick(&[None, None, Some(false), Some(true)]),
    };
    let name_hint = choices.pick(&[None, Some("a.csv"), Some("a.tsv"), Some("a.ndjson"), Some("A.JSON")]);
    let complete = !choices.yes();
    let bytes = choices.rest();
    let Ok(sniffed) = sniff_sample(&Sample { bytes, complete, name_hint }, &stated) else { return };
    let data = &bytes[sniffed.bom..];
    let (mut decoder, skip): (Box<dyn Decoder>, usize) = match &sniffed.format {
        Format::Csv(dialect) => {
            if stated.delimiter.or(stated.quote).or(stated.escape).is_none() && stated.null.is_none() {
                csv::check_dialect(dialect).expect("a dialect that COPY takes");
            }
            assert_eq!(dialect.header, sniffed.header);
            (Box::new(CsvDecoder::new(dialect, None)), 0)
        }
        Format::Text(dialect) => {
            if stated.delimiter.is_none() && stated.null.is_none() {
                text::check_dialect(dialect).expect("a dialect that COPY takes");
            }
            assert_eq!(dialect.header, sniffed.header);
            (Box::new(TextDecoder::new(dialect, None)), 0)
        }
        Format::Ndjson => {
            let keys = sniffed.columns.iter().map(|column| Key::new(column.name.as_bytes())).collect();
            (Box::new(NdjsonDecoder::new(keys)), 0)
        }
        Format::Binary => match read_header(data).expect("the sniffer has read it") {
            Some(start) => (Box::new(BinaryDecoder::new(None)), start),
            None => return,
        },
        Format::Parquet | Format::Arrow => {
            assert!(sniffed.columns.is_empty());
            return;
        }
    };
    let names: std::collections::HashSet<_> = sniffed.columns.iter().map(|c| &c.name).collect();
    assert_eq!(names.len(), sniffed.columns.len(), "two columns of one name");
    // The last record of a part may be cut off, and was not looked at.
    if !complete {
        return;
    }
    let rows: Vec<Row> = rows(&mut *decoder, &data[skip..]).into_iter().map(|(_, row)| row).collect();
    let rows = &rows[usize::from(sniffed.header && !rows.is_empty())..];
    assert_eq!(rows.len(), sniffed.records);
    let fits = |row: &&Row| row.as_ref().is_ok_and(|values| values.len() == sniffed.columns.len());
    assert_eq!(rows.len() - rows.iter().filter(fits).count(), sniffed.misfits);
    for values in rows.iter().filter(fits).flatten() {
        check_types(&sniffed, values);
    }
}

/// Demands that the values of a record have the types that were found, without a doubt.
fn check_types(sniffed: &Sniffed, values: &[Option<Vec<u8>>]) {
    let session = Session { timezone_is_utc: true, ..Session::default() };
    for (column, value) in sniffed.columns.iter().zip(values) {
        let Some(value) = value else {
            assert!(column.nullable, "a NULL that was not seen");
            continue;
        };
        // The encoder passes these on to the server unread.
        if matches!(column.ty, BaseType::Text | BaseType::Json | BaseType::Bytea) {
            continue;
        }
        let to_send = EncodeColumn { source: FieldSource::Field(0), ty: PgType::base(column.ty), typmod: -1 };
        let mut fields = Fields::new();
        fields.push_input(0..value.len());
        let record = Record { input: value, fields: &fields };
        let sure = CopyBinary::new(&[to_send], &session).row(&record, &mut Vec::new());
        assert!(sure.is_ok(), "{} as {:?}", value.escape_ascii(), column.ty);
    }
}
