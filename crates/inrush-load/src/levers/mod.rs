//! Levers: settings and changes of a table that make a load faster, with what each costs.

pub mod advice;
