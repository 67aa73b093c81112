//! The log from outside: what comes back after which life.

use inrush_spill::{Entry, Options, Recovery, Refused, Spill, check};
use proptest::prelude::*;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

const SMALL: Options = Options { max_bytes: 1 << 20, segment_bytes: 600 };

/// In memory, where there is some to put files in: what is tested here does not need a disk to sync.
fn directory() -> TempDir {
    let memory = Path::new("/dev/shm");
    let made = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
    made.expect("a directory")
}

fn open(dir: &Path) -> (Spill, Recovery) {
    Spill::open(dir, &SMALL).unwrap_or_else(|error| panic!("{error}"))
}

fn read_all(spill: &Spill, from: u64) -> inrush_core::Result<Vec<Entry>> {
    let mut reader = spill.reader(from)?;
    std::iter::from_fn(|| reader.next().transpose()).collect()
}

/// Segment files in order.
fn segments(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).expect("a directory").map(|entry| entry.expect("an entry").path());
    let mut files: Vec<_> = entries.filter(|path| path.extension().is_some_and(|e| e == "seg")).collect();
    files.sort();
    files
}

fn fill(spill: &mut Spill, records: usize) {
    for i in 0..records {
        spill.append(format!("{{\"n\":{i}}}").as_bytes(), &vec![b'x'; i % 50]).expect("room");
    }
    spill.sync().expect("a disk");
}

#[test]
fn records_come_back_over_segments_and_lives() {
    let dir = directory();
    let (mut spill, recovery) = open(dir.path());
    assert_eq!((recovery.oldest, recovery.closed, recovery.cut), (0, true, None));
    fill(&mut spill, 100);
    let id = spill.id();
    let before = read_all(&spill, 0).expect("no damage");
    assert_eq!(before.len(), 100);
    assert_eq!((before[7].meta.as_slice(), before[7].bytes.as_slice()), (&b"{\"n\":7}"[..], &b"xxxxxxx"[..]));
    assert!(segments(dir.path()).len() > 5);
    assert_eq!(read_all(&spill, before[40].next).expect("no damage"), before[41..]);
    spill.close().expect("a disk");
    let (spill, recovery) = open(dir.path());
    assert_eq!((recovery.closed, recovery.cut), (true, None));
    assert_eq!(spill.id(), id);
    assert_eq!(id.len(), 36);
    assert_eq!(read_all(&spill, 0).expect("no damage"), before);
    drop(spill);
    let (_spill, recovery) = open(dir.path());
    assert!(!recovery.closed, "a log that was dropped was not closed");
}

#[test]
fn only_what_is_synced_is_read() {
    let dir = directory();
    let (mut spill, _) = open(dir.path());
    let mut reader = spill.reader(0).expect("a reader");
    assert_eq!(reader.next().expect("no damage"), None);
    let record = spill.append(b"a", b"b").expect("room");
    assert_eq!(reader.next().expect("no damage"), None);
    assert_eq!(spill.sync().expect("a disk"), record.end);
    let entry = reader.next().expect("no damage").expect("a record");
    assert_eq!((entry.position, entry.next), (record.start, record.end));
    assert_eq!(spill.oldest_time().expect("no damage"), Some(entry.time));
    spill.trim(record.end).expect("synced");
    assert_eq!(spill.oldest_time().expect("no damage"), None);
    assert!(spill.trim(record.end + 1).is_err());
}

#[test]
fn a_reader_follows_in_another_thread() {
    let dir = directory();
    let (mut spill, _) = open(dir.path());
    let mut reader = spill.reader(0).expect("a reader");
    let follower = std::thread::spawn(move || {
        let mut found = 0;
        while found < 500 {
            match reader.next().expect("no damage") {
                Some(entry) => {
                    assert_eq!(entry.meta, format!("{found}").into_bytes());
                    found += 1;
                }
                None => std::thread::yield_now(),
            }
        }
    });
    for i in 0..500 {
        spill.append(format!("{i}").as_bytes(), &[7; 90]).expect("room");
        if i % 7 == 6 {
            spill.sync().expect("a disk");
        }
    }
    spill.sync().expect("a disk");
    follower.join().expect("a reader that ends");
}

