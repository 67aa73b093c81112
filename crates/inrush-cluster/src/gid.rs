//! Names of the prepared transactions of a unit.
//!
//! `inrush_<origin>_<load>_<epoch>_<unit>_<part>`: the origin is the ledger's own, so that two clusters may share a node.
//! Citus resolves what begins with `citus_`, and leaves all else alone.

use std::fmt;

/// The unit that prepared transactions belong to.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Gid {
    /// Whose ledger has the unit.
    pub origin: String,
    /// loads.id, or the number of a stream.
    pub load: i64,
    /// Epoch of the load: behind a later one, nobody can commit the unit any more. 0 of a stream, whose units nobody
    /// commits once its session is gone.
    pub epoch: i32,
    /// Tells the units of one epoch apart: `lane.number`.
    pub unit: String,
}

/// One of the transactions of a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// Rows.
    Rows,
    /// The guard: ends last.
    Guard,
}

impl Gid {
    /// Whether it is of a stream.
    pub fn is_of_stream(&self) -> bool {
        self.epoch == 0
    }

    /// What the names of all transactions of an origin begin with.
    pub fn prefix(origin: &str) -> String {
        format!("inrush_{origin}_")
    }

    /// The name of a transaction. Names are unique on a server, over all its databases: the node is part of it, for
    /// nodes that are databases of one server.
    pub fn part(&self, part: Part, node: usize) -> String {
        match part {
            Part::Rows => format!("{self}_n{node}"),
            Part::Guard => format!("{self}_guard"),
        }
    }

    /// Reads the name of a unit, as the ledger has it.
    pub fn of_unit(name: &str) -> Option<Gid> {
        let mut words = name.strip_prefix("inrush_")?.split('_');
        let gid = Gid {
            origin: words.next()?.to_owned(),
            load: words.next()?.parse().ok()?,
            epoch: words.next()?.parse().ok()?,
            unit: words.next()?.to_owned(),
        };
        words.next().is_none().then_some(gid)
    }

    /// Reads the name of a transaction.
    pub fn parse(name: &str) -> Option<(Gid, Part)> {
        let (unit, part) = name.rsplit_once('_')?;
        let part = match part {
            "guard" => Part::Guard,
            node => node.strip_prefix('n')?.parse::<usize>().ok().map(|_| Part::Rows)?,
        };
        Some((Gid::of_unit(unit)?, part))
    }
}

/// As the ledger has it: without part.
impl fmt::Display for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "inrush_{}_{}_{}_{}", self.origin, self.load, self.epoch, self.unit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        let gid = Gid { origin: "0a1b".into(), load: 12, epoch: 3, unit: "0.17".into() };
        assert_eq!(gid.part(Part::Rows, 2), "inrush_0a1b_12_3_0.17_n2");
        assert_eq!(Gid::of_unit(&gid.to_string()), Some(gid.clone()));
        for part in [Part::Rows, Part::Guard] {
            let name = gid.part(part, 2);
            assert_eq!(Gid::parse(&name), Some((gid.clone(), part)));
            assert!(name.starts_with(&Gid::prefix("0a1b")) && name.len() < 200, "{name}");
            assert_eq!(Gid::of_unit(&name), None);
        }
        for foreign in
            ["citus_0_1_2_3", "inrush_", "inrush_a_1_1_0.0", "inrush_a_x_1_0.0_n1", "inrush_a_1_1_0.0_n1_x"]
        {
            assert_eq!(Gid::parse(foreign), None, "{foreign}");
        }
    }
}
