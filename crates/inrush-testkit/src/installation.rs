use std::collections::HashMap;
use std::ffi::OsString;
use std::fmt;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, OnceLock, PoisonError};

/// Which PostgreSQL a test wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Version {
    /// The oldest installed one that Inrush supports: the machine's own rather than a fetched one.
    #[default]
    Any,
    /// This major version.
    Major(u32),
    /// This major version, compiled with blocks of another size (`make postgres-32k`).
    Blocks {
        /// The major version.
        major: u32,
        /// Bytes of a block.
        block_size: u32,
    },
    /// This major version, with the extension of this repository in it (`tests/extension-server.sh`).
    WithExtension(u32),
    /// This major version, built by `scripts/postgres.sh` with assertions.
    Asserts(u32),
    /// This major version, built by `scripts/postgres.sh` to read with io_uring.
    IoUring(u32),
}

/// What PostgreSQL is compiled with unless somebody says otherwise: bytes of a block.
pub const USUAL_BLOCK_SIZE: u32 = 8192;

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Version::Any => f.write_str("PostgreSQL 15 or newer"),
            Version::Major(major) => write!(f, "PostgreSQL {major}"),
            Version::WithExtension(major) => write!(f, "PostgreSQL {major} with its headers"),
            Version::Asserts(major) => write!(f, "PostgreSQL {major} with assertions"),
            Version::IoUring(major) => write!(f, "PostgreSQL {major} with io_uring"),
            Version::Blocks { major, block_size } => {
                write!(f, "PostgreSQL {major} with {} KB blocks", block_size / 1024)
            }
        }
    }
}

/// A PostgreSQL installation on this machine.
#[derive(Debug, Clone)]
pub struct Installation {
    major: u32,
    version: String,
    block_size: u32,
    bin: PathBuf,
    /// Directory of bundled libraries, for an installation that does not find its own.
    libraries: Option<PathBuf>,
}

