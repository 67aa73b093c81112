//! Memory and processes.

use crate::advise::facts::ServerFacts;
use crate::advise::figures::{bytes, power_of_two, setting_size};
use crate::advise::{Advice, Effect};

/// The share of the memory that shared_buffers is given.
const SHARE: u64 = 4;
/// More brings loads little, and is not advised from here.
const MOST_SHARED: u64 = 16 << 30;
/// What PostgreSQL ships with.
const SHIPPED: u64 = 128 << 20;

pub(super) fn shared_buffers(facts: &ServerFacts) -> Option<Advice> {
    let now = facts.bytes("shared_buffers")?;
    let why = |memory: &str| {
        format!(
            "Pages of indexes that do not fit into shared_buffers are written out and read again during a load{memory}. \
             COPY into a table without indexes gains little: it works in a ring of 16MB."
        )
    };
    let price =
        "Memory that other programs and the cache of the operating system no longer have, and a restart.";
    let Some(memory) = facts.machine.as_ref().and_then(|machine| machine.memory) else {
        if now > SHIPPED {
            return None;
        }
        // Without the memory there is a share to name and no figure.
        let why = format!(
            "{} What PostgreSQL ships with is meant for any machine; a quarter of the memory is usual.",
            why("")
        );
        let mut advice = Advice::set(facts, "shared_buffers", String::new(), why, price.to_owned())?;
        advice.advised = None;
        advice.sql.clear();
        return Some(advice);
    };
    // Whole GB where there are several, else a power of two.
    let share = (memory / SHARE).min(MOST_SHARED);
    let wanted = if share >= 4 << 30 { share >> 30 << 30 } else { power_of_two(share) };
    // Loads gain so little that only much less than the share is worth a restart.
    if now.saturating_mul(4) > wanted {
        return None;
    }
    let why = why(&format!(" ({} of {} of memory now)", setting_size(now), bytes(memory)));
    Advice::set(facts, "shared_buffers", setting_size(wanted), why, price.to_owned())
}

pub(super) fn maintenance_work_mem(facts: &ServerFacts) -> Option<Advice> {
    let now = facts.bytes("maintenance_work_mem")?;
    let memory = facts.machine.as_ref().and_then(|machine| machine.memory)?;
    let wanted = power_of_two(memory / 64).min(1 << 30);
    if wanted < now.saturating_mul(4) {
        return None;
    }
    let why = format!(
        "Building an index after a load sorts within {}; what does not fit goes through temporary files.",
        setting_size(now)
    );
    let mut price = format!("{} for each CREATE INDEX at work", setting_size(wanted));
    if facts.is("autovacuum_work_mem", "-1")
        && let Some(workers) = facts.number("autovacuum_max_workers")
    {
        price += &format!(", and at most for each of the {workers} autovacuum workers");
    }
    price += ". `SET maintenance_work_mem` in one session does it for that session alone.";
    Advice::set(facts, "maintenance_work_mem", setting_size(wanted), why, price)
}

pub(super) fn maintenance_workers(facts: &ServerFacts) -> Option<Advice> {
    let now = facts.number("max_parallel_maintenance_workers")?;
    let processors = facts.machine.as_ref().and_then(|machine| machine.processors)?;
    let most = facts.number("max_parallel_workers").unwrap_or(8.0);
    // The leader works too; more than four share the work badly.
    let wanted = if processors >= 8 { 4.0_f64.min(most) } else { return None };
    if wanted <= now {
        return None;
    }
    let why = format!(
        "{now:.0} workers help to build an index after a load; the machine has {processors} processors."
    );
    let price =
        "Processors that others do not have while an index is built; maintenance_work_mem is shared by the \
                 workers."
            .to_owned();
    let advice = Advice::set(facts, "max_parallel_maintenance_workers", format!("{wanted:.0}"), why, price)?;
    debug_assert_ne!(advice.effect, Effect::Restart);
    Some(advice)
}

#[cfg(test)]
mod tests {
    use super::super::made_up::{GB, machine, server, set};
    use super::*;

    #[test]
    fn a_quarter_of_the_memory() {
        let mut facts = server();
        let advice = shared_buffers(&facts).unwrap();
        assert_eq!((advice.advised.as_deref(), advice.effect), (Some("16GB"), Effect::Restart));
        assert!(advice.why.contains("(128MB of 69 GB of memory now)"), "{}", advice.why);
        for (gb, advised) in [(2, "512MB"), (8, "2GB"), (23, "5GB"), (512, "16GB")] {
            facts.machine = Some(machine(gb * GB, 0));
            assert_eq!(shared_buffers(&facts).unwrap().advised.as_deref(), Some(advised), "{gb} GB");
        }
        for (pages, shown, advised) in [("131072", "1GB", true), ("262144", "2GB", false)] {
            set(&mut facts, "shared_buffers", pages, shown);
            facts.machine = Some(machine(23 * GB, 0));
            assert_eq!(shared_buffers(&facts).is_some(), advised, "{shown}");
        }
    }

    #[test]
    fn without_the_memory_there_is_no_figure() {
        let mut facts = server();
        facts.machine = None;
        let advice = shared_buffers(&facts).unwrap();
        assert_eq!((advice.advised, advice.sql.len()), (None, 0));
        set(&mut facts, "shared_buffers", "32768", "256MB");
        assert_eq!(shared_buffers(&facts), None);
    }

    #[test]
    fn index_builds() {
        let mut facts = server();
        let advice = maintenance_work_mem(&facts).unwrap();
        assert_eq!((advice.advised.as_deref(), advice.effect), (Some("1GB"), Effect::Reload));
        assert!(advice.price.contains("3 autovacuum workers"), "{}", advice.price);
        set(&mut facts, "autovacuum_work_mem", "65536", "64MB");
        assert!(!maintenance_work_mem(&facts).unwrap().price.contains("autovacuum"));
        assert_eq!(maintenance_workers(&facts).unwrap().advised.as_deref(), Some("4"));
        set(&mut facts, "max_parallel_workers", "2", "2");
        assert_eq!(maintenance_workers(&facts), None);
        facts.machine = Some(machine(8 * GB, 0));
        assert_eq!(maintenance_work_mem(&facts), None);
        facts.machine = None;
        assert_eq!((maintenance_work_mem(&facts), maintenance_workers(&facts)), (None, None));
    }
}
