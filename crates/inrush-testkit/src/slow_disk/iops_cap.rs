use super::NAME;
use super::mounts::{self, detach, lives, owner};
use super::throttle::Throttle;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Read-ahead of a disk, as the kernel has it where nobody has changed it.
const READ_AHEAD_KB: u32 = 128;

/// A disk that gives a group of processes so many reads a second, whatever their size and however many are in
/// flight: a loop device with ext4 on a file, behind a throttle of a control group. Dropping it removes all
/// of that.
///
/// Its pages are twice in memory, as those of the disk and as those of the file: what is read again and again
/// is limited by the throttle alone.
#[derive(Debug)]
pub struct IopsCap {
    at: PathBuf,
    /// First: the processes must be free before the disk goes.
    throttle: Option<Throttle>,
    disk: Disk,
}

/// A loop device with a file system.
#[derive(Debug)]
struct Disk {
    file: PathBuf,
    device: Option<String>,
    at: PathBuf,
}

impl IopsCap {
    /// Shows a new, empty disk of `bytes` at `at`, an empty directory; its file is beside that directory.
    /// Nobody is slow before he is in the group: [`IopsCap::add`].
    ///
    /// # Errors
    /// Without root; without loop devices, `losetup`, `mkfs.ext4`, or control groups for I/O.
    pub fn mount(at: &Path, bytes: u64, iops: u32) -> io::Result<IopsCap> {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        if !rustix::process::geteuid().is_root() {
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, "a disk with a limit needs root"));
        }
        mounts::clean_up()?;
        let at = at.canonicalize()?;
        let name = format!("{NAME}-{}-{}", std::process::id(), NEXT.fetch_add(1, Relaxed));
        let disk = Disk::new(at.with_file_name(format!("{name}.img")), at.clone(), bytes)?;
        let throttle = Throttle::new(&name, &disk.number()?, iops)?;
        Ok(IopsCap { at, throttle: Some(throttle), disk })
    }

    /// Where it is.
    pub fn at(&self) -> &Path {
        &self.at
    }

    /// The device, as `loop0`, and its number, as `7:0`.
    ///
    /// # Errors
    /// If the kernel does not say.
    pub fn device(&self) -> io::Result<(String, String)> {
        Ok((self.disk.name()?.to_owned(), self.disk.number()?))
    }

    /// The directory of the control group.
    pub fn group(&self) -> &Path {
        self.throttle.as_ref().map_or(Path::new(""), Throttle::group)
    }

    /// Makes a process slow, and what it starts from now on; not its children of before.
    ///
    /// # Errors
    /// If there is no such process.
    pub fn add(&self, pid: u32) -> io::Result<()> {
        self.throttle.as_ref().map_or(Ok(()), |throttle| throttle.add(pid))
    }
}

impl Drop for IopsCap {
    fn drop(&mut self) {
        drop(self.throttle.take());
    }
}

impl Disk {
    fn new(file: PathBuf, at: PathBuf, bytes: u64) -> io::Result<Disk> {
        // From here on it is removed, whatever fails.
        let mut disk = Disk { file, device: None, at };
        fs::File::create_new(&disk.file)?.set_len(bytes)?;
        let device = run(tool("losetup").args(["--find", "--show"]).arg(&disk.file))?;
        disk.device = Some(device.clone());
        // Nothing of the file system is left for later: work in the background would take reads of the limit.
        let options = "lazy_itable_init=0,lazy_journal_init=0";
        run(tool("mkfs.ext4").args(["-q", "-F", "-m", "0", "-E", options, &device]))?;
        run(tool("mount").args(["-t", "ext4", "-o", "noatime", &device]).arg(&disk.at))?;
        let read_ahead = format!("/sys/block/{}/queue/read_ahead_kb", disk.name()?);
        fs::write(read_ahead, READ_AHEAD_KB.to_string())?;
        Ok(disk)
    }

    fn name(&self) -> io::Result<&str> {
        let device = self.device.as_deref().and_then(|device| device.rsplit('/').next());
        device.ok_or_else(|| io::Error::other("there is no loop device"))
    }

    fn number(&self) -> io::Result<String> {
        Ok(fs::read_to_string(format!("/sys/block/{}/dev", self.name()?))?.trim().to_owned())
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if let Some(device) = &self.device {
            let _ = detach(&self.at);
            // Goes when the last who has something open there has left.
            let _ = run(tool("losetup").args(["--detach", device]));
        }
        let _ = fs::remove_file(&self.file);
    }
}

/// Removes disks of ours whose process has died.
pub fn clean_up() -> io::Result<()> {
    let mounted = mounts::all()?;
    for entry in fs::read_dir("/sys/block")?.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Ok(file) = fs::read_to_string(entry.path().join("loop/backing_file")) else { continue };
        // The kernel says so of one that has been removed.
        let file = PathBuf::from(file.trim().trim_end_matches(" (deleted)"));
        let dead = file.file_stem().and_then(|stem| owner(stem.to_str()?)).is_some_and(|pid| !lives(pid));
        if !dead {
            continue;
        }
        let device = format!("/dev/{name}");
        // Another process may do the same at this moment: then what is gone is no error.
        for mount in mounted.iter().filter(|mount| mount.source == device) {
            detach(&mount.at)?;
        }
        let detached = run(tool("losetup").args(["--detach", &device]));
        if entry.path().join("loop/backing_file").exists() {
            detached?;
        }
        match fs::remove_file(&file) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
    }
    Ok(())
}

/// A program that may not be where ordinary users' programs are.
fn tool(name: &str) -> Command {
    let path = std::env::var("PATH").unwrap_or_default();
    let mut command = Command::new(name);
    command.env("PATH", format!("{path}:/usr/sbin:/sbin")).env("LC_ALL", "C");
    command
}

/// What a program prints, in one line.
fn run(command: &mut Command) -> io::Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|e| io::Error::new(e.kind(), format!("cannot run {name}: {e}")))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(io::Error::other(format!("{name}: {}", said.trim())));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
