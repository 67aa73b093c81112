//! A row's frame, around the bytes of its attributes.

use super::block::{self, HEADER, MAX_SINGLE};
use super::encoder::Unsupported;
use super::layout::{Class, FrameLayout, LayoutColumn};
use super::place::{Place, append};
use crate::types::stored::{Characters, Stored};
use crate::{EncodeColumn, Session, Unsure};
use inrush_core::TypeKind;

/// Bytes of a frame before the bitmap (SizeOfMultiInsertTuple), and of a wide one.
const FRAME_HEADER: usize = 7;
const WIDE_HEADER: usize = 12;
/// Bytes of a tuple that a frame leaves out (SizeofHeapTupleHeader).
const SKIPPED: usize = 23;

// htup_details.h
const HEAP_HASNULL: u8 = 0x01;
const HEAP_HASVARWIDTH: u8 = 0x02;
/// The high byte of HEAP_XMAX_INVALID.
const HEAP_XMAX_INVALID: u8 = 0x08;

/// What came of a value.
pub(crate) enum Outcome {
    /// It was appended.
    Value,
    Null,
    Unsure,
}

impl Outcome {
    #[inline]
    pub(crate) fn sure(sure: bool) -> Outcome {
        if sure { Outcome::Value } else { Outcome::Unsure }
    }
}

/// An attribute that is sent.
#[derive(Debug, Clone)]
pub(crate) struct Attribute {
    /// Its number, from 0, dropped ones counted.
    number: usize,
    /// The column it comes from: index into the encoder's.
    pub column: usize,
    align: usize,
    plain: bool,
    varlena: bool,
    pub stored: Stored,
}

/// What is the same in all frames of a layout.
#[derive(Debug, Clone)]
pub(crate) struct RowShape {
    /// Those sent, in the order of the table.
    attributes: Vec<Attribute>,
    /// A frame up to its first attribute, if none is null.
    full: Vec<u8>,
    /// The same if some are null; those not sent are marked so, the others not yet.
    gaps: Vec<u8>,
    /// Whether all rows have a null.
    always_null: bool,
    /// Varlenas among those sent.
    varlenas: usize,
}

impl RowShape {
    /// The shape of rows with these columns, of these names, under the layout. Both are in the order of the
    /// COPY's column list, which may be another than the table's.
    pub fn new<N: AsRef<str>>(
        layout: &FrameLayout,
        names: &[N],
        columns: &[EncodeColumn],
        session: &Session,
    ) -> Result<RowShape, Unsupported> {
        let mut taken = vec![false; columns.len()];
        let mut attributes = Vec::with_capacity(columns.len());
        for (number, place) in layout.columns.iter().enumerate().filter(|(_, column)| column.sent) {
            let found = names.iter().zip(columns).position(|(name, _)| name.as_ref() == place.name);
            let column =
                found.ok_or_else(|| Unsupported::new(&place.name, "it is not among those of the load"))?;
            taken[column] = true;
            let stored = stored(layout, place, &columns[column], session)
                .map_err(|reason| Unsupported::new(&place.name, reason))?;
            attributes.push(Attribute {
                number,
                column,
                align: place.align,
                plain: place.storage == "p",
                varlena: place.length == -1,
                stored,
            });
        }
        if let Some(left) = taken.iter().position(|taken| !taken) {
            let name = names.get(left).map_or("", AsRef::as_ref);
            return Err(Unsupported::new(name, "the server's plan does not have it"));
        }
        let varlenas = attributes.iter().filter(|attribute| attribute.varlena).count();
        let template = |bitmap: usize, infomask: u8| frame_start(layout, bitmap, infomask);
        let infomask = if varlenas > 0 { HEAP_HASVARWIDTH } else { 0 };
        let mut gaps = template(layout.columns.len().div_ceil(8), infomask | HEAP_HASNULL);
        for attribute in &attributes {
            gaps[FRAME_HEADER + attribute.number / 8] |= 1 << (attribute.number % 8);
        }
        Ok(RowShape {
            always_null: attributes.len() < layout.columns.len(),
            full: template(0, infomask),
            gaps,
            attributes,
            varlenas,
        })
    }

    /// The attributes, in the order of the table.
    pub fn attributes(&self) -> &[Attribute] {
        &self.attributes
    }

