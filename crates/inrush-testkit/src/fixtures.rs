//! Writers of the case files.
