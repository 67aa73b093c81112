//! Values of options: sizes, characters, column lists, limits.

use inrush_load::{ColumnSpec, MaxRejects};

/// `64MiB`, `4M`, `1GB`, `1000`: bytes. `K`, `M`, `G`, `T` and `KiB`... are powers of 1024, `KB`... of 1000.
pub fn bytes(text: &str) -> Result<u64, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: u64 =
        number.parse().map_err(|_| "a size is a number with an optional unit, as 64MiB".to_owned())?;
    let factor: u64 = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        "t" | "tib" => 1 << 40,
        "kb" => 1000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "tb" => 1_000_000_000_000,
        _ => return Err("the units are K, M, G, T, KiB, MiB, GiB, TiB, KB, MB, GB and TB".to_owned()),
    };
    number.checked_mul(factor).ok_or_else(|| "the size is too large".to_owned())
}

/// [`bytes`], where zero bytes would be a bound that nothing meets.
pub fn some_bytes(text: &str) -> Result<u64, String> {
    match bytes(text)? {
        0 => Err("a size is more than nothing: leave the option out for no bound".to_owned()),
        some => Ok(some),
    }
}

/// One byte: a character, or `\t`, `tab`, `\x01`.
pub fn byte(text: &str) -> Result<u8, String> {
    match text.as_bytes() {
        [byte] => Ok(*byte),
        b"\\t" | b"tab" => Ok(b'\t'),
        [b'\\', b'x', hex @ ..] if hex.len() == 2 => std::str::from_utf8(hex)
            .ok()
            .and_then(|hex| u8::from_str_radix(hex, 16).ok())
            .ok_or_else(|| "\\x takes two hexadecimal digits".to_owned()),
        _ => Err("one byte is needed: a character, \\t or \\x01".to_owned()),
    }
}

/// `auto` or a number of connections.
pub fn jobs(text: &str) -> Result<Option<usize>, String> {
    match text {
        "auto" => Ok(None),
        n => match n.parse() {
            Ok(n @ 1..=512) => Ok(Some(n)),
            _ => Err("a number from 1 to 512, or auto".to_owned()),
        },
    }
}

/// `90d`, `90` or `12w`: days.
pub fn days(text: &str) -> Result<i32, String> {
    let wrong = || "days are needed: 90d, 12w or 0".to_owned();
    let (number, factor) = match (text.strip_suffix('d'), text.strip_suffix('w')) {
        (Some(days), _) => (days, 1),
        (_, Some(weeks)) => (weeks, 7),
        _ => (text, 1),
    };
    let number: i32 = number.trim().parse().map_err(|_| wrong())?;
    number.checked_mul(factor).filter(|days| *days >= 0).ok_or_else(wrong)
}

/// `10`, `0.5` or `10s`: seconds, from a tenth to a year.
pub fn seconds(text: &str) -> Result<f64, String> {
    match text.strip_suffix('s').unwrap_or(text).parse() {
        Ok(seconds) if (0.1..=31_536_000.0).contains(&seconds) => Ok(seconds),
        _ => Err("seconds are needed, 0.1 or more".to_owned()),
    }
}

/// `100` or `2.5%`.
pub fn max_rejects(text: &str) -> Result<MaxRejects, String> {
    if let Some(percent) = text.strip_suffix('%') {
        return match percent.trim().parse::<f64>() {
            Ok(p) if (0.0..=100.0).contains(&p) => Ok(MaxRejects::Percent(p)),
            _ => Err("a percentage is from 0% to 100%".to_owned()),
        };
    }
    text.parse().map(MaxRejects::Count).map_err(|_| "a number, or a percentage as 2%".to_owned())
}

/// The list of `--columns`: names, `-` to leave a field out, `column=field` to map by name.
#[derive(Debug, Clone)]
pub struct Columns(pub Vec<ColumnSpec>);

