//! Case C4: a cluster without its coordinator. Statements and files through the coordinator, through other nodes, by
//! `inrush.distribute_dml()`, and straight to where the rows belong.
//!
//! A *turn* is one contender for some seconds, or one load, into tables that were emptied before. What it is divided by is what
//! was committed within the time; sessions are opened, and have sent some statements, before. Afterwards the rows are counted,
//! and where it was for the client to find their places, each is looked at by the servers' own functions. CPU is that of all
//! processes of each server that is on this machine; of a server elsewhere it is not known. `synchronous_commit` is set for the
//! role on every node: a session's own setting would not reach those that the coordinator opens.

mod batch;
mod case;
mod cluster;
mod command;
mod goals;
mod keep;
mod record;
mod rows;
mod run;
mod send;
mod sessions;
mod show;
mod tables;

pub use case::{Case, Contender, Form, Goal, Hold, Job, On, Published, Rung, To};
pub use keep::keep;
pub use record::{KIND, NodeFacts, Record, Turn, VERSION};
pub use run::{Options, run};
pub(crate) use show::section;
pub use show::text;
