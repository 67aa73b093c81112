//! The password file (fe-connect.c, passwordFromFile).

use std::path::Path;

/// What a password is looked up for.
pub(super) struct Wanted<'a> {
    /// Host name, address, or directory of the socket.
    pub host: &'a str,
    pub port: u16,
    pub dbname: &'a str,
    pub user: &'a str,
}

/// The content of a password file, or why it is not used. A missing file is no reason to complain.
pub(super) fn read(path: &Path) -> Result<Option<String>, String> {
    let Ok(metadata) = std::fs::metadata(path) else { return Ok(None) };
    if !metadata.is_file() {
        return Err(format!("password file {} is not a plain file and was ignored", path.display()));
    }
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        if metadata.permissions().mode() & 0o077 != 0 {
            return Err(format!(
                "password file {} has group or world access and was ignored; permissions should be u=rw (0600) or less",
                path.display()
            ));
        }
    }
    match std::fs::read(path) {
        Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
        Err(e) => Err(format!("password file {} cannot be read and was ignored: {e}", path.display())),
    }
}

/// The password of the first line that matches.
pub(super) fn lookup(file: &str, wanted: &Wanted<'_>) -> Option<String> {
    let port = wanted.port.to_string();
    file.split('\n').find_map(|line| {
        let line = line.strip_suffix('\r').unwrap_or(line);
        if line.starts_with('#') {
            return None;
        }
        let rest = match_field(line, wanted.host)?;
        let rest = match_field(rest, &port)?;
        let rest = match_field(rest, wanted.dbname)?;
        let rest = match_field(rest, wanted.user)?;
        Some(unescape(rest))
    })
}

/// Matches one field and returns the text after its colon (fe-connect.c, pwdfMatchesString).
fn match_field<'a>(text: &'a str, value: &str) -> Option<&'a str> {
    if let Some(rest) = text.strip_prefix("*:") {
        return Some(rest);
    }
    let mut value = value.chars();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        let c = match c {
            // An unescaped colon ends the field; one that the value itself has at this place does too, as in
            // libpq only when the value is used up.
            ':' if value.as_str().is_empty() => return Some(&text[at + 1..]),
            '\\' => chars.next()?.1,
            c => c,
        };
        if value.next()? != c {
            return None;
        }
    }
    None
}

fn unescape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => out.push(chars.next().unwrap_or('\\')),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_matching_line_wins() {
        let file =
            "# comment\nh:5432:d:other:no\nh:5432:d:u:a\\:b\\\\c\r\nh:*:*:*:second\n*:6000:we\\:ird:u:x:y\n";
        let get = |host, port, dbname| lookup(file, &Wanted { host, port, dbname, user: "u" });
        assert_eq!(get("h", 5432, "d").as_deref(), Some("a:b\\c"));
        assert_eq!(get("h", 5433, "d").as_deref(), Some("second"));
        assert_eq!(get("g", 5432, "d"), None);
        assert_eq!(get("g", 6000, "we:ird").as_deref(), Some("x:y"));
        assert_eq!(get("hh", 5432, "d"), None);
        assert_eq!(get("", 5432, "d"), None);
    }
}
