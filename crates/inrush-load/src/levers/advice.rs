//! Which levers address what a load was limited by. Says, never pulls.

use crate::plan::WirePath;
use inrush_profile::{Blocker, Class, Profile, setting_bytes};
use inrush_sink::catalog::TableState;
use serde::Serialize;

/// Share of backend time from which on a class is worth a lever.
const WORTH: f64 = 0.05;
/// From this share of the WAL on, images of whole pages are worth compressing.
const MANY_IMAGES: f64 = 0.1;
/// `wal_buffers` with which a fast logged load took a quarter less time than with the automatic 16MB.
const LARGE_WAL_BUFFERS: u64 = 256 << 20;
/// Major versions of the server that the extension is for.
const WITH_EXTENSION: std::ops::RangeInclusive<u32> = 15..=18;
/// Blocks as large as a server can be compiled for.
const LARGEST_BLOCK: u64 = 32 << 10;

/// A lever that addresses a class of backend time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LeverAdvice {
    /// `--unlogged`, `max_wal_size`, or what else is to be changed.
    pub lever: String,
    /// The class of backend time that it makes less of.
    pub addresses: Class,
    /// What it does.
    pub what: String,
    /// What it costs.
    pub cost: String,
    /// The option or the statement.
    pub how: String,
    /// The load used it already.
    pub used: bool,
}

/// What has to be known about a load to say which levers address its limit.
#[derive(Debug)]
pub struct Conditions<'a> {
    /// Where the backends' time went.
    pub profile: &'a Profile,
    /// Major version of the server.
    pub server_major: Option<u32>,
    /// Path into the server.
    pub path: WirePath,
    /// The database has no extension, which would take the load.
    pub extension_missing: bool,
    /// Connections of the load.
    pub connections: usize,
    /// Whether another number of connections could be asked for: all rows in one transaction need one.
    pub connections_free: bool,
    /// Processors of the client's machine.
    pub processors: usize,
    /// Time of beginning, recording and committing units as a share of the connections' time, 0 to 1.
    pub commit_share: f64,
    /// The user held the load to a rate.
    pub max_rate: bool,
    /// Compressions of the inputs.
    pub compressions: Vec<&'a str>,
    /// The table is unlogged.
    pub unlogged: bool,
    /// The table is partitioned.
    pub partitioned: bool,
    /// Indexes of the table, where that is known.
    pub indexes: Option<usize>,
    /// Of these, indexes that can be made after the rows.
    pub deferrable: Option<usize>,
    /// Foreign keys of the table, where that is known.
    pub foreign_keys: Option<usize>,
    /// Levers that the load used, by [`LeverAdvice::lever`].
    pub used: &'a [String],
}

/// Levers for each class with a twentieth of backend time or more: first for the limit, then by time, most first.
/// A lever that addresses several classes stands with the first of them.
pub fn advise(conditions: &Conditions<'_>) -> Vec<LeverAdvice> {
    let profile = conditions.profile;
    let limit = profile.limit.as_ref().map(|limit| limit.class);
    let rest = profile.split.iter().filter(|share| share.share >= WORTH).map(|share| share.class);
    let mut list = List { class: Class::Other, used: conditions.used, levers: Vec::new() };
    for class in limit.into_iter().chain(rest.filter(|class| Some(*class) != limit)) {
        list.class = class;
        match class {
            Class::Cpu => cpu(conditions, &mut list),
            Class::CpuQueue => cpu_queue(conditions, &mut list),
            Class::ExtendLock => extend_lock(conditions, &mut list),
            Class::Lock => lock(conditions, &mut list),
            Class::Wal => wal(conditions, &mut list),
            Class::DataIo => data_io(conditions, &mut list),
            Class::Replica => replica(&mut list),
            Class::Client => client(conditions, &mut list),
            Class::Network => network(conditions, &mut list),
            Class::Other => {}
        }
    }
    list.levers
}

