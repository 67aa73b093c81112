use crate::account::Account;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Oldest major version that is used.
pub(crate) const OLDEST: u32 = 15;

/// Where a server comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// It was on the machine already.
    Installed,
    /// Inrush fetched it.
    Fetched,
}

/// The programs of a PostgreSQL server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    pub(crate) bin: PathBuf,
    pub(crate) major: u32,
    pub(crate) minor: u32,
    pub(crate) origin: Origin,
}

impl Server {
    /// The directory of its programs.
    pub fn bin(&self) -> &Path {
        &self.bin
    }

    /// The version, such as `18.1`.
    pub fn version(&self) -> String {
        format!("{}.{}", self.major, self.minor)
    }

    /// Where it comes from.
    pub fn origin(&self) -> Origin {
        self.origin
    }

    /// The server in `bin`, if there is one that `account` can run, of a released version.
    pub(crate) fn at(bin: &Path, origin: Origin, account: &Account) -> Option<Server> {
        let postgres = bin.join("postgres");
        if !postgres.exists() || !bin.join("initdb").exists() {
            return None;
        }
        let output = account.command(&postgres).arg("--version").output().ok()?;
        let (major, minor) = released(std::str::from_utf8(&output.stdout).ok()?)?;
        (major >= OLDEST).then(|| Server { bin: bin.to_owned(), major, minor, origin })
    }
}

/// Every server on the machine, newest first; of two equal ones the installed one. With `fetched_only` just
/// those that Inrush fetched.
pub(crate) fn servers(fetched: &Path, fetched_only: bool, account: &Account) -> Vec<Server> {
    let mut found: Vec<Server> = Vec::new();
    let mut consider = |bin: PathBuf, origin| {
        let known = found.iter().any(|server| server.bin == bin);
        if !known && let Some(server) = Server::at(&bin, origin, account) {
            found.push(server);
        }
    };
    if !fetched_only {
        // Debian, Red Hat, Homebrew on both kinds of Mac, Postgres.app; then whatever PATH has.
        for (parent, prefix) in [
            ("/usr/lib/postgresql", ""),
            ("/usr", "pgsql-"),
            ("/opt/homebrew/opt", "postgresql"),
            ("/usr/local/opt", "postgresql"),
            ("/Applications/Postgres.app/Contents/Versions", ""),
        ] {
            for dir in directories(Path::new(parent), prefix) {
                consider(dir.join("bin"), Origin::Installed);
            }
        }
        if let Some(bin) = bin_of_path() {
            consider(bin, Origin::Installed);
        }
    }
    for dir in directories(fetched, "") {
        consider(dir.join("bin"), Origin::Fetched);
    }
    found.sort_by_key(|server| {
        (std::cmp::Reverse((server.major, server.minor)), server.origin == Origin::Fetched)
    });
    found
}

/// Subdirectories by name, those with a dot (unfinished ones) left out.
fn directories(parent: &Path, prefix: &str) -> Vec<PathBuf> {
    let names = fs::read_dir(parent).into_iter().flatten().flatten().map(|entry| entry.file_name());
    let mut names: Vec<_> = names
        .filter(|name| name.to_str().is_some_and(|name| name.starts_with(prefix) && !name.starts_with('.')))
        .collect();
    names.sort();
    names.into_iter().map(|name| parent.join(name)).collect()
}

fn bin_of_path() -> Option<PathBuf> {
    let output = Command::new("pg_config").arg("--bindir").output().ok()?;
    Some(PathBuf::from(std::str::from_utf8(&output.stdout).ok()?.trim())).filter(|bin| bin.is_absolute())
}

/// Major and minor from `postgres (PostgreSQL) 15.18 (Debian ...)`; `None` for `19beta1` and `19devel`, whose
/// data directories no release can read.
fn released(text: &str) -> Option<(u32, u32)> {
    let version = text.trim().strip_prefix("postgres (PostgreSQL) ")?.split(' ').next()?;
    let (major, minor) = version.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_versions_as_postgres_prints_them() {
        assert_eq!(released("postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)\n"), Some((15, 18)));
        assert_eq!(released("postgres (PostgreSQL) 18.1\n"), Some((18, 1)));
        assert_eq!(released("postgres (PostgreSQL) 19beta1\n"), None);
        assert_eq!(released("postgres (PostgreSQL) 19devel\n"), None);
        assert_eq!(released("something else"), None);
    }

    #[test]
    fn installed_servers_come_newest_first() {
        let account = Account::find().unwrap();
        let found = servers(Path::new("/nonexistent"), false, &account);
        assert!(found.iter().all(|server| server.major >= OLDEST && server.origin == Origin::Installed));
        assert!(found.is_sorted_by_key(|server| std::cmp::Reverse((server.major, server.minor))));
        assert!(servers(Path::new("/nonexistent"), true, &account).is_empty());
    }
}
