//! What kind of thing a backend was busy with or waiting for.

use crate::events::WaitEvent;
use crate::lanes::Stage;
use serde::Serialize;

/// What a moment of a backend's time went to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// The backend ran: parsing, checking, building tuples and index entries.
    Cpu,
    /// The backend could have run, but every processor was taken. Only known where /proc of the server's machine
    /// can be read; elsewhere it is part of [`Class::Cpu`].
    CpuQueue,
    /// Locks on the extension of the relation: the table grew by few blocks at a time.
    ExtendLock,
    /// Other locks: heavyweight and lightweight ones, buffer pins.
    Lock,
    /// Writing and syncing WAL, and the locks around them.
    Wal,
    /// Reading, writing, extending and syncing data files.
    DataIo,
    /// Waiting until a synchronous replica has confirmed.
    Replica,
    /// Waiting for the client while it read, decoded or encoded, or, on the same machine, while it sent.
    Client,
    /// Waiting for bytes that were on their way through a network.
    Network,
    /// Everything else: parallel workers, extensions, a trigger that sleeps.
    Other,
}

impl Class {
    /// Every class, in the order of reports.
    pub const ALL: [Class; 10] = [
        Class::Cpu,
        Class::CpuQueue,
        Class::ExtendLock,
        Class::Lock,
        Class::Wal,
        Class::DataIo,
        Class::Replica,
        Class::Client,
        Class::Network,
        Class::Other,
    ];

    /// As it stands in a sentence: "relation extension locks: 71 % of backend time".
    pub fn in_words(self) -> &'static str {
        match self {
            Class::Cpu => "server CPU",
            Class::CpuQueue => "waiting for a CPU",
            Class::ExtendLock => "relation extension locks",
            Class::Lock => "other locks",
            Class::Wal => "WAL write and sync",
            Class::DataIo => "data file I/O",
            Class::Replica => "synchronous replicas",
            Class::Client => "the client",
            Class::Network => "the network",
            Class::Other => "other waits",
        }
    }

    /// As [`Class::in_words`], of a session whose client is not ours: nobody can see whether it works or sends.
    pub fn in_words_of_others(self) -> &'static str {
        match self {
            Class::Client | Class::Network => "the client or the network",
            other => other.in_words(),
        }
    }

    /// Its name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Class::Cpu => "cpu",
            Class::CpuQueue => "cpu-queue",
            Class::ExtendLock => "extend-lock",
            Class::Lock => "lock",
            Class::Wal => "wal",
            Class::DataIo => "data-io",
            Class::Replica => "replica",
            Class::Client => "client",
            Class::Network => "network",
            Class::Other => "other",
        }
    }

    /// The class of a wait event (wait_event.h, wait_event_names.txt). PostgreSQL 17 writes the names of I/O
    /// events another way than 16 (`WALSync`, `WalSync`), so that case is passed over.
    ///
    /// `stage` is what the lane did at that moment; `None` if it is not ours to know. `network` is whether there is
    /// one: through a Unix socket bytes are there as soon as the client gets to send them.
    pub fn of(event: &WaitEvent, stage: Option<Stage>, network: bool) -> Class {
        let name = event.name.to_ascii_lowercase();
        match &*event.kind {
            // Type and name are read one after the other: one without the other is a wait that has just ended.
            _ if event.kind.is_empty() || name.is_empty() => Class::Cpu,
            "Client" => match stage {
                Some(Stage::Send | Stage::Answer) if network => Class::Network,
                _ if name == "clientwrite" && network => Class::Network,
                _ => Class::Client,
            },
            "Lock" if name == "extend" => Class::ExtendLock,
            "LWLock" | "LWLockNamed" | "LWLockTranche" => match &*name {
                "walwrite" | "walinsert" | "walbufmapping" => Class::Wal,
                "bufferio" => Class::DataIo,
                "syncrep" => Class::Replica,
                _ => Class::Lock,
            },
            "Lock" | "BufferPin" | "Buffer" => Class::Lock,
            "IO" if name.starts_with("wal") => Class::Wal,
            "IO" => Class::DataIo,
            "IPC" => match &*name {
                "syncrep" => Class::Replica,
                "bufferio" | "checkpointstart" | "checkpointdone" => Class::DataIo,
                "procarraygroupupdate" | "xactgroupupdate" | "clogroupupdate" | "safesnapshot" => Class::Lock,
                _ => Class::Other,
            },
            "Timeout" if name == "spindelay" => Class::Lock,
            "Timeout" if name == "registersyncrequest" => Class::DataIo,
            _ => Class::Other,
        }
    }
}

