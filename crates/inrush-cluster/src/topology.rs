//! Where the rows of a table belong.

use crate::Node;
use inrush_core::quote_ident;
use inrush_route::{HashKind, Partitions, Ranges, Shards, partition_hash, shard_hash};

/// What spreads a table over servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Citus: shards that only its metadata names.
    Citus,
    /// PostgreSQL: partitions, those on other servers as foreign tables of `postgres_fdw`.
    Partitions,
}

/// How a key leads to a place.
#[derive(Debug, Clone, PartialEq)]
pub enum Map {
    /// Ranges of the hash of 32 bits (Citus).
    Shards(Shards),
    /// Remainders of the hash of 64 bits (partitions by hash).
    Hash(Partitions),
    /// Ranges of the value (partitions by range).
    Ranges(Ranges),
    /// There is one place.
    One,
}

impl Map {
    /// The hash of a key by which places are told apart, where they are: of 32 bits for shards. `None`: there is none, of
    /// bytes that are no value of the type or of a NULL that no shard takes.
    pub fn hash(&self, values: &[(HashKind, Option<&[u8]>)]) -> Option<u64> {
        match (self, values) {
            (Map::Shards(_), [(kind, Some(value))]) => {
                shard_hash(*kind, value).map(|hash| u64::from(hash.cast_unsigned()))
            }
            (Map::Hash(_), values) => partition_hash(values),
            _ => None,
        }
    }

    /// The place of a key by its hash, as [`Map::hash`] gives it.
    pub fn at_hash(&self, hash: u64) -> Option<usize> {
        match self {
            // The lower half.
            #[allow(clippy::cast_possible_truncation)]
            Map::Shards(shards) => shards.index((hash as u32).cast_signed()),
            Map::Hash(partitions) => partitions.find(hash),
            Map::Ranges(_) => None,
            Map::One => Some(0),
        }
    }
}

/// A table on one node that stores rows: a shard, or a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Name of its schema there, not quoted.
    pub schema: String,
    /// Its name there, not quoted.
    pub name: String,
    /// Index of its node.
    pub node: usize,
    /// pg_dist_shard.shardid; of a partition, its OID on the coordinator.
    pub id: u64,
    /// Columns that have another name there: name here, name there.
    pub renamed: Vec<(String, String)>,
}

impl Place {
    /// `schema.name`, quoted where SQL needs it.
    pub fn qualified(&self) -> String {
        format!("{}.{}", quote_ident(&self.schema), quote_ident(&self.name))
    }

    /// What a column of the table is called there.
    pub fn column<'a>(&'a self, name: &'a str) -> &'a str {
        self.renamed.iter().find(|(here, _)| here == name).map_or(name, |(_, there)| there)
    }
}

/// Where the rows of a table belong.
#[derive(Debug, Clone, PartialEq)]
pub struct Topology {
    /// What spreads it.
    pub kind: Kind,
    /// Names of the columns of the key, in its order; none if there is one place.
    pub keys: Vec<String>,
    /// How a key leads to a place: the answers are indexes into `places`.
    pub map: Map,
    /// The places.
    pub places: Vec<Place>,
    /// The nodes that have places.
    pub nodes: Vec<Node>,
}