struct List<'a> {
    class: Class,
    used: &'a [String],
    levers: Vec<LeverAdvice>,
}

impl List<'_> {
    fn add(&mut self, lever: &str, what: impl Into<String>, cost: impl Into<String>, how: impl Into<String>) {
        if self.levers.iter().any(|known| known.lever == lever) {
            return;
        }
        self.levers.push(LeverAdvice {
            lever: lever.to_owned(),
            addresses: self.class,
            what: what.into(),
            cost: cost.into(),
            how: how.into(),
            used: self.used.iter().any(|used| used == lever),
        });
    }
}

fn extend_lock(c: &Conditions<'_>, list: &mut List<'_>) {
    fewer_connections(c, list, 1, "fewer connections meet at the end of the table");
    if let Some(major) = c.server_major.filter(|major| *major < 16) {
        list.add(
            "PostgreSQL 16",
            format!(
                "16 and newer extend a table by many blocks at once; {major} does so under contention only, by at \
                 most 512"
            ),
            "an upgrade of the server",
            "pg_upgrade",
        );
    }
    if !c.partitioned {
        list.add(
            "partitions",
            "each leaf is a file of its own and grows by itself",
            "a partitioned table, also for those who query it",
            "CREATE TABLE ... PARTITION BY HASH (...)",
        );
    }
    if c.size("block_size").is_none_or(|size| size < LARGEST_BLOCK) {
        list.add(
            "block size",
            "larger blocks: the same rows need fewer extensions",
            "a server compiled for it and a new data directory; no setting changes it",
            "./configure --with-blocksize=32, then initdb and dump and restore",
        );
    }
}

fn wal(c: &Conditions<'_>, list: &mut List<'_>) {
    let minimal = c.setting("wal_level") == Some("minimal");
    let counters = c.profile.counters.as_ref();
    // A partitioned table itself cannot be unlogged.
    if !c.partitioned && (!c.unlogged || list.used.iter().any(|used| used == "--unlogged")) {
        let later = if minimal {
            "--then-logged makes the table logged at the end without WAL for the rows"
        } else {
            "--then-logged writes it all to WAL at the end, 1.1 to 1.6 times what a logged load writes"
        };
        list.add(
            "--unlogged",
            "no WAL for the rows",
            format!("nothing of them survives a crash of the server, and replicas never see them; {later}"),
            "inrush load ... --unlogged",
        );
    }
    let commits_wait = c.commit_share >= WORTH || c.share_of(&["walsync"]) >= WORTH;
    if commits_wait && !matches!(c.setting("synchronous_commit"), None | Some("off")) {
        list.add(
            "--sync-commit off",
            "commits do not wait until WAL is on disk",
            "a crash of the server may lose the last transactions; the ledger's record is lost with them, so the \
             same command loads them again",
            "inrush load ... --sync-commit off",
        );
    }
    if counters.is_some_and(|counters| counters.checkpoints_requested > 0) {
        list.add(
            "max_wal_size",
            "fewer checkpoints: the first change of a page after each one writes the whole page to WAL",
            "space for WAL, and a longer recovery after a crash",
            format!(
                "ALTER SYSTEM SET max_wal_size = '16GB'; SELECT pg_reload_conf(){}",
                c.is_now("max_wal_size")
            ),
        );
    }
    if c.size("wal_buffers").is_some_and(|size| size < LARGE_WAL_BUFFERS) {
        list.add(
            "wal_buffers",
            "backends write WAL themselves less often; 256MB instead of the automatic 16MB took a quarter off a fast \
             logged load",
            "256 MB of shared memory, and a restart of the server",
            format!(
                "ALTER SYSTEM SET wal_buffers = '256MB', then restart the server{}",
                c.is_now("wal_buffers")
            ),
        );
    }
    let block = c.size("block_size").unwrap_or(8192);
    #[allow(clippy::cast_precision_loss)] // a share
    let images = counters.map_or(0.0, |counters| {
        (counters.wal.full_page_images * block) as f64 / counters.wal.bytes.max(1) as f64
    });
    if images >= MANY_IMAGES && c.setting("wal_compression") == Some("off") {
        list.add(
            "wal_compression",
            "images of whole pages are compressed before they go to WAL",
            "processor time of the server",
            "ALTER SYSTEM SET wal_compression = on; SELECT pg_reload_conf()",
        );
    }
    if c.partitioned {
        return;
    }
    if minimal {
        list.add(
            "--truncate",
            "rows of a table that the same transaction has emptied need no WAL at wal_level minimal; --freeze saves \
             their later VACUUM too",
            "all rows that are in the table; one transaction on one connection",
            "inrush load ... --truncate --freeze",
        );
    } else if !c.unlogged {
        list.add(
            "wal_level = minimal",
            "rows of a table that the same transaction has emptied need no WAL",
            "no replicas and no recovery to a point in time; a restart; one transaction on one connection",
            "wal_level = minimal and max_wal_senders = 0, restart the server, then inrush load ... --truncate --freeze",
        );
    }
}

