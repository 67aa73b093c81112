//! What a configuration says that makes no sense: told at the start, and by `--check`.

use super::{Config, FormatName, Into, Span};
use crate::split::Template;
use inrush_core::{Code, Error, Result};
use std::collections::HashSet;
use std::time::Duration;

/// The least window of a table that is made here, whose time column is a timestamptz (inrush-windows,
/// `Scale::least_width`).
const LEAST_WINDOW: Duration = Duration::from_secs(1);

/// Bytes of the path of a socket (unix(7), `sun_path`, less the NUL at its end).
const SOCKET_PATH: usize = 107;

fn bad(fact: impl std::convert::Into<String>, hint: &str) -> Error {
    Error::new(Code::Usage, fact).hint(hint)
}

impl Config {
    /// Whether all of it can be meant.
    ///
    /// # Errors
    /// Code `usage`, for the first thing that cannot.
    pub(super) fn make_sense(&self) -> Result<()> {
        if self.http.is_empty() && self.kafka.is_empty() && self.tail.is_empty() && self.stdin.is_none() {
            return Err(bad(
                "the configuration has no input: [[http]], [[kafka]], [[tail]] or [stdin]",
                "`inrush serve --example` prints a commented configuration.",
            ));
        }
        self.bounds()?;
        self.names()?;
        for http in &self.http {
            if http.tls_cert.is_some() != http.tls_key.is_some() {
                return Err(bad(
                    format!("input {:?}: tls_cert and tls_key belong together", http.name),
                    "Say both for HTTPS, or none of them.",
                ));
            }
            if http.tokens.iter().any(String::is_empty) {
                return Err(bad(
                    format!("input {:?}: a token is empty", http.name),
                    "Leave tokens out to let everybody send who can connect.",
                ));
            }
            if !may_listen(&http.listen) && !may_be_socket(&http.listen) {
                return Err(bad(
                    format!("input {:?}: listen = {:?} is no address", http.name, http.listen),
                    "Write HOST:PORT, :PORT for every address of this machine, or unix:PATH.",
                ));
            }
        }
        if let Some(admin) = self.admin.as_ref().filter(|admin| !may_listen(&admin.listen)) {
            return Err(bad(
                format!("admin.listen = {:?} is no address", admin.listen),
                "Write HOST:PORT, or :PORT for every address of this machine.",
            ));
        }
        self.tables()
    }

    /// Whether durations and sizes leave something to work with. `batch.linger`, `batch.enough` and `limits.wait` may
    /// be 0: nobody waits then.
    fn bounds(&self) -> Result<()> {
        let (server, limits, batch) = (&self.server, &self.limits, &self.batch);
        if server.lanes == 0 || server.lanes > 256 {
            return Err(bad(
                "lanes must be between 1 and 256",
                "As many as the server has cores are enough.",
            ));
        }
        if limits.memory.0 < 1 << 20 {
            return Err(bad("memory must be at least 1MiB", "The default is 256MiB."));
        }
        if batch.rows == 0 || batch.bytes.0 == 0 {
            return Err(bad(
                "rows and bytes of a batch must be at least 1",
                "The default is 500000 and 32MiB.",
            ));
        }
        let mut spans = vec![
            (
                "limits.remember_keys".to_owned(),
                Some(limits.remember_keys),
                "A body that comes again would be stored again; the default is 2d.",
            ),
            (
                "limits.keep_dead_letters".to_owned(),
                limits.keep_dead_letters,
                "Refused rows would be gone before anybody sees them; leave it out to keep them for ever.",
            ),
            (
                "limits.stop".to_owned(),
                Some(limits.stop),
                "Nothing that is under way at a stop would be stored; the default is 30s.",
            ),
            (
                "windows.every".to_owned(),
                Some(self.windows.every),
                "The default is 10s; maintain = false leaves windows to `inrush table maintain`.",
            ),
        ];
        for http in &self.http {
            let timeout = format!("timeout of input {:?}", http.name);
            spans.push((timeout, Some(http.timeout), "No request could arrive in time; the default is 60s."));
        }
        for (what, span, hint) in spans {
            if span.is_some_and(|span| span.0.is_zero()) {
                return Err(bad(format!("{what} must be more than nothing"), hint));
            }
        }
        for http in &self.http {
            if http.max_body.0 == 0 || http.max_connections == 0 {
                return Err(bad(
                    format!("input {:?}: max_body and max_connections must be at least 1", http.name),
                    "The default is 256MiB and 1024.",
                ));
            }
        }
        match &self.spill {
            Some(spill) if spill.max.0 < 1 << 20 || spill.segment.0 == 0 => Err(bad(
                "spill.max must be at least 1MiB, and spill.segment at least 1",
                "The default is 10GiB and 64MiB; leave [spill] out to keep nothing on disk.",
            )),
            _ => Ok(()),
        }
    }