/// Seconds by class.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct ClassTimes([f64; Class::ALL.len()]);

impl ClassTimes {
    /// Adds seconds to a class.
    pub fn add(&mut self, class: Class, seconds: f64) {
        self.0[class as usize] += seconds;
    }

    /// Seconds of a class.
    pub fn of(&self, class: Class) -> f64 {
        self.0[class as usize]
    }

    /// Seconds of all classes.
    pub fn sum(&self) -> f64 {
        self.0.iter().sum()
    }

    /// Adds another one.
    pub fn merge(&mut self, other: &ClassTimes) {
        for (mine, theirs) in self.0.iter_mut().zip(&other.0) {
            *mine += theirs;
        }
    }

    /// What is in `self` and was not in `earlier`.
    pub fn since(&self, earlier: &ClassTimes) -> ClassTimes {
        let mut times = *self;
        for (mine, theirs) in times.0.iter_mut().zip(&earlier.0) {
            *mine -= theirs;
        }
        times
    }

    /// Moves a share of the processor time to the wait for a processor.
    pub fn split_cpu(&mut self, queued_share: f64) {
        let queued = self.of(Class::Cpu) * queued_share.clamp(0.0, 1.0);
        self.add(Class::Cpu, -queued);
        self.add(Class::CpuQueue, queued);
    }

    /// The classes with time, most first.
    pub fn ranked(&self) -> Vec<(Class, f64)> {
        let mut ranked: Vec<(Class, f64)> =
            Class::ALL.into_iter().map(|class| (class, self.of(class))).filter(|(_, s)| *s > 0.0).collect();
        ranked.sort_by(|a, b| b.1.total_cmp(&a.1));
        ranked
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(kind: &str, name: &str, stage: Option<Stage>) -> Class {
        Class::of(&WaitEvent::new(kind, name), stage, true)
    }

    #[test]
    fn events_of_all_versions() {
        assert_eq!(of("", "", Some(Stage::Send)), Class::Cpu);
        assert_eq!(of("Lock", "extend", None), Class::ExtendLock);
        assert_eq!(of("Lock", "transactionid", None), Class::Lock);
        for name in ["WALSync", "WalSync", "WALWrite", "WalInitWrite"] {
            assert_eq!(of("IO", name, None), Class::Wal, "{name}");
        }
        assert_eq!(of("LWLock", "WALWrite", None), Class::Wal);
        assert_eq!(of("LWLock", "BufferContent", None), Class::Lock);
        assert_eq!(of("IO", "DataFileExtend", None), Class::DataIo);
        assert_eq!(of("IO", "AioIoCompletion", None), Class::DataIo);
        assert_eq!(of("IPC", "SyncRep", None), Class::Replica);
        assert_eq!(of("IO", "", None), Class::Cpu);
        assert_eq!(of("Extension", "Extension", None), Class::Other);
    }

    #[test]
    fn waiting_for_the_client_is_its_fault_only_while_it_works() {
        assert_eq!(of("Client", "ClientRead", Some(Stage::Encode)), Class::Client);
        assert_eq!(of("Client", "ClientRead", Some(Stage::Input)), Class::Client);
        assert_eq!(of("Client", "ClientRead", Some(Stage::Send)), Class::Network);
        assert_eq!(of("Client", "ClientRead", Some(Stage::Answer)), Class::Network);
        assert_eq!(of("Client", "ClientRead", None), Class::Client);
        assert_eq!(of("Client", "ClientWrite", None), Class::Network);
        let read = WaitEvent::new("Client", "ClientRead");
        assert_eq!(Class::of(&read, Some(Stage::Send), false), Class::Client);
    }

    #[test]
    fn times_are_ranked_and_split() {
        let mut times = ClassTimes::default();
        times.add(Class::Cpu, 4.0);
        times.add(Class::Wal, 3.0);
        let earlier = times;
        times.add(Class::Wal, 2.0);
        assert_eq!(times.ranked(), [(Class::Wal, 5.0), (Class::Cpu, 4.0)]);
        assert_eq!(times.since(&earlier).ranked(), [(Class::Wal, 2.0)]);
        times.split_cpu(0.25);
        assert_eq!((times.of(Class::Cpu), times.of(Class::CpuQueue)), (3.0, 1.0));
        assert_eq!(times.sum(), 9.0);
    }
}
