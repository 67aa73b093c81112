//! The tables of a lane, and the shapes of their rows.

use super::fill::{Fill, Pool};
use super::{Router, Scatter};
use crate::{Place, Topology};
use inrush_core::{Column, Table};
use inrush_encode::frames::BlockWriter;
use inrush_sink::copy::WireFormat;
use inrush_sink::failure::Failure;
use std::sync::Arc;

/// Bytes gathered for a place before they are sent, at least and at most: smaller COPYs cost a node more than they carry,
/// and in larger ones rows are nearer to each other in its indexes.
const BUFFER: std::ops::RangeInclusive<usize> = 1 << 20..=4 << 20;

/// The first bytes of a unit for a place are sent from here on at least.
const FIRST: usize = 256 << 10;

/// Bytes that a lane gathers for all places together, as long as each has its least.
const BUFFERS: usize = 64 << 20;

/// A table whose rows are sent to nodes.
#[derive(Debug, PartialEq)]
pub struct Aim {
    /// The table.
    pub table: Table,
    /// A column that the role may fill, to lock the table by.
    pub column: String,
    /// Where its rows belonged when it was looked at.
    pub topology: Arc<Topology>,
    /// Whether text is in the database as it is sent.
    pub utf8: bool,
    /// How values are read.
    pub session: inrush_encode::Session,
}

impl Aim {
    /// Of a table in a database of this encoding, as the server calls it.
    pub fn new(
        table: Table,
        column: String,
        topology: Arc<Topology>,
        encoding: &str,
        session: inrush_encode::Session,
    ) -> Aim {
        Aim { table, column, topology, utf8: matches!(encoding, "UTF8" | "SQL_ASCII"), session }
    }
}

/// Columns of an [`Aim`] that rows fill.
#[derive(Debug, Clone)]
pub struct RowShape {
    /// In the order in which they are sent.
    pub columns: Vec<Column>,
    /// Those that the coordinator fills.
    pub fills: Arc<Vec<Fill>>,
    /// Format of the rows that are not text.
    pub wire: WireFormat,
    /// Makes blocks of frames, where these are sent.
    pub blocks: Option<BlockWriter>,
}

impl RowShape {
    /// Names of all columns that are sent.
    pub(super) fn names(&self) -> Vec<String> {
        let filled = self.fills.iter().map(|fill| &fill.column);
        self.columns.iter().chain(filled).map(|column| column.name.clone()).collect()
    }
}

/// Rows gathered for a place.
#[derive(Default)]
pub(super) struct Gathered {
    pub main: Vec<u8>,
    pub text: Vec<u8>,
    /// Bytes from which on they are sent.
    pub due: usize,
}

/// A table of a lane.
pub(super) struct Bound {
    pub aim: Arc<Aim>,
    /// As of the guard that was held last.
    pub topology: Arc<Topology>,
    pub places: Vec<Arc<Place>>,
    /// By number of its node in the topology, the slot.
    pub slots: Vec<usize>,
    pub gathered: Vec<Gathered>,
    /// Bytes gathered for a place before they are sent.
    pub buffer: usize,
}

/// Rows of one shape.
pub(super) struct Shaped {
    pub table: usize,
    pub shape: RowShape,
    /// Names of all columns that are sent.
    pub names: Arc<Vec<String>>,
    pub router: Router,
    pub pool: Pool,
}

impl Bound {
    /// Has places fill up one after the other: else rows that are spread evenly fill all at once, and nodes have nothing
    /// to do until then, and all of it at a time.
    pub fn stagger(&mut self) {
        let places = self.gathered.len().max(1);
        for (number, gathered) in self.gathered.iter_mut().enumerate() {
            gathered.due = (self.buffer * (number + 1) / places).max(FIRST);
        }
    }
}

