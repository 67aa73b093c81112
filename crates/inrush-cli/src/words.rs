//! Command lines as text: to paste into a shell, and to keep.

use clap::{ArgAction, ArgMatches, Command, parser::ValueSource};
use inrush_core::{CsvDialect, Format, TextDialect};
use std::path::Path;

/// Words joined for a POSIX shell, quoted where they need it.
pub fn shell_words(words: &[impl AsRef<str>]) -> String {
    words.iter().map(|word| shell_word(word.as_ref())).collect::<Vec<_>>().join(" ")
}

fn shell_word(word: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"_./:=@%+,-".contains(&b);
    if !word.is_empty() && word.bytes().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// A byte as the options that take one read it.
pub fn byte_word(byte: u8) -> String {
    match byte {
        b'\t' => r"\t".to_owned(),
        b'!'..=b'~' | b' ' => char::from(byte).to_string(),
        other => format!(r"\x{other:02x}"),
    }
}

/// An option with a value, in one word where the value could be taken for an option.
pub fn option(name: &str, value: &str) -> Vec<String> {
    if value.starts_with('-') {
        vec![format!("--{name}={value}")]
    } else {
        vec![format!("--{name}"), value.to_owned()]
    }
}

/// A format with everything spelled out.
pub fn format_words(format: &Format) -> Vec<String> {
    let mut words = option("format", format.name());
    let header = match format {
        Format::Csv(CsvDialect { delimiter, quote, escape, null, header, .. }) => {
            if *delimiter != b'\t' {
                words.extend(option("delimiter", &byte_word(*delimiter)));
            }
            words.extend(option("quote", &byte_word(*quote)));
            words.extend(option("escape", &byte_word(*escape)));
            words.extend(option("null", null));
            header
        }
        Format::Text(TextDialect { delimiter, null, header, .. }) => {
            words.extend(option("delimiter", &byte_word(*delimiter)));
            words.extend(option("null", null));
            header
        }
        _ => return words,
    };
    words.push(if *header { "--header" } else { "--no-header" }.to_owned());
    words
}

/// A column's name as `--columns` reads it.
pub fn column_word(name: &str) -> String {
    let odd = name.contains([',', '=', '"']) || name.trim() != name || name == "-";
    if odd { format!("\"{}\"", name.replace('"', "\"\"")) } else { name.to_owned() }
}

/// Options that belong to one run and not to the load: where the server is (and its password), what to do with what
/// was there before, and where to tell about it.
const OF_ONE_RUN: [&str; 6] = ["to", "again", "resume", "report", "quiet", "dry_run"];

/// Options whose value is a path.
const PATHS: [&str; 2] = ["sources", "rejects"];

/// What was said on the command line of `inrush load`, to be kept and said again anywhere: paths are absolute, and
/// what belongs to one run only is left out.
pub fn kept_arguments(command: &Command, matches: &ArgMatches) -> Vec<String> {
    let mut words = Vec::new();
    for argument in command.get_arguments() {
        let id = argument.get_id().as_str();
        let said = matches.try_contains_id(id).is_ok_and(|there| there)
            && matches.value_source(id) == Some(ValueSource::CommandLine);
        if !said || OF_ONE_RUN.contains(&id) {
            continue;
        }
        if matches!(argument.get_action(), ArgAction::SetTrue) {
            words.extend(argument.get_long().map(|long| format!("--{long}")));
            continue;
        }
        for value in matches.get_raw(id).into_iter().flatten() {
            let value = value.to_string_lossy();
            let value = if PATHS.contains(&id) { absolute(&value) } else { value.into_owned() };
            match argument.get_long() {
                Some(long) if argument.is_require_equals_set() => words.push(format!("--{long}={value}")),
                Some(long) => words.extend(option(long, &value)),
                None => words.push(value),
            }
        }
    }
    words
}

fn absolute(path: &str) -> String {
    if path == "-" {
        return path.to_owned();
    }
    std::path::absolute(Path::new(path)).map_or_else(|_| path.to_owned(), |path| path.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Command as Parsed};
    use clap::{CommandFactory, FromArgMatches};

    #[test]
    fn words_survive_a_shell() {
        for word in ["", "a b", "it's", "$HOME", "`x`", "\\t", "plain.csv", "a\nb", "ä", "*", "--null=-"] {
            let output = std::process::Command::new("sh")
                .args(["-c", &format!("printf %s {}", shell_word(word))])
                .output()
                .expect("a shell");
            assert_eq!(String::from_utf8_lossy(&output.stdout), word);
        }
    }

    #[test]
    fn a_kept_command_says_the_same_again() {
        let given = [
            "inrush",
            "load",
            "a.csv",
            "-",
            "-t",
            "s.t",
            "--to",
            "postgresql://u:secret@h/d",
            "--again",
            "--null=-x",
            "--delimiter",
            "\\t",
            "--set",
            "a=1",
            "--set",
            "b=2",
            "--force-null",
            "x,y",
            "--header",
            "--jobs",
            "3",
            "--defer-indexes",
            "--unlogged",
        ];
        let matches = Cli::command().try_get_matches_from(given).unwrap();
        let (_, of_load) = matches.subcommand().unwrap();
        let command = Cli::command();
        let load = command.find_subcommand("load").unwrap();
        let kept = kept_arguments(load, of_load);
        assert!(!kept.iter().any(|word| word.contains("secret") || word == "--again"), "{kept:?}");
        let again = Cli::command()
            .try_get_matches_from(["inrush", "load"].iter().map(|w| (*w).to_owned()).chain(kept.clone()))
            .unwrap();
        let Parsed::Load(args) = Cli::from_arg_matches(&again).unwrap().command else { panic!("a load") };
        let options = args.options();
        assert!(options.sources[0].starts_with('/') && options.sources[0].ends_with("/a.csv"));
        assert_eq!(options.sources[1], "-");
        assert_eq!(options.stated.null.as_deref(), Some("-x"));
        assert_eq!(options.stated.delimiter, Some(b'\t'));
        assert_eq!(options.stated.force_null, ["x", "y"]);
        assert_eq!(options.constants, [("a".into(), "1".into()), ("b".into(), "2".into())]);
        assert_eq!((options.levers.defer_indexes, options.levers.unlogged), (Some(Vec::new()), true));
        assert_eq!((options.again, options.jobs, options.stated.header), (false, Some(3), Some(true)));
    }
}
