//! Which format, and which delimiter, quote, escape, NULL text and line ends.

use super::{FormatName, Sample, Stated, Widths, each_record};
use crate::binary;
use crate::csv::CsvDecoder;
use crate::ndjson::keys_of;
use inrush_core::{Code, CsvDialect, Eol, Error, Format, Result, TextDialect};

/// Delimiters tried, the usual one first.
const DELIMITERS: [u8; 4] = [b',', b'\t', b';', b'|'];

/// Length of a UTF-8 byte order mark at the start; UTF-16 is an error.
pub(super) fn byte_order_mark(bytes: &[u8]) -> Result<usize> {
    match bytes {
        [0xef, 0xbb, 0xbf, ..] => Ok(3),
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => {
            Err(Error::new(Code::Encoding, "the input begins with a UTF-16 byte order mark")
                .hint("Convert it to UTF-8 first, for example with iconv -f UTF-16 -t UTF-8."))
        }
        _ => Ok(0),
    }
}

/// The whole lines of a sample, without a last one that may be cut off.
pub(super) fn whole_lines<'a>(sample: &Sample<'a>) -> &'a [u8] {
    let bytes = sample.bytes;
    let end = if sample.complete { None } else { memchr::memrchr(b'\n', bytes).map(|last| last + 1) };
    &bytes[..end.unwrap_or(bytes.len())]
}

/// Decides on the format. The `header` of the dialect is left open.
pub(super) fn format(sample: &Sample<'_>, stated: &Stated, evidence: &mut Vec<String>) -> Result<Format> {
    let signed = signature(sample.bytes);
    if let Some(name) = stated.format {
        let binary = matches!(name, FormatName::Binary | FormatName::Parquet | FormatName::Arrow);
        if signed.is_some_and(|signed| signed != name)
            || binary && signed.is_none() && !sample.bytes.is_empty()
        {
            let found = signed
                .map_or("no signature of it".to_owned(), |s| format!("the signature of {}", s.as_str()));
            return Err(Error::new(
                Code::Clash,
                format!("the format {} was stated, but the input begins with {found}", name.as_str()),
            )
            .hint("Leave --format out to have it found, or check the file."));
        }
        evidence.push(format!("format {}: stated", name.as_str()));
        return match name {
            FormatName::Csv => csv(sample, stated, None, evidence),
            FormatName::Tsv => csv(sample, stated, Some(b'\t'), evidence),
            FormatName::Text => Ok(text(sample, stated, evidence)),
            FormatName::Binary => Ok(Format::Binary),
            FormatName::Ndjson => Ok(Format::Ndjson),
            FormatName::Parquet => Ok(Format::Parquet),
            FormatName::Arrow => Ok(Format::Arrow),
        };
    }
    let csv_is_stated = stated.quote.is_some() || stated.escape.is_some();
    if let Some(signed) = signed {
        evidence.push(format!("format {}: its signature stands at the start", signed.as_str()));
        return Ok(match signed {
            FormatName::Parquet => Format::Parquet,
            FormatName::Arrow => Format::Arrow,
            _ => Format::Binary,
        });
    }
    if stated.delimiter.is_none() && !csv_is_stated && is_ndjson(sample, evidence)? {
        return Ok(Format::Ndjson);
    }
    if !csv_is_stated && looks_like_pg_text(sample, stated) {
        evidence.push(
            "format text: fields are set apart by tabs, with backslash escapes and no quotes".to_owned(),
        );
        return Ok(text(sample, stated, evidence));
    }
    csv(sample, stated, None, evidence)
}

/// The format a signature at the start shows.
fn signature(bytes: &[u8]) -> Option<FormatName> {
    let starts = |signature: &[u8]| bytes.starts_with(signature);
    if starts(&binary::SIGNATURE) {
        Some(FormatName::Binary)
    } else if starts(b"PAR1") || starts(b"PARE") {
        Some(FormatName::Parquet)
    // A file, or a stream: the mark of a message, then its length, a multiple of eight.
    } else if starts(b"ARROW1") || starts(&[0xff; 4]) && bytes.get(4).is_some_and(|b| b % 8 == 0) {
        Some(FormatName::Arrow)
    } else {
        None
    }
}

fn is_ndjson(sample: &Sample<'_>, evidence: &mut Vec<String>) -> Result<bool> {
    let lines = whole_lines(sample);
    let named = |ends: &[&str]| {
        let name = sample.name_hint.unwrap_or_default().to_ascii_lowercase();
        ends.iter().any(|end| name.ends_with(end))
    };
    let seen = if lines.trim_ascii_start().starts_with(b"{") { keys_of(lines) } else { Default::default() };
    // A few broken lines among many objects are bad records, not another format.
    if seen.objects > 0
        && (seen.others == 0 || seen.objects >= 10 * seen.others || named(&[".ndjson", ".jsonl"]))
    {
        evidence.push(format!("format ndjson: {} lines are one JSON object each", seen.objects));
        return Ok(true);
    }
    if named(&[".ndjson", ".jsonl"]) {
        evidence.push("format ndjson: by the name of the input".to_owned());
        return Ok(true);
    }
    if named(&[".json"]) && lines.trim_ascii_start().starts_with(b"[") || named(&[".json"]) && seen.others > 0
    {
        return Err(Error::new(Code::Format, "the input is JSON, but not one object per line")
            .hint("Convert it first, for example with jq -c '.[]'."));
    }
    Ok(false)
}

