//! Connection strings: URIs and keyword/value pairs (fe-connect.c, conninfo_uri_parse_options and
//! conninfo_parse).

use super::keywords::Options;
use super::usage;
use inrush_core::{Error, Result};

const PREFIXES: [&str; 2] = ["postgresql://", "postgres://"];

/// Reads a connection string as psql does: a URI, keyword/value pairs when there is a `=`, else the name of a
/// database (fe-connect.c, recognized_connection_string).
pub(super) fn parse(text: &str) -> Result<Options> {
    if text.contains('\0') {
        return Err(usage("the connection string contains a NUL character"));
    }
    if let Some(rest) = PREFIXES.iter().find_map(|prefix| text.strip_prefix(prefix)) {
        return parse_uri(rest);
    }
    if text.contains('=') {
        return parse_pairs(text);
    }
    let mut options = Options::default();
    options.set("dbname", text)?;
    Ok(options)
}

// The messages below never repeat the connection string: it may hold a password.

fn parse_pairs(text: &str) -> Result<Options> {
    let mut options = Options::default();
    let mut rest = text.trim_start_matches(is_space);
    while !rest.is_empty() {
        let end = rest.find(|c| c == '=' || is_space(c)).unwrap_or(rest.len());
        let name = &rest[..end];
        let Some(after) = rest[end..].trim_start_matches(is_space).strip_prefix('=') else {
            return Err(usage(format!("missing \"=\" after {name:?} in the connection string")));
        };
        let (value, after) = take_value(after.trim_start_matches(is_space), name)?;
        options.set(name, value)?;
        rest = after.trim_start_matches(is_space);
    }
    Ok(options)
}

/// C's isspace() in the C locale, which is not what `char::is_whitespace` takes.
fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\n' | '\r' | '\x0b' | '\x0c')
}

/// One value, quoted or not, and the text after it. A backslash takes the next character as it is, in and out
/// of quotes.
fn take_value<'a>(text: &'a str, name: &str) -> Result<(String, &'a str)> {
    let quoted = text.starts_with('\'');
    let mut value = String::new();
    let mut chars = text.char_indices().skip(usize::from(quoted));
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => value.extend(chars.next().map(|(_, c)| c)),
            '\'' if quoted => return Ok((value, &text[at + 1..])),
            c if !quoted && is_space(c) => return Ok((value, &text[at..])),
            c => value.push(c),
        }
    }
    if quoted {
        return Err(usage(format!("the quoted value of {name:?} in the connection string does not end")));
    }
    Ok((value, ""))
}

/// `[user[:password]@][host[:port][,...]][/dbname][?keyword=value[&...]]`, without the scheme.
fn parse_uri(text: &str) -> Result<Options> {
    let mut options = Options::default();
    let mut rest = text;
    if let Some(at) = rest.find(['@', '/']).filter(|&at| rest[at..].starts_with('@')) {
        let (user, password) = match rest[..at].split_once(':') {
            Some((user, password)) => (user, password),
            None => (&rest[..at], ""),
        };
        if !user.is_empty() {
            options.set("user", decode(user)?)?;
        }
        if !password.is_empty() {
            options.set("password", decode(password)?)?;
        }
        rest = &rest[at + 1..];
    }

    let (mut hosts, mut ports) = (String::new(), String::new());
    loop {
        let after;
        if let Some(inner) = rest.strip_prefix('[') {
            let end = inner
                .find(']')
                .ok_or_else(|| usage("the IPv6 address in the connection URI has no closing \"]\""))?;
            if end == 0 {
                return Err(usage("the IPv6 address in the connection URI is empty"));
            }
            hosts.push_str(&inner[..end]);
            after = &inner[end + 1..];
            if !after.is_empty() && !after.starts_with([':', '/', '?', ',']) {
                return Err(usage("the connection URI goes on with an unexpected character after \"]\"")
                    .hint(
                        "Write \":\" and a port, \"/\" and a database, or \"?\" and options after the host.",
                    ));
            }
        } else {
            let end = rest.find([':', '/', '?', ',']).unwrap_or(rest.len());
            hosts.push_str(&rest[..end]);
            after = &rest[end..];
        }
        rest = after;
        if let Some(port) = rest.strip_prefix(':') {
            let end = port.find(['/', '?', ',']).unwrap_or(port.len());
            ports.push_str(&port[..end]);
            rest = &port[end..];
        }
        match rest.strip_prefix(',') {
            Some(next) => {
                hosts.push(',');
                ports.push(',');
                rest = next;
            }
            None => break,
        }
    }
    if !hosts.is_empty() {
        options.set("host", decode(&hosts)?)?;
    }
    if !ports.is_empty() {
        options.set("port", decode(&ports)?)?;
    }

    if let Some(path) = rest.strip_prefix('/') {
        let end = path.find('?').unwrap_or(path.len());
        if end > 0 {
            options.set("dbname", decode(&path[..end])?)?;
        }
        rest = &path[end..];
    }
    if let Some(parameters) = rest.strip_prefix('?') {
        parse_parameters(parameters, &mut options)?;
    }
    Ok(options)
}

/// `keyword=value&keyword=value` (conninfo_uri_parse_params).
fn parse_parameters(text: &str, options: &mut Options) -> Result<()> {
    // As in libpq, one trailing "&" is fine and an empty parameter in the middle is not.
    let text = text.strip_suffix('&').unwrap_or(text);
    if text.is_empty() {
        return Ok(());
    }
    for pair in text.split('&') {
        let Some((name, value)) = pair.split_once('=') else {
            return Err(usage("a parameter of the connection URI has no \"=\""));
        };
        let name = decode(name)?;
        if value.contains('=') {
            return Err(usage(format!("parameter {name:?} of the connection URI has a second \"=\""))
                .hint("Write a \"=\" inside a value as \"%3D\"."));
        }
        let value = decode(value)?;
        // The spelling of JDBC, which libpq accepts as well.
        if name == "ssl" && value == "true" {
            options.set("sslmode", "require")?;
        } else {
            options.set(&name, value)?;
        }
    }
    Ok(())
}

/// Percent-decoding (conninfo_uri_decode). A `+` stays a `+`.
fn decode(text: &str) -> Result<String> {
    if !text.contains('%') {
        return Ok(text.to_owned());
    }
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        match (bytes.next().and_then(hex_digit), bytes.next().and_then(hex_digit)) {
            (Some(0), Some(0)) => return Err(bad_percent("%00 is not allowed in a connection URI")),
            (Some(high), Some(low)) => out.push(high << 4 | low),
            _ => return Err(bad_percent("a \"%\" in the connection URI is not followed by two hex digits")),
        }
    }
    String::from_utf8(out)
        .map_err(|_| bad_percent("a percent-encoded part of the connection URI is not UTF-8"))
}

fn hex_digit(byte: u8) -> Option<u8> {
    // At most 15: the cast keeps every bit.
    #[allow(clippy::cast_possible_truncation)]
    char::from(byte).to_digit(16).map(|digit| digit as u8)
}

fn bad_percent(fact: &str) -> Error {
    usage(fact).hint("Write a literal \"%\" as \"%25\".")
}
