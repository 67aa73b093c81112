//! Partitions by range of one column.

use crate::kind::HashKind;
use std::cmp::Ordering;

/// How values of a key's type are ordered by the type's default B-tree operator class, in the binary form that COPY
/// carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RangeKind {
    /// smallint, integer, bigint, date, timestamp and timestamptz without a precision: big-endian numbers with a sign.
    Number,
    /// oid: without a sign.
    Unsigned,
    /// uuid and bytea: byte by byte. Text only under a collation that orders by bytes ("C").
    Bytes,
}

impl RangeKind {
    /// How the values are ordered that are hashed so; `None` where this crate does not know: floating point, numeric,
    /// interval, character(n), and times that the server rounds. For text the caller makes sure that
    /// pg_collation.collprovider and collcollate mean "C".
    pub fn of(kind: HashKind) -> Option<RangeKind> {
        match kind {
            HashKind::Int2 | HashKind::Int4 | HashKind::Int8 | HashKind::Micros { digits: None } => {
                Some(RangeKind::Number)
            }
            HashKind::Oid => Some(RangeKind::Unsigned),
            HashKind::Uuid | HashKind::Bytea | HashKind::Text | HashKind::Varchar { limit: None } => {
                Some(RangeKind::Bytes)
            }
            _ => None,
        }
    }

    fn compare(self, a: &[u8], b: &[u8]) -> Ordering {
        match self {
            // All values of a type are of one width; the sign decides first.
            RangeKind::Number => match (a.first().map(|byte| byte & 0x80), b.first().map(|byte| byte & 0x80))
            {
                (Some(x), Some(y)) if x != y => y.cmp(&x),
                _ => a.cmp(b),
            },
            RangeKind::Unsigned | RangeKind::Bytes => a.cmp(b),
        }
    }
}

/// One end of a range. The order of the variants is that of the ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// MINVALUE
    Min,
    /// A value, in binary form.
    Value(Vec<u8>),
    /// MAXVALUE
    Max,
}

/// `FOR VALUES FROM (a) TO (b)`: from a on, up to b and without it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Range {
    /// First value.
    pub from: End,
    /// The one behind the last.
    pub to: End,
}

/// What `pg_get_expr(relpartbound, oid)` says of a partition by range of one column, with values still as text,
/// and `None` for MINVALUE and MAXVALUE (ruleutils.c, get_range_partbound_string). `None` for the whole if it is of several columns, or none of a range.
pub fn parse_range(expression: &str) -> Option<(Option<String>, Option<String>)> {
    let rest = expression.strip_prefix("FOR VALUES FROM (")?;
    let (from, rest) = parse_end(rest)?;
    let (to, rest) = parse_end(rest.strip_prefix(") TO (")?)?;
    if rest != ")" {
        return None;
    }
    Some((from, to))
}

/// One end: a literal, in quotes or a bare number, or `None` for MINVALUE and MAXVALUE. And what follows.
fn parse_end(text: &str) -> Option<(Option<String>, &str)> {
    for unbounded in ["MINVALUE", "MAXVALUE"] {
        if let Some(rest) = text.strip_prefix(unbounded) {
            return Some((None, rest));
        }
    }
    // deparse_expression writes E'...' where there are backslashes (simple_quote_literal).
    let escaped = text.starts_with("E'");
    let Some(quoted) = text.strip_prefix(if escaped { "E'" } else { "'" }) else {
        let end = text.find([',', ')'])?;
        return (end > 0).then(|| (Some(text[..end].to_owned()), &text[end..]));
    };
    let mut value = String::new();
    let mut chars = quoted.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        match c {
            '\'' if chars.peek().is_some_and(|(_, next)| *next == '\'') => {
                chars.next();
                value.push('\'');
            }
            '\'' => return Some((Some(value), &quoted[at + 1..])),
            '\\' if escaped => value.push(chars.next()?.1),
            c => value.push(c),
        }
    }
    None
}