fn cpu(c: &Conditions<'_>, list: &mut List<'_>) {
    binary(c, list, "values are encoded by the client: the server parses nothing");
    extension(c, list);
    defer_indexes(c, list);
    if c.foreign_keys.is_some_and(|n| n > 0) {
        list.add(
            "--defer-foreign-keys",
            "keys are checked once for all rows after the load, not row by row",
            "rows that break a key show at the end only; the check locks both tables",
            "inrush load ... --defer-foreign-keys",
        );
    }
    let queue_is_small = c.profile.share(Class::CpuQueue) < WORTH;
    // The processors that are counted are the client's: they say something only where the server has the same.
    if c.profile.cpu_queue_seen && queue_is_small && c.connections_free && c.connections < c.processors {
        list.add(
            "--jobs",
            format!(
                "{} of {} processors had a connection of the load to work for",
                c.connections, c.processors
            ),
            "less left for others on the server; more connections may meet at locks",
            format!("inrush load ... --jobs {}", c.processors),
        );
    }
    if c.partitioned {
        return;
    }
    list.add(
        "--freeze",
        "rows are stored as VACUUM would leave them: saves its rewriting them later, not time of the load",
        "the table must be created or emptied in the same transaction, on one connection",
        "inrush load ... --truncate --freeze",
    );
}

fn cpu_queue(c: &Conditions<'_>, list: &mut List<'_>) {
    // The queue is seen on this machine only. As many connections as there are processors can use them all.
    fewer_connections(c, list, c.processors, "fewer processes wait for each other's processor");
    another_machine(list);
    if c.profile.share(Class::Cpu) < WORTH {
        binary(c, list, "values are encoded by the client: the server parses nothing");
        extension(c, list);
        defer_indexes(c, list);
    }
}

fn data_io(c: &Conditions<'_>, list: &mut List<'_>) {
    if c.profile.counters.as_ref().is_some_and(|counters| counters.checkpoints_requested > 0) {
        list.add(
            "max_wal_size",
            "fewer checkpoints write and sync data files while the load runs",
            "space for WAL, and a longer recovery after a crash",
            format!(
                "ALTER SYSTEM SET max_wal_size = '16GB'; SELECT pg_reload_conf(){}",
                c.is_now("max_wal_size")
            ),
        );
    }
    if c.indexes != Some(0) {
        list.add(
            "shared_buffers",
            "pages of indexes stay in memory; COPY writes the table itself through a ring of at most 16MB",
            "memory, and a restart of the server",
            format!(
                "ALTER SYSTEM SET shared_buffers = '...', then restart the server{}",
                c.is_now("shared_buffers")
            ),
        );
    }
    if c.profile.cpu_queue_seen {
        list.add(
            "--drop-cache",
            "pages of the input leave the machine's cache once they are read: more room for the table's",
            "who reads the input again reads it from the disk",
            "inrush load ... --drop-cache",
        );
    }
    list.add(
        "a faster disk",
        "data files are read, extended and synced in less time",
        "the disk",
        "a tablespace on it: CREATE TABLESPACE ...; ALTER TABLE ... SET TABLESPACE ...",
    );
}

