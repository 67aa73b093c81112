//! A lane whose rows go straight to the nodes that they belong on.
//!
//! The lane encodes as always. Then each row is looked at once more, for its key, and goes into the buffer of its place;
//! a buffer of a megabyte is one COPY there. Sessions of nodes work on their own meanwhile: while one stores, the lane
//! encodes for another.
//!
//! A unit ends in five steps. 1. Every node prepares what it has. 2. The guard is prepared. 3. The ledger commits, in the
//! lane's own session: this decides. 4. Every node is told. 5. The guard ends.

mod careful;
mod ending;
mod fill;
mod frames;
mod nudger;
mod router;
mod session;
mod slots;
mod tables;

pub use careful::{Part as CarefulPart, Refused};
pub use ending::Lacking;
pub use fill::{Fill, fills};
pub use frames::KeyedFrames;
pub use router::Router;
pub use slots::Drive;
pub use tables::{Aim, RowShape};

use crate::{Found, Gid, Guard, Guarded, NodeMap, application};
use ending::Doubt;
use fill::Pool;
use inrush_core::{Code, Error};
use inrush_encode::frames::append_frame;
use inrush_sink::connect::Backend;
use inrush_sink::conninfo::ConnInfo;
use inrush_sink::copy::WireFormat;
use inrush_sink::failure::{Failure, RowFailure};
use inrush_sink::ledger::Ledger;
use router::{Spot, binary_row};
use session::Send;
use slots::Slots;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tables::{Bound, Shaped};

/// How a unit ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// Prepared on every node, then decided, then committed: on all or on none.
    TwoPhase,
    /// Nodes prepare nothing (max_prepared_transactions is 0). Decided, then each node commits its rows with a mark in its
    /// own ledger; a node without the mark is sent its rows again. Exactly once, but whoever reads meanwhile may see some
    /// nodes' rows of a unit and not others'.
    Marks,
}

/// Whoever owns a lane is told and asked while it waits.
pub trait Watch: Sync {
    /// Somebody moves or alters a table, or waits for it, and the lane waits for him.
    fn waits(&self);
    /// Whether nothing is to be waited for any more.
    fn is_stopped(&self) -> bool;
    /// So many bytes were given to a node.
    fn sent(&self, bytes: u64);
}

/// Who commits units: a run of a load, or a session of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Writer {
    /// Of the ledger.
    pub origin: String,
    /// Number of the load, or of the stream.
    pub load: i64,
    /// Epoch of the load; 0 of a stream.
    pub epoch: i32,
    /// The lane.
    pub lane: usize,
}

/// What a lane needs to reach nodes.
#[derive(Debug, Clone)]
pub struct Reach {
    /// The server that has the tables.
    pub coordinator: ConnInfo,
    /// Other ways to nodes.
    pub map: NodeMap,
    /// The ledger that decides.
    pub ledger: Ledger,
    /// How units end.
    pub ending: Ending,
    /// Settings that decide what text means, for sessions on nodes.
    pub settings: Vec<(String, String)>,
    /// Whether sessions on nodes load the extension's library, if it is there.
    pub direct: bool,
    /// Whether the WAL writers of nodes are kept at work: for many rows at a time.
    pub nudges: bool,
    /// How long a node that has to be told is waited for.
    pub patience: Duration,
    /// How long the server process of a lost connection is waited for.
    pub gone: inrush_sink::connect::Patience,
}

/// What became of the beginning of a unit.
#[derive(Debug)]
pub enum Begun {
    /// The guard is held.
    Ready,
    /// Rows of this table cannot be sent to nodes any more: why. The unit is to be rolled back.
    Otherwise(usize, String),
}

/// The part of a lane that knows nodes.
pub struct Scatter {
    reach: Arc<Reach>,
    writer: Writer,
    guard: Option<Guard>,
    guard_prepared: bool,
    slots: Slots,
    tables: Vec<Bound>,
    shapes: Vec<Shaped>,
    /// The shape of what is gathered.
    shape: usize,
    units: u64,
    gid: Option<Gid>,
    /// The ledger has the unit: nothing of it may be rolled back any more.
    decided: bool,
    /// The unit that is mended has this name in the ledger.
    mended: Option<String>,
    /// Slots of nodes that rows are for; `None`: all.
    only: Option<Vec<bool>>,
    /// Units that every node has been told of, and that the ledger may forget.
    told: Vec<String>,
    /// Whether the unit under way has the ledger forget those.
    forgets: bool,
    /// Units that the ledger has forgotten, by the name of a node that still has a mark of them.
    marked: BTreeMap<String, Vec<String>>,
    /// Of those, what the unit under way has nodes forget.
    unmarking: BTreeMap<String, Vec<String>>,
    /// Nodes that have the unit's rows.
    nodes: Vec<String>,
    doubts: Vec<Doubt>,
}

