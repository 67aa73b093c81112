//! Wait events by name, counted without an allocation per sample.

use crate::class::Class;
use std::collections::HashMap;

/// A wait event as pg_stat_activity shows it: `Lock`, `extend`. Both are empty for a backend that waits for nothing.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WaitEvent {
    /// wait_event_type
    pub kind: Box<str>,
    /// wait_event
    pub name: Box<str>,
}

impl WaitEvent {
    /// The event of this type and name.
    pub fn new(kind: &str, name: &str) -> WaitEvent {
        WaitEvent { kind: kind.into(), name: name.into() }
    }
}

/// Seconds by event and by the class they were counted for: waiting for the client is one event and two classes.
#[derive(Debug, Clone, Default)]
pub(crate) struct EventTimes {
    seconds: HashMap<WaitEvent, HashMap<Class, f64>>,
}

impl EventTimes {
    pub fn add(&mut self, event: &WaitEvent, class: Class, seconds: f64) {
        // `entry` would need an owned key each time, and all but the first few are there.
        if !self.seconds.contains_key(event) {
            self.seconds.insert(event.clone(), HashMap::new());
        }
        if let Some(classes) = self.seconds.get_mut(event) {
            *classes.entry(class).or_default() += seconds;
        }
    }

    /// Every event with its class and seconds, most first.
    pub fn ranked(&self) -> Vec<(&WaitEvent, Class, f64)> {
        let each = self.seconds.iter().flat_map(|(event, classes)| {
            classes.iter().map(move |(class, seconds)| (event, *class, *seconds))
        });
        let mut ranked: Vec<_> = each.collect();
        ranked.sort_by(|a, b| b.2.total_cmp(&a.2).then_with(|| a.0.cmp(b.0)));
        ranked
    }
}
