//! Files that grow: exactly once, by the offset in the file.
//!
//! A file is known by its inode and the hash of its first line (first two, if the first is a header): it stays the same
//! file when it is renamed, and becomes another when it is emptied and begun again: what is read is only used if the file
//! still begins as it did. A file is read when its first line is complete, and a line when its end has been written.

use super::borders::{first_csv_border, last_border};
use super::replay::{Claimed, Replay};
use super::{Feeder, Piece, csv_header, reading};
use crate::config::{FormatName, Tail};
use crate::part::{Positions, Reading, Source};
use inrush_core::{Code, Error, Result};
use inrush_sink::ledger::stream::PartitionName;
use std::collections::HashSet;
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use xxhash_rust::xxh3::xxh3_64;

/// How often files that did not grow are looked at.
const LOOK: Duration = Duration::from_millis(200);

/// How often new files are looked for.
const SEARCH: Duration = Duration::from_secs(1);

/// How long a file that has gone from its path is read on without growing: who writes it goes on until told to open the
/// next one. A file that was deleted takes its room on disk for as long.
const GONE: Duration = Duration::from_secs(30);

/// Bytes of a first line at most.
const FIRST_LINE: usize = 64 << 10;

/// A file that is read.
struct Followed {
    file: Arc<File>,
    path: PathBuf,
    reading: Reading,
    /// Where the rows begin.
    first: u64,
    head: Head,
    name: PartitionName,
}

/// What a file is known by beside its inode: its first bytes.
#[derive(Debug, Clone, Copy)]
struct Head {
    bytes: usize,
    hash: u64,
}

/// What a file begins with, compared with what it was known by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Begins {
    AsItDid,
    /// It was emptied, and begun again.
    Otherwise,
    /// There is not enough of it.
    Shorter,
}

impl Head {
    fn of(bytes: &[u8]) -> Head {
        Head { bytes: bytes.len(), hash: xxh3_64(bytes) }
    }

    fn compare(self, file: &File) -> std::io::Result<Begins> {
        let found = read_at(file, 0, self.bytes)?;
        Ok(match found.len() < self.bytes {
            true => Begins::Shorter,
            false if xxh3_64(&found) == self.hash => Begins::AsItDid,
            false => Begins::Otherwise,
        })
    }
}

/// How far one file is behind, as part of what its input is behind.
struct Lag {
    source: Arc<Source>,
    behind: i64,
}

impl Lag {
    fn set(&mut self, behind: i64) {
        self.source.counters.lag.fetch_add(behind - self.behind, Relaxed);
        self.behind = behind;
    }
}

impl Drop for Lag {
    fn drop(&mut self) {
        self.set(0);
    }
}

/// Follows all files of an input until the process stops.
pub(crate) async fn run(config: Tail, source: Arc<Source>, feeder: Feeder) -> Result<()> {
    let mut followed: HashSet<String> = HashSet::new();
    let mut files: JoinSet<String> = JoinSet::new();
    let mut warned = false;
    while !feeder.is_stopping() {
        let paths = matching(&config.files)?;
        if paths.is_empty() && !warned {
            tracing::info!(input = source.name, files = config.files, "no file yet");
            warned = true;
        }
        for path in paths {
            match open(&path, &config, &source) {
                Ok(Some(file)) => {
                    if followed.insert(file.name.partition.clone()) {
                        files.spawn(follow(file, Arc::clone(&source), feeder.clone()));
                    }
                }
                Ok(None) => {}
                Err(error) => {
                    feeder.metrics.note_error(&error);
                    tracing::warn!(input = source.name, error = error.fact(), "a file is not read");
                }
            }
        }
        while let Some(ended) = files.try_join_next() {
            // One that is gone may come again under the same name.
            if let Ok(partition) = ended {
                followed.remove(&partition);
            }
        }
        tokio::time::sleep(SEARCH).await;
    }
    while files.join_next().await.is_some() {}
    Ok(())
}

/// Files that a pattern names.
fn matching(pattern: &str) -> Result<Vec<PathBuf>> {
    let paths = glob::glob(pattern)
        .map_err(|e| Error::new(Code::Usage, format!("the pattern {pattern:?} is not valid: {e}")))?;
    Ok(paths.filter_map(Result::ok).filter(|path| path.is_file()).collect())
}

