//! What librdkafka calls back for: the group's decisions, statistics, and what is to be logged.

use super::super::allowed;
use super::PartitionKey;
use crate::config::{FormatName, Into};
use crate::part::Source;
use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext};
use rdkafka::error::KafkaError;
use rdkafka::types::RDKafkaRespErr;
use rdkafka::{Statistics, TopicPartitionList};
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How far a partition has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Reached {
    /// What is behind us, stored.
    pub position: i64,
    /// Whether that is all that we have been given.
    pub all: bool,
}

/// What the client calls back for.
pub(super) struct Context {
    source: Arc<Source>,
    format: FormatName,
    /// What is assigned, and by which assignment: a partition that comes back is not the same.
    assigned: Mutex<(u64, HashMap<PartitionKey, u64>)>,
    reached: Mutex<HashMap<PartitionKey, Reached>>,
}

impl Context {
    pub fn new(source: Arc<Source>, format: FormatName) -> Context {
        Context { source, format, assigned: Mutex::default(), reached: Mutex::default() }
    }

    pub fn assigned(&self) -> MutexGuard<'_, (u64, HashMap<PartitionKey, u64>)> {
        self.assigned.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn reached(&self) -> MutexGuard<'_, HashMap<PartitionKey, Reached>> {
        self.reached.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The table of a topic, if the topic names it and the input may not write it. What lines name is looked at line by
    /// line.
    fn refused(&self, topic: &str) -> Option<String> {
        let into = &self.source.into;
        let named = into.table.as_ref().is_none_or(|template| template.contains("{topic}"));
        table_of(into, self.format, topic).filter(|table| named && !allowed(into, table))
    }
}

/// The table that the rows of a topic are for; none where each line names its own.
pub(super) fn table_of(into: &Into, format: FormatName, topic: &str) -> Option<String> {
    match &into.table {
        Some(template) => Some(template.replace("{topic}", topic)).filter(|name| !name.contains('{')),
        None if format == FormatName::Line => None,
        None => Some(topic.to_owned()),
    }
}

impl ClientContext for Context {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        match level {
            RDKafkaLogLevel::Emerg
            | RDKafkaLogLevel::Alert
            | RDKafkaLogLevel::Critical
            | RDKafkaLogLevel::Error => {
                tracing::warn!(input = self.source.name, facility, message);
            }
            _ => tracing::debug!(input = self.source.name, facility, message),
        }
    }

    fn error(&self, error: KafkaError, reason: &str) {
        tracing::warn!(input = self.source.name, %error, reason);
    }

    fn stats(&self, statistics: Statistics) {
        let (assignments, keys) = &*self.assigned();
        let reached = self.reached();
        let lag_of = |key: &PartitionKey| {
            let reached = reached.get(key)?;
            let found = statistics.topics.get(&key.0)?.partitions.get(&key.1)?;
            // Behind the last message there may be marks of transactions, which are no messages.
            let passed = if reached.all && found.fetchq_cnt == 0 { found.next_offset } else { 0 };
            // Of transactions that are under way nothing can be read: their messages are not counted.
            (found.ls_offset >= 0).then(|| (found.ls_offset - reached.position.max(passed)).max(0))
        };
        let lag: Option<i64> = keys.keys().map(lag_of).sum();
        self.source.counters.lag.store(lag.filter(|_| *assignments > 0).unwrap_or(-1), Relaxed);
    }
}

impl ConsumerContext for Context {
    fn rebalance(&self, consumer: &BaseConsumer<Self>, event: RDKafkaRespErr, list: &mut TopicPartitionList) {
        let keys = list.elements().iter().map(|e| (e.topic().to_owned(), e.partition())).collect::<Vec<_>>();
        let mut assigned = self.assigned();
        assigned.0 += 1;
        let number = assigned.0;
        let done = match event {
            RDKafkaRespErr::RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS => {
                let mut refused = BTreeMap::new();
                for (topic, partition) in keys {
                    match self.refused(&topic) {
                        None => drop(assigned.1.insert((topic, partition), number)),
                        // It is never claimed, and counts as if it had not been assigned.
                        Some(table) => drop(refused.insert(topic, table)),
                    }
                }
                for (topic, table) in refused {
                    tracing::error!(
                        input = self.source.name,
                        topic,
                        "is not read: table {table:?} is not among those that this input may write (into.tables)"
                    );
                }
                // Where to fetch from is known when a partition has been claimed. Any other offset may be one that is
                // not there any more: pausing what is fetched from it may come too late.
                consumer.assign(&TopicPartitionList::new())
            }
            _ => {
                keys.iter().for_each(|key| {
                    assigned.1.remove(key);
                });
                consumer.unassign()
            }
        };
        if let Err(error) = done {
            tracing::warn!(input = self.source.name, %error, "partitions could not be taken over");
        }
    }
}
