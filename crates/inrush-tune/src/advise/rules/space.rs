//! Disks: what is free, and what shares one.

use super::checkpoints;
use crate::advise::facts::ServerFacts;
use crate::advise::figures::{bytes, setting_size};
use crate::advise::machine::{Directory, Space};
use crate::advise::{Finding, Weight};

/// Free space below which a file system is nearly full, whatever its size.
const LITTLE: u64 = 5_000_000_000;
/// max_wal_size with which checkpoints come often during a load.
const SMALL: u64 = 4 << 30;

pub(super) fn findings(facts: &ServerFacts, found: &mut Vec<Finding>) {
    let Some(machine) = &facts.machine else { return };
    let mut told: Vec<&str> = Vec::new();
    for directory in &machine.directories {
        // Directories on one file system are full together.
        let place = directory.mount_point.as_deref().unwrap_or(&directory.path);
        if !told.contains(&place) && directory.space.is_some_and(nearly_full) {
            told.push(place);
            found.extend(little_space(directory));
        }
    }
    let now = facts.bytes("max_wal_size");
    if let (Some(now), Some(room), Some(space)) =
        (now, checkpoints::room(facts), machine.wal().and_then(|wal| wal.space))
        && now > space.total
    {
        found.push(Finding {
            about: "wal-space",
            weight: Weight::Danger,
            text: format!(
                "max_wal_size is more than the device of pg_wal has in all ({}): the server stops when it is full.",
                bytes(space.total)
            ),
            remedy: Some(format!("Lower max_wal_size to {} or less.", setting_size(room))),
        });
    }
    if let (Some(now), Some(room), Some(space)) =
        (now, checkpoints::room(facts), machine.wal().and_then(|wal| wal.space))
        && now < SMALL
        && room < now.saturating_mul(2)
    {
        found.push(Finding {
            about: "wal-room",
            weight: Weight::Limit,
            text: format!(
                "Checkpoints come often (max_wal_size is {}), and the device of pg_wal has too little free space to \
                 make them rarer ({}).",
                setting_size(now),
                bytes(space.free)
            ),
            remedy: Some("With four times the space that max_wal_size is to have, it can be raised.".into()),
        });
    }
    let (data, wal) = (machine.directories.first(), machine.wal());
    if let (Some(data), Some(wal)) = (data, wal)
        && wal.rotational == Some(true)
        && data.device.is_some()
        && data.device == wal.device
    {
        found.push(Finding {
            about: "wal-shares-disk",
            weight: Weight::Limit,
            text: format!(
                "The WAL and the data are on one disk ({}), and it turns: its head goes to and fro between them.",
                wal.device.as_deref().unwrap_or_default()
            ),
            remedy: Some("Put pg_wal on a device of its own (initdb --waldir, or a link while it is stopped).".into()),
        });
    }
}

/// Less than a tenth, where that is less than 50 GB: a tenth of a large disk is room enough.
fn nearly_full(space: Space) -> bool {
    space.free < LITTLE || space.free < (space.total / 10).min(10 * LITTLE)
}

fn little_space(directory: &Directory) -> Option<Finding> {
    let space = directory.space?;
    let what = match directory.what.as_str() {
        "data" => "the data directory",
        other => other,
    };
    Some(Finding {
        about: "little-space",
        weight: Weight::Danger,
        text: format!(
            "The device of {what} ({}) has {} of {} left: a server whose WAL finds no space stops.",
            directory.device.as_deref().unwrap_or(&directory.path),
            bytes(space.free),
            bytes(space.total)
        ),
        remedy: Some(
            "Make room before a large load; `inrush load --max-lag` pauses one while little is left.".into(),
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::super::made_up::{GB, about, machine, server, set};
    use super::*;

    #[test]
    fn a_full_device_is_told_once() {
        let mut facts = server();
        assert_eq!(about(&facts, "little-space"), None);
        facts.machine = Some(machine(64 * GB, 3_000_000_000));
        let mut found = Vec::new();
        findings(&facts, &mut found);
        let kinds: Vec<&str> = found.iter().map(|finding| finding.about).collect();
        assert_eq!(kinds, ["little-space", "wal-room"]);
        assert!(
            found[1].text.contains("max_wal_size is 1GB") && found[1].text.contains("(3.0 GB)"),
            "{found:?}"
        );
        assert!(found[0].text.contains("/dev/nvme0n1) has 3.0 GB of 1.0 TB"), "{}", found[0].text);
        // 8 % of a terabyte are enough.
        facts.machine = Some(machine(64 * GB, 80_000_000_000));
        assert_eq!(about(&facts, "little-space"), None);
    }

    #[test]
    fn a_limit_beyond_the_device_is_no_limit() {
        let mut facts = server();
        set(&mut facts, "max_wal_size", "1048576", "1TB");
        assert!(about(&facts, "wal-space").is_some());
        set(&mut facts, "max_wal_size", "65536", "64GB");
        assert_eq!(about(&facts, "wal-space"), None);
    }

    #[test]
    fn wal_beside_data_matters_on_disks_that_turn() {
        let mut facts = server();
        assert_eq!(about(&facts, "wal-shares-disk"), None);
        for directory in &mut facts.machine.as_mut().unwrap().directories {
            directory.rotational = Some(true);
        }
        assert!(about(&facts, "wal-shares-disk").is_some());
        facts.machine.as_mut().unwrap().directories[1].device = Some("/dev/sdb".into());
        assert_eq!(about(&facts, "wal-shares-disk"), None);
    }
}
