//! Tables that are the same on every machine.
//!
//! They are filled by COPY in the transaction that makes them, frozen, and vacuumed: no scan writes hint
//! bits, and each page's bit in the visibility map is set.

use crate::c5::Tables;
use crate::random::Random;
use inrush_core::{Code, Error, Result};
use inrush_testkit::Postgres;
use std::fmt::Write as _;
use std::io::Write;
use std::process::Stdio;

/// Rows of `tbx` on a page of 8 KiB: 24 bytes of header and two integers, 47 characters and the byte of their
/// length, 4 bytes of a line pointer, of 8192 - 24.
const ROWS_OF_PAGE: f64 = 97.0;

/// Values of `c1` that are on 53 % and on 1 % of the pages.
pub const DENSE: u32 = 19;
/// See [`DENSE`].
pub const SPARSE: u32 = 200;

/// Bytes that are sent at a time.
const PART: usize = 1 << 20;

/// Makes the tables with their indexes in a tablespace.
pub fn make(server: &Postgres, tablespace: &str, tables: Tables, suffix: &str) -> Result<()> {
    let mut random = Random(0x2545_f491_4f6c_dd1d);
    let tbx = Table {
        name: format!("tbx{suffix}"),
        columns: "id int, c1 int, pad text",
        indexes: &["CREATE INDEX {table}_c1 ON {table} (c1) TABLESPACE {tablespace}"],
    };
    tbx.make(server, tablespace, tables.tbx, |out, id| {
        let _ = write!(out, "{id}\t{}\t", c1(random.next()));
        hex(&mut random, out, 47);
    })?;
    let events = Table {
        name: format!("events{suffix}"),
        columns: "at timestamptz, v int, pad text",
        indexes: &[
            "CREATE INDEX {table}_btree ON {table} (at) TABLESPACE {tablespace}",
            "CREATE INDEX {table}_brin ON {table} USING brin (at) TABLESPACE {tablespace}",
        ],
    };
    events.make(server, tablespace, tables.events, |out, id| {
        let _ = write!(out, "{}\t{}\t", moment(id - 1), random.next() % 1_000_000);
        hex(&mut random, out, 40);
    })?;
    let lineitem = Table {
        name: format!("lineitem{suffix}"),
        columns: LINEITEM,
        indexes: &["CREATE INDEX {table}_shipdate ON {table} (l_shipdate) TABLESPACE {tablespace}"],
    };
    lineitem.make(server, tablespace, tables.lineitem, |out, id| line(&mut random, out, id))
}

/// When a row of `events` is of; the first is 0. One a second, in months of 28 days, so that every day is one
/// of the calendar.
pub fn moment(row: u64) -> String {
    let (minute, hour, day) = (row / 60 % 60, row / 3600 % 24, row / 86_400);
    let (year, month, day) = (2024 + day / 336, day / 28 % 12 + 1, day % 28 + 1);
    format!("{year}-{month:02}-{day:02} {hour:02}:{minute:02}:{:02}+00", row % 60)
}

/// `c1` of a row, from random bits.
fn c1(bits: u64) -> u32 {
    // A value is on a page unless none of its rows has it.
    let share = |pages: f64| 1.0 - (1.0 - pages).powf(1.0 / ROWS_OF_PAGE);
    let (dense, sparse) = (share(0.53), share(0.01));
    #[allow(clippy::cast_precision_loss)] // of 53 bits
    let place = (bits >> 11) as f64 / (1_u64 << 53) as f64;
    if place < dense {
        return DENSE;
    }
    if place < dense + sparse {
        return SPARSE;
    }
    // Others than these two, each as likely.
    let other = u32::try_from(bits % 199).unwrap_or(0);
    if other >= DENSE { other + 1 } else { other }
}

/// TPC-H, 1.4.1.
const LINEITEM: &str = "l_orderkey bigint NOT NULL, l_partkey int NOT NULL, l_suppkey int NOT NULL, \
    l_linenumber int NOT NULL, l_quantity numeric(15,2) NOT NULL, l_extendedprice numeric(15,2) NOT NULL, \
    l_discount numeric(15,2) NOT NULL, l_tax numeric(15,2) NOT NULL, l_returnflag char(1) NOT NULL, \
    l_linestatus char(1) NOT NULL, l_shipdate date NOT NULL, l_commitdate date NOT NULL, \
    l_receiptdate date NOT NULL, l_shipinstruct char(25) NOT NULL, l_shipmode char(10) NOT NULL, \
    l_comment varchar(44) NOT NULL";

