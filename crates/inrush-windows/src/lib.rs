//! Time-windowed tables: parents partitioned by range of time, whose windows are made ahead, summarized and retired.
//!
//! A **windowed table** is an ordinary partitioned table. A **window** is one partition of it: one leaf, or a partitioned
//! table of its own with one hash leaf for each lane. What is known of it beside the catalog is in the ledger's tables
//! `windowed` and `windows`.
//!
//! # The locks
//!
//! Nothing here takes AccessExclusive on a parent: such a request queues behind the longest query and every writer
//! queues behind it.
//!
//! | step | lock on the parent | lock on the leaves |
//! |---|---|---|
//! | make: CREATE (LIKE), ATTACH, one transaction | ShareUpdateExclusive | they are new |
//! | summarize, build an index late | none | ShareUpdateExclusive |
//! | retire: TRUNCATE | none | AccessExclusive, for [`Options::lock_timeout`] at most per try |
//! | retire: DETACH CONCURRENTLY | ShareUpdateExclusive | AccessExclusive once no query knows the leaf |
//! | retire: DROP, after that | none | AccessExclusive |
//!
//! ShareUpdateExclusive conflicts with no reader and no writer, waiting or held.

mod create;
mod leaf;
mod locks;
mod maintain;
mod overflow;
mod policy;
mod read;
mod retire;
mod space;
mod suggest;
mod summarize;
mod time;
mod turn;
mod view;

pub use create::{Body, Create, Created, create};
pub use leaf::ensure;
pub use locks::{Locks, locks};
pub use maintain::{Maintained, Named, Options, Retired, maintain};
pub use overflow::widen as widen_overflow;
pub use policy::{IndexKind, Late, Policy};
pub use read::{Leaf, Place, Window, WindowState, Windowed, find, read, read_all, recorded_tables};
pub use space::{LeafSize, sizes};
pub use time::{Scale, Span, TimeKind, Unit};
pub use turn::Wait;
pub use view::{Complete, complete};
