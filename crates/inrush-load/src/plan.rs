//! The plan of a load: everything that is decided before the first row is sent.

use crate::inputs::{InputPlan, Opened, open_inputs};
use crate::levers::conflict::{Merge, Statements};
use crate::options::{MaxRejects, Options, Via};
use crate::shape::Shape;
use crate::spread::SpreadPlan;
use crate::unit::Held;
use inrush_cluster::Ending;
use inrush_core::{Chunk, Code, Error, Format, Limits, Result, Table, TypeKind};
use inrush_encode::copy_binary::CopyBinary;
use inrush_encode::frames::{self, FrameLayout};
use inrush_sink::catalog::Index;
use inrush_sink::copy::{CopyStream, WireFormat};
use inrush_source::{BufferPool, Input, InputSpec, Reread};
use serde::Serialize;
use std::sync::Arc;
use std::time::Duration;

/// The path rows take into the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum WirePath {
    /// Rows in the layout of the heap, to the server's extension.
    Direct,
    /// COPY binary.
    CopyBinary,
    /// COPY text.
    CopyText,
}

impl WirePath {
    /// As `--via` and the report name it.
    pub fn name(self) -> &'static str {
        match self {
            WirePath::Direct => "direct",
            WirePath::CopyBinary => "copy-binary",
            WirePath::CopyText => "copy-text",
        }
    }
}

/// Everything that is decided before the first row is sent.
pub(crate) struct Plan {
    pub table: Table,
    pub inputs: Vec<Arc<InputPlan>>,
    /// Column lists in use; inputs refer to them by number.
    pub shapes: Vec<Shape>,
    pub path: WirePath,
    pub path_reason: String,
    /// The database has no extension, which would take these rows.
    pub extension_missing: bool,
    /// On the direct path, how the server wants the rows of each shape.
    pub layouts: Vec<Arc<FrameLayout>>,
    pub session: inrush_encode::Session,
    /// Encoding of the inputs where it is not UTF8: the server recodes COPY text.
    pub encoding: Option<String>,
    /// Whether the client looks for bytes that are not valid UTF-8.
    pub check_utf8: bool,
    pub limits: Limits,
    pub max_rejects: MaxRejects,
    pub atomic: bool,
    pub jobs: Option<usize>,
    pub max_rate: Option<u64>,
    pub max_lag: Option<u64>,
    pub sample_hz: Option<u32>,
    /// The table is emptied in the load's one transaction.
    pub truncate: bool,
    /// COPY writes the rows frozen.
    pub freeze: bool,
    /// How rows are merged with those that are there.
    pub merge: Option<Merge>,
    /// Indexes that are dropped and made again in the load's one transaction.
    pub forbidding: Vec<Index>,
    /// Inputs do not stay in the page cache.
    pub drop_cache: bool,
    /// `synchronous_commit` of the lanes.
    pub sync_commit: Option<String>,
    /// All input fits one commit unit: it goes as one, on one connection.
    pub single_unit: bool,
    /// Rows are sent to the nodes that they belong on.
    pub spread: Option<Arc<SpreadPlan>>,
    /// Why rows go through a coordinator.
    pub through: Option<String>,
    pub pool: BufferPool,
}

/// Age at which a unit is committed.
const UNIT: Duration = Duration::from_secs(1);

/// The same of one on several servers, even if it is the only one: its end costs a round trip to each of them, and whoever
/// wants to move a shard waits for it.
const SPREAD_UNIT: Duration = Duration::from_secs(3);

/// Bytes of a unit that may have to be mended.
const MENDED: u64 = 32 << 20;

/// Inputs of up to this many bytes together are one commit unit on one connection, and so atomic.
pub(crate) fn single_unit(limits: &Limits) -> u64 {
    limits.unit_bytes.min(16 << 20)
}

/// What the server says that matters for the plan.
pub(crate) struct ServerFacts {
    pub session: inrush_encode::Session,
    pub server_encoding: String,
}

