//! Runs a command and says what it took.

use std::io;
use std::mem::MaybeUninit;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

/// What a command and all its children took.
#[derive(Debug, Clone, Copy)]
pub struct Taken {
    pub status: ExitStatus,
    pub wall: Duration,
    pub user: Duration,
    pub system: Duration,
    /// Peak memory in bytes of the largest of its processes. It starts at what the process that forked it had:
    /// keep the runner small.
    pub peak: u64,
}

/// Runs the command to its end.
pub fn measure(command: &mut Command) -> io::Result<Taken> {
    let began = Instant::now();
    let child = command.spawn()?;
    let (status, usage) = wait(&child)?;
    let wall = began.elapsed();
    // Kibibytes, except on macOS (getrusage(2)).
    let unit = if cfg!(target_os = "macos") { 1 } else { 1024 };
    Ok(Taken {
        status,
        wall,
        user: duration(usage.ru_utime),
        system: duration(usage.ru_stime),
        peak: u64::try_from(usage.ru_maxrss).unwrap_or(0) * unit,
    })
}

/// `Child::wait` does not tell the resources, and getrusage() has the peak of all children ever only.
pub fn wait(child: &Child) -> io::Result<(ExitStatus, libc::rusage)> {
    let pid = libc::pid_t::try_from(child.id()).map_err(io::Error::other)?;
    let mut status = 0;
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    loop {
        // SAFETY: both pointers are to live values of the types wait4 writes. The child has not been waited for
        // (nobody else has it), so its number is still its own.
        if unsafe { libc::wait4(pid, &raw mut status, 0, usage.as_mut_ptr()) } == pid {
            // SAFETY: rusage is integers only, for which the zeroes it was made of are valid.
            return Ok((ExitStatus::from_raw(status), unsafe { usage.assume_init() }));
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// CPU seconds of what was waited for.
pub fn cpu_seconds(usage: &libc::rusage) -> f64 {
    (duration(usage.ru_utime) + duration(usage.ru_stime)).as_secs_f64()
}

/// CPU seconds of this process so far.
pub fn own_cpu_seconds() -> f64 {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the pointer is to a live value of the type getrusage writes.
    if unsafe { libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr()) } != 0 {
        return 0.0;
    }
    // SAFETY: rusage is integers only, for which the zeroes it was made of are valid.
    let usage = unsafe { usage.assume_init() };
    cpu_seconds(&usage)
}

fn duration(time: libc::timeval) -> Duration {
    // A time a process took is never negative.
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::from_secs(seconds) + Duration::from_micros(u64::try_from(time.tv_usec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_children_of_the_command() {
        let script = "head -c 300000000 /dev/zero | sha256sum > /dev/null & wait; exit 3";
        let taken = measure(Command::new("sh").args(["-c", script])).unwrap();
        assert_eq!(taken.status.code(), Some(3));
        assert!(taken.user + taken.system > Duration::from_millis(50), "{taken:?}");
        assert!(taken.wall > Duration::from_millis(10) && taken.peak > 100_000, "{taken:?}");
    }
}