impl Scatter {
    /// A lane without tables.
    pub fn new(reach: Reach, writer: Writer, drive: Drive) -> Scatter {
        let reach = Arc::new(reach);
        Scatter {
            slots: Slots::new(
                Arc::clone(&reach),
                application(writer.load, writer.epoch, &writer.origin),
                drive,
            ),
            reach,
            writer,
            guard: None,
            guard_prepared: false,
            tables: Vec::new(),
            shapes: Vec::new(),
            shape: 0,
            units: 0,
            gid: None,
            decided: false,
            mended: None,
            only: None,
            told: Vec::new(),
            forgets: false,
            unmarking: BTreeMap::new(),
            marked: BTreeMap::new(),
            nodes: Vec::new(),
            doubts: Vec::new(),
        }
    }

    /// Units are of this writer from now on.
    pub fn write_as(&mut self, writer: Writer) {
        self.slots.application = application(writer.load, writer.epoch, &writer.origin);
        self.writer = writer;
        // Sessions are known by whose they are.
        self.guard = None;
        self.slots.leave_idle();
    }

    /// Whose units these are.
    pub fn writer(&self) -> &Writer {
        &self.writer
    }

    /// The name of the unit under way, as the ledger has it.
    pub fn unit(&self) -> Option<String> {
        self.gid.as_ref().map(Gid::to_string)
    }

    /// Takes the guard of some tables, and reads behind it where their rows belong. A unit that is `lacking` is only sent
    /// to nodes that lack it still.
    pub async fn begin(
        &mut self,
        watch: &dyn Watch,
        tables: &[usize],
        lacking: Option<&mut Lacking>,
    ) -> Result<Begun, Failure> {
        self.slots.stored = 0;
        self.decided = false;
        self.clear_doubts(watch).await?;
        self.nodes.clear();
        let guard = match &mut self.guard {
            Some(guard) => guard,
            none => {
                let guard = Guard::connect(&self.reach.coordinator, &self.slots.application).await;
                none.insert(guard.map_err(Failure::of_error)?)
            }
        };
        let waits = |_: Duration| {
            watch.waits();
            !watch.is_stopped()
        };
        let guarded: Vec<Guarded<'_>> = tables
            .iter()
            .map(|table| &self.tables[*table])
            .map(|bound| Guarded {
                table: &bound.aim.table,
                column: &bound.aim.column,
                kind: bound.topology.kind,
            })
            .collect();
        for (table, found) in tables.iter().zip(guard.take(&guarded, &waits).await?) {
            let topology = match found {
                Found::Direct(topology) => *topology,
                Found::Here => return Ok(Begun::Otherwise(*table, "its rows are on this server now".into())),
                Found::Coordinator(why) => return Ok(Begun::Otherwise(*table, why)),
            };
            if *self.tables[*table].topology != topology
                && let Err(why) = self.adopt(*table, topology)
            {
                return Ok(Begun::Otherwise(*table, why));
            }
        }
        tables.iter().for_each(|table| self.tables[*table].stagger());
        self.shapes.iter_mut().for_each(|shaped| shaped.pool.begin(&shaped.shape.fills));
        self.forgets = false;
        self.units += 1;
        self.gid = Some(Gid {
            origin: self.writer.origin.clone(),
            load: self.writer.load,
            epoch: self.writer.epoch,
            unit: format!("{}.{}", self.writer.lane, self.units),
        });
        self.mended = lacking.as_ref().map(|lacking| lacking.gid.clone());
        self.only = None;
        if let Some(lacking) = lacking {
            self.only = Some(self.lacks(lacking).await?);
        }
        Ok(Begun::Ready)
    }

    /// Rows that nodes have stored, of the unit.
    pub fn stored(&self) -> u64 {
        self.slots.stored
    }

