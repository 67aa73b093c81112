use inrush_core::{Code, Error, Result};
use std::fs;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// Who the server runs as. PostgreSQL refuses to run as root (main.c, `check_root`): then it is `postgres` if
/// there is such an account, else `nobody`. Everybody else runs it as themselves.
#[derive(Debug, Clone)]
pub(crate) struct Account {
    /// User and group to change to; `None`: stay who we are.
    ids: Option<(u32, u32)>,
    /// The server's user.
    uid: u32,
    /// The name of the user who runs Inrush: the name of the superuser role.
    role: String,
}

impl Account {
    pub(crate) fn find() -> Result<Account> {
        let uid = rustix::process::geteuid().as_raw();
        let role = id(&["-un"]).ok_or_else(|| {
            Error::new(Code::Local, format!("user {uid} has no name on this machine")).hint(
                "PostgreSQL needs an entry for the user in /etc/passwd; add one, or run as another user.",
            )
        })?;
        if uid != 0 {
            return Ok(Account { ids: None, uid, role });
        }
        let number = |arguments: &[&str]| id(arguments)?.parse().ok();
        let ids = ["postgres", "nobody"]
            .iter()
            .find_map(|name| Some((number(&["-u", name])?, number(&["-g", name])?)))
            .ok_or_else(|| {
                Error::new(
                    Code::Local,
                    "PostgreSQL does not run as root, and there is no account to run it as",
                )
                .hint("Create a user named postgres, or run Inrush as an ordinary user.")
            })?;
        Ok(Account { ids: Some(ids), uid: ids.0, role })
    }

    pub(crate) fn role(&self) -> &str {
        &self.role
    }

    pub(crate) fn is_root(&self) -> bool {
        self.ids.is_some()
    }

    /// A command that runs as this account, in the root directory of the file system (the account may not
    /// enter ours), with English messages and without the `PG*` variables meant for clients.
    pub(crate) fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("PG") {
                command.env_remove(name);
            }
        }
        command.env("LC_ALL", "C").env_remove("LANGUAGE").current_dir("/");
        if let Some((uid, gid)) = self.ids {
            // As root, `Command::uid` also drops the supplementary groups.
            command.gid(gid).uid(uid);
        }
        command
    }

    /// Makes sure that `path` is a directory of this account that nobody else may enter. It may be there
    /// already; one that belongs to someone else, or a link, is refused: in /tmp anybody could have put it
    /// there.
    pub(crate) fn private_dir(&self, path: &Path) -> Result<()> {
        match fs::DirBuilder::new().mode(0o700).create(path) {
            Ok(()) => {
                if let Some((uid, gid)) = self.ids {
                    chown(path, Some(uid), Some(gid)).map_err(|error| cannot("hand over", path, &error))?;
                }
            }
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(cannot("create", path, &error)),
        }
        let found = fs::symlink_metadata(path).map_err(|error| cannot("read", path, &error))?;
        if !found.is_dir() || found.uid() != self.uid {
            let fact = format!("{} is not a directory of the user the server runs as", path.display());
            return Err(
                Error::new(Code::Local, fact).hint("Remove it, or set INRUSH_LOCAL_DIR to another place.")
            );
        }
        if found.mode() & 0o777 != 0o700 {
            let closed = fs::Permissions::from_mode(0o700);
            fs::set_permissions(path, closed).map_err(|error| cannot("close", path, &error))?;
        }
        Ok(())
    }
}

/// The error for a file operation that failed.
pub(crate) fn cannot(what: &str, path: &Path, error: &std::io::Error) -> Error {
    Error::new(Code::Local, format!("cannot {what} {}: {error}", path.display()))
}

/// Asks id(1), and so the name service as the system has it set up, not only /etc/passwd.
fn id(arguments: &[&str]) -> Option<String> {
    let output = Command::new("id").args(arguments).output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned()).filter(|text| !text.is_empty())
}