impl Plan {
    /// Plans the load of `specs` into `table`.
    pub fn new(
        options: &Options,
        table: Table,
        specs: &[InputSpec],
        opened: &Opened,
        facts: &ServerFacts,
    ) -> Result<Plan> {
        let mut shapes = Vec::new();
        let inputs = open_inputs(options, &table, specs, opened, &mut shapes)?;
        let encoding = options.stated.encoding.clone().filter(|e| !is_utf8(e));
        if let Some(encoding) = &encoding {
            refuse_embedded_ascii(encoding)?;
        }
        let (path, path_reason) = choose_path(options, &shapes, &inputs, encoding.as_deref())?;
        let known: Option<u64> = inputs.iter().map(|input| input.uncompressed_len()).sum();
        let single_unit = known.is_some_and(|bytes| bytes <= single_unit(&options.limits));
        let atomic = options.one_transaction();
        // Buffers kept: the queue's, and one for each lane and the reader.
        let keep = options.limits.in_flight / options.limits.chunk.max(1) + options.limits.max_jobs.min(8);
        Ok(Plan {
            pool: BufferPool::new(options.limits.chunk, keep.min(24)),
            check_utf8: encoding.is_none() && facts.server_encoding != "SQL_ASCII",
            table,
            inputs,
            shapes,
            path,
            path_reason,
            extension_missing: false,
            layouts: Vec::new(),
            session: facts.session,
            encoding,
            limits: options.limits.clone(),
            max_rejects: options.max_rejects,
            atomic,
            jobs: if atomic || single_unit || options.on_conflict.is_some() { Some(1) } else { options.jobs },
            max_rate: options.max_rate,
            max_lag: options.max_lag,
            sample_hz: options.sample_hz,
            truncate: atomic && (options.levers.truncate || options.levers.freeze),
            freeze: options.levers.freeze,
            merge: None,
            forbidding: Vec::new(),
            drop_cache: options.levers.drop_cache,
            sync_commit: options.levers.sync_commit.clone(),
            single_unit,
            spread: None,
            through: None,
        })
    }

    /// The statements that merge each shape; none where rows go straight into the table.
    pub fn merges(&self) -> Result<Vec<Statements>> {
        let Some(merge) = &self.merge else { return Ok(Vec::new()) };
        self.shapes
            .iter()
            .enumerate()
            .map(|(number, shape)| merge.statements(&self.table, shape, number))
            .collect()
    }

    /// Connections that make indexes again.
    pub fn hands(&self) -> usize {
        let cores = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
        self.jobs.unwrap_or(cores).clamp(1, cores.max(1))
    }

    /// Format of the COPY for an input.
    pub fn wire(&self, input: &InputPlan) -> WireFormat {
        match (self.path, &input.format) {
            (_, Format::Binary) | (WirePath::CopyBinary, _) => WireFormat::Binary,
            (WirePath::CopyText, _) => WireFormat::Text,
            (WirePath::Direct, _) => WireFormat::Direct,
        }
    }

    /// Format of the COPY for rows of a shape that are sent to nodes: inputs share a shape only if they share that.
    pub fn wire_of(&self, shape: usize) -> WireFormat {
        self.inputs
            .iter()
            .find(|input| input.shape == shape)
            .map_or(WireFormat::Text, |input| self.wire(input))
    }

    /// Bytes of a message to the server that are worth sending.
    pub fn message(&self) -> usize {
        if self.path == WirePath::Direct { frames::BLOCK } else { CopyStream::MESSAGE }
    }

    /// Age at which a unit is committed.
    pub fn unit_age(&self) -> Option<Duration> {
        let asked = self.limits.unit_millis.map(Duration::from_millis);
        match (self.spread.is_some(), self.single_unit) {
            (true, true) => Some(SPREAD_UNIT),
            (true, false) => Some(asked.unwrap_or(SPREAD_UNIT)),
            (false, false) => Some(asked.unwrap_or(UNIT)),
            (false, true) => None,
        }
    }

    /// Input bytes of one unit: less where they must be kept in memory, divided by the lanes that keep them.
    pub fn unit_bytes(&self) -> u64 {
        if self.inputs.iter().all(|input| input.can_reread) {
            let marks = self.spread.as_ref().is_some_and(|spread| spread.ending == Ending::Marks);
            // What a node lacks is read again in one piece.
            return if marks { self.limits.unit_bytes.min(MENDED) } else { self.limits.unit_bytes };
        }
        let lanes = self.jobs.unwrap_or(self.limits.max_jobs).max(1) as u64;
        let in_queue = self.limits.in_flight as u64 / 2;
        let kept = self.limits.unit_bytes_kept.min(in_queue).min(self.limits.unit_bytes);
        (kept / lanes).max(self.limits.chunk as u64)
    }

    /// Hands the buffer of a chunk back to the reader.
    pub fn recycle(&self, chunk: Chunk) {
        self.pool.give(chunk.bytes);
    }

