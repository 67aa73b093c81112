//! What was measured, kept for later: `--verify` compares with it, and `inrush explain` predicts by it.
//!
//! A file for each tablespace or directory, in $XDG_STATE_HOME/inrush/storage or ~/.local/state/inrush/storage. It has
//! the last two measurements, with the settings that held.

use super::measured::Measured;
use super::report::TablespaceOption;
use inrush_core::{Code, Error, Result};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Version of the files.
const VERSION: u32 = 1;

/// A measurement, and what held for scans then.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Kept {
    /// What was measured.
    pub measured: Measured,
    /// The settings then, options of the tablespace before those of the server.
    pub settings: Vec<TablespaceOption>,
}

/// What a file has.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct File {
    version: u32,
    /// What it is about, for who reads the file.
    about: String,
    last: Option<Kept>,
    before: Option<Kept>,
}

/// What a measurement is of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    about: String,
}

impl Key {
    /// A tablespace of a server; `server` is what tells it from others: the identifier of the cluster.
    pub fn tablespace(server: &str, tablespace: &str) -> Key {
        Key { about: format!("tablespace {tablespace} of {server}") }
    }

    /// A directory of this machine.
    pub fn directory(directory: &Path) -> Key {
        Key { about: format!("directory {}", directory.display()) }
    }

    /// A name for its file: readable, and another one for every key.
    fn file(&self) -> String {
        let mut name = String::new();
        for byte in self.about.bytes() {
            match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' => name.push(char::from(byte)),
                b' ' => name.push('_'),
                _ => name += &format!("%{byte:02x}"),
            }
        }
        // Names of files have an end: 255 bytes on most file systems.
        if name.len() > 200 {
            let sum = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |sum, byte| {
                (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
            });
            name.truncate(180);
            name += &format!("~{sum:016x}");
        }
        name + ".json"
    }
}

/// Where measurements are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Store {
    directory: PathBuf,
}

impl Store {
    /// The store of this account, by its environment; `None` if it has no home.
    pub fn of(env: &dyn Fn(&str) -> Option<String>) -> Option<Store> {
        let set = |name: &str| env(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let state = set("XDG_STATE_HOME")
            .filter(|path| path.is_absolute())
            .or_else(|| set("HOME").map(|home| home.join(".local/state")))?;
        Some(Store { directory: state.join("inrush/storage") })
    }

    /// A store in a directory.
    pub fn at(directory: PathBuf) -> Store {
        Store { directory }
    }

    /// The last measurement. What another version has written is as if it were not there.
    pub fn last(&self, key: &Key) -> Option<Kept> {
        self.read(key).last
    }

    fn read(&self, key: &Key) -> File {
        fs::read(self.directory.join(key.file()))
            .ok()
            .and_then(|bytes| serde_json::from_slice::<File>(&bytes).ok())
            .filter(|file| file.version == VERSION && file.about == key.about)
            .unwrap_or_default()
    }

    /// Keeps a measurement; the last one becomes the one before. The file is there as it was or as it is, whatever
    /// happens meanwhile.
    ///
    /// # Errors
    /// `output` where it cannot be written.
    pub fn keep(&self, key: &Key, kept: Kept) -> Result<PathBuf> {
        let path = self.directory.join(key.file());
        let failed = |e: std::io::Error| {
            Error::new(Code::Output, format!("cannot keep the measurement in {}: {e}", path.display()))
        };
        let file = File {
            version: VERSION,
            about: key.about.clone(),
            before: self.read(key).last,
            last: Some(kept),
        };
        let json = serde_json::to_vec_pretty(&file)
            .map_err(|e| Error::new(Code::Internal, format!("a measurement has no JSON form: {e}")))?;
        fs::create_dir_all(&self.directory).map_err(failed)?;
        let beside = path.with_extension(format!("{}.new", std::process::id()));
        let written = fs::File::create(&beside).and_then(|mut file| {
            file.write_all(&json)?;
            file.sync_all()?;
            fs::rename(&beside, &path)
        });
        if written.is_err() {
            // What could not be written whole is not left.
            let _ = fs::remove_file(&beside);
        }
        written.map_err(failed)?;
        Ok(path)
    }
}

#[cfg(test)]
mod tests {
    use super::super::made_up::{local, slow};
    use super::super::measured::Depth;
    use super::*;

    impl Depth {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a rate
        fn depth_and_rate(&self) -> (u32, u64) {
            (self.depth, self.iops.round() as u64)
        }
    }

    #[test]
    fn the_last_two_are_kept() {
        let directory = std::env::temp_dir().join(format!("inrush-keep-{}", std::process::id()));
        let store = Store::at(directory.join("storage"));
        let key = Key::tablespace("7301", "my/../fast one");
        assert_eq!(store.last(&key), None);
        let kept = |measured| Kept { measured, settings: Vec::new() };
        store.keep(&key, kept(local())).unwrap();
        let path = store.keep(&key, kept(slow())).unwrap();
        assert_eq!(path.parent(), Some(store.directory.as_path()));
        // Figures come back but for their last digit.
        let depth = |kept: Option<Kept>| kept.map(|kept| kept.measured.random[0].depth_and_rate());
        assert_eq!(depth(store.last(&key)), Some((1, 900)));
        assert_eq!(depth(store.read(&key).before), Some((1, 16_900)));
        assert_eq!(store.last(&Key::tablespace("7302", "my/../fast one")), None);
        fs::write(&path, "{}").unwrap();
        assert_eq!(store.last(&key), None);
        fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn names_of_files_are_short_and_differ() {
        let long = |end: &str| Key::directory(Path::new(&format!("/{}{end}", "x".repeat(300)))).file();
        assert!(long("a").len() < 220);
        assert_ne!(long("a"), long("b"));
        assert_ne!(Key::tablespace("1", "a b").file(), Key::tablespace("1", "a_b").file());
    }

    #[test]
    fn the_store_is_where_state_belongs() {
        let env = |home: &'static str, state: &'static str| {
            Store::of(&move |name: &str| match name {
                "HOME" => Some(home.to_owned()),
                "XDG_STATE_HOME" => Some(state.to_owned()),
                _ => None,
            })
        };
        let at = |path: &str| Some(Store::at(PathBuf::from(path)));
        assert_eq!(env("/home/ada", ""), at("/home/ada/.local/state/inrush/storage"));
        assert_eq!(env("/home/ada", "/state"), at("/state/inrush/storage"));
        assert_eq!(env("/home/ada", "relative"), at("/home/ada/.local/state/inrush/storage"));
        assert_eq!(env("", ""), None);
    }
}
