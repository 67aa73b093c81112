//! `${NAME}` in strings of a configuration.

use inrush_core::{Code, Error, Result};
use toml::Value;

/// Puts the values of the environment into every string: `${NAME}`, `${NAME:-default}`; `$${` stands for `${`.
pub(super) fn fill_in(value: &mut Value, env: &dyn Fn(&str) -> Option<String>) -> Result<()> {
    match value {
        Value::String(text) => {
            if text.contains("${") {
                *text = filled(text, env)?;
            }
            Ok(())
        }
        Value::Array(items) => items.iter_mut().try_for_each(|item| fill_in(item, env)),
        Value::Table(table) => table.iter_mut().try_for_each(|(_, item)| fill_in(item, env)),
        _ => Ok(()),
    }
}

fn filled(text: &str, env: &dyn Fn(&str) -> Option<String>) -> Result<String> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        if rest[..at].ends_with('$') {
            out.push_str(&rest[..at - 1]);
            out.push_str("${");
            rest = &rest[at + 2..];
            continue;
        }
        out.push_str(&rest[..at]);
        let Some(end) = rest[at..].find('}') else {
            return Err(Error::new(Code::Usage, "the configuration has \"${\" without \"}\"").hint(
                "Write ${NAME} for a variable of the environment, and $${ for the characters themselves.",
            ));
        };
        let inside = &rest[at + 2..at + end];
        let (name, default) = match inside.split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (inside, None),
        };
        match env(name).or_else(|| default.map(str::to_owned)) {
            Some(value) => out.push_str(&value),
            None => {
                return Err(Error::new(
                    Code::Usage,
                    format!("the configuration needs the environment variable {name:?}, which is not set"),
                )
                .hint("Set it, or write ${NAME:-default}."));
            }
        }
        rest = &rest[at + end + 1..];
    }
    out.push_str(rest);
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_filled_in() {
        let env = |name: &str| (name == "A").then(|| "x${B}".to_owned());
        assert_eq!(filled("1${A}2", &env).unwrap(), "1x${B}2");
        assert_eq!(filled("${C:-d}$${A}", &env).unwrap(), "d${A}");
        assert!(filled("${C}", &env).is_err());
        assert!(filled("${C", &env).is_err());
        let mut value: Value = toml::from_str::<toml::Table>("a = ['${A}', {b = '${A}'}]").unwrap().into();
        fill_in(&mut value, &env).unwrap();
        assert_eq!(value.to_string().matches("x${B}").count(), 2);
    }
}
