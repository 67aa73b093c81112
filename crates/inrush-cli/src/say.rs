//! What the command prints: results on standard output, everything else on standard error.
//!
//! A reader that has gone (`inrush ... | head`) ends nothing: what is left is not printed, and the exit code is
//! that of the work. `println!` would panic there.

use clap::builder::styling::{AnsiColor, Style};
use inrush_core::{Code, Error, Result, printable};
use serde::Serialize;
use std::io::{self, ErrorKind, IsTerminal, Write};

/// Prints a result.
///
/// # Errors
/// `output`, where it cannot be written for another reason than that nobody reads it.
pub fn out(text: &str) -> Result<()> {
    bytes(text.as_bytes())
}

/// Prints a result that need not be text.
///
/// # Errors
/// As [`out`].
pub fn bytes(bytes: &[u8]) -> Result<()> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        Err(e) if e.kind() != ErrorKind::BrokenPipe => {
            Err(Error::new(Code::Output, format!("cannot write to standard output: {e}")))
        }
        _ => Ok(()),
    }
}

/// Prints a result as JSON, indented.
///
/// # Errors
/// As [`out`].
pub fn json(value: &impl Serialize) -> Result<()> {
    out(&(json_text(value)? + "\n"))
}

/// A value as indented JSON.
///
/// # Errors
/// `internal`, for a value JSON has no form for.
pub fn json_text(value: &impl Serialize) -> Result<String> {
    serde_json::to_string_pretty(value)
        .map_err(|e| Error::new(Code::Internal, format!("what is to be printed has no JSON form: {e}")))
}

/// Prints a line for the user that is no result.
pub fn note(text: &str) {
    // Nobody is left to be told if this fails.
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// Prints a warning.
pub fn warning(text: &str) {
    note(&format!("{} {}", painted("warning:", YELLOW, on_stderr()), printable_lines(text)));
}

/// Prints an error as every command does: `error[code]: fact`, where, and what to do.
pub fn error(error: &Error) {
    note(&error_text(error, on_stderr()));
}

/// Prints what is wrong with a command line, as an error of code `usage`.
pub fn wrong_command_line(error: &clap::Error) {
    let text = error.render();
    let text = if on_stderr() { text.ansi().to_string() } else { text.to_string() };
    let code = format!("error[{}]:", Code::Usage.as_str());
    note(text.replacen("error:", &code, 1).trim_end());
}

const RED: Style = AnsiColor::Red.on_default().bold();
const YELLOW: Style = AnsiColor::Yellow.on_default().bold();
const CYAN: Style = AnsiColor::Cyan.on_default().bold();

/// The text of an error: as [`Error`]'s own, painted where that is wanted.
fn error_text(error: &Error, colour: bool) -> String {
    let plain = printable_lines(&error.to_string());
    if !colour {
        return plain;
    }
    let label = format!("error[{}]:", error.code().as_str());
    let painted_label = painted(&label, RED, true);
    let text = plain.replacen(&label, &painted_label, 1);
    // The hint is the last line that begins so; a fact of the server may hold others.
    match text.rfind("\nhint:") {
        Some(at) if error.hint_text().is_some() => {
            let (before, after) = text.split_at(at + 1);
            format!("{before}{}{}", painted("hint:", CYAN, true), &after["hint:".len()..])
        }
        _ => text,
    }
}

/// Lines with words of others in them: what a terminal would obey, but for the ends of lines, is written out.
pub fn printable_lines(text: &str) -> String {
    text.split('\n').map(printable).collect::<Vec<_>>().join("\n")
}

fn painted(text: &str, style: Style, colour: bool) -> String {
    if colour { format!("{style}{text}{style:#}") } else { text.to_owned() }
}

/// Whether standard error takes colours: a terminal that is not dumb, and no `NO_COLOR`.
pub fn on_stderr() -> bool {
    io::stderr().is_terminal()
        && colours_wanted()
        && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// Whether the user minds colours: no `NO_COLOR` (no-color.org).
pub fn colours_wanted() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_are_all_that_differs() {
        let error = Error::new(Code::Server, "x: y\nhint: of the server").hint("Do it.");
        assert_eq!(error_text(&error, false), error.to_string());
        let painted = error_text(&error, true);
        assert!(painted.starts_with("\u{1b}["), "{painted}");
        let mut plain = String::new();
        let mut rest = painted.as_str();
        while let Some(at) = rest.find('\u{1b}') {
            plain.push_str(&rest[..at]);
            rest = rest[at..].split_once('m').expect("a sequence ends with m").1;
        }
        assert_eq!(plain + rest, error.to_string());
    }

    #[test]
    fn words_of_a_server_cannot_write_to_the_terminal() {
        let error = Error::new(Code::Server, "no column \"\u{1b}[2J\r\"\nhint: \u{9b}m");
        for colour in [false, true] {
            let text = error_text(&error, colour);
            assert!(text.contains(r#"no column "\u{1b}[2J\r""#) && !text.contains("\u{9b}"), "{text:?}");
            assert_eq!(text.lines().count(), 2);
        }
    }
}