/// Whether this is more likely COPY's text format than CSV: tabs, no quotes around fields, and escapes.
fn looks_like_pg_text(sample: &Sample<'_>, stated: &Stated) -> bool {
    if stated.delimiter.is_some_and(|delimiter| delimiter != b'\t') {
        return false;
    }
    let mut escapes = 0;
    let mut tabs = 0;
    for line in whole_lines(sample).split(|&b| b == b'\n') {
        let mut fields = line.split(|&b| b == b'\t');
        tabs += line.iter().filter(|&&b| b == b'\t').count();
        if fields.clone().any(|field| field.starts_with(b"\"")) {
            return false;
        }
        escapes += usize::from(fields.any(|field| field == b"\\N" || has_escape(field)) || line == b"\\.");
    }
    tabs > 0 && escapes > 0
}

fn has_escape(field: &[u8]) -> bool {
    field.windows(2).any(|pair| pair[0] == b'\\' && matches!(pair[1], b'\\' | b't' | b'n' | b'r'))
}

fn text(sample: &Sample<'_>, stated: &Stated, evidence: &mut Vec<String>) -> Format {
    let usual = TextDialect::default();
    let eol = eol(sample.bytes, None, b'\\');
    note_eol(eol, evidence);
    Format::Text(TextDialect {
        delimiter: stated.delimiter.unwrap_or(usual.delimiter),
        null: stated.null.clone().unwrap_or(usual.null),
        header: false,
        eol,
    })
}

/// A CSV dialect that was tried, and how the sample fits it.
struct Tried {
    dialect: CsvDialect,
    records: usize,
    width: usize,
    fitting: usize,
    /// NULL texts that occur: the empty one, `\N`, `NULL`.
    nulls: [bool; 3],
}

/// NULL texts other than the empty one that are known by sight.
const NULLS: [&str; 2] = ["\\N", "NULL"];

impl Tried {
    fn new(sample: &Sample<'_>, delimiter: u8, quote: u8, escape: u8) -> Tried {
        let eol = eol(sample.bytes, Some(quote), escape);
        let dialect = CsvDialect { delimiter, quote, escape, eol, ..CsvDialect::default() };
        let mut widths = Widths::default();
        let mut nulls = [false; 3];
        each_record(&mut CsvDecoder::new(&dialect, None), sample, |record| {
            widths.see(record);
            let Some(record) = record else { return };
            for i in 0..record.fields.len() {
                match record.get(i) {
                    // The dialect has the empty text as NULL.
                    None => nulls[0] = true,
                    Some(value) if value == NULLS[0].as_bytes() => nulls[1] = true,
                    Some(value) if value == NULLS[1].as_bytes() => nulls[2] = true,
                    Some(_) => {}
                }
            }
        });
        let (width, fitting) = widths.usual();
        Tried { dialect, records: widths.records, width, fitting, nulls }
    }

    /// Records that fit, in thousandths.
    fn share(&self) -> usize {
        self.fitting * 1000 / self.records.max(1)
    }

    /// A delimiter that splits every record, most of them alike.
    fn splits(&self) -> bool {
        self.width > 1 && self.share() >= 800
    }
}

fn csv(
    sample: &Sample<'_>,
    stated: &Stated,
    usual: Option<u8>,
    evidence: &mut Vec<String>,
) -> Result<Format> {
    let quote = stated.quote.unwrap_or_else(|| quote_of(sample, stated));
    let escape = stated.escape.unwrap_or(quote);
    let stated_delimiter = stated.delimiter.or(usual);
    // Where one is stated, others are only of interest if it splits nothing.
    let best = || best_delimiter(sample, quote, escape);
    let mut tried = match (stated_delimiter, stated_delimiter.map_or_else(best, |_| None)) {
        (Some(delimiter), _) => {
            let tried = Tried::new(sample, delimiter, quote, escape);
            if tried.width == 1
                && tried.records > 1
                && let Some(other) = best()
            {
                return Err(clash(delimiter, &other));
            }
            evidence.push(format!("delimiter {}: stated", name(delimiter)));
            tried
        }
        (None, Some(best)) => {
            evidence.push(format!(
                "delimiter {}: {} of {} records have {} fields",
                name(best.dialect.delimiter),
                best.fitting,
                best.records,
                best.width
            ));
            best
        }
        (None, None) => {
            let ends_tsv = sample.name_hint.is_some_and(|name| name.to_ascii_lowercase().ends_with(".tsv"));
            let delimiter = if ends_tsv { b'\t' } else { DELIMITERS[0] };
            evidence.push(format!(
                "delimiter {}: none splits the records, this is the usual one",
                name(delimiter)
            ));
            Tried::new(sample, delimiter, quote, escape)
        }
    };
    if stated.escape.is_none() && memchr::memmem::find(sample.bytes, &[b'\\', quote]).is_some() {
        let other = Tried::new(sample, tried.dialect.delimiter, quote, b'\\');
        if other.fitting > tried.fitting {
            evidence.push(format!(
                "escape {}: with it more records have {} fields",
                name(b'\\'),
                other.width
            ));
            tried = other;
        }
    }
    if quote != b'"' {
        let why = if stated.quote.is_some() { "stated" } else { "it stands around fields" };
        evidence.push(format!("quote {}: {why}", name(quote)));
    }
    let null = match &stated.null {
        Some(null) => null.clone(),
        None => null_of(&tried, evidence),
    };
    note_eol(tried.dialect.eol, evidence);
    Ok(Format::Csv(CsvDialect { null, ..tried.dialect }))
}

