//! Where the bytes of an attribute go in a row: alignment, and the headers of varlenas (htup_details.h and
//! heaptuple.c, fill_val).

use crate::types::copy;

/// The longest value with a short header (VARATT_SHORT_MAX is with it).
const SHORT_MAX: usize = 126;

/// The place behind the attributes that a row has so far.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    /// Index of the row's first attribute in the buffer: alignment counts from there.
    pub data: usize,
    /// Bytes: 1, 2, 4 or 8.
    pub align: usize,
    /// Storage `p`: no short headers.
    pub plain: bool,
}

/// Appends a few bytes, for which a call of memcpy would take longer than the copy.
#[inline]
pub(super) fn append(bytes: &[u8], out: &mut Vec<u8>) {
    let len = out.len();
    out.reserve(bytes.len());
    // SAFETY: there is room for the bytes from `len` on, and all of them are written; they cannot overlap a vector
    // that is borrowed mutably.
    unsafe {
        copy(bytes, out.as_mut_ptr().add(len));
        out.set_len(len + bytes.len());
    }
}

impl Place {
    /// Zeros before an aligned value that is appended to `len` bytes.
    #[inline]
    fn padding(self, len: usize) -> usize {
        debug_assert!(matches!(self.align, 1 | 2 | 4 | 8));
        self.data.wrapping_sub(len) & (self.align - 1)
    }

    /// Appends a value of fixed length, if there is one.
    #[inline]
    pub fn fixed<const N: usize>(self, value: Option<[u8; N]>, out: &mut Vec<u8>) -> bool {
        let Some(value) = value else { return false };
        let len = out.len();
        let padding = self.padding(len);
        out.reserve(8 + N);
        // SAFETY: `padding` is at most 7, so `padding + N` bytes from `len` are within the capacity; the first
        // write covers the zeros, the second the value, and both stay within the 8 + N bytes reserved.
        //
        // Measured (examples/encode_speed, 10 x int4): one branch instead of a copy of unknown length.
        unsafe {
            let at = out.as_mut_ptr().add(len);
            at.cast::<[u8; 8]>().write_unaligned([0; 8]);
            at.add(padding).cast::<[u8; N]>().write_unaligned(value);
            out.set_len(len + padding + N);
        }
        true
    }

    /// Appends a varlena. Always true, as this is what an encoder answers.
    #[inline]
    pub fn varlena(self, value: &[u8], out: &mut Vec<u8>) -> bool {
        let size = value.len();
        if size <= SHORT_MAX && !self.plain {
            let len = out.len();
            out.reserve(1 + size);
            // SAFETY: 1 + size bytes from `len` are within the capacity and all of them are written; `value`
            // cannot overlap a vector that is borrowed mutably.
            unsafe {
                let at = out.as_mut_ptr().add(len);
                at.write(short_header(size));
                copy(value, at.add(1));
                out.set_len(len + 1 + size);
            }
        } else {
            self.sized(size, out);
            out.extend_from_slice(value);
        }
        true
    }

    /// Appends the header of a varlena whose value, of so many bytes, the caller appends.
    pub fn sized(self, size: usize, out: &mut Vec<u8>) {
        if size <= SHORT_MAX && !self.plain {
            out.push(short_header(size));
        } else {
            out.resize(out.len() + self.padding(out.len()), 0);
            out.extend_from_slice(&long_header(size));
        }
    }

    /// Appends a varlena that is probably short; `append` appends its value, false if unsure.
    #[inline]
    pub fn short_or_long(self, out: &mut Vec<u8>, append: impl FnOnce(&mut Vec<u8>) -> bool) -> bool {
        if self.plain {
            return self.long_or_short(out, append);
        }
        let at = out.len();
        out.push(0);
        let sure = append(out);
        let size = out.len() - at - 1;
        if size <= SHORT_MAX {
            out[at] = short_header(size);
        } else {
            // Zeros and a long header take the place of the byte.
            let room = self.padding(at) + 4;
            out.resize(at + room + size, 0);
            out.copy_within(at + 1..at + 1 + size, at + room);
            out[at..at + room - 4].fill(0);
            out[at + room - 4..at + room].copy_from_slice(&long_header(size));
        }
        sure
    }