/// Opens a file and says who it is; `None` if its first line is not there yet.
fn open(path: &Path, config: &Tail, source: &Source) -> Result<Option<Followed>> {
    let bad = |e: std::io::Error| Error::new(Code::SourceOpen, format!("{}: {e}", path.display()));
    let file = File::open(path).map_err(bad)?;
    let inode = file.metadata().map_err(bad)?.ino();
    let head = read_at(&file, 0, FIRST_LINE).map_err(bad)?;
    let has_header = config.format == FormatName::Csv && config.csv_columns.is_empty();
    let first = match has_header {
        true => first_csv_border(&head, b'"'),
        false => memchr::memchr(b'\n', &head).map(|at| at + 1),
    };
    let Some(first) = first else {
        if head.len() == FIRST_LINE {
            return Err(Error::new(
                Code::RecordTooLong,
                format!("the first line of {} is longer than {FIRST_LINE} bytes", path.display()),
            ));
        }
        return Ok(None);
    };
    let (reading, start, known_by) = if has_header {
        let Some(second) = first_csv_border(&head[first..], b'"') else { return Ok(None) };
        (csv_header(&head[..first], &path.display().to_string())?, first, first + second)
    } else {
        (reading(config.format, &config.csv_columns, &config.name)?, 0, first)
    };
    let head = Head::of(&head[..known_by]);
    let partition = format!("{inode:x}-{:016x}", head.hash);
    Ok(Some(Followed {
        file: Arc::new(file),
        path: path.to_owned(),
        reading,
        first: start as u64,
        head,
        name: PartitionName { source: source.name.clone(), partition },
    }))
}

/// Reads one file until it is gone and read to its end, or the process stops. Gives its partition.
async fn follow(followed: Followed, source: Arc<Source>, feeder: Feeder) -> String {
    let replay = Replay {
        feeder: feeder.clone(),
        source: Arc::clone(&source),
        name: followed.name.clone(),
        first: i64::try_from(followed.first).unwrap_or(i64::MAX),
    };
    tracing::info!(input = source.name, file = %followed.path.display(), partition = followed.name.partition, "following");
    let mut lag = Lag { source, behind: 0 };
    let mut pause = Duration::from_millis(200);
    while let Some(mut claimed) = replay.claim().await {
        let ended = match read(&followed, &replay, &mut claimed, &mut lag).await {
            Ok(ended) => ended,
            Err(error) => {
                let fact = format!("{}: {error}", followed.path.display());
                tracing::warn!(input = replay.source.name, error = fact, "a file is not read");
                false
            }
        };
        if claimed.settled().await && ended {
            break;
        }
        replay.pause(&mut pause).await;
    }
    followed.name.partition
}

