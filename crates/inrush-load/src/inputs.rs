//! The inputs of a load: each looked at once before anything is sent.

use crate::ahead::{FirstHead, Head};
use crate::columnar::Columnar;
use crate::format::{decide_header, dialect_for, eol_of, first_record};
use crate::options::Options;
use crate::shape::{FieldNames, Shape};
use inrush_core::{Code, CsvDialect, Error, FieldSource, Format, Limits, Result, Table, TextDialect};
use inrush_decode::csv::CsvDecoder;
use inrush_decode::text::TextDecoder;
use inrush_decode::{Decoder, binary::BinaryDecoder, ndjson};
use inrush_source::{Compression, Identity, Input, InputKind, InputSpec};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// One input as the lanes must know it.
pub(crate) struct InputPlan {
    /// As the user named it.
    pub name: String,
    pub spec: InputSpec,
    pub identity: Identity,
    pub format: Format,
    pub header: bool,
    /// Number of its shape in `Plan::shapes`.
    pub shape: usize,
    /// Where each column of the shape comes from in this input.
    pub sources: Vec<FieldSource>,
    /// Names of the fields, for messages.
    pub field_names: Vec<String>,
    pub expected_fields: Option<usize>,
    /// The byte that ends a line.
    pub line_end: u8,
    /// Whether ranges of it can be read again.
    pub can_reread: bool,
    /// What is known of it if it is Parquet or Arrow.
    pub columnar: Option<Columnar>,
    /// Whether all of it fits the bytes its identity is made of.
    pub wholly_hashed: bool,
    header_raw: Vec<u8>,
    keys: Vec<ndjson::Key>,
    unknown: ndjson::Unknown,
    /// A stream, which cannot be opened twice.
    stream: Mutex<Option<Input>>,
    len: Option<u64>,
    compression: Compression,
}

impl InputPlan {
    /// Whether it is a file, which can be read once more.
    pub fn is_file(&self) -> bool {
        matches!(self.spec.kind, inrush_source::InputKind::File(_))
    }

    /// A decoder for it.
    pub fn decoder(&self) -> Box<dyn Decoder> {
        match &self.format {
            Format::Csv(dialect) => Box::new(CsvDecoder::new(dialect, self.expected_fields)),
            Format::Text(dialect) => Box::new(TextDecoder::new(dialect, self.expected_fields)),
            Format::Binary => Box::new(BinaryDecoder::new(self.expected_fields)),
            _ => Box::new(ndjson::NdjsonDecoder::new(self.keys.clone()).unknown(self.unknown)),
        }
    }

    /// Opens it for reading from the start.
    pub fn open(&self, limits: &Limits) -> Result<Input> {
        if let Some(input) = self.stream.lock().unwrap_or_else(PoisonError::into_inner).take() {
            return Ok(input);
        }
        let input = Input::open(&self.spec, limits)?;
        self.identity.same_as(input.identity())?;
        Ok(input)
    }

    /// The header as it stands in the input; empty if it has none.
    pub fn header_bytes(&self) -> &[u8] {
        &self.header_raw
    }

    /// Whether its records are lines of text.
    pub fn has_lines(&self) -> bool {
        self.format != Format::Binary && self.columnar.is_none()
    }

    /// Whether cutter and decoder count the same records: NDJSON passes over blank lines.
    pub fn counts_records(&self) -> bool {
        self.format != Format::Ndjson
    }

    /// Length of what it holds, where that is known without reading it.
    pub fn uncompressed_len(&self) -> Option<u64> {
        if let Some(bytes) = self.columnar.as_ref().and_then(Columnar::bytes) {
            return Some(bytes);
        }
        self.len.filter(|_| self.compression == Compression::None)
    }

    /// Length as it stands on disk.
    pub fn stored_len(&self) -> Option<u64> {
        self.len
    }

