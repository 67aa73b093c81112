//! Case C3: a stream of rows into tables with a BRIN index on the time, by pgbench as published, by COPY, and by
//! `inrush serve`.
//!
//! A *turn* is one contender for some seconds on fresh tables. Its rows are those that were acknowledged; when the
//! tables were not truncated meanwhile they are counted afterwards, and must be there. What is sent is made before the
//! turn; only its times are written anew, so that they are the present's. Beside turns at full speed there are one at
//! half of the top rate (how long until a row is answered for) and one of a whole window (how much of it a question
//! about a minute reads). [`run`] makes a [`Record`] of it; with [`Options::minutes`] one long turn.

mod ask;
mod blocks;
mod case;
mod counter;
mod http;
mod keep;
mod psql;
mod published;
mod record;
mod run;
mod senders;
mod serve;
mod show;
mod turn;

pub use case::{Case, Contender, Goal, Kind, Rung, ServeSettings};
pub use keep::keep;
pub use record::{KIND, Purpose, Query, Record, Times, Turn, VERSION};
pub use run::{Options, run};
pub(crate) use show::section;
pub use show::text;