    /// Reads a range of a plain file again.
    pub fn reread(&self, held: &Held) -> Result<Chunk> {
        let Held::Range { input, start, end, first_line, first_record, records, lines } = held else {
            return Err(Error::new(Code::Internal, "a unit holds bytes where a range was expected"));
        };
        let plan = &self.inputs[*input as usize];
        let opened = Input::open(&plan.spec, &self.limits)?;
        plan.identity.same_as(opened.identity())?;
        let Some(reread) = Reread::of(&opened)? else {
            return Err(Error::new(Code::SourceChanged, format!("{} is no longer a plain file", plan.name)));
        };
        let mut bytes = Vec::new();
        reread.read_range(*start, *end, &mut bytes)?;
        Ok(Chunk {
            input: *input,
            start: *start,
            first_line: *first_line,
            first_record: *first_record,
            records: *records,
            lines: *lines,
            bytes,
        })
    }
}

/// Whether this encoding name means UTF-8 to PostgreSQL (encnames.c ignores case and punctuation).
pub(crate) fn is_utf8(name: &str) -> bool {
    let plain: String =
        name.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect();
    matches!(plain.as_str(), "utf8" | "unicode")
}

/// Refuses encodings in which a byte of a longer character can look like a backslash (pg_wchar.h,
/// PG_ENCODING_BE_LAST: those the server takes from clients only). COPY text could not be told from escapes.
fn refuse_embedded_ascii(encoding: &str) -> Result<()> {
    let plain: String =
        encoding.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect();
    let names = [
        "sjis",
        "shiftjis",
        "mskanji",
        "win932",
        "windows932",
        "shiftjis2004",
        "big5",
        "win950",
        "windows950",
        "gbk",
        "win936",
        "windows936",
        "uhc",
        "win949",
        "windows949",
        "gb18030",
        "johab",
    ];
    if !names.contains(&plain.as_str()) {
        return Ok(());
    }
    Err(Error::new(Code::Encoding, format!("files in encoding {encoding} are not read")).hint(format!(
        "Recode them first: iconv -f {encoding} -t UTF-8 FILE | inrush load - --format csv --table TABLE"
    )))
}

fn choose_path(
    options: &Options,
    shapes: &[Shape],
    inputs: &[Arc<InputPlan>],
    encoding: Option<&str>,
) -> Result<(WirePath, String)> {
    let odd =
        shapes.iter().flat_map(|shape| &shape.columns).find(|column| !CopyBinary::supports(&column.ty)).map(
            |column| {
                format!("column {:?} has type {}, which has no client encoder", column.name, column.ty.name)
            },
        );
    let binary_input = inputs.iter().any(|input| input.format == Format::Binary);
    if binary_input && options.via == Via::CopyText {
        return Err(Error::new(Code::Clash, "--via copy-text contradicts an input in COPY binary")
            .hint("The values of a binary file go to the server as they are: leave --via out."));
    }
    let not_utf8 = encoding.map(|e| format!("the server recodes {e}, which it does for COPY text"));
    match (options.via, odd, not_utf8) {
        (Via::CopyText, _, _) => Ok((WirePath::CopyText, "asked for with --via".into())),
        _ if options.on_conflict.is_some() => {
            Ok((WirePath::CopyText, "rows keep their order for --on-conflict".into()))
        }
        (Via::CopyBinary, Some(why), _) | (Via::CopyBinary, None, Some(why)) => {
            Err(Error::new(Code::Clash, format!("--via copy-binary is not possible: {why}"))
                .hint("Leave --via out, or say --via copy-text."))
        }
        (Via::CopyBinary, None, None) => Ok((WirePath::CopyBinary, "asked for with --via".into())),
        // Direct needs the server's word, which comes later (direct.rs).
        (Via::Auto | Via::Direct, Some(why), _) | (Via::Auto | Via::Direct, None, Some(why)) => {
            Ok((WirePath::CopyText, why))
        }
        (Via::Auto | Via::Direct, None, None) => {
            Ok((WirePath::CopyBinary, "every column has a client encoder; the server parses nothing".into()))
        }
    }
}

/// Whether a column takes JSON text as it stands.
pub(crate) fn is_json(column: &inrush_core::Column) -> bool {
    let (ty, _) = column.ty.under_domains(column.typmod);
    matches!(ty.kind, TypeKind::Base(inrush_core::BaseType::Json | inrush_core::BaseType::Jsonb))
}

/// Whether a column is an array.
pub(crate) fn is_array(column: &inrush_core::Column) -> bool {
    let (ty, _) = column.ty.under_domains(column.typmod);
    matches!(ty.kind, TypeKind::Array { .. })
}