impl Installation {
    /// Every installation of 15 or newer with blocks of the usual size, oldest first, one per major version.
    pub fn all() -> &'static [Installation] {
        let found = Installation::found();
        // They come first: see below.
        &found[..found.partition_point(|one| one.block_size == USUAL_BLOCK_SIZE)]
    }

    /// Those with blocks of another size: nothing but the bench wants one.
    pub fn with_other_blocks() -> &'static [Installation] {
        &Installation::found()[Installation::all().len()..]
    }

    /// All of them, those with blocks of the usual size first. Looked for once per process, in this order:
    /// `PG_CONFIG`, the Debian and Red Hat directories, `pg_config` on PATH, and the directory that
    /// `tests/servers.sh` and `scripts/postgres.sh` fill ([`Installation::servers_dir`]).
    fn found() -> &'static [Installation] {
        static FOUND: OnceLock<Vec<Installation>> = OnceLock::new();
        FOUND.get_or_init(|| {
            let mut candidates: Vec<(PathBuf, bool)> = Vec::new();
            if let Some(pg_config) = std::env::var_os("PG_CONFIG") {
                candidates.extend(bin_of(&pg_config).map(|bin| (bin, false)));
            }
            for (parent, tail) in [("/usr/lib/postgresql", "bin"), ("/usr", "bin")] {
                for entry in std::fs::read_dir(parent).into_iter().flatten().flatten() {
                    let is_one =
                        parent != "/usr" || entry.file_name().to_string_lossy().starts_with("pgsql-");
                    if is_one {
                        candidates.push((entry.path().join(tail), false));
                    }
                }
            }
            candidates.extend(bin_of(&OsString::from("pg_config")).map(|bin| (bin, false)));
            for entry in std::fs::read_dir(Self::servers_dir()).into_iter().flatten().flatten() {
                candidates.push((entry.path().join("bin"), true));
            }
            let mut found: Vec<Installation> = Vec::new();
            for (bin, bundled) in candidates {
                match Installation::at(&bin, bundled) {
                    Some(one) if one.major >= 15 && !found.iter().any(|f| f.kind() == one.kind()) => {
                        found.push(one);
                    }
                    _ => {}
                }
            }
            found.sort_by_key(|one| (one.block_size != USUAL_BLOCK_SIZE, one.kind()));
            found
        })
    }

    /// Where `tests/servers.sh` puts servers, one directory per major version:
    /// `INRUSH_TEST_SERVERS`, else /var/cache/inrush-test-servers as root (the server's account must be able
    /// to read it, and root's home is closed to it), else ~/.cache/inrush-test-servers.
    pub fn servers_dir() -> PathBuf {
        if let Some(dir) = std::env::var_os("INRUSH_TEST_SERVERS") {
            return dir.into();
        }
        if rustix::process::geteuid().is_root() {
            return "/var/cache/inrush-test-servers".into();
        }
        Path::new(&std::env::var_os("HOME").unwrap_or_default()).join(".cache/inrush-test-servers")
    }

    /// The installation for `version`, or `None` if there is none.
    pub fn find(version: Version) -> Option<&'static Installation> {
        match version {
            Version::Any => Installation::all().first(),
            Version::Major(major) => Installation::all().iter().find(|one| one.major == major),
            Version::WithExtension(major) => {
                Installation::once(version, || Installation::with_extension(major))
            }
            Version::Asserts(major) => {
                Installation::once(version, || Installation::checking(&format!("{major}-asserts")))
            }
            Version::IoUring(major) => {
                Installation::once(version, || Installation::checking(&format!("{major}-uring")))
            }
            Version::Blocks { major, block_size } => {
                Installation::found().iter().find(|one| one.kind() == (major, block_size))
            }
        }
    }

    /// One that is looked for, or made, when it is first asked for.
    fn once(version: Version, find: impl FnOnce() -> Option<Installation>) -> Option<&'static Installation> {
        static SEEN: OnceLock<Mutex<HashMap<Version, Option<&'static Installation>>>> = OnceLock::new();
        let mut seen = SEEN.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
        *seen.entry(version).or_insert_with(|| find().map(|one| &*Box::leak(Box::new(one))))
    }

    /// One that `scripts/postgres.sh` has built for tests, which nothing else takes for a server of its version.
    fn checking(name: &str) -> Option<Installation> {
        Installation::at(&Installation::servers_dir().join("checking").join(name).join("bin"), true)
    }

    /// The installation of a major version in a tree of its own, with the extension. Made when first asked for: seconds.
    ///
    /// # Panics
    /// If the extension cannot be built although the server's headers are there.
    fn with_extension(major: u32) -> Option<Installation> {
        let plain = Installation::all().iter().find(|one| one.major == major)?;
        let pgxs = plain.command("pg_config").arg("--pgxs").output().ok()?;
        let pgxs = PathBuf::from(String::from_utf8(pgxs.stdout).ok()?.trim());
        plain.pg_config().filter(|_| pgxs.exists())?;
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/extension-server.sh");
        // The libraries are for pg_config; a shell does without them.
        let output = plain.command("sh").arg(script).arg(plain.bin.join("pg_config")).output().ok()?;
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "no PostgreSQL {major} with the extension: {said}");
        let bin = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
        Installation::at(&bin, true)
    }

    /// Whether `version` is installed; if not, says on standard error that the test is skipped (or panics
    /// when `INRUSH_TEST_REQUIRE_SERVERS` is set). Use it through [`crate::require_server!`].
    ///
    /// # Panics
    /// As said above, and whenever there is no server at all: then nothing would be tested.
    pub fn have_or_say_skipped(version: impl Into<Version>) -> bool {
        let version = version.into();
        if Installation::find(version).is_some() {
            return true;
        }
        let (how, built) = match version {
            Version::Blocks { .. } => ("make postgres-32k".to_owned(), true),
            Version::Asserts(major) => (format!("scripts/postgres.sh asserts {major}"), true),
            Version::IoUring(major) => (format!("scripts/postgres.sh uring {major}"), true),
            _ => ("tests/servers.sh".to_owned(), false),
        };
        let fact = format!("needs {version} (run {how})");
        // One that takes minutes to build no test run demands.
        let required = std::env::var_os("INRUSH_TEST_REQUIRE_SERVERS").is_some() && !built;
        assert!(!required && version != Version::Any, "this test {fact}");
        // Not eprintln!: the test runner shows captured output of failed tests only, and a skipped test
        // that nobody sees is a test that does not exist.
        let _ = writeln!(std::io::stderr(), "SKIPPED: {fact}");
        false
    }

    /// The major version, such as 15.
    pub fn major(&self) -> u32 {
        self.major
    }

    /// The version as the server gives it, such as `15.18 (Debian 15.18-1)`.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Bytes of a block, which is also a page of a table.
    pub fn block_size(&self) -> u32 {
        self.block_size
    }

    /// What to ask for to get it.
    pub fn wanted(&self) -> Version {
        Version::Blocks { major: self.major, block_size: self.block_size }
    }

    fn kind(&self) -> (u32, u32) {
        (self.major, self.block_size)
    }

    /// The directory of its programs.
    pub fn bin(&self) -> &Path {
        &self.bin
    }

    /// Its `pg_config`, if it has one: what building an extension needs.
    pub fn pg_config(&self) -> Option<PathBuf> {
        Some(self.bin.join("pg_config")).filter(|path| path.exists())
    }

    /// A command that runs one of its programs with its own libraries; a client program that it lacks is
    /// taken from PATH. The locale is C, so that messages are English, and no `PG*` variable of the
    /// developer reaches it.
    pub fn command(&self, program: &str) -> Command {
        let path = self.bin.join(program);
        let mut command = if path.exists() { Command::new(path) } else { Command::new(program) };
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("PG") {
                command.env_remove(name);
            }
        }
        command.env("LC_ALL", "C").env_remove("LANGUAGE");
        if let Some(libraries) = &self.libraries {
            command.env("LD_LIBRARY_PATH", libraries);
        }
        command
    }

    fn at(bin: &Path, bundled: bool) -> Option<Installation> {
        if !bin.join("initdb").exists() {
            return None;
        }
        let libraries = bin.parent().map(|prefix| prefix.join("lib")).filter(|lib| bundled && lib.is_dir());
        let mut one = Installation {
            major: 0,
            version: String::new(),
            block_size: USUAL_BLOCK_SIZE,
            bin: bin.to_owned(),
            libraries,
        };
        let output = one.command("postgres").arg("--version").output().ok()?;
        // "postgres (PostgreSQL) 15.18 (Debian 15.18-1)"; a beta is "19beta1".
        let text = String::from_utf8(output.stdout).ok()?;
        one.version = text.trim().strip_prefix("postgres (PostgreSQL) ")?.to_owned();
        let digits = one.version.find(|c: char| !c.is_ascii_digit()).unwrap_or(one.version.len());
        one.major = one.version[..digits].parse().ok()?;
        one.block_size = one.compiled_block_size().unwrap_or(USUAL_BLOCK_SIZE);
        Some(one)
    }

    /// `BLCKSZ` of its pg_config.h. The server tells it only with a data directory at hand; an installation
    /// without headers is somebody's package, and those have the usual size.
    fn compiled_block_size(&self) -> Option<u32> {
        // Not another version's from PATH.
        self.pg_config()?;
        let output = self.command("pg_config").arg("--includedir-server").output().ok()?;
        let directory = String::from_utf8(output.stdout).ok()?;
        let header = std::fs::read_to_string(Path::new(directory.trim()).join("pg_config.h")).ok()?;
        header.lines().find_map(|line| line.strip_prefix("#define BLCKSZ "))?.trim().parse().ok()
    }
}

impl From<u32> for Version {
    fn from(major: u32) -> Version {
        Version::Major(major)
    }
}

fn bin_of(pg_config: &OsString) -> Option<PathBuf> {
    let output = Command::new(pg_config).arg("--bindir").output().ok()?;
    let bin = String::from_utf8(output.stdout).ok()?;
    Some(PathBuf::from(bin.trim())).filter(|bin| bin.is_absolute())
}
