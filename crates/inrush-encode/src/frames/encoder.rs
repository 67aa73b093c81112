//! Fields of text to frames.

use super::layout::FrameLayout;
use super::place::Place;
use super::row::{Attribute, Outcome, RowShape};
use crate::{EncodeColumn, RowEncoder, Session, Unsure};
use inrush_core::{FieldSource, Record};
use std::fmt;

/// A column that cannot go in frames: another format has to take the load.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unsupported {
    /// Its name.
    pub column: String,
    /// Why, as a part of a sentence: `its type point is not encoded here`.
    pub reason: String,
}

impl Unsupported {
    pub(super) fn new(column: &str, reason: impl Into<String>) -> Unsupported {
        Unsupported { column: column.to_owned(), reason: reason.into() }
    }
}

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "column {:?}: {}", self.column, self.reason)
    }
}

impl std::error::Error for Unsupported {}

/// Encodes fields of text for `COPY ... FROM STDIN (FORMAT inrush)`; [`super::BlockWriter`] makes blocks of
/// what it appends.
///
/// A buffer must be empty before its first row: it gets room for the header of a block, and alignment counts
/// from there. Several encoders of one layout may append to the same buffer.
#[derive(Debug, Clone)]
pub struct FrameEncoder {
    shape: RowShape,
    /// For each attribute that is sent.
    sources: Vec<Source>,
}

/// Where an attribute's value comes from.
#[derive(Debug, Clone)]
pub(crate) enum Source {
    Field(usize),
    Constant(Constant),
}

/// A value that is the same for all rows.
#[derive(Debug, Clone)]
pub(crate) enum Constant {
    Null,
    /// Its text, of which the encoder is sure.
    Text(Vec<u8>),
    Unsure,
}

impl Constant {
    pub(crate) fn of(value: Option<&[u8]>, attribute: &Attribute) -> Constant {
        let place = Place { data: 0, align: 1, plain: false };
        match value {
            None => Constant::Null,
            Some(value) if attribute.stored.append(value, place, &mut Vec::new()) => {
                Constant::Text(value.to_vec())
            }
            Some(_) => Constant::Unsure,
        }
    }

    pub(crate) fn append(&self, attribute: &Attribute, place: Place, out: &mut Vec<u8>) -> Outcome {
        match self {
            Constant::Null => Outcome::Null,
            Constant::Text(value) => Outcome::sure(attribute.stored.append(value, place, out)),
            Constant::Unsure => Outcome::Unsure,
        }
    }
}

impl FrameEncoder {
    /// An encoder for the columns of a COPY's column list, and their names, in a session with these settings.
    /// [`Unsupported`] names the first column, in the table's order, that cannot go in frames: one of a type
    /// that is not encoded here, or one where plan and catalog disagree, because the table was altered.
    pub fn new<N: AsRef<str>>(
        layout: &FrameLayout,
        names: &[N],
        columns: &[EncodeColumn],
        session: &Session,
    ) -> Result<FrameEncoder, Unsupported> {
        let shape = RowShape::new(layout, names, columns, session)?;
        let sources = shape
            .attributes()
            .iter()
            .map(|attribute| match &columns[attribute.column].source {
                FieldSource::Field(i) => Source::Field(*i),
                FieldSource::Constant(value) => Source::Constant(Constant::of(value.as_deref(), attribute)),
            })
            .collect();
        Ok(FrameEncoder { shape, sources })
    }
}

impl RowEncoder for FrameEncoder {
    /// Appends one frame. A row that is too long for any block is unsure in its last column.
    fn row(&mut self, record: &Record<'_>, out: &mut Vec<u8>) -> Result<(), Unsure> {
        let mut sources = self.sources.iter();
        self.shape.frame(out, |attribute, place, out| match sources.next() {
            Some(Source::Field(i)) => match record.get(*i) {
                Some(value) => Outcome::sure(attribute.stored.append(value, place, out)),
                None => Outcome::Null,
            },
            Some(Source::Constant(constant)) => constant.append(attribute, place, out),
            // There is a source for each attribute.
            None => Outcome::Unsure,
        })
    }
}
