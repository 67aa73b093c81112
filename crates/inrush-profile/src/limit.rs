//! One sentence that says what the limit was.

use crate::class::Class;
use crate::counters::Counters;
use crate::profile::{ClassShare, ClientShare, setting_bytes};
use serde::Serialize;
use std::collections::BTreeMap;

/// Samples below which nothing is said.
const FEWEST_SAMPLES: u64 = 10;
/// Seconds between checkpoints below which they are named.
const CROWDED_CHECKPOINTS: f64 = 60.0;

/// Classes that are two sides of one thing and compete with the others together: a server without a free
/// processor, a server that waits for rows.
const PAIRS: [[Class; 2]; 2] = [[Class::Cpu, Class::CpuQueue], [Class::Client, Class::Network]];

/// What a load was limited by.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Limit {
    /// The class with most backend time; of a pair that has most together, the larger one.
    pub class: Class,
    /// Its share of backend time, 0 to 1.
    pub share: f64,
    /// The sentence.
    pub sentence: String,
    /// Seconds between checkpoints that `max_wal_size` forced, if there were several in a short time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpoint_every_seconds: Option<f64>,
}

impl Limit {
    /// Names the class with most time, and what lies behind it. `split` is ordered, most first; `seconds` is how
    /// long the counters ran.
    pub(crate) fn of(
        samples: u64,
        split: &[ClassShare],
        client: ClientShare,
        counters: Option<&Counters>,
        seconds: f64,
        settings: &BTreeMap<String, String>,
    ) -> Option<Limit> {
        let (class, share, mut sentence) = named(samples, split, Class::in_words, |class| {
            if class != Class::Client {
                ""
            } else if client.input > client.encode.max(client.send) {
                " went by until input was read"
            } else if client.encode > client.send {
                " went by until rows were decoded and encoded"
            } else {
                " went by until rows were sent"
            }
        })?;
        let every = counters
            .filter(|counters| by_size(counters, settings))
            .and_then(|counters| crowded(counters.checkpoints_requested, seconds));
        if let Some(every) = every {
            let size = settings.get("max_wal_size").map_or(String::new(), |size| format!(" of {size}"));
            sentence += &format!(", with a checkpoint every {every:.1} s because of max_wal_size{size}");
        }
        Some(Limit { class, share, sentence, checkpoint_every_seconds: every })
    }

    /// As [`Limit::of`], of sessions whose clients are not ours. `forced`: checkpoints that were forced, and in
    /// how many seconds.
    pub(crate) fn of_others(samples: u64, split: &[ClassShare], forced: Option<(u64, f64)>) -> Option<Limit> {
        let (class, share, mut sentence) = named(samples, split, Class::in_words_of_others, |_| "")?;
        let every = forced.and_then(|(checkpoints, seconds)| crowded(checkpoints, seconds));
        if let Some(every) = every {
            sentence += &format!(", with a forced checkpoint every {every:.1} s");
        }
        Some(Limit { class, share, sentence, checkpoint_every_seconds: every })
    }
}

/// The class with most time, its share, and the sentence about it. `more` says what else is known of it.
fn named(
    samples: u64,
    split: &[ClassShare],
    words: fn(Class) -> &'static str,
    more: impl Fn(Class) -> &'static str,
) -> Option<(Class, f64, String)> {
    if samples < FEWEST_SAMPLES {
        return None;
    }
    let other = |class: Class| {
        let pair = PAIRS.iter().find(|pair| pair.contains(&class))?;
        split.iter().find(|share| share.class != class && pair.contains(&share.class))
    };
    let together = |share: &ClassShare| share.share + other(share.class).map_or(0.0, |other| other.share);
    // Of two with the same sum the first one is the larger one: `max_by` would take the last.
    let most = split.iter().rev().max_by(|a, b| together(a).total_cmp(&together(b)))?;
    let mut sentence = format!("{}: {:.0} % of backend time", words(most.class), most.share * 100.0);
    sentence += more(most.class);
    if let Some(other) = other(most.class).filter(|other| other.share >= 0.05) {
        sentence += &format!(", and {}: {:.0} %", words(other.class), other.share * 100.0);
    }
    Some((most.class, most.share, sentence))
}

/// Whether the WAL between two requested checkpoints is enough for `max_wal_size` to have asked for them: a checkpoint
/// begins at about half of it (xlog.c, CalculateCheckpointSegments). Somebody else may ask, too: CHECKPOINT, CREATE
/// DATABASE, a base backup.
fn by_size(counters: &Counters, settings: &BTreeMap<String, String>) -> bool {
    let Some(size) = settings.get("max_wal_size").and_then(|size| setting_bytes(size)) else { return true };
    counters.wal.bytes >= counters.checkpoints_requested.saturating_mul(size / 4)
}

/// Seconds between checkpoints that were forced, if there were several in a short time.
fn crowded(forced: u64, seconds: f64) -> Option<f64> {
    #[allow(clippy::cast_precision_loss)] // a count of checkpoints
    (forced >= 2).then(|| seconds / forced as f64).filter(|every| *every < CROWDED_CHECKPOINTS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(class: Class, share: f64) -> Vec<ClassShare> {
        vec![ClassShare { class, seconds: share * 10.0, share }]
    }

    #[test]
    fn names_the_largest_class() {
        let say = |samples| {
            Limit::of(
                samples,
                &split(Class::ExtendLock, 0.71),
                ClientShare::default(),
                None,
                10.0,
                &BTreeMap::new(),
            )
        };
        assert_eq!(say(500).unwrap().sentence, "relation extension locks: 71 % of backend time");
        assert_eq!(say(FEWEST_SAMPLES - 1), None);
    }

    #[test]
    fn two_sides_of_one_thing_compete_together() {
        let share = |class, share| ClassShare { class, seconds: share, share };
        let split = [
            share(Class::Wal, 0.4),
            share(Class::CpuQueue, 0.35),
            share(Class::Cpu, 0.2),
            share(Class::Lock, 0.05),
        ];
        let limit = Limit::of(500, &split, ClientShare::default(), None, 1.0, &BTreeMap::new()).unwrap();
        assert_eq!((limit.class, limit.share), (Class::CpuQueue, 0.35));
        assert_eq!(limit.sentence, "waiting for a CPU: 35 % of backend time, and server CPU: 20 %");
    }

    #[test]
    fn names_checkpoints_and_what_the_client_did() {
        let mut counters = Counters { checkpoints_requested: 20, ..Counters::default() };
        counters.wal.bytes = 20 << 25;
        let settings = BTreeMap::from([("max_wal_size".to_owned(), "64MB".to_owned())]);
        let limit =
            Limit::of(500, &split(Class::Wal, 0.6), ClientShare::default(), Some(&counters), 10.0, &settings);
        assert_eq!(
            limit.unwrap().sentence,
            "WAL write and sync: 60 % of backend time, with a checkpoint every 0.5 s because of max_wal_size of 64MB"
        );
        // Too little WAL for that: somebody else asks for checkpoints.
        counters.wal.bytes = 20 << 20;
        let limit =
            Limit::of(500, &split(Class::Wal, 0.6), ClientShare::default(), Some(&counters), 10.0, &settings);
        assert_eq!(limit.unwrap().sentence, "WAL write and sync: 60 % of backend time");
        let client = ClientShare { input: 3.0, encode: 1.0, send: 0.5 };
        let limit = Limit::of(500, &split(Class::Client, 0.4), client, None, 10.0, &settings).unwrap();
        assert_eq!(limit.sentence, "the client: 40 % of backend time went by until input was read");
    }
}
