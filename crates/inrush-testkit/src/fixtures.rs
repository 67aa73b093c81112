//! Writers of the case files: the same seed gives the same bytes, everywhere.

use std::io::{Result, Write};

/// A published workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Case {
    /// C1: `id int, c1..c12 text, c13 timestamp`; twelve times 32 hexadecimal digits, about 430 bytes a row.
    C1,
    /// C2: `id int, info text`; narrow rows, about 16 bytes.
    C2,
}

/// How the rows are written. The values need no quotes and no escapes in either form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Comma-separated.
    Csv,
    /// Comma-separated, with the column names as the first line.
    CsvHeader,
    /// As COPY writes it: separated by tabs.
    CopyText,
}

impl Case {
    /// The columns as in CREATE TABLE, without the parentheses.
    pub fn columns(self) -> String {
        match self {
            Case::C1 => {
                let texts: String = (1..=12).map(|n| format!("c{n} text, ")).collect();
                format!("id int, {texts}c13 timestamp")
            }
            Case::C2 => "id int, info text".to_owned(),
        }
    }

    /// Writes `rows` rows with ids from 1; the number of bytes. It writes in parts of about a megabyte, so
    /// `out` needs no buffer.
    pub fn write(self, form: Form, rows: u64, seed: u64, mut out: impl Write) -> Result<u64> {
        const PART: usize = 1 << 20;
        let separator = if form == Form::CopyText { b'\t' } else { b',' };
        let mut buffer = Vec::with_capacity(PART + 1024);
        let mut written = 0;
        if form == Form::CsvHeader {
            let columns = self.columns();
            let names: Vec<&str> =
                columns.split(", ").filter_map(|column| column.split(' ').next()).collect();
            buffer.extend_from_slice(names.join(",").as_bytes());
            buffer.push(b'\n');
        }
        let mut random = Random(seed);
        let pairs = hex_pairs();
        for id in 1..=rows {
            push_decimal(&mut buffer, id);
            buffer.push(separator);
            match self {
                Case::C1 => {
                    for _ in 0..12 {
                        push_hex(&mut buffer, &pairs, random.next());
                        push_hex(&mut buffer, &pairs, random.next());
                        buffer.push(separator);
                    }
                    push_timestamp(&mut buffer, id);
                }
                Case::C2 => {
                    buffer.extend_from_slice(b"info");
                    push_decimal(&mut buffer, random.next() % 1_000_000);
                }
            }
            buffer.push(b'\n');
            if buffer.len() >= PART {
                out.write_all(&buffer)?;
                written += buffer.len() as u64;
                buffer.clear();
            }
        }
        out.write_all(&buffer)?;
        out.flush()?;
        Ok(written + buffer.len() as u64)
    }
}

/// SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
}

/// The two hexadecimal digits of every byte.
fn hex_pairs() -> [[u8; 2]; 256] {
    let digits = b"0123456789abcdef";
    std::array::from_fn(|byte| [digits[byte >> 4], digits[byte & 15]])
}

fn push_hex(buffer: &mut Vec<u8>, pairs: &[[u8; 2]; 256], value: u64) {
    let mut digits = [0; 16];
    for (two, byte) in digits.chunks_exact_mut(2).zip(value.to_be_bytes()) {
        two.copy_from_slice(&pairs[byte as usize]);
    }
    buffer.extend_from_slice(&digits);
}

fn push_decimal(buffer: &mut Vec<u8>, mut value: u64) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (value % 10) as u8;
        value /= 10;
        if value == 0 {
            break;
        }
    }
    buffer.extend_from_slice(&digits[at..]);
}

/// A moment of 2024-01-01, one microsecond later for each id, starting over after a day.
fn push_timestamp(buffer: &mut Vec<u8>, id: u64) {
    let micros = id % 86_400_000_000;
    let seconds = micros / 1_000_000;
    let mut text = *b"2024-01-01 00:00:00.000000";
    for (at, value) in [(11, seconds / 3600), (14, seconds / 60 % 60), (17, seconds % 60)] {
        text[at] += (value / 10) as u8;
        text[at + 1] += (value % 10) as u8;
    }
    let mut fraction = micros % 1_000_000;
    for digit in text[20..].iter_mut().rev() {
        *digit += (fraction % 10) as u8;
        fraction /= 10;
    }
    buffer.extend_from_slice(&text);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Postgres, Version};

    fn file(case: Case, form: Form, rows: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        let said = case.write(form, rows, 7, &mut bytes).unwrap();
        assert_eq!(said, bytes.len() as u64);
        bytes
    }

    #[test]
    fn the_server_reads_the_same_rows_from_every_form() {
        let database = Postgres::shared(Version::Any).fresh_database();
        let dir = tempfile::tempdir().unwrap();
        for (case, rows) in [(Case::C1, 5000), (Case::C2, 100_000)] {
            for (table, form, options) in [
                ("a", Form::Csv, "FORMAT csv"),
                ("b", Form::CsvHeader, "FORMAT csv, HEADER match"),
                ("c", Form::CopyText, "FORMAT text"),
            ] {
                let path = dir.path().join(table);
                std::fs::write(&path, file(case, form, rows)).unwrap();
                database.psql(&format!(
                    "CREATE TABLE {table}({});\n\\copy {table} FROM '{}' WITH ({options})\n",
                    case.columns(),
                    path.display()
                ));
            }
            assert_eq!(
                database.psql(
                    "SELECT count(DISTINCT id) FROM a; \
                     SELECT count(*) FROM (TABLE a EXCEPT ALL TABLE b) d; \
                     SELECT count(*) FROM (TABLE c EXCEPT ALL TABLE a) d; DROP TABLE a, b, c"
                ),
                format!("{rows}\n0\n0")
            );
        }
    }

    #[test]
    fn c1_has_the_published_shape() {
        let bytes = file(Case::C1, Form::CopyText, 1000);
        let line = bytes.split(|&b| b == b'\n').nth(999).unwrap();
        let fields: Vec<_> = line.split(|&b| b == b'\t').collect();
        assert_eq!(fields.len(), 14);
        assert!(fields[1..13].iter().all(|field| field.len() == 32));
        assert_eq!(fields[13], b"2024-01-01 00:00:00.001000");
        assert_eq!(file(Case::C1, Form::CopyText, 1000), bytes);
    }
}
