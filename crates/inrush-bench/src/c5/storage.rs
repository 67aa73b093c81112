//! What tables are on.

use crate::c5::{Kind, Rung};
use inrush_core::{Code, Error, Result};
use inrush_testkit::ServerUser;
use inrush_testkit::slow_disk::{IopsCap, LatencyLayer};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Bytes of a disk with a limit. Only what is written takes space; it is large so that a probe that takes a
/// share of the free space has enough.
const DISK: u64 = 64 << 30;

/// Storage of a rung. Dropping it removes it.
#[derive(Debug)]
pub struct Storage {
    /// For the tablespace.
    tables: PathBuf,
    /// For others' files on the same storage.
    scratch: PathBuf,
    slow: Slow,
    /// Of the device whose reads count: `254:0`.
    device: Option<String>,
}

#[derive(Debug)]
enum Slow {
    No,
    Layer(LatencyLayer),
    Cap(IopsCap),
}

impl Storage {
    /// Makes it, in a directory that others may enter.
    ///
    /// # Errors
    /// With the reason why it cannot be had here.
    pub fn make(rung: &Rung, base: &Path) -> Result<Storage, String> {
        let made = || -> std::io::Result<Storage> {
            let directory = |name: &str| {
                let path = base.join(format!("{}-{name}", rung.name));
                fs::create_dir_all(&path)?;
                fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
                Ok::<_, std::io::Error>(path)
            };
            let at = directory("at")?;
            let slow = match rung.storage {
                Kind::Local => Slow::No,
                Kind::Latency => {
                    let delay = Duration::from_secs_f64(rung.delay_ms.unwrap_or(1.0) / 1e3);
                    Slow::Layer(LatencyLayer::mount(&directory("backing")?, &at, delay)?)
                }
                Kind::Capped => Slow::Cap(IopsCap::mount(&at, DISK, rung.iops.unwrap_or(3000))?),
            };
            let (tables, scratch) = (at.join("tables"), at.join("scratch"));
            for path in [&tables, &scratch] {
                fs::create_dir(path)?;
                fs::set_permissions(path, fs::Permissions::from_mode(0o700))?;
                ServerUser::get().own(path)?;
            }
            let number = fs::metadata(&tables)?.dev();
            let number = format!("{}:{}", rustix::fs::major(number), rustix::fs::minor(number));
            let device = Some(number).filter(|number| statistics(number).is_some());
            Ok(Storage { tables, scratch, slow, device })
        };
        made().map_err(|e| e.to_string())
    }

    /// For the tablespace, which must be empty.
    pub fn tables(&self) -> &Path {
        &self.tables
    }

    /// For others' files.
    pub fn scratch(&self) -> &Path {
        &self.scratch
    }

    /// Where reads are counted.
    pub fn counted(&self) -> String {
        match (&self.slow, &self.device) {
            (Slow::Layer(_), _) => "the layer".to_owned(),
            (_, Some(number)) => format!("device {number}"),
            (_, None) => "nowhere".to_owned(),
        }
    }

    /// Reads so far, and bytes of them: of all processes of the machine.
    pub fn reads(&self) -> Option<(u64, u64)> {
        match &self.slow {
            Slow::Layer(layer) => Some((layer.reads().count, layer.reads().bytes)),
            _ => statistics(self.device.as_ref()?),
        }
    }

    /// Waits until what was written is on the disk: the kernel's writing would be somebody else's traffic to
    /// a probe.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn settle(&self) -> Result<()> {
        let settled = fs::File::open(&self.scratch).and_then(|directory| Ok(rustix::fs::syncfs(directory)?));
        settled.map_err(|e| Error::new(Code::Output, format!("cannot write {}: {e}", self.scratch.display())))
    }

    /// A process reads from there now, as slowly as is meant.
    ///
    /// # Errors
    /// If there is no such process.
    pub fn add(&self, pid: u32) -> Result<()> {
        match &self.slow {
            Slow::Cap(cap) => {
                cap.add(pid).map_err(|e| Error::new(Code::Local, format!("no limit for {pid}: {e}")))
            }
            _ => Ok(()),
        }
    }
}

/// Reads that a device has completed, and their bytes (Documentation/block/stat.rst of the kernel; sectors
/// are of 512 bytes).
fn statistics(device: &str) -> Option<(u64, u64)> {
    let text = fs::read_to_string(format!("/sys/dev/block/{device}/stat")).ok()?;
    let mut fields = text.split_whitespace().map(str::parse::<u64>);
    let reads = fields.next()?.ok()?;
    Some((reads, fields.nth(1)?.ok()? * 512))
}
