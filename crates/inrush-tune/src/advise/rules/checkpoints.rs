//! How far apart checkpoints are.

use crate::advise::Advice;
use crate::advise::facts::ServerFacts;
use crate::advise::figures::{bytes, power_of_two, setting_size, since};

/// What serves bulk loads, as the kept runs have it.
const WANTED: u64 = 16 << 30;
/// Where the free space cannot be seen.
const UNSEEN: u64 = 4 << 30;
/// The part of the free space that the WAL may be given.
const SHARE: u64 = 4;
/// checkpoint_timeout wanted, milliseconds.
const TIMEOUT: u64 = 15 * 60_000;

/// What max_wal_size may be, with regard to the space of the WAL's device: a quarter of what is free or has WAL in it
/// already. `None` where that cannot be seen.
pub(super) fn room(facts: &ServerFacts) -> Option<u64> {
    let free = facts.machine.as_ref()?.wal()?.space?.free;
    let wal = facts.wal_directory_bytes.unwrap_or_default();
    Some(power_of_two(free.saturating_add(wal) / SHARE).min(WANTED))
}

/// WAL between two checkpoints, at most: the server begins one early enough to end before max_wal_size is reached
/// (xlog.c, CalculateCheckpointSegments).
#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)] // two digits are shown
fn distance(facts: &ServerFacts, max_wal_size: u64) -> u64 {
    let target = facts.number("checkpoint_completion_target").unwrap_or(0.9);
    (max_wal_size as f64 / (1.0 + target)) as u64
}

pub(super) fn max_wal_size(facts: &ServerFacts) -> Option<Advice> {
    let now = facts.bytes("max_wal_size")?;
    let room = room(facts);
    let wanted = room.unwrap_or(UNSEEN);
    // Less than twice as much is not worth a change.
    if wanted < now.saturating_mul(2) {
        return None;
    }
    let counted = &facts.checkpoints;
    let all = counted.timed + counted.requested;
    let seen = if counted.requested > 0 {
        format!(
            " {} of {all} checkpoints{} were asked for, which the volume of WAL does.",
            counted.requested,
            since(counted.since.as_deref())
        )
    } else {
        String::new()
    };
    let why = format!(
        "After {} of WAL at most a checkpoint begins: it writes every changed page, and the first change of a page \
         after it puts the whole page into the WAL (full_page_writes). A load into indexes pays for that again and \
         again; fewer checkpoints are the cure.{seen}",
        bytes(distance(facts, now))
    );
    let more = bytes(wanted - now);
    let space = match facts.machine.as_ref().and_then(|machine| machine.wal()?.space) {
        Some(space) => format!("pg_wal may take {more} more ({} are free there)", bytes(space.free)),
        None => format!(
            "pg_wal may take {more} more, and the free space there cannot be seen from here: look first. With 64 GB \
             free, 16GB serve loads better"
        ),
    };
    let price = format!(
        "{space}. Recovery after a crash may have to read {} of WAL instead of {}: minutes rather than seconds.",
        setting_size(wanted),
        setting_size(now)
    );
    Advice::set(facts, "max_wal_size", setting_size(wanted), why, price)
}

pub(super) fn checkpoint_timeout(facts: &ServerFacts) -> Option<Advice> {
    let now = facts.milliseconds("checkpoint_timeout")?;
    if now >= TIMEOUT {
        return None;
    }
    let shown = &facts.setting("checkpoint_timeout")?.shown;
    let why = format!(
        "Every {shown} a checkpoint begins even where max_wal_size leaves room for more: a load that takes longer \
         writes whole pages again after each."
    );
    let price = "Recovery after a crash has up to 15 minutes of changes to repeat.".to_owned();
    Advice::set(facts, "checkpoint_timeout", "15min".to_owned(), why, price)
}

pub(super) fn completion_target(facts: &ServerFacts) -> Option<Advice> {
    let now = facts.number("checkpoint_completion_target")?;
    if now >= 0.85 {
        return None;
    }
    let why = format!(
        "A checkpoint writes its pages within {:.0} % of the time until the next one: a burst of writes that the \
         load has to share the disk with.",
        now * 100.0
    );
    let price =
        "Checkpoints take longer and begin a little earlier. 0.9 is what PostgreSQL ships with.".to_owned();
    Advice::set(facts, "checkpoint_completion_target", "0.9".to_owned(), why, price)
}

#[cfg(test)]
mod tests {
    use super::super::made_up::{GB, machine, server, set};
    use super::*;
    use crate::advise::Effect;

    #[test]
    fn the_distance_of_checkpoints_grows_with_the_space() {
        let mut facts = server();
        facts.checkpoints.timed = 3;
        facts.checkpoints.requested = 40;
        facts.checkpoints.since = Some("2026-11-01".into());
        let advice = max_wal_size(&facts).unwrap();
        assert_eq!((advice.now.as_str(), advice.advised.as_deref()), ("1GB", Some("16GB")));
        assert_eq!(advice.sql, ["ALTER SYSTEM SET max_wal_size = '16GB';"]);
        assert_eq!(advice.effect, Effect::Reload);
        assert!(advice.why.contains("565 MB of WAL"), "{}", advice.why);
        assert!(advice.why.contains("40 of 43 checkpoints since 2026-11-01"), "{}", advice.why);
        assert!(advice.price.contains("16 GB more (400 GB are free there)"), "{}", advice.price);

        // A quarter of what is free, in powers of two.
        facts.machine = Some(machine(GB, 20_000_000_000));
        assert_eq!(max_wal_size(&facts).unwrap().advised.as_deref(), Some("4GB"));
        // What the WAL has already counts as room.
        facts.wal_directory_bytes = Some(16 << 30);
        assert_eq!(max_wal_size(&facts).unwrap().advised.as_deref(), Some("8GB"));
        facts.wal_directory_bytes = None;
        facts.machine = Some(machine(GB, 7_000_000_000));
        assert_eq!(max_wal_size(&facts), None);
        facts.machine = None;
        let unseen = max_wal_size(&facts).unwrap();
        assert_eq!(unseen.advised.as_deref(), Some("4GB"));
        assert!(unseen.price.contains("cannot be seen from here"), "{}", unseen.price);
    }

    #[test]
    fn what_is_large_enough_stays() {
        let mut facts = server();
        for (mb, shown) in [("16384", "16GB"), ("12288", "12GB"), ("102400", "100GB")] {
            set(&mut facts, "max_wal_size", mb, shown);
            assert_eq!(max_wal_size(&facts), None);
        }
        facts.settings.remove("max_wal_size");
        assert_eq!(max_wal_size(&facts), None);
    }

    #[test]
    fn time_between_checkpoints() {
        let mut facts = server();
        assert_eq!(checkpoint_timeout(&facts).unwrap().advised.as_deref(), Some("15min"));
        set(&mut facts, "checkpoint_timeout", "900", "15min");
        assert_eq!(checkpoint_timeout(&facts), None);
        assert_eq!(completion_target(&facts), None);
        set(&mut facts, "checkpoint_completion_target", "0.5", "0.5");
        let advice = completion_target(&facts).unwrap();
        assert!(advice.why.contains("within 50 %"), "{}", advice.why);
    }

    #[test]
    fn what_wins_over_alter_system_is_said() {
        let mut facts = server();
        facts.settings.get_mut("max_wal_size").unwrap().source = "command line".into();
        assert!(max_wal_size(&facts).unwrap().obstacle.unwrap().contains("command line"));
    }
}
