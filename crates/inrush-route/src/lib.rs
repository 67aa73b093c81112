//! Row to destination: which hash partition a row belongs to, without asking the server. Pure: no I/O, no clock.
//!
//! A partition of a hash-partitioned table can be loaded directly; the server then checks the bound of every row
//! (ExecPartitionCheck), so that a wrong guess is an error and never a row in the wrong place. That does not hold
//! for foreign tables, whose remote side knows nothing of the bound, nor for the shards of Citus, which have none.

mod hash;
mod kind;
mod partitions;
mod ranges;
mod shards;

pub use hash::{hash_bytes, hash_word};
pub use kind::HashKind;
pub use partitions::{Bound, Partitions};
pub use ranges::{End, Range, RangeKind, Ranges, parse_range};
pub use shards::{Shard, Shards, shard_hash};

/// HASH_PARTITION_SEED (partbounds.c / partition.h)
pub const PARTITION_SEED: u64 = 0x7A5B_2236_7996_DCFD;

/// The hash of a row by the columns of its partition key, in the order of the key (partbounds.c,
/// compute_partition_hash_value). `None` in `values` is NULL, which is passed over. `None` for the row: a value
/// that is none of its type, or that the server would refuse.
pub fn partition_hash(values: &[(HashKind, Option<&[u8]>)]) -> Option<u64> {
    let mut row = 0;
    for (kind, value) in values {
        if let Some(value) = value {
            row = combine(row, kind.hash(value, PARTITION_SEED)?);
        }
    }
    Some(row)
}

/// hash_combine64 (hashfn.h)
#[inline]
fn combine(a: u64, b: u64) -> u64 {
    let stirred = b.wrapping_add(0x49a0_f4dd_15e5_a8e3).wrapping_add(a << 54).wrapping_add(a >> 7);
    a ^ stirred
}
