//! How WAL is written, and how much.

use crate::advise::facts::ServerFacts;
use crate::advise::figures::{bytes, power_of_two, setting_size, since};
use crate::advise::{Advice, Effect};

/// Least WAL that makes the counters worth a conclusion.
const ENOUGH_WAL: u64 = 1 << 30;
/// Buffers from which more have not been shown to help.
const ENOUGH_BUFFERS: u64 = 64 << 20;
/// Share of whole pages in the WAL, in per cent, from which compressing them is advised.
const PAGES_WORTH_IT: u64 = 20;

pub(super) fn wal_buffers(facts: &ServerFacts) -> Option<Advice> {
    let now = facts.bytes("wal_buffers")?;
    let wanted: u64 = 256 << 20;
    // At most 1/32 of the memory, or, where that is not known, 1/4 of what the server has for pages already.
    let room = match facts.machine.as_ref().and_then(|machine| machine.memory) {
        Some(memory) => memory / 32,
        None => facts.bytes("shared_buffers")? / 4,
    };
    let wanted = wanted.min(power_of_two(room));
    let never_full = facts.wal.bytes >= ENOUGH_WAL && facts.wal.buffers_full == 0;
    if now >= ENOUGH_BUFFERS || wanted < now.saturating_mul(2) || wanted < 16 << 20 || never_full {
        return None;
    }
    let seen = match facts.wal.buffers_full {
        0 => String::new(),
        n => format!(" That has happened {n} times{}.", since(facts.wal.since.as_deref())),
    };
    let why = format!(
        "A connection that finds the WAL buffers full writes WAL itself, and the others wait for it.{seen} In a fast \
         logged load (two connections, PostgreSQL 18) 256MB took a quarter off the time that the automatic 16MB \
         needed; loads \
         that the parsing of text limits gain nothing."
    );
    let price = format!("{} of shared memory, and a restart.", bytes(wanted - now));
    Advice::set(facts, "wal_buffers", setting_size(wanted), why, price)
}

/// Share of whole pages in the WAL in per cent, at most; `None` while there has been too little WAL to tell.
fn page_share(facts: &ServerFacts) -> Option<u64> {
    let block = facts.number("block_size").map_or(8192, |n| if n > 0.0 { n as u64 } else { 8192 });
    let pages = facts.wal.page_images.saturating_mul(block);
    has_figures(facts).then(|| (pages.saturating_mul(100) / facts.wal.bytes).min(100))
}

/// Whether there has been enough WAL to judge by its counters.
pub(super) fn has_figures(facts: &ServerFacts) -> bool {
    facts.wal.bytes >= ENOUGH_WAL
}

/// The methods that cost little CPU; PostgreSQL's own, pglz, is not among them.
fn light_method(facts: &ServerFacts) -> Option<&'static str> {
    let choices = &facts.setting("wal_compression")?.choices;
    ["lz4", "zstd"].into_iter().find(|method| choices.iter().any(|choice| choice == method))
}

const COMPRESSION_PRICE: &str = "CPU time of the connections that load, for each whole page. Only those are \
                                 compressed: rows put into new pages are not.";

pub(super) fn wal_compression(facts: &ServerFacts) -> Option<Advice> {
    let share = page_share(facts)?;
    if !facts.is("wal_compression", "off") || share < PAGES_WORTH_IT {
        return None;
    }
    let why = format!(
        "Up to {share} % of the {} of WAL{} were whole pages, as the first change of a page after a checkpoint writes \
         them; loads into indexes make many.",
        bytes(facts.wal.bytes),
        since(facts.wal.since.as_deref())
    );
    Advice::set(facts, "wal_compression", light_method(facts)?.to_owned(), why, COMPRESSION_PRICE.to_owned())
}

/// The same before there are figures to go by: for whoever knows the loads to come.
pub(super) fn wal_compression_for_indexes(facts: &ServerFacts) -> Option<Advice> {
    if !facts.is("wal_compression", "off") || page_share(facts).is_some() {
        return None;
    }
    let why = "There has been too little WAL to tell how much of it is whole pages. Loads into tables with indexes \
               write many of them after each checkpoint, loads into tables without write few."
        .to_owned();
    Advice::set(facts, "wal_compression", light_method(facts)?.to_owned(), why, COMPRESSION_PRICE.to_owned())
}