/// Reads from where the claim begins. `true` when nothing more is to be had of the file, or the process stops.
async fn read(
    followed: &Followed,
    replay: &Replay,
    claimed: &mut Claimed,
    lag: &mut Lag,
) -> std::io::Result<bool> {
    let Replay { feeder, source, .. } = replay;
    let mut at = u64::try_from(claimed.restart).unwrap_or_default();
    let mut line = lines_before(followed, at).await?;
    let part = feeder.part_bytes();
    let mut size = part;
    // Up to here there is no further record.
    let mut looked = at;
    let mut gone: Option<Instant> = None;
    let mut warned = false;
    loop {
        if claimed.origin.is_stale() {
            return Ok(false);
        }
        feeder.wait_for_rejects(source).await;
        if feeder.is_stopping() {
            return Ok(true);
        }
        let length = followed.file.metadata()?.len();
        let stored = claimed.origin.settled().unwrap_or(0).max(claimed.restart);
        lag.set((i64::try_from(length).unwrap_or(i64::MAX) - stored).max(0));
        if length <= looked {
            if length < at {
                looked = at;
                match followed.head.compare(&followed.file)? {
                    Begins::Otherwise => return Ok(begun_again(followed, source)),
                    Begins::AsItDid if !warned => {
                        warned = true;
                        tracing::warn!(
                            input = source.name, file = %followed.path.display(), byte = at,
                            "is shorter than what was read of it, and begins with the same line: it is read on from \
                             this byte"
                        );
                    }
                    // What it will begin with is not there yet.
                    Begins::AsItDid | Begins::Shorter => {}
                }
            }
            match (has_gone(&followed.path, &followed.file), gone) {
                (false, _) => gone = None,
                (true, None) => gone = Some(Instant::now()),
                (true, Some(since)) if since.elapsed() < GONE => {}
                (true, Some(_)) => {
                    tracing::info!(
                        input = source.name, file = %followed.path.display(), read = at, length,
                        "has gone, and is not followed any more"
                    );
                    return Ok(true);
                }
            }
            tokio::time::sleep(LOOK).await;
            continue;
        }
        gone = None;
        let wanted = usize::try_from(length - at).unwrap_or(usize::MAX).min(size);
        let memory = tokio::select! {
            memory = feeder.memory.take(wanted) => memory,
            () = claimed.origin.spoiled() => return Ok(false),
        };
        let (bytes, begins) = read_whole(followed, at, wanted).await?;
        if begins == Begins::Otherwise {
            return Ok(begun_again(followed, source));
        }
        let full = bytes.len() == size;
        looked = at + bytes.len() as u64;
        match last_border(&followed.reading, &bytes) {
            Some(border) => {
                let mut bytes = bytes;
                bytes.truncate(border);
                let lines = memchr::memchr_iter(b'\n', &bytes).count() as u64;
                let next = at + border as u64;
                let piece = Piece {
                    table: source.into.table.clone().filter(|table| !table.contains('{')),
                    reading: followed.reading.clone(),
                    first_line: line,
                    positions: Positions::Bytes(i64::try_from(at).unwrap_or(i64::MAX)),
                    next: i64::try_from(next).unwrap_or(i64::MAX),
                    memory,
                    bytes: bytes.into(),
                };
                replay.feed(claimed, piece);
                at = next;
                line += lines;
                size = part;
            }
            // A line that is longer than a part.
            None if full && size < feeder.memory.largest_part() => {
                size = (size * 2).min(feeder.memory.largest_part());
            }
            None if full => {
                drop((memory, bytes));
                tracing::error!(
                    input = source.name, file = %followed.path.display(), byte = at,
                    "a line is longer than limits.memory allows; the file is not read any further"
                );
                return Ok(wait_forever(feeder).await);
            }
            None => {}
        }
    }
}

/// The file is another one now, which is followed for itself.
fn begun_again(followed: &Followed, source: &Source) -> bool {
    tracing::info!(
        input = source.name, file = %followed.path.display(), partition = followed.name.partition,
        "was emptied and begun again"
    );
    true
}

async fn wait_forever(feeder: &Feeder) -> bool {
    let mut stop = feeder.stop.clone();
    let _ = stop.wait_for(|stop| *stop).await.map(|_| ());
    true
}

/// Whether the path names another file now, or none.
fn has_gone(path: &Path, file: &File) -> bool {
    match (std::fs::metadata(path), file.metadata()) {
        (Ok(now), Ok(then)) => (now.ino(), now.dev()) != (then.ino(), then.dev()),
        _ => true,
    }
}

/// Reads, and looks afterwards what the file begins with: if that is as it was, so is what was read.
async fn read_whole(followed: &Followed, at: u64, size: usize) -> std::io::Result<(Vec<u8>, Begins)> {
    let (file, head) = (Arc::clone(&followed.file), followed.head);
    tokio::task::spawn_blocking(move || Ok((read_at(&file, at, size)?, head.compare(&file)?)))
        .await
        .map_err(std::io::Error::other)?
}

/// So many bytes, or as many as there are.
fn read_at(file: &File, at: u64, size: usize) -> std::io::Result<Vec<u8>> {
    let mut bytes = vec![0; size];
    let mut filled = 0;
    while filled < size {
        match file.read_at(&mut bytes[filled..], at + filled as u64) {
            Ok(0) => break,
            Ok(more) => filled += more,
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    bytes.truncate(filled);
    Ok(bytes)
}

/// The number of the line that begins at this byte.
async fn lines_before(followed: &Followed, at: u64) -> std::io::Result<u64> {
    let mut line = 1;
    let mut from = 0;
    while from < at {
        let size = usize::try_from((at - from).min(4 << 20)).unwrap_or(4 << 20);
        let (bytes, _) = read_whole(followed, from, size).await?;
        if bytes.is_empty() {
            break;
        }
        line += memchr::memchr_iter(b'\n', &bytes).count() as u64;
        from += bytes.len() as u64;
    }
    Ok(line)
}
