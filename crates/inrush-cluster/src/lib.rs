//! Tables whose rows are on several servers: Citus, and partitioned tables with `postgres_fdw` leaves.
//!
//! The client finds the shard of a row by itself and sends it straight there. The server that has the table, called
//! coordinator here whatever it is, then neither reads nor plans a row. It would have kept rows and shards together,
//! so that is the client's duty now:
//!
//! - **A guard** ([`Guard`]) holds the locks on the coordinator that a plain `COPY` would hold there: nobody moves,
//!   splits or rewrites a shard meanwhile. Where the rows belong is read behind it, in its transaction.
//! - **All or nothing.** A unit is prepared on every node, then the guard is prepared too: that succeeds only if it was
//!   held all along, and from then on neither a crash of the client nor one of the coordinator lets go of it. The
//!   unit's row in the ledger, in a transaction of another session, decides. Then every node is told, and the guard
//!   last.
//! - **What is left is settled** ([`settle`]): whatever a dead client prepared is committed if the ledger has the unit, and
//!   rolled back if it has not.

mod audit;
mod citus;
mod find;
mod foreign;
mod gid;
mod guard;
mod layout;
mod node;
mod raw;
mod route;
mod scatter;
mod settle;
mod status;
mod topology;
mod visits;

pub use audit::{Audit, Misplaced, audit};
pub use find::{Found, find, known_nodes};
pub use gid::{Gid, Part};
pub use guard::{Guard, Guarded};
pub use layout::Spread;
pub use node::{Address, LOCK_TIMEOUT, Node, NodeMap, NodeSession};
pub use route::{Chosen, Hash, KeyValue, Placement, Route, Step, route};
pub use scatter::{
    Aim, Begun, CarefulPart, Drive, Ending, Fill, KeyedFrames, Lacking, Reach, Refused, Router, RowShape,
    Scatter, Watch, Writer, fills,
};
pub use settle::{Partial, Settled, application, settle};
pub use status::{
    Largest, Look, NodeShare, NodeStatus, OtherPrepared, PreparedPart, Recover, Skew, SkewOf, Status,
    TableStatus, UnitStatus, status,
};
pub use topology::{Kind, Map, Place, Topology};
pub use visits::{Said, Visits};
