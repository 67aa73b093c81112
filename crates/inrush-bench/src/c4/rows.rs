//! What is sent: the rows of sysbench's table, and updates of a wide one.

use crate::c4::Job;
use crate::random::Random;
use inrush_core::{Code, Error, Result};
use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

/// Columns of the wide table beside its key.
pub const WIDE: usize = 383;

/// One statement's values.
#[derive(Debug, Clone)]
pub struct Op {
    /// The key.
    pub id: i32,
    values: Values,
}

#[derive(Debug, Clone)]
enum Values {
    Row { k: i32, c: String, pad: String },
    Columns(Vec<i32>),
}

impl Op {
    /// The next one. `rows` are those of the wide table.
    pub fn next(job: Job, random: &mut Random, next_id: impl FnOnce() -> i32, rows: u32) -> Op {
        if job == Job::Update {
            let id = below(random, rows.max(1)) + 1;
            return Op { id, values: Values::Columns((0..WIDE).map(|_| below(random, 1 << 30)).collect()) };
        }
        let (k, c, pad) = (below(random, 1 << 20) + 1, digits(random, 10), digits(random, 5));
        Op { id: next_id(), values: Values::Row { k, c, pad } }
    }

    /// The statement, with literals.
    pub fn text(&self, table: &str) -> String {
        match &self.values {
            Values::Row { k, c, pad } => {
                format!("INSERT INTO {table} (id, k, c, pad) VALUES ({}, {k}, '{c}', '{pad}')", self.id)
            }
            Values::Columns(values) => {
                let mut text = format!("UPDATE {table} SET ");
                for (n, value) in values.iter().enumerate() {
                    let _ = write!(text, "{}c{} = {value}", if n == 0 { "" } else { ", " }, n + 1);
                }
                let _ = write!(text, " WHERE id = {}", self.id);
                text
            }
        }
    }

    /// An EXECUTE of [`insert`], prepared under a name; the text of an update, whose point is to be long.
    pub fn execute(&self, name: &str, table: &str) -> String {
        match &self.values {
            Values::Row { k, c, pad } => format!("EXECUTE {name}({}, {k}, '{c}', '{pad}')", self.id),
            Values::Columns(_) => self.text(table),
        }
    }

    /// The parameters of [`insert`]; `None` of an update.
    pub fn parameters(&self) -> Option<(i32, &str, &str)> {
        match &self.values {
            Values::Row { k, c, pad } => Some((*k, c, pad)),
            Values::Columns(_) => None,
        }
    }
}

/// The prepared statement, for a table.
pub fn insert(table: &str) -> String {
    format!("INSERT INTO {table} (id, k, c, pad) VALUES ($1, $2, $3, $4)")
}

/// A number from 0 on.
fn below(random: &mut Random, end: u32) -> i32 {
    // The upper half is the better one; what is left of a division fits.
    i32::try_from((random.next() >> 32) % u64::from(end)).unwrap_or(0)
}

/// Groups of eleven digits, as sysbench makes them.
fn digits(random: &mut Random, groups: usize) -> String {
    let mut text = String::with_capacity(groups * 12);
    for group in 0..groups {
        if group > 0 {
            text.push('-');
        }
        let _ = write!(text, "{:011}", random.next() % 100_000_000_000);
    }
    text
}

/// The rows of sysbench's table as COPY text, once whole and once cut in two.
#[derive(Debug)]
pub struct Files {
    dir: tempfile::TempDir,
    rows: u64,
}

impl Files {
    /// Writes those of whole, and of `parts`: one row in so many.
    pub fn write(rows: u64, parts: &[u32]) -> Result<Files> {
        let failed = |e: std::io::Error| Error::new(Code::Output, format!("cannot write the rows: {e}"));
        let dir = tempfile::Builder::new().prefix("inrush-c4-").tempdir().map_err(failed)?;
        // A server that runs as somebody else does not read these, but a psql of his may.
        let files = Files { dir, rows };
        for &part in parts {
            let rows = files.rows_of(part);
            let half = rows.div_ceil(2);
            write(&files.text(part), 1, rows).map_err(failed)?;
            write(&files.half(part, 1), 1, half).map_err(failed)?;
            write(&files.half(part, 2), half + 1, rows).map_err(failed)?;
        }
        Ok(files)
    }

    /// Rows of one in `part`.
    pub fn rows_of(&self, part: u32) -> u64 {
        (self.rows / u64::from(part.max(1))).max(1)
    }

    /// All of them.
    pub fn text(&self, part: u32) -> PathBuf {
        self.dir.path().join(format!("rows-{part}.text"))
    }

    /// The first or the second half.
    pub fn half(&self, part: u32, which: u32) -> PathBuf {
        self.dir.path().join(format!("rows-{part}-{which}.text"))
    }

    /// Where they are.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }
}

fn write(path: &Path, from: u64, to: u64) -> std::io::Result<()> {
    let mut out = BufWriter::with_capacity(1 << 20, File::create(path)?);
    for id in from..=to {
        // The same row whichever file it is in.
        let mut random = Random(id.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        random.next();
        let (k, c, pad) = (below(&mut random, 1 << 20) + 1, digits(&mut random, 10), digits(&mut random, 5));
        writeln!(out, "{id}\t{k}\t{c}\t{pad}")?;
    }
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_sysbenchs() {
        let op = Op::next(Job::Insert, &mut Random(7), || 42, 0);
        let (_, c, pad) = op.parameters().unwrap();
        assert_eq!((c.len(), pad.len(), c.matches('-').count(), pad.matches('-').count()), (119, 59, 9, 4));
        assert!(op.text("s.t").starts_with("INSERT INTO s.t (id, k, c, pad) VALUES (42, "));
        assert!(op.execute("i3", "s.t").starts_with("EXECUTE i3(42, "));
    }

    #[test]
    fn updates_set_every_column() {
        let mut random = Random(7);
        for _ in 0..100 {
            let op = Op::next(Job::Update, &mut random, || 0, 10);
            assert!((1..=10).contains(&op.id) && op.parameters().is_none());
            let text = op.text("%s");
            assert_eq!(text.matches(" = ").count(), WIDE + 1, "{text}");
            assert!(
                text.starts_with("UPDATE %s SET c1 = ") && text.ends_with(&format!(" WHERE id = {}", op.id))
            );
            assert_eq!(op.execute("i3", "s.t"), op.text("s.t"));
        }
    }

    #[test]
    fn halves_are_the_whole() {
        let files = Files::write(101, &[1, 20]).unwrap();
        let read = |path: &Path| std::fs::read_to_string(path).unwrap();
        assert_eq!(read(&files.half(1, 1)) + &read(&files.half(1, 2)), read(&files.text(1)));
        assert_eq!((read(&files.text(1)).lines().count(), files.rows_of(20)), (101, 5));
        assert!(read(&files.text(1)).starts_with(&read(&files.text(20))));
    }
}