/// Reads a [`Columns`] list. Names with a comma or an equals sign go in double quotes.
pub fn columns(text: &str) -> Result<Columns, String> {
    let mut specs = Vec::new();
    for part in split_outside_quotes(text, ',')? {
        if part.trim() == "-" {
            specs.push(ColumnSpec::Skip);
            continue;
        }
        let mut names = split_outside_quotes(&part, '=')?.into_iter().map(|name| unquote(&name));
        let spec = match (names.next(), names.next(), names.next()) {
            (Some(column), None, _) if !column.is_empty() => ColumnSpec::Column(column),
            (Some(column), Some(field), None) if !column.is_empty() && !field.is_empty() => {
                ColumnSpec::Named { column, field }
            }
            _ => return Err(format!("`{}` is neither a column, nor `-`, nor column=field", part.trim())),
        };
        specs.push(spec);
    }
    Ok(Columns(specs))
}

/// `COLUMN=VALUE`
pub fn assignment(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((column, value)) if !column.trim().is_empty() => Ok((unquote(column), value.to_owned())),
        _ => Err("COLUMN=VALUE is needed".to_owned()),
    }
}

fn unquote(name: &str) -> String {
    let name = name.trim();
    match name.strip_prefix('"').and_then(|n| n.strip_suffix('"')) {
        Some(inner) => inner.replace("\"\"", "\""),
        None => name.to_owned(),
    }
}

fn split_outside_quotes(text: &str, separator: char) -> Result<Vec<String>, String> {
    let mut parts = vec![String::new()];
    let mut quoted = false;
    for c in text.chars() {
        quoted ^= c == '"';
        if c == separator && !quoted {
            parts.push(String::new());
        } else if let Some(last) = parts.last_mut() {
            last.push(c);
        }
    }
    if quoted { Err("a double quote does not end".to_owned()) } else { Ok(parts) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        assert_eq!(bytes("64MiB"), Ok(64 << 20));
        assert_eq!(bytes("1000"), Ok(1000));
        assert_eq!(bytes("2GB"), Ok(2_000_000_000));
        assert_eq!((bytes("2T"), bytes("2TiB")), (Ok(2 << 40), Ok(2 << 40)));
        assert_eq!(bytes("2TB"), Ok(2_000_000_000_000));
        assert!(bytes("1P").is_err() && bytes("x").is_err() && bytes("99999999999G").is_err());
        assert!(bytes("99999999T").is_err());
        assert_eq!((bytes("0"), some_bytes("1kB")), (Ok(0), Ok(1000)));
        for nothing in ["0", "0GB"] {
            assert!(some_bytes(nothing).is_err_and(|said| said.contains("more than nothing")), "{nothing}");
        }
    }

    #[test]
    fn ages() {
        assert_eq!((days("90d"), days("90"), days("2w"), days("0")), (Ok(90), Ok(90), Ok(14), Ok(0)));
        assert!(
            days("-1").is_err() && days("x").is_err() && days("9999999999w").is_err() && days("").is_err()
        );
    }

    #[test]
    fn times() {
        assert_eq!((seconds("10"), seconds("0.5s")), (Ok(10.0), Ok(0.5)));
        for wrong in ["", "0", "-1", "nan", "inf", "1m", "1e9"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn single_bytes() {
        assert_eq!(byte(";"), Ok(b';'));
        assert_eq!(byte("\\t"), Ok(b'\t'));
        assert_eq!(byte("\\x01"), Ok(1));
        assert!(byte("ab").is_err() && byte("").is_err() && byte("\\xZZ").is_err());
    }

    #[test]
    fn column_lists() {
        let named = |c: &str, f: &str| ColumnSpec::Named { column: c.into(), field: f.into() };
        assert_eq!(
            columns("a, -,\"b,c\"").unwrap().0,
            [ColumnSpec::Column("a".into()), ColumnSpec::Skip, ColumnSpec::Column("b,c".into())]
        );
        assert_eq!(columns("a=x,b=\"y=z\"").unwrap().0, [named("a", "x"), named("b", "y=z")]);
        assert_eq!(columns("\"-\"").unwrap().0, [ColumnSpec::Column("-".into())]);
        assert!(columns("a,,b").is_err() && columns("\"a").is_err());
    }
}
