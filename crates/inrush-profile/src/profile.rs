//! What the samples come to.

use crate::blockers::Blocker;
use crate::class::Class;
use crate::counters::Counters;
use crate::limit::Limit;
use crate::series::Series;
use serde::Serialize;
use std::collections::BTreeMap;

/// Where the time of a load's backends went.
#[derive(Debug, Clone, Serialize)]
pub struct Profile {
    /// Samples per second that were wanted.
    pub hz: u32,
    /// Looks at the server.
    pub samples: u64,
    /// Backend seconds that the samples stand for.
    pub backend_seconds: f64,
    /// Seconds of the load before the first sample: short loads are not worth a connection.
    pub unseen_seconds: f64,
    /// Processor seconds that sampling took on the server, where it can be seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_cpu_seconds: Option<f64>,
    /// What the load was limited by. None where there were too few samples to say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<Limit>,
    /// Backend time by class, most first.
    pub split: Vec<ClassShare>,
    /// Whether waiting for a processor could be told from running.
    pub cpu_queue_seen: bool,
    /// What the client did while the server waited for it.
    pub client: ClientShare,
    /// Backend time by wait event, most first; without event: it ran, or waited for a processor.
    pub events: Vec<EventShare>,
    /// Whose locks were waited for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub blockers: Vec<Blocker>,
    /// What the whole server counted meanwhile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub counters: Option<Counters>,
    /// Settings in force that matter for loading.
    pub settings: BTreeMap<String, String>,
    /// Figures over time.
    pub series: Series,
}

/// Time of a class.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ClassShare {
    /// The class.
    pub class: Class,
    /// Backend seconds.
    pub seconds: f64,
    /// Of all backend seconds, 0 to 1.
    pub share: f64,
}

/// Time of a wait event.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct EventShare {
    /// wait_event_type, empty for none.
    #[serde(rename = "type")]
    pub kind: String,
    /// wait_event, empty for none.
    pub event: String,
    /// The class it was counted for.
    pub class: Class,
    /// Backend seconds.
    pub seconds: f64,
    /// Of all backend seconds, 0 to 1.
    pub share: f64,
}

/// What the client did while the server waited for it: backend seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct ClientShare {
    /// The lane waited for input: reading, decompressing or cutting is slow, or the input itself.
    pub input: f64,
    /// The lane decoded or encoded.
    pub encode: f64,
    /// The lane was sending, on the same machine: it or the kernel needed time.
    pub send: f64,
}

impl Profile {
    /// Share of a class, 0 to 1.
    pub fn share(&self, class: Class) -> f64 {
        self.split.iter().find(|share| share.class == class).map_or(0.0, |share| share.share)
    }

    /// `server CPU 41 %, WAL write and sync 38 %, the client 21 %`
    pub fn split_in_words(&self) -> String {
        let worth = self.split.iter().filter(|share| share.share >= 0.005);
        worth
            .map(|share| format!("{} {:.0} %", share.class.in_words(), share.share * 100.0))
            .collect::<Vec<_>>()
            .join(", ")
    }
}

/// A size as the server prints it: `8192`, `64kB`, `16MB`, `1GB` (guc.c, memory_unit_conversion_table).
pub fn setting_bytes(text: &str) -> Option<u64> {
    let unit = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let factor = match &text[unit..] {
        "" | "B" => 1,
        "kB" => 1 << 10,
        "MB" => 1 << 20,
        "GB" => 1 << 30,
        "TB" => 1 << 40,
        _ => return None,
    };
    text[..unit].parse::<u64>().ok()?.checked_mul(factor)
}
