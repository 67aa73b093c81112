//! Query results as psql's aligned tables.

use inrush_core::printable;
use std::fmt::Write;

/// Rows laid out in columns. The widths are those of the first rows; later rows can only make them wider.
pub(crate) struct Table {
    names: Vec<String>,
    widths: Vec<usize>,
    rows: Vec<Vec<String>>,
    begun: bool,
}

impl Table {
    pub(crate) fn new<'n>(names: impl Iterator<Item = &'n str>) -> Table {
        let names: Vec<String> = names.map(printable).collect();
        Table {
            widths: names.iter().map(|name| name.chars().count()).collect(),
            names,
            rows: Vec::new(),
            begun: false,
        }
    }

    /// Adds a row; the number of rows that wait to be laid out.
    pub(crate) fn push(&mut self, row: Vec<String>) -> usize {
        self.rows.push(row);
        self.rows.len()
    }

    /// The rows so far, with the header the first time.
    pub(crate) fn flush(&mut self) -> String {
        for row in &self.rows {
            for (width, value) in self.widths.iter_mut().zip(row) {
                *width = (*width).max(value.chars().count());
            }
        }
        let mut text = String::new();
        if !self.begun {
            self.begun = true;
            lay_out(&mut text, &self.names, &self.widths);
            let rules: Vec<String> = self.widths.iter().map(|width| "-".repeat(width + 2)).collect();
            text.push_str(&rules.join("+"));
            text.push('\n');
        }
        for row in self.rows.drain(..) {
            lay_out(&mut text, &row, &self.widths);
        }
        text
    }
}

fn lay_out(text: &mut String, values: &[String], widths: &[usize]) {
    for (i, (value, width)) in values.iter().zip(widths).enumerate() {
        let last = i + 1 == values.len();
        let width = if last { 0 } else { *width };
        let _ = write!(text, " {value:width$}{}", if last { "" } else { " |" });
    }
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_nothing_moves_the_cursor() {
        let mut table = Table::new(["id", "größe"].into_iter());
        table.push(vec!["1".into(), printable("a\tb\u{1b}[1m")]);
        table.push(vec!["1000".into(), String::new()]);
        let expected = " id   | größe\n------+---------------\n 1    | a\\tb\\u{1b}[1m\n 1000 | \n";
        assert_eq!(table.flush(), expected);
        table.push(vec!["2".into(), "x".into()]);
        assert_eq!(table.flush(), " 2    | x\n");
    }
}
