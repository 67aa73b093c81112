use std::io;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

/// The account the servers run as. PostgreSQL refuses to run as root (main.c, `check_root`), so as root it
/// is `postgres` if there is such an account, else `nobody`; an ordinary user runs its servers itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerUser {
    /// User and group to change to; `None`: stay who we are.
    ids: Option<(u32, u32)>,
}

impl ServerUser {
    /// The account for this process, looked up once.
    ///
    /// # Panics
    /// As root on a machine that has neither `postgres` nor `nobody`.
    pub fn get() -> ServerUser {
        static FOUND: OnceLock<ServerUser> = OnceLock::new();
        *FOUND.get_or_init(|| {
            if !rustix::process::geteuid().is_root() {
                return ServerUser { ids: None };
            }
            let ids = ["postgres", "nobody"]
                .iter()
                .find_map(|name| Some((id("-u", name)?, id("-g", name)?)))
                .expect("as root, PostgreSQL needs an account `postgres` or `nobody` to run as");
            ServerUser { ids: Some(ids) }
        })
    }

    /// Makes `command` run as this account, without any further group.
    pub fn run<'c>(&self, command: &'c mut Command) -> &'c mut Command {
        if let Some((uid, gid)) = self.ids {
            // As root, `Command::uid` also drops the supplementary groups.
            command.gid(gid).uid(uid);
        }
        command
    }

    /// Hands `path` to this account.
    pub fn own(&self, path: &Path) -> io::Result<()> {
        match self.ids {
            Some((uid, gid)) => chown(path, Some(uid), Some(gid)),
            None => Ok(()),
        }
    }
}

/// `id -u NAME` or `id -g NAME`: asks the name service as the system has it set up, not only /etc/passwd.
fn id(what: &str, name: &str) -> Option<u32> {
    let output = Command::new("id").args([what, name]).output().ok()?;
    String::from_utf8(output.stdout).ok()?.trim().parse().ok()
}