    /// Appends a frame; `value` appends an attribute to the row. On `Err` the buffer is as it was.
    ///
    /// A buffer that is empty gets room for the header of a block first. Frames begin at even offsets of it,
    /// and so of the payload.
    #[inline]
    pub fn frame(
        &self,
        out: &mut Vec<u8>,
        mut value: impl FnMut(&Attribute, Place, &mut Vec<u8>) -> Outcome,
    ) -> Result<(), Unsure> {
        let before = out.len();
        match before {
            0 => out.resize(HEADER, 0),
            len if len % 2 == 1 => out.push(0),
            _ => {}
        }
        let start = out.len();
        // Without a null there is no bitmap, and the attributes begin earlier: the first null makes room.
        let mut has_null = self.always_null;
        append(if has_null { &self.gaps } else { &self.full }, out);
        let mut data = out.len();
        let mut varlenas = self.varlenas;
        for attribute in &self.attributes {
            let place = Place { data, align: attribute.align, plain: attribute.plain };
            match value(attribute, place, out) {
                Outcome::Value => {}
                Outcome::Null => {
                    if !has_null {
                        has_null = true;
                        data = self.make_gaps(start, out);
                    }
                    out[start + FRAME_HEADER + attribute.number / 8] &= !(1 << (attribute.number % 8));
                    varlenas -= usize::from(attribute.varlena);
                }
                Outcome::Unsure => {
                    out.truncate(before);
                    return Err(Unsure { column: attribute.column });
                }
            }
        }
        if varlenas == 0 {
            out[start + 4] &= !HEAP_HASVARWIDTH;
        }
        let length = out.len() - start - FRAME_HEADER;
        match u16::try_from(length) {
            Ok(length) => out[start..start + 2].copy_from_slice(&length.to_le_bytes()),
            Err(_) => self.widen(start, before, out)?,
        }
        block::count_one(out);
        Ok(())
    }

    /// Makes room for the bitmap; gives the new index of the first attribute.
    #[cold]
    fn make_gaps(&self, start: usize, out: &mut Vec<u8>) -> usize {
        let (data, end) = (start + self.full.len(), out.len());
        let moved = self.gaps.len() - self.full.len();
        out.resize(end + moved, 0);
        out.copy_within(data..end, data + moved);
        out[start..data + moved].copy_from_slice(&self.gaps);
        data + moved
    }

    /// Gives a row with more than 65535 bytes a wide header. A row that no block can take is left to the
    /// server; its last column is named.
    #[cold]
    fn widen(&self, start: usize, before: usize, out: &mut Vec<u8>) -> Result<(), Unsure> {
        let length = out.len() - start - FRAME_HEADER;
        let fits = u32::try_from(length).ok().filter(|_| length <= MAX_SINGLE - WIDE_HEADER);
        let Some(length) = fits else {
            out.truncate(before);
            return Err(Unsure { column: self.attributes.last().map_or(0, |attribute| attribute.column) });
        };
        let end = out.len();
        out.resize(end + WIDE_HEADER - FRAME_HEADER, 0);
        out.copy_within(start + FRAME_HEADER..end, start + WIDE_HEADER);
        out[start + FRAME_HEADER] = 0;
        out[start + 8..start + WIDE_HEADER].copy_from_slice(&length.to_le_bytes());
        Ok(())
    }
}

/// How values of a column are stored, or why that is not known.
fn stored(
    layout: &FrameLayout,
    place: &LayoutColumn,
    column: &EncodeColumn,
    session: &Session,
) -> Result<Stored, String> {
    let (ty, _) = column.ty.under_domains(column.typmod);
    if ty.oid != place.base_type {
        return Err(format!("its type is {} no longer", column.ty.name));
    }
    let unknown = || format!("its type {} is not encoded here", ty.name);
    match place.class {
        Class::Native => {
            let characters = if layout.encoding == "UTF8" { Characters::All } else { Characters::Ascii };
            let is_enum = ty.kind == TypeKind::Enum;
            let (stored, length) =
                Stored::native(ty, place.typmod, session, characters, &layout.labels).ok_or_else(unknown)?;
            if length != place.length || is_enum != (place.kind == "e") {
                return Err(format!("its type {} has another stored form than is known here", ty.name));
            }
            Ok(stored)
        }
        Class::Receive => Stored::received(ty, place.typmod, session).ok_or_else(unknown),
        Class::Refuse => Err(format!("the server does not take its type {}", ty.name)),
        Class::Dropped => Err("it was dropped".into()),
    }
}

/// A frame up to its first attribute; the length and the bits of the bitmap are 0.
#[allow(clippy::cast_possible_truncation)]
fn frame_start(layout: &FrameLayout, bitmap: usize, infomask: u8) -> Vec<u8> {
    // At most 23 + 200 bytes for 1600 attributes, so it fits a byte.
    let hoff = (SKIPPED + bitmap).next_multiple_of(layout.max_align.into());
    let mut start = vec![0; FRAME_HEADER + hoff - SKIPPED];
    start[2..4].copy_from_slice(&(layout.columns.len() as u16).to_le_bytes());
    start[4] = infomask;
    start[5] = HEAP_XMAX_INVALID;
    start[6] = hoff as u8;
    start
}