#[test]
fn positions_only_grow() {
    let dir = directory();
    let mut last = 0;
    for _ in 0..5 {
        let (mut spill, recovery) = open(dir.path());
        assert!(recovery.end >= last);
        last = recovery.end;
        for _ in 0..20 {
            let record = spill.append(b"", &[1; 30]).expect("room");
            assert!(record.start >= last);
            last = record.end;
        }
        spill.sync().expect("a disk");
        spill.trim(last).expect("synced");
        assert!(spill.usage() < 700, "{} bytes are kept of an empty log", spill.usage());
        assert_eq!(read_all(&spill, last).expect("no damage"), []);
        assert!(spill.reader(0).is_err(), "what was given back is not there");
        assert!(spill.reader(spill.end() + 1).is_err());
    }
}

#[test]
fn what_was_given_back_is_gone_when_the_log_is_closed_or_renewed() {
    for close in [true, false] {
        let dir = directory();
        let (mut spill, _) = open(dir.path());
        let first = spill.append(b"", b"first").expect("room");
        let second = spill.append(b"", b"second").expect("room");
        spill.sync().expect("a disk");
        spill.trim(first.end).expect("synced");
        spill.renew().expect("a disk");
        assert_eq!(spill.oldest(), 0, "a record is left");
        spill.close().expect("a disk");
        let (mut spill, recovery) = open(dir.path());
        assert_eq!((recovery.oldest, recovery.end), (0, second.end));
        spill.trim(second.end).expect("synced");
        assert_eq!(spill.oldest(), 0, "so short a segment is not worth a file");
        if close {
            spill.close().expect("a disk");
        } else {
            spill.renew().expect("a disk");
            drop(spill);
        }
        let (mut spill, recovery) = open(dir.path());
        assert_eq!((recovery.oldest, recovery.end), (second.end, second.end + 64));
        assert_eq!(read_all(&spill, second.end).expect("no damage"), []);
        // Again costs nothing, and positions go on.
        spill.renew().expect("a disk");
        assert_eq!(spill.oldest(), second.end);
        assert_eq!(spill.append(b"", b"third").expect("room").start, second.end + 64);
    }
}

#[test]
fn a_full_log_takes_records_again_when_read() {
    let dir = directory();
    let options = Options { max_bytes: 4000, segment_bytes: 600 };
    let (mut spill, _) = Spill::open(dir.path(), &options).expect("a new log");
    let mut appended = 0;
    let full = loop {
        match spill.append(b"m", &[3; 100]) {
            Ok(_) => appended += 1,
            Err(refused) => break refused,
        }
        assert!(spill.usage() <= 4000);
    };
    assert!(matches!(full, Refused::Full(_)), "{full:?}");
    assert!(appended >= 20, "{appended}");
    spill.sync().expect("a disk");
    let entries = read_all(&spill, 0).expect("no damage");
    assert_eq!(entries.len(), appended);
    spill.trim(entries[appended / 2].next).expect("synced");
    assert!(spill.append(b"m", &[3; 100]).is_ok());
    // All read, and yet the last segment would keep the room from a record that needs nearly all of it.
    let end = spill.sync().expect("a disk");
    spill.trim(end).expect("synced");
    assert!(spill.append(b"", &[4; 3800]).is_ok());
    assert!(matches!(spill.append(b"", &[4; 4000]), Err(Refused::Failed(_))), "it never fits");
}

#[test]
fn the_log_is_for_one_process() {
    let dir = directory();
    let (spill, _) = open(dir.path());
    let error = Spill::open(dir.path(), &SMALL).expect_err("a log in use");
    assert!(error.fact().contains("in use"), "{error}");
    assert!(check(dir.path()).expect("readable").in_use);
    drop(spill);
    assert!(!check(dir.path()).expect("readable").in_use);
    open(dir.path());
}

#[test]
fn what_is_missing_is_said() {
    let dir = directory();
    let (mut spill, _) = open(dir.path());
    fill(&mut spill, 60);
    drop(spill);
    let files = segments(dir.path());
    let hidden = dir.path().join("hidden");
    std::fs::rename(&files[2], &hidden).expect("renamed");
    let error = Spill::open(dir.path(), &SMALL).expect_err("a hole");
    assert!(error.fact().contains("the next segment does not begin here"), "{error}");
    assert!(check(dir.path()).expect("readable").damage.is_some());
    std::fs::rename(&hidden, &files[2]).expect("renamed");
    std::fs::remove_file(dir.path().join("id")).expect("deleted");
    let (spill, _) = open(dir.path());
    assert_eq!(std::fs::read_to_string(dir.path().join("id")).expect("made again").trim(), spill.id());
    drop(spill);
    files.iter().for_each(|file| std::fs::remove_file(file).expect("deleted"));
    let error = Spill::open(dir.path(), &SMALL).expect_err("no segments");
    assert!(error.fact().contains("are gone"), "{error}");
    assert!(check(&dir.path().join("nothing")).is_err());
}

