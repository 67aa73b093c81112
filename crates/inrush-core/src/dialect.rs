use serde::{Deserialize, Serialize};

/// The formats an input can have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "format", rename_all = "kebab-case")]
pub enum Format {
    /// CSV as PostgreSQL's COPY reads it; `tsv` is this with a tab as delimiter.
    Csv(CsvDialect),
    /// PostgreSQL's COPY text format.
    Text(TextDialect),
    /// PostgreSQL's COPY binary format.
    Binary,
    /// One JSON object per line.
    Ndjson,
    /// Apache Parquet.
    Parquet,
    /// Apache Arrow IPC, file or stream.
    Arrow,
}

impl Format {
    /// The name used with `--format`.
    pub fn name(&self) -> &'static str {
        match self {
            Format::Csv(d) if d.delimiter == b'\t' => "tsv",
            Format::Csv(_) => "csv",
            Format::Text(_) => "text",
            Format::Binary => "binary",
            Format::Ndjson => "ndjson",
            Format::Parquet => "parquet",
            Format::Arrow => "arrow",
        }
    }

    /// Whether records hold typed columns instead of fields of text.
    pub fn is_columnar(&self) -> bool {
        matches!(self, Format::Parquet | Format::Arrow)
    }
}

/// How lines end. As in COPY, the first line of an input decides, and a different unquoted line end later
/// on is an error of that record (copyfromparse.c, CopyReadLineText).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Eol {
    /// `\n`
    #[default]
    Lf,
    /// `\r\n`
    CrLf,
    /// `\r`
    Cr,
}

impl Eol {
    /// The byte at which a record ends (with `CrLf` the second of the two).
    pub fn last_byte(self) -> u8 {
        if self == Eol::Cr { b'\r' } else { b'\n' }
    }
}

/// CSV as PostgreSQL's COPY defines it (copyfromparse.c, CopyReadAttributesCSV): the quote may open and
/// close anywhere in a field, an unquoted field equal to `null` is NULL, a quoted one never is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CsvDialect {
    /// Field separator.
    pub delimiter: u8,
    /// Quote.
    pub quote: u8,
    /// Escape inside quotes; by default the quote itself.
    pub escape: u8,
    /// The text that means NULL when it is not quoted.
    pub null: String,
    /// Whether the first record of every input names the columns.
    pub header: bool,
    /// How records end.
    pub eol: Eol,
    /// Fields (by number in the file, from 0) in which a quoted `null` text is NULL too.
    pub force_null: Vec<usize>,
    /// Fields in which an unquoted `null` text is not NULL.
    pub force_not_null: Vec<usize>,
}

impl Default for CsvDialect {
    fn default() -> Self {
        CsvDialect {
            delimiter: b',',
            quote: b'"',
            escape: b'"',
            null: String::new(),
            header: false,
            eol: Eol::Lf,
            force_null: Vec::new(),
            force_not_null: Vec::new(),
        }
    }
}

/// PostgreSQL's COPY text format (copyfromparse.c, CopyReadAttributesText).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TextDialect {
    /// Field separator.
    pub delimiter: u8,
    /// The raw text (before backslash escapes) that means NULL.
    pub null: String,
    /// Whether the first record of every input names the columns.
    pub header: bool,
    /// How records end.
    pub eol: Eol,
}

impl Default for TextDialect {
    fn default() -> Self {
        TextDialect { delimiter: b'\t', null: "\\N".into(), header: false, eol: Eol::Lf }
    }
}
