//! The shards of a table that Citus has distributed by hash.
//!
//! Nothing on a worker checks that a row belongs into the shard it is put into: a wrong one is a row that queries by its key
//! never find. So a value that is not surely hashed as the server does has no shard here.

use crate::kind::HashKind;

/// The hash that Citus distributes by: `worker_hash(value)`, which is the type's own hash function of 32 bits. With seed 0
/// the lower half of the one of 64 bits is the same (hashfn.h; access/hash, HASHEXTENDED_PROC).
pub fn shard_hash(kind: HashKind, value: &[u8]) -> Option<i32> {
    let hash = kind.hash(value, 0)?;
    // The lower half.
    #[allow(clippy::cast_possible_truncation)]
    let low = hash as u32;
    Some(low.cast_signed())
}

/// A shard, and the hashes of its rows: both ends are its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shard {
    /// pg_dist_shard.shardid
    pub id: u64,
    /// shardminvalue
    pub min: i32,
    /// shardmaxvalue
    pub max: i32,
}

/// Finds the shard of a hash. Ranges are looked up, never computed: after a split they are of different widths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shards {
    /// By hash.
    shards: Vec<Shard>,
}

impl Shards {
    /// `None` if ranges overlap or are none: the metadata is not what this knows of.
    pub fn new(mut shards: Vec<Shard>) -> Option<Shards> {
        shards.sort_by_key(|shard| shard.min);
        let disjoint = shards.windows(2).all(|two| two[0].max < two[1].min);
        let ranges = shards.iter().all(|shard| shard.min <= shard.max);
        (disjoint && ranges).then_some(Shards { shards })
    }

    /// The shard of a hash; `None` if no shard has it.
    #[inline]
    pub fn find(&self, hash: i32) -> Option<&Shard> {
        self.index(hash).map(|index| &self.shards[index])
    }

    /// Its index in [`Shards::all`].
    #[inline]
    pub fn index(&self, hash: i32) -> Option<usize> {
        let last = self.shards.partition_point(|shard| shard.min <= hash).checked_sub(1)?;
        (hash <= self.shards[last].max).then_some(last)
    }

    /// All of them, by hash.
    pub fn all(&self) -> &[Shard] {
        &self.shards
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_any_width_are_found() {
        let shard = |id, min, max| Shard { id, min, max };
        let shards =
            Shards::new(vec![shard(3, 10, i32::MAX), shard(1, i32::MIN, -5), shard(2, 0, 9)]).unwrap();
        let found =
            [i32::MIN, -5, -4, -1, 0, 9, 10, i32::MAX].map(|hash| shards.find(hash).map(|shard| shard.id));
        assert_eq!(found, [Some(1), Some(1), None, None, Some(2), Some(2), Some(3), Some(3)]);
        assert_eq!(Shards::new(Vec::new()).unwrap().find(0), None);
        assert_eq!(Shards::new(vec![shard(1, 0, 5), shard(2, 5, 9)]), None);
        assert_eq!(Shards::new(vec![shard(1, 6, 5)]), None);
    }
}