#[test]
fn a_log_that_was_closed_ends_where_it_did() {
    let dir = directory();
    let (mut spill, _) = open(dir.path());
    spill.append(b"", b"acknowledged").expect("room");
    spill.close().expect("a disk");
    let file = &segments(dir.path())[0];
    let len = std::fs::metadata(file).expect("a file").len();
    for cut in [len - 1, 64] {
        OpenOptions::new().write(true).open(file).and_then(|file| file.set_len(cut)).expect("cut");
        assert!(check(dir.path()).expect("readable").damage.is_some());
        let error = Spill::open(dir.path(), &SMALL).expect_err("a record is missing");
        assert!(error.fact().contains("damaged at position 64"), "{error}");
    }
}

/// Only a record that was appended after a sync knows what the sync put on disk.
#[test]
fn damage_in_the_middle_is_no_torn_end() {
    for synced in [true, false] {
        let dir = directory();
        let (mut spill, _) = open(dir.path());
        let first = spill.append(b"", b"first").expect("room");
        if synced {
            spill.sync().expect("a disk");
        }
        spill.append(b"", b"second").expect("room");
        drop(spill);
        let last = segments(dir.path()).pop().expect("a segment");
        let file = OpenOptions::new().write(true).open(&last).expect("a file");
        file.write_all_at(b"?", first.end - 1).expect("written");
        let report = check(dir.path()).expect("readable");
        let opened = Spill::open(dir.path(), &SMALL);
        if synced {
            assert_eq!(report.damage.map(|damage| damage.position), Some(first.start));
            let error = opened.expect_err("damage");
            assert!(error.fact().contains("damaged at position 64"), "{error}");
            assert_eq!(file.metadata().expect("a file").len(), report.bytes, "nothing is changed");
        } else {
            assert_eq!((report.damage, report.torn.map(|cut| cut.position)), (None, Some(first.start)));
            let (spill, recovery) = opened.expect("a torn end");
            assert_eq!(recovery.cut, report.torn);
            assert_eq!(read_all(&spill, 0).expect("no damage"), []);
        }
    }
}

#[test]
fn records_that_changed_places_are_damage() {
    let dir = directory();
    let (mut spill, _) = open(dir.path());
    let first = spill.append(b"", b"first").expect("room");
    let other = spill.append(b"", b"other").expect("room");
    spill.sync().expect("a disk");
    drop(spill);
    let file = OpenOptions::new().read(true).write(true).open(&segments(dir.path())[0]).expect("a file");
    let mut bytes = [vec![0; 37], vec![0; 37]];
    file.read_exact_at(&mut bytes[0], first.start).expect("a record");
    file.read_exact_at(&mut bytes[1], other.start).expect("a record");
    file.write_all_at(&bytes[1], first.start).expect("written");
    file.write_all_at(&bytes[0], other.start).expect("written");
    assert_eq!(check(dir.path()).expect("readable").records, 0);
}

#[test]
fn a_segment_as_data_is_no_segment() {
    let dir = directory();
    let (mut spill, _) = open(dir.path());
    fill(&mut spill, 3);
    let bytes = std::fs::read(&segments(dir.path())[0]).expect("a segment");
    let whole = spill.sync().expect("a disk");
    // What a user sends may look like records; torn, it must not be taken for damage in front of them.
    spill.append(&bytes, &bytes[64..]).expect("room");
    drop(spill);
    let last = segments(dir.path()).pop().expect("a segment");
    let len = std::fs::metadata(&last).expect("a file").len();
    OpenOptions::new().write(true).open(&last).and_then(|file| file.set_len(len - 1)).expect("cut");
    let (_, recovery) = open(dir.path());
    assert!(recovery.cut.is_some() && recovery.end >= whole);
}

#[test]
fn a_full_disk_leaves_nothing_half_written() {
    let place = directory();
    let mounted = std::process::Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=256k", "none"])
        .arg(place.path())
        .output()
        .is_ok_and(|output| output.status.success());
    if !mounted {
        eprintln!("SKIPPED: needs the right to mount a tmpfs");
        return;
    }
    let result = std::panic::catch_unwind(|| fill_the_disk(&place.path().join("spill")));
    let unmounted = std::process::Command::new("umount").arg(place.path()).status();
    assert!(unmounted.is_ok_and(|status| status.success()));
    result.expect("a full disk is no trouble");
}

