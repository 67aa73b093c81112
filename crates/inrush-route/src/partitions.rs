//! The partitions of a table by hash.

use std::num::NonZeroU32;

/// Moduli up to this are looked up in a table, as the server does with all (partbounds.c,
/// PartitionBoundInfoData.indexes); nobody has more.
const MAX_TABLE: u32 = 1 << 16;

/// `FOR VALUES WITH (modulus m, remainder r)`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bound {
    modulus: NonZeroU32,
    remainder: u32,
}

impl Bound {
    /// `None` if no table can have it.
    pub fn new(modulus: u32, remainder: u32) -> Option<Bound> {
        let modulus = NonZeroU32::new(modulus)?;
        (remainder < modulus.get()).then_some(Bound { modulus, remainder })
    }

    /// From what `pg_get_expr(relpartbound, oid)` gives for a partition by hash (ruleutils.c).
    pub fn parse(expression: &str) -> Option<Bound> {
        let inner = expression.strip_prefix("FOR VALUES WITH (modulus ")?.strip_suffix(')')?;
        let (modulus, remainder) = inner.split_once(", remainder ")?;
        Bound::new(modulus.parse().ok()?, remainder.parse().ok()?)
    }

    /// Whether a row of this hash belongs here (partbounds.c, satisfies_hash_partition).
    pub fn accepts(self, hash: u64) -> bool {
        hash % u64::from(self.modulus.get()) == u64::from(self.remainder)
    }
}

/// Finds the partition of a hash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Partitions {
    bounds: Vec<Bound>,
    /// Which partition has each remainder of the greatest modulus.
    table: Vec<Option<u32>>,
}

impl Partitions {
    /// The order of the bounds is that of the answers. Partitions may have different moduli; in PostgreSQL each
    /// divides the next greater one, and where that does not hold, or the greatest is very great, every bound is tried.
    pub fn new(bounds: Vec<Bound>) -> Partitions {
        let greatest = bounds.iter().map(|bound| bound.modulus.get()).max().unwrap_or(0);
        let divides = bounds.iter().all(|bound| greatest.is_multiple_of(bound.modulus.get()));
        let table = if greatest > MAX_TABLE || !divides {
            Vec::new()
        } else {
            (0..greatest).map(|hash| first(&bounds, u64::from(hash))).collect()
        };
        Partitions { bounds, table }
    }

    /// Which partition takes a row of this hash; `None`: there is none.
    #[inline]
    pub fn find(&self, hash: u64) -> Option<usize> {
        let found = match self.table.len() as u64 {
            0 => first(&self.bounds, hash),
            // Below the length of a table in memory.
            #[allow(clippy::cast_possible_truncation)]
            len => self.table[(hash % len) as usize],
        };
        found.map(|index| index as usize)
    }
}

fn first(bounds: &[Bound], hash: u64) -> Option<u32> {
    bounds.iter().position(|bound| bound.accepts(hash)).and_then(|index| u32::try_from(index).ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn bounds_are_read_as_the_server_writes_them() {
        assert_eq!(Bound::parse("FOR VALUES WITH (modulus 32, remainder 5)"), Bound::new(32, 5));
        for odd in [
            "FOR VALUES WITH (modulus 4, remainder 4)",
            "FOR VALUES WITH (modulus 0, remainder 0)",
            "DEFAULT",
            "",
        ] {
            assert_eq!(Bound::parse(odd), None, "{odd}");
        }
    }

    #[test]
    fn a_missing_partition_is_missing() {
        let partitions =
            Partitions::new(vec![Bound::new(2, 0).expect("a bound"), Bound::new(4, 1).expect("a bound")]);
        assert_eq!(
            (0..4).map(|hash| partitions.find(hash)).collect::<Vec<_>>(),
            [Some(0), Some(1), Some(0), None]
        );
        assert_eq!(Partitions::new(Vec::new()).find(7), None);
    }

    proptest! {
        #[test]
        fn the_table_finds_what_the_bounds_accept(
            bounds in prop::collection::vec((0u32..4, 0u32..64), 1..12), hash in any::<u64>(), great in any::<bool>(),
        ) {
            let scale = if great { 70_000 } else { 3 };
            let bounds: Vec<_> = bounds
                .into_iter()
                .filter_map(|(power, remainder)| Bound::new(scale << power, remainder % (scale << power)))
                .collect();
            let judged = bounds.iter().position(|bound| bound.accepts(hash));
            prop_assert_eq!(Partitions::new(bounds).find(hash), judged);
        }
    }
}