    /// Takes encoded rows into the buffers of their places, and sends those that are full. An error about a row says
    /// nothing of which: it is found carefully.
    pub async fn take(
        &mut self,
        watch: &dyn Watch,
        shape: usize,
        format: WireFormat,
        rows: &[u8],
    ) -> Result<(), Failure> {
        self.turn_to(watch, shape).await?;
        let mut at = 0;
        while at < rows.len() {
            let length = row_length(&rows[at..], format)?;
            let row = &rows[at..at + length];
            at += length;
            let (row, spot) = self.place(row, format).await?;
            match spot {
                Spot::At(place) if self.is_passed_over(place) => {}
                Spot::At(place) => {
                    if self.gather(place, format, &row) {
                        self.send(watch, place, format).await?;
                    }
                }
                nowhere => return Err(Failure::Row(Box::new(self.refusal(nowhere)))),
            }
        }
        Ok(())
    }

    /// What is gathered from now on is of this shape.
    async fn turn_to(&mut self, watch: &dyn Watch, shape: usize) -> Result<(), Failure> {
        if shape != self.shape {
            self.send_all(watch).await?;
            self.shape = shape;
        }
        Ok(())
    }

    fn bound(&self) -> &Bound {
        &self.tables[self.shapes[self.shape].table]
    }

    /// The slot of the node of a place.
    fn slot_of(&self, place: usize) -> usize {
        let bound = self.bound();
        bound.slots[bound.places[place].node]
    }

    /// Whether rows for this place are there already.
    fn is_passed_over(&self, place: usize) -> bool {
        self.only.as_ref().is_some_and(|only| !only[self.slot_of(place)])
    }