fn fill_the_disk(dir: &Path) {
    let options = Options { max_bytes: 1 << 30, segment_bytes: 100_000 };
    let (mut spill, _) = Spill::open(dir, &options).expect("a new log");
    let mut records = 0;
    loop {
        // A record of several pages, so that some of them are written before there is no room.
        match spill.append(b"", &[9; 30_000]) {
            Ok(_) => records += 1,
            Err(Refused::Full(error)) => {
                assert!(error.fact().contains("No space left"), "{error}");
                break;
            }
            Err(other) => panic!("{other:?}"),
        }
    }
    assert!(records > 3, "{records}");
    let files: u64 = segments(dir).iter().map(|file| std::fs::metadata(file).expect("a file").len()).sum();
    assert_eq!(files, spill.usage());
    // A smaller one fits, and the log goes on.
    spill.append(b"", b"small").expect("room for a small one");
    spill.sync().expect("a disk");
    let entries = read_all(&spill, 0).expect("no damage");
    assert_eq!(entries.len(), records + 1);
    assert_eq!(entries[records].bytes, b"small");
    let report = check(dir).expect("readable");
    assert_eq!((report.records, report.damage, report.torn), (records as u64 + 1, None, None));
    spill.trim(entries[records].next).expect("synced");
    spill.append(b"", &[9; 30_000]).expect("room again");
}

/// What a life of a log does.
#[derive(Debug, Clone)]
enum Act {
    Append(usize, usize),
    Sync,
    /// Give back the first so many hundredths of what is there.
    Trim(u64),
    Close,
    /// The machine dies: of what was not synced, some is on disk.
    Crash(Loss),
}

#[derive(Debug, Clone)]
enum Loss {
    Nothing,
    /// The file ends early.
    Cut(u16),
    /// Bytes were never written, though later ones were.
    Hole(u16, u16),
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let loss = prop_oneof![
        Just(Loss::Nothing),
        any::<u16>().prop_map(Loss::Cut),
        (any::<u16>(), any::<u16>()).prop_map(|(at, len)| Loss::Hole(at, len)),
    ];
    let act = prop_oneof![
        8 => (0usize..20, 0usize..300).prop_map(|(meta, bytes)| Act::Append(meta, bytes)),
        3 => Just(Act::Sync),
        1 => (0u64..=100).prop_map(Act::Trim),
        1 => Just(Act::Close),
        2 => loss.prop_map(Act::Crash),
    ];
    prop::collection::vec(act, 1..60)
}

/// Some bytes that no other record has.
fn content(position: u64, meta: usize, bytes: usize) -> (Vec<u8>, Vec<u8>) {
    let byte = |i: usize| (position.wrapping_mul(31).wrapping_add(i as u64 * 7) % 251) as u8;
    ((0..meta).map(byte).collect(), (meta..meta + bytes).map(byte).collect())
}

/// What was appended: positions, meta, bytes.
type Model = Vec<(std::ops::Range<u64>, Vec<u8>, Vec<u8>)>;