    /// Name of the compression, or `none`.
    pub fn compression(&self) -> &'static str {
        match self.compression {
            Compression::None => "none",
            Compression::Gzip => "gzip",
            Compression::Zstd => "zstd",
            Compression::Lz4 => "lz4",
            Compression::Bzip2 => "bzip2",
            Compression::Xz => "xz",
        }
    }
}

/// The table a load goes to when none is named: the name of the first file without its endings.
pub(crate) fn table_name(specs: &[InputSpec]) -> Result<String> {
    let unnamed = || {
        Error::new(Code::Usage, "no table is named and the input has no name to take it from")
            .hint("Name the table with --table.")
    };
    let spec = specs.first().ok_or_else(unnamed)?;
    let InputKind::File(path) = &spec.kind else { return Err(unnamed()) };
    let file = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let stem = file.split('.').next().unwrap_or_default();
    let name: String =
        stem.chars().map(|c| if c.is_alphanumeric() { c.to_ascii_lowercase() } else { '_' }).collect();
    if name.trim_matches('_').is_empty() {
        return Err(unnamed());
    }
    Ok(if name.starts_with(|c: char| c.is_ascii_digit()) { format!("t_{name}") } else { name })
}

/// Inputs that were opened to look at their head.
#[derive(Default)]
pub(crate) struct Opened {
    /// Streams cannot be opened a second time.
    streams: Mutex<HashMap<String, Input>>,
    first: FirstHead,
}

impl Opened {
    /// With the first input, which is being looked at.
    pub fn with(first: FirstHead) -> Opened {
        Opened { first, ..Opened::default() }
    }

    /// Opens an input and looks at its head.
    pub fn head(&self, options: &Options, spec: &InputSpec) -> Result<Head> {
        match self.first.take(spec) {
            Some(head) => head,
            None => Head::of(options, spec, self.open(spec, &options.limits)?),
        }
    }

    /// Opens an input, or gives the stream that was kept.
    pub fn open(&self, spec: &InputSpec, limits: &Limits) -> Result<Input> {
        match self.streams.lock().unwrap_or_else(PoisonError::into_inner).remove(&spec.name) {
            Some(input) => Ok(input),
            None => Input::open(spec, limits),
        }
    }

    /// Keeps a stream, of which nothing has been consumed; a file is closed.
    pub fn keep(&self, spec: &InputSpec, input: Input) {
        if !matches!(spec.kind, InputKind::File(_)) {
            self.streams.lock().unwrap_or_else(PoisonError::into_inner).insert(spec.name.clone(), input);
        }
    }
}

/// Opens every input, tells its format and fits its fields to the table.
pub(crate) fn open_inputs(
    options: &Options,
    table: &Table,
    specs: &[InputSpec],
    opened: &Opened,
    shapes: &mut Vec<Shape>,
) -> Result<Vec<Arc<InputPlan>>> {
    specs.iter().map(|spec| open_input(options, table, spec, opened, shapes).map(Arc::new)).collect()
}