fn lock(c: &Conditions<'_>, list: &mut List<'_>) {
    let most =
        c.profile.blockers.iter().max_by(|a, b| a.waited_seconds.total_cmp(&b.waited_seconds)).map(|most| {
            let unnamed = !most.own && most.pid != 0 && most.application.as_deref() == Some("");
            (most, unnamed)
        });
    if let Some((blocker, unnamed)) = most {
        // Its workers have no application name; where this role may see more than that, we do not ask.
        if unnamed {
            list.add(
                "--quiet-autovacuum",
                format!(
                    "autovacuum leaves the table alone meanwhile, if process {}, which gives no name, is a worker \
                     of it",
                    blocker.pid
                ),
                "dead rows and statistics of the table wait until the load is over",
                "inrush load ... --quiet-autovacuum",
            );
        }
        list.add(&blocked_by(blocker), blocker.to_string(), end_of(blocker), way_out(blocker));
    }
    if c.share_of(&["buffercontent", "buffer_content"]) >= WORTH {
        defer_indexes(c, list);
        fewer_connections(c, list, 1, "fewer connections meet at the same pages");
    }
}

fn blocked_by(blocker: &Blocker) -> String {
    match blocker.pid {
        _ if blocker.own => "distinct keys".to_owned(),
        0 => "the prepared transaction".to_owned(),
        pid => format!("process {pid}"),
    }
}

fn end_of(blocker: &Blocker) -> &'static str {
    if blocker.own {
        "the input has to be made ready"
    } else {
        "what it has not committed is lost if it is ended"
    }
}

fn way_out(blocker: &Blocker) -> String {
    match blocker.pid {
        _ if blocker.own => "equal keys next to each other in the input, or --jobs 1".to_owned(),
        0 => "SELECT * FROM pg_prepared_xacts, then COMMIT PREPARED or ROLLBACK PREPARED".to_owned(),
        pid => format!("let it finish, or SELECT pg_terminate_backend({pid})"),
    }
}

fn replica(list: &mut List<'_>) {
    list.add(
        "larger units",
        "synchronous_standby_names makes each commit wait for a replica: fewer commits wait less often",
        "a unit that fails is sent again from its beginning, and rows are seen later",
        "inrush load ... --unit-millis 10000",
    );
}

fn client(c: &Conditions<'_>, list: &mut List<'_>) {
    let times = c.profile.client;
    if times.input > times.encode.max(times.send) {
        if c.max_rate {
            list.add(
                "--max-rate",
                "the load was held to this rate on request",
                "more load on server, disk and network",
                "inrush load ... without --max-rate, or with more",
            );
        }
        if let Some(slow) = c.compressions.iter().find(|name| ["bzip2", "xz", "gzip"].contains(name)) {
            list.add(
                "zstd or lz4",
                format!("they decompress several times as fast as {slow}"),
                "files that are compressed again, and may be larger",
                "zstd FILE",
            );
        }
        list.add(
            "faster storage for the input",
            "the lanes waited until input was read",
            "the storage, or a copy of the files",
            "inrush load PATH ..., with the files on a local disk",
        );
    } else if times.encode > times.send {
        if c.connections_free && c.connections < c.processors {
            list.add(
                "--jobs",
                format!(
                    "more threads decode and encode: {} did on {} processors",
                    c.connections, c.processors
                ),
                "more connections to the server",
                format!("inrush load ... --jobs {}", c.processors),
            );
        }
    } else {
        binary(c, list, "fewer bytes to send where rows hold numbers and times");
        // Sending on the same machine takes long only where processors are short.
        if c.profile.cpu_queue_seen {
            fewer_connections(c, list, c.processors, "fewer threads and processes share the processors");
            another_machine(list);
        }
    }
}