    /// Whether inputs have names that the ledger can tell apart.
    fn names(&self) -> Result<()> {
        let mut names = HashSet::new();
        let all = (self.http.iter().map(|i| ("http", &i.name)))
            .chain(self.kafka.iter().map(|i| ("kafka", &i.name)))
            .chain(self.tail.iter().map(|i| ("tail", &i.name)))
            .chain(self.stdin.iter().map(|i| ("stdin", &i.name)));
        for (kind, name) in all {
            let fine = !name.is_empty()
                && name.len() <= 63
                && name.chars().all(|c| c.is_ascii_alphanumeric() || "_-.".contains(c));
            if !fine {
                return Err(Error::new(
                    Code::Usage,
                    format!("the name {name:?} of an input must be 1 to 63 letters, digits, '_', '-' or '.'"),
                ));
            }
            if !names.insert((kind, name)) {
                return Err(bad(
                    format!("two {kind} inputs have the name {name:?}"),
                    "The ledger knows an input by its name: give each one of its own.",
                ));
            }
        }
        Ok(())
    }

    /// Whether it is known of every row which table it goes into, and whether tables can be made.
    fn tables(&self) -> Result<()> {
        for http in &self.http {
            names_tables(&http.into, true)?;
        }
        for kafka in &self.kafka {
            match &kafka.into.table {
                Some(table) if table.contains("{topic}") => {
                    let into = Into { table: Some(table.replace("{topic}", "t")), ..Into::default() };
                    // What is filled in with the topic is not looked at for each line.
                    names_tables(&into, false)?;
                }
                _ => names_tables(&kafka.into, kafka.format == FormatName::Line)?,
            }
        }
        for tail in &self.tail {
            names_tables(&tail.into, tail.format == FormatName::Line)?;
            needs_table(&tail.name, &tail.into, tail.format)?;
        }
        if let Some(stdin) = &self.stdin {
            names_tables(&stdin.into, stdin.format == FormatName::Line)?;
            needs_table(&stdin.name, &stdin.into, stdin.format)?;
        }
        self.inputs().iter().try_for_each(|(name, into)| makes_tables(name, into))
    }
}

/// Whether a TCP socket may listen there, if the name before the last colon is that of this machine.
fn may_listen(listen: &str) -> bool {
    let parts = listen.rsplit_once(':');
    parts.is_some_and(|(host, port)| {
        port.parse::<u16>().is_ok() && !host.contains(|c: char| c == '/' || c.is_whitespace())
    }) && !listen.starts_with("unix:")
}

fn may_be_socket(listen: &str) -> bool {
    let path = listen.strip_prefix("unix:");
    path.is_some_and(|path| (1..=SOCKET_PATH).contains(&path.len()) && !path.contains('\0'))
}

/// Whether `into.table` can be read, and has places for what lines have only where there are lines.
fn names_tables(into: &Into, lines: bool) -> Result<()> {
    let Some(table) = &into.table else { return Ok(()) };
    if !Template::parse(table)?.is_fixed() && !lines {
        return Err(Error::new(
            Code::Usage,
            format!("into.table = {table:?}: only a line of line protocol has a measurement and tags"),
        ));
    }
    Ok(())
}

/// An input that names no tables itself needs one.
fn needs_table(name: &str, into: &Into, format: FormatName) -> Result<()> {
    if into.table.is_none() && format != FormatName::Line {
        return Err(Error::new(Code::Usage, format!("input {name:?} does not say into which table"))
            .hint("Add into.table = \"NAME\"."));
    }
    Ok(())
}

