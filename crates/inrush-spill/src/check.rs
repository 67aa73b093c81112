use crate::Cut;
use crate::directory::{self, failed, look_at_segment};
use crate::scan::{Window, walk, was_synced};
use inrush_core::{Code, Error, Result};
use serde::Serialize;
use std::path::Path;

/// What a check of a log found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Report {
    /// A process has it open. A torn end is then what that process is writing.
    pub in_use: bool,
    /// The log's name.
    pub id: Option<String>,
    /// Segments there are.
    pub segments: u64,
    /// Whole records, up to the first damage.
    pub records: u64,
    /// Bytes of all segments.
    pub bytes: u64,
    /// Position of the oldest byte.
    pub oldest: u64,
    /// Position behind the last whole record, up to the first damage.
    pub end: u64,
    /// The first thing that is not as it was written.
    pub damage: Option<Damage>,
    /// The end of an append that nobody was told is stored; opening the log cuts it off.
    pub torn: Option<Cut>,
}

/// Something that is not as it was written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Damage {
    /// Where.
    pub position: u64,
    /// What is wrong there.
    pub why: String,
}

/// Reads every byte of the log in `dir` and changes none, also while a process has it open.
pub fn check(dir: &Path) -> Result<Report> {
    let in_use = directory::in_use(dir);
    let firsts = directory::segments(dir)?;
    let id = directory::read_id(dir)?;
    if firsts.is_empty() && id.is_none() {
        return Err(Error::new(Code::Spill, format!("{} is no spill log", dir.display())));
    }
    let mut report = Report {
        in_use,
        segments: 0,
        records: 0,
        bytes: 0,
        oldest: firsts.first().copied().unwrap_or(0),
        end: firsts.first().copied().unwrap_or(0),
        damage: None,
        torn: None,
        id,
    };
    // While it is open the end moves on, and the mark of the last time is gone.
    let closed = if in_use { None } else { directory::read_closed(dir)? };
    for (i, &first) in firsts.iter().enumerate() {
        let is_last = i + 1 == firsts.len();
        match one(dir, first, is_last, &mut report) {
            Ok(()) if report.damage.is_none() => {}
            Ok(()) => break,
            // Given back by the process that has it, since the directory was read.
            Err(_) if in_use && !directory::segment_path(dir, first).exists() => {
                report.oldest = firsts.get(i + 1).copied().unwrap_or(report.end);
                report.end = report.oldest;
            }
            Err(error) => return Err(error),
        }
    }
    if report.damage.is_none()
        && let Some(closed) = closed.filter(|closed| *closed > report.end)
    {
        report.torn = None;
        damage(&mut report, format!("it went on to {closed} when it was closed"));
    }
    if firsts.is_empty() {
        damage(&mut report, "the segments are gone".into());
    }
    Ok(report)
}

fn damage(report: &mut Report, why: String) {
    report.damage = Some(Damage { position: report.end, why });
}

fn one(dir: &Path, first: u64, is_last: bool, report: &mut Report) -> Result<()> {
    if report.end != first {
        damage(report, "the next segment does not begin here".into());
        return Ok(());
    }
    let path = directory::segment_path(dir, first);
    let size = std::fs::metadata(&path).map_err(|error| failed("open", &path, &error))?.len();
    report.segments += 1;
    report.bytes += size;
    let (file, segment, len) = match look_at_segment(dir, first, false)? {
        Ok(opened) => opened,
        Err(why) => {
            damage(report, why.into());
            return Ok(());
        }
    };
    if report.id.as_ref().is_some_and(|id| *id != directory::id_text(&segment.id)) {
        damage(report, "a segment is of another log".into());
        return Ok(());
    }
    let io = |error: std::io::Error| failed("read", &path, &error);
    let mut window = Window::new(&file, len);
    let found = walk(&mut window, &segment).map_err(io)?;
    report.records += found.records;
    report.end = first + found.offset;
    if let Some(why) = found.why {
        if is_last && !was_synced(&mut window, &segment, found.offset).map_err(io)? {
            report.torn = Some(Cut { position: report.end, bytes: len - found.offset });
        } else {
            damage(report, why.into());
        }
    }
    Ok(())
}