fn network(c: &Conditions<'_>, list: &mut List<'_>) {
    list.add(
        "a client nearer to the server",
        "bytes and answers are on their way for less time",
        "the files have to be there too",
        "run inrush on the server's machine or next to it",
    );
    binary(c, list, "fewer bytes where rows hold numbers and times");
}

fn another_machine(list: &mut List<'_>) {
    list.add(
        "another machine for the client",
        "the client's processor time is the server's to use",
        "the rows go through a network",
        "inrush load ... --to postgresql://HOST/DATABASE, from another machine",
    );
}

/// Half the connections, but not fewer than `least`.
fn fewer_connections(c: &Conditions<'_>, list: &mut List<'_>, least: usize, what: &str) {
    if c.connections > least && c.connections_free {
        list.add(
            "--jobs",
            format!("{what}: there were {}", c.connections),
            "less work at the same time where nobody waits",
            format!("inrush load ... --jobs {}", (c.connections / 2).max(least)),
        );
    }
}

fn binary(c: &Conditions<'_>, list: &mut List<'_>, what: &str) {
    if c.path == WirePath::CopyText {
        list.add(
            "--via copy-binary",
            what,
            "processor time of the client; possible where every column's type has a client encoder",
            "inrush load ... --via copy-binary",
        );
    }
}

fn extension(c: &Conditions<'_>, list: &mut List<'_>) {
    if c.extension_missing && c.server_major.is_some_and(|major| WITH_EXTENSION.contains(&major)) {
        list.add(
            "the extension inrush",
            "rows come in the layout of the heap: the server verifies and stores them, and neither parses nor \
             converts; WAL and constraints are as with COPY",
            "a C library in the server: installing it takes access to its machine and a superuser, which managed \
             servers do not give",
            "make install-extension PG_CONFIG=... on the server's machine, CREATE EXTENSION inrush, then the same \
             command",
        );
    }
}

fn defer_indexes(c: &Conditions<'_>, list: &mut List<'_>) {
    let what = match c.deferrable {
        _ if c.partitioned => return,
        Some(0) => return,
        Some(1) => "the index is built once, from sorted rows, after the load".to_owned(),
        Some(n) => format!("{n} indexes are built once, from sorted rows, after the load"),
        None => {
            "indexes, where the table has any, are built once, from sorted rows, after the load".to_owned()
        }
    };
    list.add(
        "--defer-indexes",
        what,
        "queries have no index meanwhile, and rows that were there before are indexed again",
        "inrush load ... --defer-indexes",
    );
}

impl Conditions<'_> {
    fn setting(&self, name: &str) -> Option<&str> {
        self.profile.settings.get(name).map(String::as_str)
    }

    /// ` (now 1GB)`, where it is known.
    fn is_now(&self, name: &str) -> String {
        self.setting(name).map_or(String::new(), |value| format!(" (now {value})"))
    }

    /// A setting that is a size, in bytes.
    fn size(&self, name: &str) -> Option<u64> {
        setting_bytes(self.setting(name)?)
    }

    /// Share of these wait events together; their names without regard to case.
    fn share_of(&self, events: &[&str]) -> f64 {
        let named = |event: &str| events.iter().any(|name| event.eq_ignore_ascii_case(name));
        self.profile.events.iter().filter(|event| named(&event.event)).map(|event| event.share).sum()
    }
}

/// Indexes that can be made after the rows.
pub(crate) fn deferrable(state: &TableState) -> usize {
    super::indexes::deferrable(state).count()
}

/// The major version in what a server says of itself: `15.18 (Debian ...)`, `19beta1`.
pub(crate) fn major_version(server: &str) -> Option<u32> {
    let digits = server.find(|c: char| !c.is_ascii_digit()).unwrap_or(server.len());
    server[..digits].parse().ok()
}

#[cfg(test)]
mod tests;
