//! What is made from the definition of the command line: completions, man pages, the list of error codes.

use crate::args::Cli;
use crate::grid::{Align, grid};
use crate::say;
use clap::{Command, CommandFactory};
use clap_complete::Shell;
use inrush_core::{Code, Error, Result};
use std::fmt::Write as _;
use std::path::Path;

pub fn completions(shell: Shell) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "inrush", &mut script);
    say::bytes(&script)
}

/// The page of the whole command to standard output, or a page for each command into `dir`.
pub fn man(dir: Option<&Path>) -> Result<()> {
    let mut command = Cli::command().disable_help_subcommand(true);
    command.build();
    let Some(dir) = dir else {
        let mut page = Vec::new();
        render(&command, &mut page)?;
        return say::bytes(&page);
    };
    let cannot = |path: &Path, e: std::io::Error| {
        Error::new(Code::Output, format!("cannot write {}: {e}", path.display()))
    };
    std::fs::create_dir_all(dir).map_err(|e| cannot(dir, e))?;
    let mut pages = vec![(String::from("inrush"), command)];
    let mut written = 0;
    while let Some((name, command)) = pages.pop() {
        let visible = command.get_subcommands().filter(|sub| !sub.is_hide_set());
        pages.extend(visible.map(|sub| (format!("{name}-{}", sub.get_name()), sub.clone())));
        let mut page = Vec::new();
        render(&command.display_name(&name), &mut page)?;
        let path = dir.join(format!("{name}.1"));
        std::fs::write(&path, page).map_err(|e| cannot(&path, e))?;
        written += 1;
    }
    say::out(&format!("{written} pages in {}\n", dir.display()))
}

fn render(command: &Command, page: &mut Vec<u8>) -> Result<()> {
    clap_mangen::Man::new(command.clone())
        .render(page)
        .map_err(|e| Error::new(Code::Internal, format!("the man page cannot be made: {e}")))
}

pub fn codes(only: Option<&str>, markdown: bool) -> Result<()> {
    if markdown {
        return say::out(&codes_page());
    }
    let rows: Vec<Vec<String>> = Code::ALL
        .iter()
        .filter(|code| only.is_none_or(|only| code.as_str() == only))
        .map(|code| vec![code.as_str().to_owned(), code.meaning().to_owned()])
        .collect();
    if rows.is_empty() {
        return Err(Error::new(
            Code::Usage,
            format!("there is no error code {:?}", only.unwrap_or_default()),
        )
        .hint("`inrush codes` lists them."));
    }
    say::out(&grid(&[("CODE", Align::Left), ("MEANING", Align::Left)], &rows))
}

/// docs/errors.md.
fn codes_page() -> String {
    let mut page = String::from(
        "# Errors\n\n\
         Every error is printed as\n\n\
         ```\n\
         error[code]: one fact (SQLSTATE 23505)\n\
         \x20 at: file.csv:12 (byte 345), column id\n\
         hint: What to do about it.\n\
         ```\n\n\
         on standard error. The SQLSTATE is there when the server gave one, the place when there is one, the hint\n\
         when there is advice. At most 100 bytes of your data are in a message. `--report FILE.json` has the same\n\
         as data, see [report.md](report.md).\n\n\
         Codes are stable: scripts may match on them. None is ever renamed or given another meaning.\n\n\
         | code | what it means |\n|---|---|\n",
    );
    for code in Code::ALL {
        let _ = writeln!(page, "| `{}` | {} |", code.as_str(), code.meaning());
    }
    page.push_str(
        "\n## Exit codes\n\n\
         | exit code | |\n|---|---|\n\
         | 0 | done; also when everything had been loaded before |\n\
         | 1 | loaded, with rejects within `--max-rejects` |\n\
         | 2 | failed, or stopped by the user; a wrong command line too |\n\n\
         `inrush local psql` ends with the exit code of psql.\n\n\
         This page is made with `inrush codes --markdown`.\n",
    );
    page
}