fn open_input(
    options: &Options,
    table: &Table,
    spec: &InputSpec,
    opened: &Opened,
    shapes: &mut Vec<Shape>,
) -> Result<InputPlan> {
    let Head { input, sample, sniffed } = opened.head(options, spec)?;
    let format = dialect_for(options, table, &sniffed.format, &sample);
    let columnar = match format.is_columnar() {
        true => Some(Columnar::open(&options.stated, spec, &input, &sample)?),
        false => None,
    };
    let first = first_record(&format, &sample);
    let sniffed_header = sniffed.header && sniffed.format == format;
    let header =
        decide_header(options, table, &format, first.as_ref().map(|(_, fields)| &fields[..]), sniffed_header);
    let (mut header_raw, names) = if header { first.unwrap_or_default() } else { Default::default() };
    if format == Format::Binary
        && let Some(len) = inrush_decode::binary::read_header(&sample)?
    {
        header_raw = sample[..len].to_vec();
    }
    let keys = if format == Format::Ndjson {
        ndjson::keys_of(&sample)
            .keys
            .iter()
            .map(|key| String::from_utf8_lossy(&key.name).into_owned())
            .collect()
    } else {
        Vec::new()
    };
    let names = columnar.as_ref().map_or(names, Columnar::names);
    let field_names = match (&format, header || columnar.is_some()) {
        (Format::Ndjson, _) => FieldNames::Keys(&keys),
        // An input without a byte in it has no header to match, and no row to lose.
        (_, true) if sample.is_empty() => FieldNames::Unnamed,
        (_, true) => FieldNames::Header(&names),
        (_, false) => FieldNames::Unnamed,
    };
    let shape = Shape::fit(table, field_names, options, &spec.name)?;
    let format = with_details(&format, options, &shape, header, &sample)?;
    // A COPY has one format: inputs in COPY binary do not share statements with others.
    let raw = format == Format::Binary;
    let number = match shapes.iter().position(|s| s.columns == shape.columns && s.raw == raw) {
        Some(i) => i,
        None => {
            shapes.push(Shape { raw, ..shape.clone() });
            shapes.len() - 1
        }
    };
    let json_keys = shape.fields.iter().enumerate().map(|(i, name)| {
        let column = shape.columns.iter().zip(&shape.sources).find(|(_, s)| **s == FieldSource::Field(i));
        ndjson::Key {
            name: name.clone().into_bytes(),
            json: column.is_some_and(|(c, _)| crate::plan::is_json(c)),
            array: column.is_some_and(|(c, _)| crate::plan::is_array(c)),
        }
    });
    let keys: Vec<ndjson::Key> = if format == Format::Ndjson { json_keys.collect() } else { Vec::new() };
    let chosen = options.columns.is_some() || options.ignore_unknown;
    let line_end = match &format {
        Format::Csv(CsvDialect { eol, .. }) | Format::Text(TextDialect { eol, .. }) => eol.last_byte(),
        _ => b'\n',
    };
    let columnar = columnar.map(|columnar| columnar.with_sources(&shape.sources));
    let is_stream = !matches!(spec.kind, InputKind::File(_));
    Ok(InputPlan {
        name: spec.name.clone(),
        spec: spec.clone(),
        identity: input.identity().clone(),
        header,
        header_raw,
        shape: number,
        sources: shape.sources,
        field_names: shape.fields,
        expected_fields: shape.expected_fields,
        line_end,
        can_reread: columnar.as_ref().map_or(input.is_seekable(), Columnar::can_reread),
        columnar,
        wholly_hashed: sample.len() < 64 << 10,
        keys,
        unknown: if chosen { ndjson::Unknown::Ignore } else { ndjson::Unknown::Reject },
        len: input.len(),
        compression: input.compression(),
        stream: Mutex::new(is_stream.then_some(input)),
        format,
    })
}

/// Fills in what is only known once the fields are: header, line ends, `--force-null`.
fn with_details(
    format: &Format,
    options: &Options,
    shape: &Shape,
    header: bool,
    sample: &[u8],
) -> Result<Format> {
    let eol = eol_of(format, sample.strip_prefix(b"\xef\xbb\xbf").unwrap_or(sample));
    let fields = |columns: &[String], flag: &str| -> Result<Vec<usize>> {
        columns
            .iter()
            .map(|name| {
                shape
                    .columns
                    .iter()
                    .zip(&shape.sources)
                    .find_map(|(c, s)| match s {
                        FieldSource::Field(i) if c.name == *name => Some(*i),
                        _ => None,
                    })
                    .ok_or_else(|| {
                        Error::new(Code::Columns, format!("{flag} names {name:?}, which no field goes to"))
                    })
            })
            .collect()
    };
    Ok(match format {
        Format::Csv(dialect) => Format::Csv(CsvDialect {
            header,
            eol,
            force_null: fields(&options.stated.force_null, "--force-null")?,
            force_not_null: fields(&options.stated.force_not_null, "--force-not-null")?,
            ..dialect.clone()
        }),
        Format::Text(dialect) => Format::Text(TextDialect { header, eol, ..dialect.clone() }),
        other => other.clone(),
    })
}
