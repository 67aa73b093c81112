//! Aligned columns of text.

/// How a column is aligned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Align {
    /// Words.
    Left,
    /// Figures.
    Right,
}

/// Rows under headings, two spaces apart; no line ends with a space.
pub fn grid(headings: &[(&str, Align)], rows: &[Vec<String>]) -> String {
    let width = |i: usize| {
        let cells = rows.iter().filter_map(|row| row.get(i)).map(|cell| cell.chars().count());
        cells.chain([headings[i].0.chars().count()]).max().unwrap_or_default()
    };
    let widths: Vec<usize> = (0..headings.len()).map(width).collect();
    let mut out = String::new();
    let mut line = |cells: &mut dyn Iterator<Item = &str>| {
        let mut text = String::new();
        for ((cell, width), (_, align)) in cells.zip(&widths).zip(headings) {
            let space = " ".repeat(width - cell.chars().count());
            match align {
                Align::Left => text.extend([cell, &space, "  "]),
                Align::Right => text.extend([&space, cell, "  "]),
            }
        }
        out.push_str(text.trim_end());
        out.push('\n');
    };
    line(&mut headings.iter().map(|(heading, _)| *heading));
    for row in rows {
        line(&mut row.iter().map(String::as_str));
    }
    out
}

/// A name and its value in a list of such.
pub fn pair(name: &str, value: &str) -> String {
    format!("  {name:<12}{value}\n")
}

/// As [`pair`], with words that would stand behind column 80 on the next line.
pub fn wrapped(name: &str, value: &str) -> String {
    const WIDTH: usize = 80 - 14;
    let (mut text, mut line, mut name) = (String::new(), String::new(), name);
    for word in value.split(' ') {
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > WIDTH {
            text += &pair(name, &line);
            line.clear();
            name = "";
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line += word;
    }
    text + &pair(name, &line)
}

/// Bytes for a person: `999 B`, `12.3 MB` (powers of 1000, as drives and networks are sold).
#[allow(clippy::cast_precision_loss)] // three digits are shown
pub fn bytes(n: u64) -> String {
    let mut value = n as f64;
    let mut unit = "B";
    for next in ["kB", "MB", "GB", "TB", "PB"] {
        if value < 999.5 {
            break;
        }
        value /= 1000.0;
        unit = next;
    }
    if unit == "B" || value >= 99.95 { format!("{value:.0} {unit}") } else { format!("{value:.1} {unit}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let text = grid(
            &[("ID", Align::Right), ("TABLE", Align::Left), ("ROWS", Align::Right)],
            &[vec!["1".into(), "größe".into(), "10".into()], vec!["12".into(), "t".into(), "7".into()]],
        );
        assert_eq!(text, "ID  TABLE  ROWS\n 1  größe    10\n12  t         7\n");
    }

    #[test]
    fn long_values_are_wrapped() {
        assert_eq!(wrapped("a", "b c"), pair("a", "b c"));
        let long = ["word"; 30].join(" ");
        let text = wrapped("a", &long);
        assert!(text.lines().count() == 3 && text.lines().all(|line| line.len() <= 80), "{text}");
        assert_eq!(text.matches("word").count(), 30);
    }

    #[test]
    fn sizes_for_people() {
        for (n, text) in [
            (0, "0 B"),
            (999, "999 B"),
            (1000, "1.0 kB"),
            (12_345_678, "12.3 MB"),
            (999_949, "1.0 MB"),
            (99_940_000, "99.9 MB"),
            (123_456_789_000, "123 GB"),
        ] {
            assert_eq!(bytes(n), text, "{n}");
        }
    }
}