impl Scatter {
    /// Adds a table. Gives its number.
    pub fn add_table(&mut self, aim: &Arc<Aim>) -> usize {
        self.tables.push(Bound {
            aim: Arc::clone(aim),
            topology: Arc::clone(&aim.topology),
            places: Vec::new(),
            slots: Vec::new(),
            gathered: Vec::new(),
            buffer: *BUFFER.start(),
        });
        let table = self.tables.len() - 1;
        self.follow(table, Arc::clone(&aim.topology));
        table
    }

    /// Adds rows of a shape of a table. Gives its number; or why they cannot be sent to nodes.
    pub fn add_shape(&mut self, table: usize, shape: RowShape) -> Result<usize, String> {
        let bound = &self.tables[table];
        let router = Router::new(&bound.aim, &shape.columns, &shape.fills, &bound.topology)?;
        self.shapes.push(Shaped {
            table,
            names: Arc::new(shape.names()),
            router,
            pool: Pool::default(),
            shape,
        });
        Ok(self.shapes.len() - 1)
    }

    /// These columns of a shape the coordinator fills from now on. `Err`: why its rows cannot be sent to nodes then.
    pub fn fill(&mut self, shape: usize, fills: Vec<Fill>) -> Result<(), String> {
        let shaped = &mut self.shapes[shape];
        if *shaped.shape.fills == fills {
            return Ok(());
        }
        let bound = &self.tables[shaped.table];
        shaped.router = Router::new(&bound.aim, &shaped.shape.columns, &fills, &bound.topology)?;
        shaped.shape.fills = Arc::new(fills);
        shaped.names = Arc::new(shaped.shape.names());
        shaped.pool = Pool::default();
        Ok(())
    }

    /// Forgets all tables and shapes; sessions stay. Not within a unit.
    pub fn forget_tables(&mut self) {
        self.tables.clear();
        self.shapes.clear();
        self.shape = 0;
    }

    /// A table goes by this topology from now on. Sessions of nodes that have something of it stay.
    pub(super) fn follow(&mut self, table: usize, topology: Arc<Topology>) {
        let bound = &mut self.tables[table];
        bound.slots = topology.nodes.iter().map(|node| self.slots.of(node)).collect();
        bound.places = topology.places.iter().cloned().map(Arc::new).collect();
        bound.gathered = topology.places.iter().map(|_| Gathered::default()).collect();
        bound.buffer = (BUFFERS / topology.places.len().max(1)).clamp(*BUFFER.start(), *BUFFER.end());
        bound.topology = topology;
    }

    /// Goes by this topology, as it was found behind the guard. `Err`: why rows cannot be sent any more.
    pub(super) fn adopt(&mut self, table: usize, topology: Topology) -> Result<(), String> {
        let topology = Arc::new(topology);
        let frames = |shaped: &Shaped| shaped.table == table && shaped.shape.wire == WireFormat::Direct;
        if topology.keys != self.tables[table].topology.keys && self.shapes.iter().any(frames) {
            return Err("it is distributed by another column, and frames have the hash of the old one".into());
        }
        for shaped in self.shapes.iter_mut().filter(|shaped| shaped.table == table) {
            let (columns, fills) = (&shaped.shape.columns, &shaped.shape.fills);
            shaped.router = Router::new(&self.tables[table].aim, columns, fills, &topology)?;
        }
        self.follow(table, topology);
        Ok(())
    }

    /// The columns that the coordinator fills in rows of a table, as the guard's session sees them.
    pub async fn ask_fills(&self, table: usize, sent: &[Column]) -> Result<Vec<Fill>, Failure> {
        let (Some(guard), bound) = (&self.guard, &self.tables[table]) else { return Ok(Vec::new()) };
        guard.fills(&bound.aim.table, sent, bound.topology.kind).await
    }

    /// Whether a table is still the one that was looked at, and not another of its name.
    pub async fn is_same(&self, table: usize) -> Result<bool, Failure> {
        match &self.guard {
            Some(guard) => guard.is_same(&self.tables[table].aim.table).await,
            None => Ok(true),
        }
    }
}
