//! Every help page at 80 and 100 columns, and what a wrong command line is told.

use std::process::Command;

/// What a command line prints, both streams, and its exit code.
fn said(columns: u32, words: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_inrush"));
    for (name, _) in
        std::env::vars().filter(|(name, _)| name.starts_with("PG") || name.starts_with("INRUSH_"))
    {
        command.env_remove(name);
    }
    let output = command.env("COLUMNS", columns.to_string()).args(words).output().expect("the command runs");
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("messages are UTF-8");
    let all = format!("{}{}", text(&output.stdout), text(&output.stderr));
    assert!(!all.contains('\u{1b}'), "colours without a terminal: {all}");
    let widest = all.lines().map(|line| line.chars().count()).max().unwrap_or_default();
    if words.iter().any(|word| ["-h", "--help"].contains(word)) {
        assert!(widest <= columns as usize, "a line of {widest} at {columns} columns:\n{all}");
    }
    format!("{all}exit code {}\n", output.status.code().expect("an exit code"))
}

const COMMANDS: &[&[&str]] = &[
    &[],
    &["load"],
    &["sniff"],
    &["loads"],
    &["loads", "list"],
    &["loads", "show"],
    &["loads", "undo"],
    &["loads", "prune"],
    &["loads", "rejects"],
    &["table"],
    &["table", "create"],
    &["table", "list"],
    &["table", "show"],
    &["table", "maintain"],
    &["recover"],
    &["route"],
    &["cluster"],
    &["cluster", "status"],
    &["advise"],
    &["explain"],
    &["tune"],
    &["tune", "io"],
    &["watch"],
    &["serve"],
    &["spill"],
    &["spill", "check"],
    &["spill", "drain"],
    &["local"],
    &["local", "start"],
    &["local", "stop"],
    &["local", "status"],
    &["local", "psql"],
    &["local", "url"],
    &["local", "destroy"],
    &["completions"],
    &["man"],
    &["codes"],
];

#[test]
fn every_help_page() {
    for command in COMMANDS {
        let mut both = String::new();
        for flag in ["-h", "--help"] {
            let page = said(80, &[command, &[flag][..]].concat());
            both += &format!("$ inrush {} {flag}\n{page}\n", command.join(" "));
        }
        let name = if command.is_empty() { "inrush".to_owned() } else { command.join("-") };
        insta::assert_snapshot!(format!("help-{name}"), both);
    }
}

#[test]
fn the_help_of_load_at_100_columns() {
    insta::assert_snapshot!("help-load-100", said(100, &["load", "--help"]));
}

#[test]
fn no_command_is_left_out() {
    fn names(words: &[&str]) -> Vec<String> {
        let help = said(80, &[words, &["-h"][..]].concat());
        let Some((_, commands)) = help.split_once("Commands:\n") else { return Vec::new() };
        let lines = commands.lines().take_while(|line| !line.is_empty());
        // A name stands behind two spaces; what is wrapped is further in.
        lines
            .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
            .filter_map(|line| line.split_whitespace().next())
            .filter(|name| *name != "help")
            .map(str::to_owned)
            .collect()
    }
    for name in names(&[]) {
        // `bench` has its own tests.
        if name == "bench" {
            continue;
        }
        assert!(COMMANDS.contains(&&[name.as_str()][..]), "{name} has no snapshot");
        for sub in names(&[&name]) {
            assert!(COMMANDS.contains(&&[name.as_str(), sub.as_str()][..]), "{name} {sub} has no snapshot");
        }
    }
}

#[test]
fn wrong_command_lines_are_explained() {
    let lines: &[&[&str]] = &[
        &["load"],
        &["laod", "a.csv"],
        &["load", "a.csv", "--delimter", ";"],
        &["load", "a.csv", "--delimiter", "ab"],
        &["load", "a.csv", "--format", "xlsx"],
        &["load", "a.csv", "--max-record", "12 parsecs"],
        &["load", "a.csv", "--max-rejects", "120%"],
        &["load", "a.csv", "--jobs", "0"],
        &["load", "a.csv", "--columns", "a,,b"],
        &["load", "a.csv", "--set", "novalue"],
        &["load", "a.csv", "--again", "--resume"],
        &["load", "a.csv", "--no-ledger", "--load-id", "x"],
        &["loads", "prune", "--older-than", "soon"],
        &["loads", "list", "-n", "0"],
        &["table", "create", "t", "--time", "at"],
        &["table", "create", "t", "at date", "--time", "at", "--window", "soon"],
        &["table", "create", "t", "at date", "--time", "at", "--brin", "--no-index"],
        &["table", "create", "t", "at date", "--time", "at", "--max-size", "0"],
        &["table", "create", "t", "at date", "--time", "at", "--min-free", "0GB"],
        &["recover", "--finish", "1", "--undo", "2"],
        &["recover", "--", "--jobs", "2"],
        &["route"],
        &["route", "t", "-x"],
        &["cluster", "status", "t", "u"],
        &["advise", "--apply", "--undo"],
        &["watch", "--interval", "0"],
        &["watch", "--hz", "5000"],
        &["completions", "cmd"],
        &["codes", "nope"],
        &["load", "missing.csv", "--to", "postgresql://h:badport/d"],
    ];
    let mut all = String::new();
    for line in lines {
        all += &format!("$ inrush {}\n{}\n", line.join(" "), said(80, line));
    }
    insta::assert_snapshot!("wrong-command-lines", all);
}
