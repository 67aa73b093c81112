//! What fio measures of the same storage: reads a second by depth.

use crate::c5::storage::Storage;
use crate::random::Random;
use crate::run::on_path;
use crate::server::search_path;
use inrush_testkit::ServerUser;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// Reads in flight.
const DEPTHS: [u32; 8] = [1, 2, 4, 8, 16, 32, 64, 128];

/// Bytes of the file.
const BYTES: usize = 256 << 20;

/// Reads a second by depth, each time it was run; or why there are none.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Curve {
    /// By depth.
    pub depths: Vec<Depth>,
    /// Why there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub absent: Option<String>,
}

/// Reads a second at a depth.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Depth {
    /// Reads in flight.
    pub depth: u32,
    /// Each time.
    pub iops: Vec<f64>,
}

impl Curve {
    /// Without figures.
    pub fn without(reason: impl Into<String>) -> Curve {
        Curve { depths: Vec::new(), absent: Some(reason.into()) }
    }

    /// The median at a depth.
    pub fn iops(&self, depth: u32) -> Option<f64> {
        let found = self.depths.iter().find(|one| one.depth == depth)?;
        crate::median(found.iops.clone())
    }

    /// Runs fio once more, so long at each depth.
    pub fn pass(&mut self, storage: &Storage, milliseconds: u32) {
        if self.absent.is_some() {
            return;
        }
        if !on_path("fio", &search_path()) {
            *self = Curve::without("fio is not installed");
            return;
        }
        let file = storage.scratch().join("fio");
        let passed = write(&file).map_err(|e| format!("no file for fio: {e}")).and_then(|()| {
            for depth in DEPTHS {
                let iops = run(storage, &file, depth, milliseconds)?;
                match self.depths.iter_mut().find(|one| one.depth == depth) {
                    Some(one) => one.iops.push(iops),
                    None => self.depths.push(Depth { depth, iops: vec![iops] }),
                }
            }
            Ok(())
        });
        let _ = std::fs::remove_file(&file);
        self.absent = passed.err();
    }
}

/// Data that nobody can compress, on the disk.
fn write(path: &Path) -> std::io::Result<()> {
    let mut file = File::create(path)?;
    let mut random = Random(0x1234_5678_9abc_def1);
    let mut part = vec![0; 1 << 20];
    for _ in 0..BYTES / part.len() {
        for eight in part.chunks_exact_mut(8) {
            eight.copy_from_slice(&random.next().to_le_bytes());
        }
        file.write_all(&part)?;
    }
    file.sync_all()?;
    ServerUser::get().own(path)
}

fn run(storage: &Storage, file: &Path, depth: u32, milliseconds: u32) -> Result<f64, String> {
    let mut command = Command::new("fio");
    command
        .args([
            "--name=c5",
            "--direct=1",
            "--rw=randread",
            "--bs=8k",
            "--ioengine=libaio",
            "--output-format=json",
        ])
        .args(["--time_based", "--randrepeat=0", "--group_reporting"])
        .arg(format!("--filename={}", file.display()))
        .arg(format!("--iodepth={depth}"))
        .arg(format!("--runtime={milliseconds}ms"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let child = command.spawn().map_err(|e| format!("fio cannot be run: {e}"))?;
    // It has a file to open first.
    storage.add(child.id()).map_err(|e| e.to_string())?;
    let output = child.wait_with_output().map_err(|e| e.to_string())?;
    if !output.status.success() {
        return Err(format!("fio: {}", String::from_utf8_lossy(&output.stderr).trim()));
    }
    // Warnings may stand before the figures.
    let text = String::from_utf8_lossy(&output.stdout);
    let json = text.find('{').map_or("", |at| &text[at..]);
    let said: Value = serde_json::from_str(json).map_err(|e| format!("fio's figures are not JSON: {e}"))?;
    said["jobs"][0]["read"]["iops"].as_f64().ok_or_else(|| "fio tells no reads a second".to_owned())
}