/// Finds the partition of a value.
#[derive(Debug, Clone, PartialEq)]
pub struct Ranges {
    kind: RangeKind,
    /// By their beginnings, with the answer.
    ranges: Vec<(Range, usize)>,
    default: Option<usize>,
}

impl Ranges {
    /// Ranges with what they answer; `default` is the answer where none of them has a value. `None` if they overlap.
    pub fn new(kind: RangeKind, mut ranges: Vec<(Range, usize)>, default: Option<usize>) -> Option<Ranges> {
        let order = |a: &End, b: &End| compare_ends(kind, a, b);
        ranges.sort_by(|(a, _), (b, _)| order(&a.from, &b.from));
        let ranges_are = ranges.iter().all(|(range, _)| order(&range.from, &range.to) == Ordering::Less);
        let disjoint = ranges.windows(2).all(|two| order(&two[0].0.to, &two[1].0.from) != Ordering::Greater);
        (ranges_are && disjoint).then_some(Ranges { kind, ranges, default })
    }

    /// Which partition takes a value, in binary form; `None`: there is none. NULL belongs into the default one.
    pub fn find(&self, value: Option<&[u8]>) -> Option<usize> {
        let Some(value) = value else { return self.default };
        let before = |end: &End| match end {
            End::Min => true,
            End::Value(end) => self.kind.compare(end, value) != Ordering::Greater,
            End::Max => false,
        };
        let after = self.ranges.partition_point(|(range, _)| before(&range.from));
        let found = self.ranges[..after].last().filter(|(range, _)| !before(&range.to));
        found.map(|(_, answer)| *answer).or(self.default)
    }
}

fn compare_ends(kind: RangeKind, a: &End, b: &End) -> Ordering {
    let rank = |end: &End| match end {
        End::Min => 0,
        End::Value(_) => 1,
        End::Max => 2,
    };
    match (a, b) {
        (End::Value(a), End::Value(b)) => kind.compare(a, b),
        _ => rank(a).cmp(&rank(b)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_read_as_the_server_writes_them() {
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(parse_range("FOR VALUES FROM (1) TO (10)"), Some((some("1"), some("10"))));
        assert_eq!(
            parse_range("FOR VALUES FROM (MINVALUE) TO ('2026-01-01 00:00:00+00')"),
            Some((None, some("2026-01-01 00:00:00+00")))
        );
        assert_eq!(
            parse_range("FOR VALUES FROM ('it''s') TO (E'a\\\\b, c)')"),
            Some((some("it's"), some("a\\b, c)")))
        );
        for odd in [
            "FOR VALUES FROM (1, 2) TO (3, 4)",
            "DEFAULT",
            "FOR VALUES IN (1)",
            "FOR VALUES FROM ('a) TO (1)",
            "",
        ] {
            assert_eq!(parse_range(odd), None, "{odd}");
        }
    }

    #[test]
    fn values_are_found_in_their_ranges() {
        let value = |n: i32| End::Value(n.to_be_bytes().to_vec());
        let range = |from, to| Range { from, to };
        let ranges = |default| {
            let ranges = vec![
                (range(value(10), End::Max), 0),
                (range(End::Min, value(-5)), 1),
                (range(value(0), value(10)), 2),
            ];
            Ranges::new(RangeKind::Number, ranges, default).unwrap()
        };
        let find = |default, n: i32| ranges(default).find(Some(&n.to_be_bytes()));
        assert_eq!(
            [i32::MIN, -6, -5, -1, 0, 9, 10, i32::MAX].map(|n| find(None, n)),
            [Some(1), Some(1), None, None, Some(2), Some(2), Some(0), Some(0)]
        );
        assert_eq!(find(Some(3), -5), Some(3));
        assert_eq!((ranges(None).find(None), ranges(Some(3)).find(None)), (None, Some(3)));
        let refused = |ranges| Ranges::new(RangeKind::Number, ranges, None).is_none();
        assert!(refused(vec![(range(value(0), value(5)), 0), (range(value(4), value(9)), 1)]));
        assert!(refused(vec![(range(value(5), value(5)), 0)]));
    }
}
