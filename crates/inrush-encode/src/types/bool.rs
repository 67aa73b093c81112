//! boolean (bool.c, boolin): the usual words in any case. Other unique prefixes (`tru`) are left to the server.

use super::digits::trim;

pub(super) fn bool(value: &[u8]) -> Option<bool> {
    let is = |word: &str| value.eq_ignore_ascii_case(word.as_bytes());
    match value {
        b"t" | b"1" => Some(true),
        b"f" | b"0" => Some(false),
        _ if is("true") || is("t") || is("yes") || is("y") || is("on") => Some(true),
        _ if is("false") || is("f") || is("no") || is("n") || is("off") => Some(false),
        _ => match trim(value) {
            trimmed if trimmed.len() < value.len() => bool(trimmed),
            _ => None,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::bool;

    #[test]
    fn words() {
        for word in ["t", "TRUE", "1", "yes", "Y", "on", " true\n"] {
            assert_eq!(bool(word.as_bytes()), Some(true), "{word}");
        }
        for word in ["f", "False", "0", "no", "N", "OFF", "\tf"] {
            assert_eq!(bool(word.as_bytes()), Some(false), "{word}");
        }
        for word in ["", " ", "o", "2", "tru", "truee", "t f"] {
            assert_eq!(bool(word.as_bytes()), None, "{word}");
        }
    }
}