fn matches_model(entry: &Entry, model: &Model) -> bool {
    model.iter().any(|(range, meta, bytes)| {
        (range.start, range.end) == (entry.position, entry.next)
            && *meta == entry.meta
            && *bytes == entry.bytes
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn what_was_synced_comes_back(acts in acts()) {
        let dir = directory();
        let (mut spill, _) = open(dir.path());
        let (mut model, mut trimmed): (Model, u64) = (Vec::new(), 0);
        // What this life of the log knows to be given back.
        let mut given_back = 0;
        for act in acts {
            match act {
                Act::Append(meta, bytes) => {
                    let end = spill.end();
                    let (meta, bytes) = content(end, meta, bytes);
                    let range = spill.append(&meta, &bytes).expect("room");
                    prop_assert!(range.start >= end);
                    model.push((range, meta, bytes));
                }
                Act::Sync => prop_assert_eq!(spill.sync().expect("a disk"), spill.end()),
                Act::Trim(part) => {
                    let synced = spill.synced();
                    let kept = model.iter().map(|(range, ..)| range.end).filter(|end| *end <= synced);
                    let kept: Vec<u64> = kept.collect();
                    if let Some(upto) = kept.get((kept.len() as u64 * part / 101) as usize) {
                        trimmed = trimmed.max(*upto);
                        spill.trim(*upto).expect("synced");
                        given_back = given_back.max(*upto);
                    }
                }
                Act::Close => {
                    let end = spill.end();
                    let drained = std::mem::take(&mut given_back) == end;
                    spill.close().expect("a disk");
                    let recovery;
                    (spill, recovery) = open(dir.path());
                    prop_assert!((end..=end + 64).contains(&recovery.end), "{} after {}", recovery.end, end);
                    prop_assert_eq!((recovery.cut, recovery.closed), (None, true));
                    prop_assert!(!drained || read_all(&spill, recovery.oldest).expect("no damage").is_empty());
                }
                Act::Crash(loss) => {
                    let (synced, end) = (spill.synced(), spill.end());
                    given_back = 0;
                    drop(spill);
                    lose(&loss, dir.path(), synced);
                    let recovery;
                    (spill, recovery) = open(dir.path());
                    prop_assert!(recovery.end >= synced, "{} was synced, {} is there", synced, recovery.end);
                    prop_assert!(recovery.end == end || !matches!(loss, Loss::Nothing));
                    model.retain(|(range, ..)| range.end <= recovery.end);
                }
            }
            prop_assert!(spill.usage() <= SMALL.max_bytes);
        }
        spill.sync().expect("a disk");
        let expected: Vec<_> = model.iter().filter(|(range, ..)| range.start >= trimmed).collect();
        let found = read_all(&spill, trimmed.max(spill.oldest())).expect("no damage");
        prop_assert_eq!(found.len(), expected.len());
        prop_assert!(found.iter().all(|entry| matches_model(entry, &model)));
        let report = check(dir.path()).expect("readable");
        prop_assert_eq!((report.damage, report.torn, report.end), (None, None, spill.end()));
        prop_assert_eq!(report.bytes, spill.usage());
    }

    #[test]
    fn damage_is_never_passed_over(
        sizes in prop::collection::vec((0usize..20, 0usize..200, any::<bool>()), 1..25),
        file in any::<prop::sample::Index>(), at in any::<prop::sample::Index>(), flip in 1u8.., close in any::<bool>(),
    ) {
        let dir = directory();
        let (mut spill, _) = open(dir.path());
        let mut model: Model = Vec::new();
        for (meta, bytes, sync) in sizes {
            let (meta, bytes) = content(spill.end(), meta, bytes);
            let range = spill.append(&meta, &bytes).expect("room");
            model.push((range, meta, bytes));
            if sync {
                spill.sync().expect("a disk");
            }
        }
        let synced = spill.sync().expect("a disk");
        if close { spill.close().expect("a disk") } else { drop(spill) }
        let files = segments(dir.path());
        let file = OpenOptions::new().read(true).write(true).open(&files[file.index(files.len())]).expect("a file");
        let at = at.index(file.metadata().expect("a file").len() as usize) as u64;
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).expect("a byte");
        file.write_all_at(&[byte[0] ^ flip], at).expect("written");

        let report = check(dir.path()).expect("readable");
        prop_assert!(report.damage.is_some() || report.torn.is_some());
        let Ok((spill, recovery)) = Spill::open(dir.path(), &SMALL) else {
            prop_assert!(report.damage.is_some());
            return Ok(());
        };
        let mut reader = spill.reader(0).expect("a reader");
        let (mut found, mut failed) = (0, false);
        loop {
            match reader.next() {
                Ok(Some(entry)) => {
                    prop_assert!(matches_model(&entry, &model), "a record that was never written");
                    found += 1;
                }
                Ok(None) => break,
                Err(_) => {
                    failed = true;
                    break;
                }
            }
        }
        prop_assert!(found < model.len());
        prop_assert!(failed || recovery.cut.is_some_and(|cut| cut.position < synced && !close));
    }
}

/// What a crash does to the last segment; what is below `synced` is on disk.
fn lose(loss: &Loss, dir: &Path, synced: u64) {
    let last = segments(dir).pop().expect("a segment");
    let name = last.file_stem().and_then(|name| name.to_str()).expect("a name");
    let first = u64::from_str_radix(name, 16).expect("a position");
    let file: File = OpenOptions::new().write(true).open(&last).expect("a file");
    let (start, end) = (synced - first, file.metadata().expect("a file").len());
    let within = |n: u16| start + u64::from(n) % (end - start + 1);
    match loss {
        Loss::Nothing => {}
        Loss::Cut(at) => file.set_len(within(*at)).expect("cut"),
        Loss::Hole(at, len) => {
            let at = within(*at);
            let len = u64::from(*len % 400).min(end - at);
            file.write_all_at(&vec![0; usize::try_from(len).expect("small")], at).expect("written");
        }
    }
}
