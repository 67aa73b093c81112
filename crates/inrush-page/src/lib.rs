//! Reports as pages of HTML that are one file: the frame of a page, text and tables, and charts.
//!
//! A page fetches nothing and is complete without a script. It can be read in the light and in the dark, on a
//! telephone, on paper, and by a screen reader: drawings have titles, and their figures stand beside them.
//! What is written is both HTML and well-formed XML, so that a strict parser can judge it.

pub mod axis;
pub mod bars;
pub mod curves;
pub mod figures;
pub mod frame;
pub mod markup;

pub use figures::{duration, figure, grouped, megabytes, percent};
pub use frame::{Frame, page};
pub use markup::{Column, Text, table, text};
