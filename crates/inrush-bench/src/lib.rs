//! `inrush bench`: runs a case against psql and others under stated conditions, and keeps what was measured.
//!
//! A case is a file ([`Case`]): a table, its rows, settings of the server, rungs ([`Rung`]: forms of the table and
//! kinds of server to run on), and contenders, each a shell command that loads the rows. [`run`] takes the
//! contenders in turns on each server and rung, [`Record`] holds every raw number, and the tables on the terminal,
//! the README and the page of a kept run are made from it ([`render`]).
//!
//! # What is measured
//! * *seconds to COMMIT*: from the start of the contender's command to its end.
//! * *seconds to durable*: the same, until a CHECKPOINT begun right after it has ended: data files and WAL are on
//!   the disk. With `synchronous_commit` on, the rows are already safe at COMMIT.
//! * *client CPU and peak memory*: of the command and its children, as wait4() tells.
//! * *server CPU*: of all processes of the server, ended ones included, from /proc. A hundredth of a second is
//!   the finest it knows.
//! * *WAL*: bytes between the insert positions before and after.
//! * *foreign CPU*: what the machine spent on neither, in cores. A run with much of it says little.
//!
//! After each run the rows are counted and hashed, and must be those of the first run of the baseline on the
//! server.

pub mod c3;
pub mod c4;
pub mod c5;
mod case;
mod case_file;
mod compare;
mod data;
mod files;
mod keep;
mod machine;
mod measure;
mod random;
mod record;
pub mod render;
mod run;
mod rung;
mod server;
mod turn;

pub use case::{Case, Contender, Goal, Input};
pub use compare::{Beside, Ladder, LadderLine, beside, ladders};
pub use data::{Form, write_data};
pub use keep::{keep, pages};
pub use record::{Absent, Host, Place, Record, Run, ServerFacts, VERSION, median};
pub use run::{Options, run};
pub use rung::{Published, PublishedRatio, Rung};