fn clash(delimiter: u8, other: &Tried) -> Error {
    Error::new(
        Code::Clash,
        format!(
            "the delimiter {} was stated, but it occurs in none of the first {} records; {} splits them into {} fields",
            name(delimiter),
            other.records,
            name(other.dialect.delimiter),
            other.width
        ),
    )
    .hint("Leave --delimiter out to have it found, or check the file.")
}

/// The delimiter that splits the records most evenly, and into most fields.
fn best_delimiter(sample: &Sample<'_>, quote: u8, escape: u8) -> Option<Tried> {
    let tries = DELIMITERS.iter().filter(|&&d| d != quote).map(|&d| Tried::new(sample, d, quote, escape));
    let mut splitting: Vec<Tried> = tries.filter(Tried::splits).collect();
    // `1,5;2,5`: a comma that only stands between digits is the decimal one.
    if splitting.iter().any(|t| t.dialect.delimiter != b',') && comma_is_decimal(sample.bytes) {
        splitting.retain(|t| t.dialect.delimiter != b',');
    }
    // max_by_key gives the last of equals, and the usual delimiter should win.
    splitting.into_iter().rev().max_by_key(|t| (t.share(), t.width))
}

fn comma_is_decimal(bytes: &[u8]) -> bool {
    let digit = |i: Option<usize>| i.and_then(|i| bytes.get(i)).is_some_and(u8::is_ascii_digit);
    memchr::memchr_iter(b',', bytes).all(|i| digit(i.checked_sub(1)) && digit(Some(i + 1)))
}

/// The quote: a single one if fields begin and as many end with it, and none begins with a double one.
fn quote_of(sample: &Sample<'_>, stated: &Stated) -> u8 {
    let usual = b'"';
    let delimiters = stated.delimiter.map_or(DELIMITERS.to_vec(), |d| vec![d]);
    let is_border = |b: &u8| delimiters.contains(b) || matches!(b, b'\n' | b'\r');
    let (mut begin, mut end) = (0, 0);
    for field in whole_lines(sample).split(is_border) {
        if field.starts_with(b"\"") {
            return usual;
        }
        begin += usize::from(field.starts_with(b"'"));
        end += usize::from(field.ends_with(b"'"));
    }
    if begin > 1 && begin == end { b'\'' } else { usual }
}

/// A NULL text other than the empty one, if it occurs and the empty one does not.
fn null_of(tried: &Tried, evidence: &mut Vec<String>) -> String {
    let [empty, others @ ..] = tried.nulls;
    match NULLS.iter().zip(others).find(|(_, occurs)| !empty && *occurs) {
        Some((null, _)) => {
            evidence.push(format!("NULL text {null}: it occurs, and no field is empty"));
            (*null).to_owned()
        }
        None => String::new(),
    }
}

/// How the first line outside quotes ends. In text (no quote) a line end behind the escape is data.
fn eol(bytes: &[u8], quote: Option<u8>, escape: u8) -> Eol {
    let mut in_quotes = false;
    let mut i = 0;
    while let Some(&byte) = bytes.get(i) {
        let escapes = byte == escape && (quote.is_none() || in_quotes && quote != Some(escape));
        if escapes {
            i += 1;
        } else if Some(byte) == quote {
            in_quotes = !in_quotes;
        } else if !in_quotes {
            match byte {
                b'\n' => return Eol::Lf,
                b'\r' if bytes.get(i + 1) == Some(&b'\n') => return Eol::CrLf,
                b'\r' => return Eol::Cr,
                _ => {}
            }
        }
        i += 1;
    }
    Eol::Lf
}

fn note_eol(eol: Eol, evidence: &mut Vec<String>) {
    match eol {
        Eol::Lf => {}
        Eol::CrLf => evidence.push("lines end with carriage return and line feed".to_owned()),
        Eol::Cr => evidence.push("lines end with a carriage return".to_owned()),
    }
}

/// A byte of the dialect as a message shows it.
fn name(byte: u8) -> String {
    match byte {
        b'\t' => "tab".to_owned(),
        other => format!("'{}'", char::from(other).escape_default()),
    }
}
