//! Whether the first record names the columns, and the names.

use super::types::{Evidence, looks_like_data};
use std::collections::{HashMap, HashSet};

/// Words that name columns more often than they are values. Only asked where the types tell nothing.
const USUAL_NAMES: &[&str] = &[
    "id",
    "name",
    "code",
    "type",
    "kind",
    "status",
    "date",
    "time",
    "timestamp",
    "value",
    "amount",
    "price",
    "quantity",
    "count",
    "total",
    "email",
    "phone",
    "address",
    "city",
    "country",
    "state",
    "zip",
    "url",
    "title",
    "description",
    "comment",
    "key",
    "user",
    "username",
    "first name",
    "last name",
    "firstname",
    "lastname",
    "category",
    "currency",
    "symbol",
    "latitude",
    "longitude",
    "lat",
    "lon",
    "lng",
    "year",
    "month",
    "day",
];

/// Whether there is a header, and why. `rest` is what the records behind the first one show.
pub(super) fn decide(
    stated: Option<bool>,
    first: Option<&[Option<Vec<u8>>]>,
    rest: &[Evidence],
) -> (bool, String) {
    if let Some(stated) = stated {
        let what = if stated { "the first record is a header" } else { "there is no header" };
        return (stated, format!("{what}: stated"));
    }
    let Some(first) = first else { return (false, "no header: there is no record to judge by".into()) };
    let values: Option<Vec<&[u8]>> = first.iter().map(Option::as_deref).collect();
    let Some(values) = values.filter(|values| values.iter().all(|v| !v.trim_ascii().is_empty())) else {
        return (false, "no header: a field of the first record is empty".into());
    };
    if let Some(i) = values.iter().position(|value| looks_like_data(value)) {
        return (false, format!("no header: field {} of the first record is a value", i + 1));
    }
    let mut sorted = values.clone();
    sorted.sort_unstable();
    if sorted.windows(2).any(|pair| pair[0] == pair[1]) {
        return (false, "no header: the first record has the same text twice".into());
    }
    if let Some(i) = rest.iter().position(Evidence::is_typed) {
        let reason = format!("a header: field {} is text in the first record only", i + 1);
        return (true, reason);
    }
    if values.iter().all(|value| is_word(value)) && values.iter().any(|value| is_usual_name(value)) {
        return (
            true,
            "a header, probably: all columns are text and the first record has usual names".into(),
        );
    }
    (false, "no header, probably: all columns are text and the first record is like the others".into())
}

fn is_word(value: &[u8]) -> bool {
    value.len() <= 63
        && std::str::from_utf8(value).is_ok_and(|value| {
            value
                .chars()
                .all(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | ' ' | '.' | '#' | '/' | '(' | ')'))
        })
}

fn is_usual_name(value: &[u8]) -> bool {
    let lower = value.trim_ascii().to_ascii_lowercase();
    let lower = String::from_utf8_lossy(&lower);
    USUAL_NAMES.contains(&lower.as_ref())
        || ["_id", "_at", "_name", "_date", "_code", "_type"].iter().any(|end| lower.ends_with(end))
}

/// The names of `width` columns: as the header has them, numbered where there is none, and made different
/// where two are alike.
pub(super) fn names(header: Option<&[Option<Vec<u8>>]>, width: usize) -> Vec<String> {
    let mut taken = HashSet::new();
    // The number last tried behind a name: without it many equal names would each try all of them.
    let mut tried: HashMap<String, usize> = HashMap::new();
    let name = |i: usize| {
        let value = header.and_then(|header| header.get(i)?.as_deref()).unwrap_or_default();
        let text = String::from_utf8_lossy(value.trim_ascii()).into_owned();
        if text.is_empty() { format!("column{}", i + 1) } else { text }
    };
    (0..width)
        .map(|i| {
            let base = name(i);
            if taken.insert(base.clone()) {
                return base;
            }
            let n = tried.entry(base.clone()).or_insert(1);
            loop {
                *n += 1;
                let unique = format!("{base}_{n}");
                if taken.insert(unique.clone()) {
                    return unique;
                }
            }
        })
        .collect()
}