/// A row of it, with the values of TPC-H, 4.2.3: orders have one to seven lines and random dates, so shipping
/// dates are in no order. Comments are of random digits.
fn line(random: &mut Random, out: &mut String, id: u64) {
    let mut below = |n: u64| random.next() % n;
    let (part, quantity) = (below(200_000) + 1, below(50) + 1);
    let price = quantity * (90_000 + (part / 10) % 20_001 + 100 * (part % 1000));
    let (discount, tax) = (below(11), below(9));
    // Days since 1992-01-01; the last order is of 1998-08-02, which is 121 days and 30 more before the end of
    // time.
    let ordered = below(2406);
    let shipped = ordered + below(121) + 1;
    let (committed, received) = (ordered + below(61) + 30, shipped + below(30) + 1);
    // 1995-06-17, the present.
    let present = 1263;
    let flag = match (received <= present, below(2)) {
        (false, _) => 'N',
        (true, 0) => 'R',
        (true, _) => 'A',
    };
    let status = if shipped > present { 'O' } else { 'F' };
    let instruct = ["DELIVER IN PERSON", "COLLECT COD", "NONE", "TAKE BACK RETURN"]
        [usize::try_from(below(4)).unwrap_or(0)];
    let mode =
        ["REG AIR", "AIR", "RAIL", "SHIP", "TRUCK", "MAIL", "FOB"][usize::try_from(below(7)).unwrap_or(0)];
    let (supplier, comment) = (below(10_000) + 1, usize::try_from(below(34)).unwrap_or(0) + 10);
    let _ = write!(
        out,
        "{}\t{part}\t{supplier}\t{}\t{quantity}\t{}.{:02}\t0.{discount:02}\t0.{tax:02}\t\
         {flag}\t{status}\t{}\t{}\t{}\t\
         {instruct}\t{mode}\t",
        id / 4 + 1,
        id % 4 + 1,
        price / 100,
        price % 100,
        date(shipped),
        date(committed),
        date(received)
    );
    hex(random, out, comment);
}

/// The day so many days after 1992-01-01.
fn date(days: u64) -> String {
    let mut left = days;
    let leap = |year: u64| year.is_multiple_of(4);
    let mut year = 1992;
    while left >= 365 + u64::from(leap(year)) {
        left -= 365 + u64::from(leap(year));
        year += 1;
    }
    let months = [31, 28 + u64::from(leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 0;
    while left >= months[month] {
        left -= months[month];
        month += 1;
    }
    format!("{year}-{:02}-{:02}", month + 1, left + 1)
}

fn hex(random: &mut Random, out: &mut String, digits: usize) {
    let mut bytes = Vec::with_capacity(digits);
    random.hex(&mut bytes, digits);
    out.extend(bytes.into_iter().map(char::from));
}

struct Table {
    name: String,
    columns: &'static str,
    indexes: &'static [&'static str],
}

impl Table {
    fn make(
        &self,
        server: &Postgres,
        tablespace: &str,
        rows: u64,
        mut row: impl FnMut(&mut String, u64),
    ) -> Result<()> {
        let (name, columns) = (&self.name, self.columns);
        let failed = |e: &dyn std::fmt::Display| {
            Error::new(Code::Server, format!("table {name} cannot be filled: {e}"))
        };
        let mut child = server
            .psql_command("postgres")
            .args(["-q", "-v", "ON_ERROR_STOP=1"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|e| failed(&e))?;
        let mut input = child.stdin.take().ok_or_else(|| failed(&"psql has no input"))?;
        let mut part = format!(
            "BEGIN;\nCREATE TABLE {name} ({columns}) TABLESPACE {tablespace};\n\
             COPY {name} FROM STDIN (FREEZE);\n"
        );
        let mut send = || -> std::io::Result<()> {
            for id in 1..=rows {
                row(&mut part, id);
                part.push('\n');
                if part.len() >= PART {
                    input.write_all(part.as_bytes())?;
                    part.clear();
                }
            }
            part += "\\.\nCOMMIT;\n";
            for index in self.indexes {
                let index = index.replace("{table}", name).replace("{tablespace}", tablespace);
                let _ = writeln!(part, "{index};");
            }
            let _ = writeln!(part, "VACUUM ANALYZE {name};");
            input.write_all(part.as_bytes())
        };
        let sent = send();
        drop(input);
        let output = child.wait_with_output().map_err(|e| failed(&e))?;
        if !output.status.success() {
            return Err(failed(&String::from_utf8_lossy(&output.stderr).trim_end()));
        }
        sent.map_err(|e| failed(&e))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_those_of_the_calendar() {
        let all = [
            (0, "1992-01-01"),
            (59, "1992-02-29"),
            (366, "1993-01-01"),
            (1263, "1995-06-17"),
            (2405, "1998-08-02"),
        ];
        for (days, text) in all {
            assert_eq!(date(days), text);
        }
    }

    #[test]
    fn values_are_on_so_many_pages() {
        let mut random = Random(7);
        let pages = 20_000;
        let (mut dense, mut sparse) = (0, 0);
        for _ in 0..pages {
            let page: Vec<u32> = (0..97).map(|_| c1(random.next())).collect();
            dense += u32::from(page.contains(&DENSE));
            sparse += u32::from(page.contains(&SPARSE));
            assert!(page.iter().all(|value| *value <= 200));
        }
        let share = |count: u32| f64::from(count) / f64::from(pages);
        assert!((share(dense) - 0.53).abs() < 0.02, "{}", share(dense));
        assert!((share(sparse) - 0.01).abs() < 0.003, "{}", share(sparse));
    }
}
