//! Reads a server and says what to change.
//!
//! [`advise`] looks at everything that limits bulk loads on a server, says what each change gives and costs, and
//! makes and takes back those that need no restart. [`io`] measures the storage of a tablespace and says what that
//! means for the settings of scans. [`explain`] scans the table of one query in every way, and says which was fastest
//! and what the planner did not know.

pub mod advise;
pub mod explain;
pub mod files;
pub mod io;
mod settings;
