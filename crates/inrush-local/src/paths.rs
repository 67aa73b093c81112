use crate::account::{Account, cannot};
use inrush_core::{Code, Error, Result};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Longest path of a Unix socket that every system takes: `sun_path` has 108 bytes on Linux and 104 on the
/// BSDs and macOS, with the final NUL.
const SOCKET_PATH_MAX: usize = if cfg!(target_os = "linux") { 107 } else { 103 };

/// The port in the socket's name; nothing listens on it.
pub(crate) const PORT: u16 = 5432;

/// The files of one embedded server; see the crate's documentation.
#[derive(Debug, Clone)]
pub(crate) struct Paths {
    pub(crate) root: PathBuf,
    pub(crate) data: PathBuf,
    pub(crate) socket_dir: PathBuf,
    pub(crate) conf: PathBuf,
    pub(crate) log_dir: PathBuf,
    pub(crate) servers: PathBuf,
    pub(crate) lock: PathBuf,
}

impl Paths {
    pub(crate) fn under(root: &Path) -> Result<Paths> {
        // The server changes its working directory, and libpq takes a host for a socket only if it is absolute.
        let root = std::path::absolute(root).map_err(|error| cannot("find", root, &error))?;
        if root.to_str().is_none_or(|text| text.contains(char::is_control)) {
            let fact = format!("the path {} cannot stand in a connection string", root.display());
            return Err(Error::new(Code::Local, fact).hint("Set INRUSH_LOCAL_DIR to a path in plain UTF-8."));
        }
        Ok(Paths {
            data: root.join("data"),
            socket_dir: socket_dir(&root),
            conf: root.join("local.conf"),
            log_dir: root.join("log"),
            servers: root.join("servers"),
            lock: root.join("lock"),
            root,
        })
    }

    /// The root when nobody names one.
    pub(crate) fn default_root(account: &Account) -> Result<PathBuf> {
        if account.is_root() {
            return Ok("/var/lib/inrush-local".into());
        }
        // The XDG base directory specification ignores relative paths.
        let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let data_home = absolute("XDG_DATA_HOME").or_else(|| Some(absolute("HOME")?.join(".local/share")));
        data_home.map(|dir| dir.join("inrush/local")).ok_or_else(|| {
            Error::new(Code::Local, "neither HOME nor XDG_DATA_HOME is set")
                .hint("Set INRUSH_LOCAL_DIR to a directory for the embedded server.")
        })
    }

    /// Creates what has to be there before a server can be. As root the root directory stays root's, and the
    /// account passes through it to the directories of its own.
    pub(crate) fn create(&self, account: &Account) -> Result<()> {
        let mode = if account.is_root() { 0o711 } else { 0o700 };
        if !self.root.is_dir() {
            fs::DirBuilder::new()
                .recursive(true)
                .mode(0o755)
                .create(self.root.parent().unwrap_or(&self.root))
                .and_then(|()| fs::DirBuilder::new().mode(mode).create(&self.root))
                .or_else(|error| if self.root.is_dir() { Ok(()) } else { Err(error) })
                .and_then(|()| fs::set_permissions(&self.root, fs::Permissions::from_mode(mode)))
                .map_err(|error| cannot("create", &self.root, &error))?;
        }
        self.check_reachable(account)?;
        account.private_dir(&self.log_dir)?;
        account.private_dir(&self.socket_dir)
    }

    pub(crate) fn server_log(&self) -> PathBuf {
        self.log_dir.join("server.log")
    }

    fn check_reachable(&self, account: &Account) -> Result<()> {
        if !account.is_root() {
            return Ok(());
        }
        let test = ["test", "/bin/test", "/usr/bin/test"]
            .iter()
            .find_map(|program| account.command(Path::new(program)).arg("-x").arg(&self.root).status().ok());
        if test.is_some_and(|status| !status.success()) {
            let fact = format!("the account the server runs as cannot reach {}", self.root.display());
            let hint =
                "PostgreSQL does not run as root; set INRUSH_LOCAL_DIR to a place that others may pass into.";
            return Err(Error::new(Code::Local, fact).hint(hint));
        }
        Ok(())
    }
}

/// `socket/` in the root, or a short path of its own when that one is too long for a socket.
fn socket_dir(root: &Path) -> PathBuf {
    let dir = root.join("socket");
    // With the lock file beside the socket, the longest name there is.
    let longest = dir.as_os_str().len() + format!("/.s.PGSQL.{PORT}").len();
    if longest <= SOCKET_PATH_MAX {
        return dir;
    }
    let uid = rustix::process::geteuid().as_raw();
    PathBuf::from(format!("/tmp/inrush-{uid}-{:016x}", fnv1a(root.as_os_str().as_bytes())))
}

/// FNV-1a: a name for a path that is the same in every version of Inrush, which std's hasher does not promise.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_path_gets_a_short_socket() {
        let paths = Paths::under(Path::new("/srv/inrush")).unwrap();
        assert_eq!(paths.socket_dir, Path::new("/srv/inrush/socket"));
        let long = |n: usize| Paths::under(&Path::new("/srv").join("x".repeat(n))).unwrap().socket_dir;
        // "/srv/" + n + "/socket" + "/.s.PGSQL.5432" is 107 bytes with n = 81.
        if cfg!(target_os = "linux") {
            assert!(long(81).starts_with("/srv"));
            assert!(long(82).starts_with("/tmp"));
        }
        assert_ne!(long(150), long(151));
        assert_eq!(long(150), long(150));
    }
}