/// Whether `into.create` is of a table that `inrush table create` would make. What only the server knows, `--check` asks.
fn makes_tables(name: &str, into: &Into) -> Result<()> {
    let Some(create) = &into.create else { return Ok(()) };
    let shown =
        |span: Span| inrush_windows::Span::from_us(i64::try_from(span.0.as_micros()).unwrap_or(i64::MAX));
    if create.time.is_empty() || create.time.len() > 63 || create.time.contains('\0') {
        return Err(bad(
            format!("input {name}: into.create.time = {:?} is no name of a column", create.time),
            "A name has 1 to 63 bytes.",
        ));
    }
    if create.window.0 < LEAST_WINDOW {
        return Err(bad(
            format!("input {name}: into.create.window of {} is too small", shown(create.window)),
            "A window has at least 1s; 1h or 1d is usual.",
        ));
    }
    if create.keep.is_some_and(|keep| keep.0 < create.window.0) {
        return Err(bad(
            format!("input {name}: into.create.keep is shorter than one window"),
            "A window goes as a whole: choose a smaller window or a longer keep.",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<()> {
        Config::parse(text, &|_| None).map(|_| ())
    }

    /// What is said of a configuration with one HTTP input and something more.
    #[track_caller]
    fn refused(input: &str, sections: &str) -> Error {
        let text = format!("[[http]]\nname = 'a'\nlisten = ':1'\n{input}\n{sections}\n");
        let error = parse(&text).expect_err("refused");
        assert_eq!(error.code(), Code::Usage);
        assert!(error.hint_text().is_some_and(|hint| hint.ends_with('.')), "{error}");
        error
    }

    #[track_caller]
    fn fine(input: &str, sections: &str) {
        parse(&format!("[[http]]\nname = 'a'\nlisten = ':1'\n{input}\n{sections}\n")).expect("fine");
    }

    #[test]
    fn there_are_inputs_with_names() {
        assert!(parse("").expect_err("refused").fact().contains("no input"));
        let twice = refused("[[http]]\nname = 'a'\nlisten = ':2'", "");
        assert!(twice.fact().contains("two http inputs"), "{twice}");
    }

    #[test]
    fn addresses_can_be_read() {
        let socket = format!("unix:/{}", "x".repeat(200));
        for (listen, http, admin) in [
            ("127.0.0.1:0", true, true),
            ("[::1]:8086", true, true),
            ("localhost:8086", true, true),
            (":8086", true, true),
            ("unix:/run/in.sock", true, false),
            ("unix:8086", true, false),
            ("nonsense", false, false),
            ("", false, false),
            ("unix:", false, false),
            (&socket, false, false),
            ("127.0.0.1", false, false),
            ("127.0.0.1:99999", false, false),
            ("127.0.0.1:http", false, false),
            ("http://localhost:8086", false, false),
            ("here and there:8086", false, false),
        ] {
            let read = parse(&format!("[[http]]\nname = 'a'\nlisten = '{listen}'\n"));
            assert_eq!(read.is_ok(), http, "{listen}");
            let asked =
                parse(&format!("[[http]]\nname = 'a'\nlisten = ':1'\n[admin]\nlisten = '{listen}'\n"));
            assert_eq!(asked.is_ok(), admin, "{listen}");
            for error in [read.err(), asked.err()].into_iter().flatten() {
                assert!(error.fact().contains("is no address"), "{error}");
                assert!(error.hint_text().is_some_and(|hint| hint.contains(":PORT")), "{error}");
            }
        }
    }

    #[test]
    fn durations_are_more_than_nothing_where_nothing_would_happen() {
        for (input, sections, what) in [
            ("timeout = '0s'", "", "timeout of input \"a\""),
            ("", "[windows]\nevery = '0s'", "windows.every"),
            ("", "[windows]\nevery = '0.0000000001s'", "windows.every"),
            ("", "[limits]\nremember_keys = '0s'", "limits.remember_keys"),
            ("", "[limits]\nkeep_dead_letters = '0d'", "limits.keep_dead_letters"),
            ("", "[limits]\nstop = '0ms'", "limits.stop"),
        ] {
            let error = refused(input, sections);
            assert_eq!(error.fact(), format!("{what} must be more than nothing"));
        }
        fine("", "[limits]\nwait = '0s'\n[batch]\nlinger = '0s'\nenough = 0");
    }

    #[test]
    fn sizes_leave_room() {
        for (input, sections, what) in [
            ("max_body = 0", "", "max_body"),
            ("max_connections = 0", "", "max_connections"),
            ("", "[spill]\ndir = 'x'\nmax = 0", "spill.max"),
            ("", "[spill]\ndir = 'x'\nmax = '1kB'", "spill.max"),
            ("", "[spill]\ndir = 'x'\nsegment = 0", "spill.segment"),
        ] {
            let error = refused(input, sections);
            assert!(error.fact().contains(what), "{error}");
        }
        fine("", "[spill]\ndir = 'x'\nmax = '1MiB'");
    }

    #[test]
    fn tables_can_be_made() {
        for (create, what) in [
            ("{ window = '1ms' }", "into.create.window of 1ms is too small"),
            ("{ window = '0s' }", "is too small"),
            ("{ window = '1h', keep = '30m' }", "into.create.keep is shorter than one window"),
            ("{ window = '1h', keep = '0s' }", "into.create.keep is shorter than one window"),
            ("{ window = '1h', time = '' }", "into.create.time"),
        ] {
            let error = refused(&format!("into.create = {create}"), "");
            assert!(error.fact().contains(what) && error.fact().contains("http:a"), "{error}");
        }
        fine("into.create = { window = '1s', keep = '1s' }", "");
        fine("into.create = { window = '1d' }", "");
    }

    #[test]
    fn places_in_the_name_of_a_table_are_checked() {
        let config = |kind: &str, more: &str, table: &str| {
            let text = format!("[[{kind}]]\nname = 'x'\n{more}\ninto.table = '{table}'\n");
            Config::parse(&text, &|_| None).map(|_| ())
        };
        let (http, kafka) = ("listen = '127.0.0.1:0'", "brokers = 'b'\ngroup = 'g'\ntopics = ['t']");
        config("http", http, "m_{tag:site}").unwrap();
        config("http", http, "x_{table}").unwrap();
        assert!(config("http", http, "{topic}").is_err());
        let ndjson = format!("{kafka}\nformat = 'ndjson'");
        config("kafka", &ndjson, "x_{topic}").unwrap();
        assert!(config("kafka", &ndjson, "{measurement}").is_err());
        let line = format!("{kafka}\nformat = 'line'");
        config("kafka", &line, "{measurement}").unwrap();
        assert!(config("kafka", &line, "{topic}_{measurement}").is_err());
    }
}
