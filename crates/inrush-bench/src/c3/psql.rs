//! A session of psql that is asked again and again: the start of one costs more than most questions.

use crate::server::{Server, remove_server_variables};
use inrush_core::{Code, Error, Result};
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

const END: &str = "-- end of the answer --";

/// One session.
#[derive(Debug)]
pub struct Session {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Session {
    /// Opens one.
    pub fn open(server: &Server) -> Result<Session> {
        let failed = |e: std::io::Error| Error::new(Code::Local, format!("psql cannot be run: {e}"));
        let mut command = Command::new("psql");
        remove_server_variables(&mut command);
        let mut child = command
            .args(["-XqAt", "-v", "ON_ERROR_STOP=1", "-d", server.dsn()])
            .env("PGOPTIONS", "-c client_min_messages=warning")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let input = child.stdin.take();
        let output = child.stdout.take().ok_or_else(|| failed(std::io::ErrorKind::BrokenPipe.into()))?;
        Ok(Session { child, input, output: BufReader::new(output) })
    }

    /// What it answers to statements.
    pub fn ask(&mut self, sql: &str) -> Result<String> {
        let sent = match &mut self.input {
            Some(input) => writeln!(input, "{sql};\n\\echo '{END}'").and_then(|()| input.flush()),
            None => Err(std::io::ErrorKind::BrokenPipe.into()),
        };
        let mut text = String::new();
        while sent.is_ok() {
            let mut line = String::new();
            match self.output.read_line(&mut line) {
                Ok(0) | Err(_) => break,
                Ok(_) if line.trim_end() == END => return Ok(text.trim_end().to_owned()),
                Ok(_) => text += &line,
            }
        }
        self.input = None;
        let mut said = String::new();
        if let Some(mut errors) = self.child.stderr.take() {
            let _ = errors.read_to_string(&mut said);
        }
        Err(Error::new(Code::Server, format!("psql ended: {}", said.trim_end())))
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.input = None;
        let _ = self.child.wait();
    }
}
