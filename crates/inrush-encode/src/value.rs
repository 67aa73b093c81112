//! One value alone: for those who must know where a row goes before it is sent.

use crate::Session;
use crate::types::Encoder;
use inrush_core::PgType;

/// Encodes the text of single values of one type to the form its receive function reads, as COPY binary carries
/// it. The type modifier is not applied where the receive function does it: lengths of texts, precision of times.
#[derive(Debug, Clone)]
pub struct ValueEncoder(Encoder);

impl ValueEncoder {
    /// For a column of this type; `None` if its values only go as text.
    pub fn of(ty: &PgType, typmod: i32, session: &Session) -> Option<ValueEncoder> {
        Encoder::of(ty, typmod, session).map(ValueEncoder)
    }

    /// Appends the value without its length word. False if it is not certain what the server would make of the
    /// text, and then `out` is as it was.
    #[inline]
    pub fn encode(&self, text: &[u8], out: &mut Vec<u8>) -> bool {
        let start = out.len();
        let sure = self.0.field(text, out);
        if sure {
            // The length word of 4 bytes is always in front.
            out.drain(start..start + 4);
        } else {
            out.truncate(start);
        }
        sure
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use inrush_core::BaseType;

    fn of(base: BaseType) -> ValueEncoder {
        let session = Session { timezone_is_utc: true, ..Session::default() };
        ValueEncoder::of(&PgType::base(base), -1, &session).expect("a type with a binary form")
    }

    #[test]
    fn values_have_no_length_word() {
        let mut out = vec![9];
        assert!(of(BaseType::Int4).encode(b"-2", &mut out));
        assert!(of(BaseType::Text).encode(b"abc", &mut out));
        assert!(of(BaseType::Timestamptz).encode(b"2000-01-01 00:00:01+00", &mut out));
        assert_eq!(out, [&[9, 255, 255, 255, 254][..], b"abc", &1_000_000_i64.to_be_bytes()].concat());
    }

    #[test]
    fn what_is_unsure_leaves_nothing_behind() {
        let mut out = vec![9];
        for (base, text) in [
            (BaseType::Int4, "x"),
            (BaseType::Numeric, "1x"),
            (BaseType::Bytea, "\\x1"),
            (BaseType::Inet, "::x"),
        ] {
            assert!(!of(base).encode(text.as_bytes(), &mut out), "{text}");
            assert_eq!(out, [9]);
        }
    }
}