    /// Appends a varlena that is probably long; `append` appends its value, false if unsure.
    pub fn long_or_short(self, out: &mut Vec<u8>, append: impl FnOnce(&mut Vec<u8>) -> bool) -> bool {
        self.received(out, |out| {
            out.extend_from_slice(&[0; 4]);
            append(out)
        })
    }

    /// Appends a varlena; `append` appends four bytes for its length, whatever is in them, and its value.
    pub fn received(self, out: &mut Vec<u8>, append: impl FnOnce(&mut Vec<u8>) -> bool) -> bool {
        let at = out.len();
        let start = at + self.padding(at);
        out.resize(start, 0);
        if !append(out) {
            return false;
        }
        let size = out.len() - start - 4;
        if size <= SHORT_MAX && !self.plain {
            out[at] = short_header(size);
            out.copy_within(start + 4.., at + 1);
            out.truncate(at + 1 + size);
        } else {
            out[start..start + 4].copy_from_slice(&long_header(size));
        }
        true
    }
}

/// SET_VARSIZE_SHORT, little-endian.
#[inline]
#[allow(clippy::cast_possible_truncation)]
fn short_header(size: usize) -> u8 {
    debug_assert!(size <= SHORT_MAX);
    (size as u8 + 1) << 1 | 1
}

/// SET_VARSIZE, little-endian. A row with a value that is too long for it is refused as a whole, by its length.
#[allow(clippy::cast_possible_truncation)]
fn long_header(size: usize) -> [u8; 4] {
    ((size as u32).wrapping_add(4) << 2).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    const INT: Place = Place { data: 3, align: 4, plain: false };

    #[test]
    fn fixed_values_are_aligned_from_the_first_attribute() {
        let mut out = vec![9; 3];
        assert!(INT.fixed(Some([1]), &mut out) && INT.fixed(Some([2, 2]), &mut out));
        assert_eq!(out, [9, 9, 9, 1, 0, 0, 0, 2, 2]);
        assert!(!INT.fixed::<4>(None, &mut out));
    }

    /// The judge: the rule as the format's page has it.
    fn plain_varlena(place: Place, value: &[u8], out: &mut Vec<u8>) {
        if value.len() <= 126 && !place.plain {
            out.push(u8::try_from((value.len() + 1) * 2 + 1).expect("short"));
        } else {
            while !(out.len() - place.data).is_multiple_of(place.align) {
                out.push(0);
            }
            out.extend_from_slice(&u32::try_from((value.len() + 4) * 4).expect("long").to_le_bytes());
        }
        out.extend_from_slice(value);
    }

    #[test]
    fn every_way_to_append_a_varlena_gives_the_same() {
        for (size, before) in (0..140).flat_map(|size| (3..12).map(move |before| (size, before))) {
            for (plain, align) in [(false, 4), (true, 4), (false, 8), (true, 8)] {
                let place = Place { data: 3, align, plain };
                let value: Vec<u8> = (0..size).map(|i| i + 1).collect();
                let mut expected = vec![7; before];
                plain_varlena(place, &value, &mut expected);
                let all = |out: &mut Vec<u8>| {
                    out.extend_from_slice(&value);
                    true
                };
                type Way<'a> = &'a dyn Fn(&mut Vec<u8>) -> bool;
                let ways: [Way<'_>; 5] = [
                    &|out| place.varlena(&value, out),
                    &|out| place.short_or_long(out, all),
                    &|out| place.long_or_short(out, all),
                    &|out| {
                        place.received(out, |out| {
                            out.extend_from_slice(&[1, 2, 3, 4]);
                            all(out)
                        })
                    },
                    &|out| {
                        place.sized(value.len(), out);
                        all(out)
                    },
                ];
                for way in ways {
                    let mut out = vec![7; before];
                    assert!(way(&mut out));
                    assert_eq!(out, expected, "{size} bytes at {before}, {place:?}");
                }
            }
        }
    }
}