pub(super) fn wal_level(facts: &ServerFacts) -> Option<Advice> {
    // Logical decoding was asked for by somebody: that is theirs to give up.
    let alone = facts.replicas.is_empty()
        && facts.slots.is_empty()
        && facts.is("archive_mode", "off")
        && !facts.is("summarize_wal", "on");
    if !facts.is("wal_level", "replica") || !alone {
        return None;
    }
    let why = "No replica, no slot and no archive is to be seen. With `minimal`, building an index, SET LOGGED, and COPY \
               in the transaction that created or truncated the table write their data to the files at once instead of \
               into the WAL. Loads over several connections, or into a table that was there before, gain nothing."
        .to_owned();
    let price = "No standby, no pg_basebackup of the running server and no recovery to a point in time while it lasts, \
                 and base backups taken before are of no use for times after it."
        .to_owned();
    let mut advice = Advice::set(facts, "wal_level", "minimal".to_owned(), why, price)?;
    debug_assert_eq!(advice.effect, Effect::Restart);
    // The server does not start with the one without the other.
    if !facts.is("max_wal_senders", "0") {
        advice.sql.push(crate::settings::set_sql("max_wal_senders", "0"));
        advice.may &= facts.setting("max_wal_senders").is_some_and(|setting| setting.may_alter);
    }
    Some(advice)
}

#[cfg(test)]
mod tests {
    use super::super::made_up::{GB, machine, server, set};
    use super::*;
    use crate::advise::facts::{Replica, Slot};

    #[test]
    fn buffers_for_wal() {
        let mut facts = server();
        let advice = wal_buffers(&facts).unwrap();
        assert_eq!(advice.advised.as_deref(), Some("256MB"));
        assert_eq!(advice.effect, Effect::Restart);
        assert!(!advice.why.contains("happened"), "{}", advice.why);
        facts.wal.buffers_full = 77;
        facts.wal.since = Some("2026-11-01".into());
        assert!(wal_buffers(&facts).unwrap().why.contains("happened 77 times since 2026-11-01"));

        // A small machine gets little, an unknown one goes by what the server has.
        facts.machine = Some(machine(2 * GB, 0));
        assert_eq!(wal_buffers(&facts).unwrap().advised.as_deref(), Some("64MB"));
        facts.machine = None;
        assert_eq!(wal_buffers(&facts).unwrap().advised.as_deref(), Some("32MB"));
        set(&mut facts, "shared_buffers", "1048576", "8GB");
        assert_eq!(wal_buffers(&facts).unwrap().advised.as_deref(), Some("256MB"));
        set(&mut facts, "wal_buffers", "8192", "64MB");
        assert_eq!(wal_buffers(&facts), None);
    }

    #[test]
    fn buffers_that_were_never_full_are_large_enough() {
        let mut facts = server();
        facts.wal.bytes = 5 * GB;
        assert_eq!(wal_buffers(&facts), None);
    }

    #[test]
    fn compression_goes_by_the_share_of_whole_pages() {
        let mut facts = server();
        assert_eq!(wal_compression(&facts), None);
        assert_eq!(wal_compression_for_indexes(&facts).unwrap().advised.as_deref(), Some("lz4"));
        facts.wal.bytes = 10 * GB;
        facts.wal.page_images = 10 * GB / 8192 / 2;
        let advice = wal_compression(&facts).unwrap();
        assert!(advice.why.contains("Up to 50 %"), "{}", advice.why);
        assert_eq!(advice.effect, Effect::Reload);
        assert_eq!(wal_compression_for_indexes(&facts), None);
        facts.wal.page_images = 100;
        assert_eq!((wal_compression(&facts), wal_compression_for_indexes(&facts)), (None, None));
    }

    #[test]
    fn compression_needs_a_build_that_has_it() {
        let mut facts = server();
        let choices = |facts: &mut ServerFacts, list: &[&str]| {
            facts.settings.get_mut("wal_compression").unwrap().choices =
                list.iter().map(|choice| (*choice).to_owned()).collect();
        };
        choices(&mut facts, &["pglz", "on", "off"]);
        assert_eq!(wal_compression_for_indexes(&facts), None);
        choices(&mut facts, &["pglz", "zstd", "on", "off"]);
        assert_eq!(wal_compression_for_indexes(&facts).unwrap().advised.as_deref(), Some("zstd"));
        set(&mut facts, "wal_compression", "pglz", "pglz");
        assert_eq!(wal_compression_for_indexes(&facts), None);
    }

    #[test]
    fn minimal_wal_only_where_nobody_follows() {
        let facts = server();
        let advice = wal_level(&facts).unwrap();
        assert_eq!(
            advice.sql,
            ["ALTER SYSTEM SET wal_level = 'minimal';", "ALTER SYSTEM SET max_wal_senders = '0';"]
        );
        let with = |change: fn(&mut ServerFacts)| {
            let mut facts = server();
            change(&mut facts);
            wal_level(&facts)
        };
        assert_eq!(with(|facts| facts.replicas.push(Replica::default())), None);
        assert_eq!(with(|facts| facts.slots.push(Slot::default())), None);
        assert_eq!(with(|facts| set(facts, "archive_mode", "on", "on")), None);
        assert_eq!(with(|facts| set(facts, "wal_level", "logical", "logical")), None);
        assert_eq!(with(|facts| set(facts, "wal_level", "minimal", "minimal")), None);
    }
}