    /// Where a row belongs, and the row with what the coordinator fills.
    async fn place<'r>(
        &mut self,
        row: &'r [u8],
        format: WireFormat,
    ) -> Result<(Cow<'r, [u8]>, Spot), Failure> {
        let row = if self.shapes[self.shape].shape.fills.is_empty() {
            Cow::Borrowed(row)
        } else {
            Cow::Owned(self.filled(row, format).await?)
        };
        let shaped = &mut self.shapes[self.shape];
        let topology = &self.tables[shaped.table].topology;
        let mut spot = match format {
            WireFormat::Text => shaped.router.of_text(topology, &row),
            WireFormat::Direct => Router::of_keyed(topology, &row),
            WireFormat::Binary => shaped.router.of_binary(topology, &row),
        };
        if spot == Spot::Unsure {
            spot = self.ask(&row, format).await?;
        }
        Ok((row, spot))
    }

    /// Appends a row to the buffer of its place. Whether that is full.
    fn gather(&mut self, place: usize, format: WireFormat, row: &[u8]) -> bool {
        let bound = &mut self.tables[self.shapes[self.shape].table];
        let gathered = &mut bound.gathered[place];
        let buffer = if format == WireFormat::Text { &mut gathered.text } else { &mut gathered.main };
        match format {
            WireFormat::Direct => append_frame(buffer, frames::frame(row)),
            WireFormat::Binary if buffer.is_empty() => {
                buffer.extend_from_slice(inrush_encode::copy_binary::HEADER);
                buffer.extend_from_slice(row);
            }
            _ => buffer.extend_from_slice(row),
        }
        buffer.len() >= gathered.due
    }

    /// Has the place's node store what is gathered, once it is done with what it has.
    async fn send(&mut self, watch: &dyn Watch, place: usize, format: WireFormat) -> Result<(), Failure> {
        let shaped = &self.shapes[self.shape];
        let bound = &mut self.tables[shaped.table];
        let gathered = &mut bound.gathered[place];
        let buffer = if format == WireFormat::Text { &mut gathered.text } else { &mut gathered.main };
        if buffer.is_empty() {
            return Ok(());
        }
        gathered.due = bound.buffer;
        let mut bytes = std::mem::take(buffer);
        if bytes.len() >= bound.buffer / 8 {
            // As many will come again.
            buffer.reserve(bound.buffer + bound.buffer / 8);
        }
        if format == WireFormat::Binary {
            bytes.extend_from_slice(inrush_encode::copy_binary::TRAILER);
        }
        watch.sent(bytes.len() as u64);
        let send = Send {
            place: Arc::clone(&bound.places[place]),
            columns: Arc::clone(&shaped.names),
            format,
            blocks: shaped.shape.blocks.clone(),
            bytes,
        };
        let slot = bound.slots[bound.places[place].node];
        self.slots.send(slot, send).await
    }

    /// Sends what is gathered.
    async fn send_all(&mut self, watch: &dyn Watch) -> Result<(), Failure> {
        let Some(shaped) = self.shapes.get(self.shape) else { return Ok(()) };
        let (table, wire) = (shaped.table, shaped.shape.wire);
        // Rows that go as text are there whatever the others are.
        let formats =
            if wire == WireFormat::Text { &[WireFormat::Text][..] } else { &[wire, WireFormat::Text][..] };
        for format in formats {
            // Always in the same order: units that want the same keys then wait one behind the other.
            for place in 0..self.tables[table].places.len() {
                self.send(watch, place, *format).await?;
            }
        }
        Ok(())
    }

    /// Sends what is gathered and waits until all is stored.
    pub async fn finish(&mut self, watch: &dyn Watch) -> Result<(), Failure> {
        self.send_all(watch).await?;
        self.slots.rest_all().await
    }

    /// What the server would say of a row that belongs nowhere.
    fn refusal(&self, spot: Spot) -> RowFailure {
        let table = self.bound().aim.table.qualified();
        let (sqlstate, reason) = match spot {
            Spot::Null => ("22004", format!("the distribution column of {table} cannot be NULL")),
            Spot::Nowhere => ("23514", format!("no partition or shard of {table} takes rows of this key")),
            _ => ("22P02", "the key cannot be read".to_owned()),
        };
        self.refused(sqlstate, reason)
    }

    fn refused(&self, sqlstate: &str, reason: String) -> RowFailure {
        RowFailure {
            error: Error::new(Code::Server, reason.clone()).sqlstate(sqlstate),
            sqlstate: sqlstate.to_owned(),
            reason,
            line: None,
            line_exact: false,
            column: self.bound().topology.keys.first().cloned(),
            constraint: None,
        }
    }

    /// Asks the coordinator what the key of a row means, and so where it belongs.
    async fn ask(&mut self, row: &[u8], format: WireFormat) -> Result<Spot, Failure> {
        // In COPY binary a key that has no hash is none of its type: the node says why.
        if format != WireFormat::Text {
            return Ok(Spot::At(0));
        }
        let Some(guard) = &mut self.guard else { return Ok(Spot::Nowhere) };
        let shaped = &self.shapes[self.shape];
        let mut values = Vec::new();
        for (text, cast) in shaped.router.key_texts(row) {
            values.push(match text {
                None => None,
                Some(text) => match guard.value(cast, &text).await? {
                    Ok(value) => value,
                    Err((sqlstate, reason)) => {
                        return Err(Failure::Row(Box::new(self.refused(&sqlstate, reason))));
                    }
                },
            });
        }
        Ok(match shaped.router.of_values(&self.tables[shaped.table].topology, &values) {
            Spot::Unsure => Spot::Nowhere,
            spot => spot,
        })
    }

    /// A row with the values behind it that the coordinator fills.
    async fn filled(&mut self, row: &[u8], format: WireFormat) -> Result<Vec<u8>, Failure> {
        let shaped = &mut self.shapes[self.shape];
        let fills = &shaped.shape.fills;
        if shaped.pool.is_empty()
            && let Some(guard) = &mut self.guard
        {
            let wanted = shaped.pool.wanted();
            shaped.pool.fill(guard.defaults(&Pool::sql(fills), wanted, fills.len()).await?);
        }
        let Some((binary, text)) = shaped.pool.take() else {
            return Err(Failure::Fatal(Error::new(Code::Internal, "the coordinator gave no defaults")));
        };
        let mut full = Vec::with_capacity(row.len() + binary.len().max(text.len()));
        if format == WireFormat::Text {
            full.extend_from_slice(row.strip_suffix(b"\n").unwrap_or(row));
            full.extend_from_slice(&text);
            full.push(b'\n');
        } else {
            let count = row.first_chunk().map_or(0, |count| u16::from_be_bytes(*count));
            // A table has at most 1600 columns.
            #[allow(clippy::cast_possible_truncation)]
            full.extend_from_slice(&(count + fills.len() as u16).to_be_bytes());
            full.extend_from_slice(&row[2..]);
            full.extend_from_slice(&binary);
        }
        Ok(full)
    }
}

/// Bytes of the first row.
fn row_length(rows: &[u8], format: WireFormat) -> Result<usize, Failure> {
    let length = match format {
        // No line end stands inside a row: it is escaped.
        WireFormat::Text => memchr::memchr(b'\n', rows).map(|at| at + 1),
        WireFormat::Direct => frames::keyed_length(rows),
        WireFormat::Binary => binary_row(rows),
    };
    length.ok_or_else(|| Failure::Fatal(Error::new(Code::Internal, "an encoded row has no end")))
}
