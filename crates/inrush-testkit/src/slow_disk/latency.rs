use super::delay::Counters;
use super::passthrough::Passthrough;
use super::{NAME, Reads, clean_up, mounts};
use fuser::{BackgroundSession, Config, MountOption, SessionACL};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

/// Threads that take requests from the kernel: one for each core that this is used on.
const RECEIVERS: usize = 2;

/// A directory seen through a file system (FUSE, in this process) whose reads take longer, each for itself:
/// as many as are asked for at once wait at the same time. Dropping it unmounts it.
///
/// One request of the kernel is one read: a page that was advised or read past the page cache, a window of
/// read-ahead (128 kB), at most 1 MiB. Writes, names and the rest are as fast as this process is. A server
/// may have a tablespace or its data directory there. There is no `O_TMPFILE`.
///
/// Nobody else may change the backing directory meanwhile.
#[derive(Debug)]
pub struct LatencyLayer {
    at: PathBuf,
    session: Option<BackgroundSession>,
    counters: Arc<Counters>,
}

impl LatencyLayer {
    /// Shows `backing` at `at`, an empty directory, which keeps the rights that `backing` has; each read
    /// takes `delay` longer.
    ///
    /// # Errors
    /// Without root; where the kernel has no FUSE; if one of them is no directory.
    pub fn mount(backing: &Path, at: &Path, delay: Duration) -> io::Result<LatencyLayer> {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        if !rustix::process::geteuid().is_root() {
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, "mounting for others needs root"));
        }
        clean_up()?;
        let (backing, at) = (backing.canonicalize()?, at.canonicalize()?);
        if at.starts_with(&backing) || backing.starts_with(&at) {
            // Looking there would ask this process, which would look there.
            return Err(io::Error::other("a directory cannot be shown within itself"));
        }
        room_for_files()?;
        let counters = Arc::new(Counters::default());
        let name = format!("{NAME}-{}-{}", std::process::id(), NEXT.fetch_add(1, Relaxed));
        let mut config = Config::default();
        config.mount_options = vec![
            MountOption::FSName(name),
            MountOption::DefaultPermissions,
            MountOption::NoDev,
            MountOption::NoSuid,
            MountOption::NoAtime,
        ];
        config.acl = SessionACL::All;
        config.n_threads = Some(RECEIVERS);
        let session = fuser::spawn_mount(Passthrough::new(&backing, delay, &counters)?, &at, &config)?;
        let layer = LatencyLayer { at, session: Some(session), counters };
        // Until it is asked, the kernel takes the directory for root's.
        std::fs::metadata(&layer.at)?;
        Ok(layer)
    }

    /// Where it is.
    pub fn at(&self) -> &Path {
        &self.at
    }

    /// The reads that it has answered since it was mounted.
    pub fn reads(&self) -> Reads {
        self.counters.get()
    }
}

impl Drop for LatencyLayer {
    fn drop(&mut self) {
        if let Some(session) = self.session.take() {
            // Somebody may have something open there: then it goes with him.
            let detached = mounts::detach(&self.at).is_ok();
            if detached {
                // Ends the connection, and with it the threads, only where nobody is inside any more; else
                // they end with him, or with this process, and waiting would be for ever.
                drop(session);
            } else {
                let _ = session.umount_and_join();
            }
        }
    }
}

/// The kernel's every file is a descriptor here.
fn room_for_files() -> io::Result<()> {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })?;
    Ok(())
}
