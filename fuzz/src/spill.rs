//! The spill log over files that somebody has been at.

use crate::choices::Choices;
use inrush_spill::{Options, Spill, check};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// First byte, odd: the rest is the file of the first segment as it stands. Even: the rest is a log's life, three
/// bytes an act (append, sync, overwrite a byte, cut the file), and what was never damaged must come back.
pub fn spill(input: &[u8]) {
    let dir = tempfile::tempdir_in(place()).expect("a directory");
    let mut choices = Choices::of(input);
    if choices.yes() {
        std::fs::write(dir.path().join(format!("{:016x}.seg", 0)), choices.rest()).expect("written");
        read(dir.path());
    } else {
        life(dir.path(), choices.rest());
    }
}

/// Memory, where there is some to put files in: a fuzzer must not wait for a disk.
fn place() -> &'static Path {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { memory } else { Path::new("/tmp") }
}

const OPTIONS: Options = Options { max_bytes: 1 << 20, segment_bytes: 400 };

fn read(dir: &Path) -> Vec<(u64, Vec<u8>)> {
    let report = check(dir);
    let Ok((spill, recovery)) = Spill::open(dir, &OPTIONS) else { return Vec::new() };
    let report = report.expect("a log that can be opened can be checked");
    if report.damage.is_none() {
        assert_eq!((report.end, report.torn), (recovery.end, recovery.cut));
    }
    let mut reader = spill.reader(spill.oldest()).expect("a reader");
    let mut found = Vec::new();
    while let Ok(Some(entry)) = reader.next() {
        assert!(entry.position < entry.next && entry.next <= recovery.end);
        found.push((entry.position, [entry.meta, entry.bytes].concat()));
    }
    if report.damage.is_none() {
        assert_eq!(found.len() as u64, report.records);
    }
    found
}

fn life(dir: &Path, acts: &[u8]) {
    let (mut spill, _) = Spill::open(dir, &OPTIONS).expect("a new log");
    let (mut written, mut untouched) = (Vec::new(), true);
    for act in acts.chunks_exact(3) {
        let (which, n) = (act[0] % 8, usize::from(act[1]));
        match which {
            0..=3 => {
                let (meta, bytes) = (vec![act[2]; n / 16], vec![act[2]; n]);
                let Ok(range) = spill.append(&meta, &bytes) else { break };
                written.push((range.start, [meta, bytes].concat()));
            }
            4 | 5 => drop(spill.sync().expect("a disk")),
            6 => {
                let first = spill.oldest();
                harm(dir, first, n, act[2]);
                untouched = false;
            }
            _ => {
                spill.sync().expect("a disk");
                let upto = written.get(n).map_or(0, |(position, _)| *position);
                spill.trim(upto).expect("synced");
            }
        }
    }
    drop(spill);
    let found = read(dir);
    assert!(found.iter().all(|record| written.contains(record)), "a record that was never written");
    if untouched {
        assert!(written.ends_with(&found));
        assert!(found.is_empty() == written.is_empty());
    }
}

/// Overwrites a byte of a segment, or cuts the segment off there.
fn harm(dir: &Path, first: u64, at: usize, byte: u8) {
    let path = dir.join(format!("{first:016x}.seg"));
    let file = std::fs::OpenOptions::new().write(true).open(path).expect("a segment");
    let at = at as u64;
    if byte == 0 {
        let len = file.metadata().expect("a file").len();
        file.set_len(len.min(at)).expect("cut");
    } else if at < file.metadata().expect("a file").len() {
        file.write_all_at(&[byte], at).expect("written");
    }
}
