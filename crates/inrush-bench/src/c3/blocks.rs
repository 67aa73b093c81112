//! Rows made beforehand, with times that can be written anew.

use crate::random::Random;
use std::time::{SystemTime, UNIX_EPOCH};

/// Bytes of `2026-11-22 03:04:05.123456`.
const TIME: usize = 26;

/// Some rows, as CSV with a header or as COPY text.
#[derive(Debug, Clone)]
pub struct Block {
    bytes: Vec<u8>,
    header: usize,
    row: usize,
    /// How many.
    pub rows: u64,
}

impl Block {
    /// As CSV, for `/ingest`.
    pub fn csv(rows: usize, info: usize, header: bool) -> Block {
        Block::new(rows, info, b',', if header { b"crt_time,info\n" } else { b"" })
    }

    /// As COPY text.
    pub fn text(rows: usize, info: usize) -> Block {
        Block::new(rows, info, b'\t', b"")
    }

    fn new(rows: usize, info: usize, parting: u8, header: &[u8]) -> Block {
        let row = Block::row_bytes(info);
        let mut bytes = Vec::with_capacity(header.len() + rows * row);
        bytes.extend_from_slice(header);
        let mut random = Random(0x9e37_79b9_7f4a_7c15);
        for _ in 0..rows {
            bytes.extend_from_slice(&[b'0'; TIME]);
            bytes.push(parting);
            random.hex(&mut bytes, info);
            bytes.push(b'\n');
        }
        let mut block = Block { bytes, header: header.len(), row, rows: rows as u64 };
        block.stamp(now());
        block
    }

    /// Bytes of a row with so much text.
    pub fn row_bytes(info: usize) -> usize {
        TIME + 1 + info + 1
    }

    /// Writes the times: microseconds since 1970, one more for each row.
    pub fn stamp(&mut self, micros: u64) {
        let (mut second, mut text) = (u64::MAX, [b'0'; TIME]);
        for (row, micros) in self.bytes[self.header..].chunks_exact_mut(self.row).zip(micros..) {
            if micros / 1_000_000 != second {
                second = micros / 1_000_000;
                text[..20].copy_from_slice(&date_and_time(second));
            }
            digits(&mut text[20..], micros % 1_000_000);
            row[..TIME].copy_from_slice(&text);
        }
    }

    /// What is sent.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// Microseconds since 1970.
pub fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(0)
}

/// A time as PostgreSQL reads it, in UTC.
pub fn time(micros: u64) -> String {
    let mut text = [0; TIME];
    text[..20].copy_from_slice(&date_and_time(micros / 1_000_000));
    digits(&mut text[20..], micros % 1_000_000);
    String::from_utf8_lossy(&text).into_owned()
}

/// `2026-11-22 03:04:05.`
fn date_and_time(second: u64) -> [u8; 20] {
    // Days from 0000-03-01, in eras of 400 years (the usual reckoning of the civil calendar).
    let days = second / 86_400 + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let mut text = *b"0000-00-00 00:00:00.";
    digits(&mut text[..4], year);
    digits(&mut text[5..7], month);
    digits(&mut text[8..10], day);
    digits(&mut text[11..13], second / 3600 % 24);
    digits(&mut text[14..16], second / 60 % 60);
    digits(&mut text[17..19], second % 60);
    text
}

fn digits(out: &mut [u8], mut number: u64) {
    for digit in out.iter_mut().rev() {
        *digit = b'0' + u8::try_from(number % 10).unwrap_or(0);
        number /= 10;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_calendar() {
        assert_eq!(time(0), "1970-01-01 00:00:00.000000");
        assert_eq!(time(951_782_400_000_001), "2000-02-29 00:00:00.000001");
        assert_eq!(time(1_795_316_645_123_456), "2026-11-22 03:04:05.123456");
        assert_eq!(time(4_107_542_399_999_999), "2100-02-28 23:59:59.999999");
    }

    #[test]
    fn rows_have_times_in_order() {
        let mut block = Block::csv(3, 20, true);
        block.stamp(1_999_998);
        let text = String::from_utf8(block.bytes().to_vec()).unwrap();
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[0], "crt_time,info");
        assert!(lines[1].starts_with("1970-01-01 00:00:01.999998,"));
        assert!(lines[3].starts_with("1970-01-01 00:00:02.000000,"));
        assert_eq!(lines[3].len() + 1, Block::row_bytes(20));
        assert_ne!(lines[1][27..], lines[2][27..]);
        assert!(!Block::text(1, 5).bytes().contains(&b','));
    }
}
