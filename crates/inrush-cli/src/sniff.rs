//! `inrush sniff`

use crate::args::SniffArgs;
use crate::grid::{Align, bytes, grid, pair};
use crate::say;
use crate::words::{column_word, format_words, option, shell_words};
use inrush_core::{Code, Error, Format, Limits, Result};
use inrush_load::{SniffedInput, Stated, column_names, create_table_sql, merged_columns, short_name};
use inrush_load::{sniff_input, target_name};
use serde_json::{Value, json};
use std::process::ExitCode;

pub fn run(args: &SniffArgs) -> Result<ExitCode> {
    let stated = args.format.stated();
    let specs = inrush_source::expand(&args.sources)?;
    let inputs = specs
        .iter()
        .map(|spec| sniff_input(spec, &stated, &Limits::default()))
        .collect::<Result<Vec<SniffedInput>>>()?;
    let table = match (target_name(args.table.as_deref(), &specs), &args.table) {
        (Ok(table), _) => table,
        // Standard input has no name: one to replace.
        (Err(_), None) => target_name(Some("input"), &specs)?,
        (Err(error), Some(_)) => return Err(error),
    };
    let columns = merged_columns(&inputs);
    if columns.is_empty() {
        return Err(Error::new(Code::Columns, "the sample shows no columns")
            .hint("An empty input says nothing about its table."));
    }
    let create = create_table_sql(&table, &columns);
    let command = command(&args.sources, &table.to_string(), &inputs, &stated);
    if args.json {
        let inputs: Vec<Value> = inputs.iter().map(input_json).collect();
        let names = column_names(&columns);
        let columns: Vec<Value> = columns
            .iter()
            .zip(names)
            .map(|(c, name)| json!({ "name": name, "field": c.name, "type": short_name(c.ty), "nulls": c.nullable }))
            .collect();
        say::json(&json!({
            "version": 1,
            "table": table.to_string(),
            "inputs": inputs,
            "columns": columns,
            "create": create,
            "command": command,
        }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut text = String::new();
    for (i, input) in inputs.iter().enumerate() {
        match inputs[..i].iter().find(|other| alike(other, input)) {
            Some(other) => {
                text += &format!("{}\n{}\n", input.name, pair("", &format!("as {}", other.name)).trim_end());
            }
            None => text += &describe(input),
        }
        text.push('\n');
    }
    text += &format!("{create};\n\n{}\n", shell_words(&command));
    say::out(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// Whether two inputs show the same format and columns.
fn alike(a: &SniffedInput, b: &SniffedInput) -> bool {
    a.sniffed.format == b.sniffed.format && a.sniffed.columns == b.sniffed.columns
}

fn input_json(input: &SniffedInput) -> Value {
    let sniffed = &input.sniffed;
    let columns: Vec<Value> = sniffed
        .columns
        .iter()
        .map(|c| json!({ "name": c.name, "type": short_name(c.ty), "nulls": c.nullable }))
        .collect();
    json!({
        "name": input.name,
        "compression": input.compression.name(),
        "bytes": input.stored,
        "sampled_bytes": input.looked_at,
        "sampled_all": input.complete,
        "dialect": sniffed.format,
        "records": sniffed.records,
        "misfits": sniffed.misfits,
        "columns": columns,
        "evidence": sniffed.evidence,
    })
}

fn describe(input: &SniffedInput) -> String {
    let sniffed = &input.sniffed;
    let mut text = format!("{}\n", input.name);
    let mut format = sniffed.format.name().to_owned();
    if input.compression != inrush_source::Compression::None {
        format = format!("{format}, compressed with {}", input.compression.name());
    }
    text += &pair("format", &format);
    for (name, value) in dialect(&sniffed.format) {
        text += &pair(name, &value);
    }
    let looked = bytes(input.looked_at as u64);
    let sample = match input.complete {
        true => format!("all of it: {looked}, {} records", sniffed.records),
        false => format!("the first {looked}, {} records", sniffed.records),
    };
    text += &pair("sample", &sample);
    if sniffed.misfits > 0 {
        text += &pair(
            "misfits",
            &format!("{} records do not fit; loading them would reject them", sniffed.misfits),
        );
    }
    for (i, evidence) in sniffed.evidence.iter().enumerate() {
        text += &pair(if i == 0 { "because" } else { "" }, evidence);
    }
    text.push('\n');
    let rows: Vec<Vec<String>> = sniffed
        .columns
        .iter()
        .map(|c| {
            vec![
                c.name.clone(),
                short_name(c.ty).to_owned(),
                if c.nullable { "yes" } else { "no" }.to_owned(),
            ]
        })
        .collect();
    let table = grid(&[("COLUMN", Align::Left), ("TYPE", Align::Left), ("NULLS", Align::Left)], &rows);
    for line in table.lines() {
        text += &format!("  {line}\n");
    }
    text
}

/// The parts of a dialect, as a person reads them.
fn dialect(format: &Format) -> Vec<(&'static str, String)> {
    let byte = |b: u8| match b {
        b'\t' => "tab".to_owned(),
        b' ' => "space".to_owned(),
        other => crate::words::byte_word(other),
    };
    let null = |null: &str| if null.is_empty() { "empty and not quoted".to_owned() } else { null.to_owned() };
    let header = |yes: bool| if yes { "the first line names the columns" } else { "none" }.to_owned();
    let eol = |eol| {
        match eol {
            inrush_core::Eol::Lf => "LF",
            inrush_core::Eol::CrLf => "CR LF",
            inrush_core::Eol::Cr => "CR",
        }
        .to_owned()
    };
    match format {
        Format::Csv(d) => vec![
            ("delimiter", byte(d.delimiter)),
            ("quote", byte(d.quote)),
            ("escape", byte(d.escape)),
            ("null", null(&d.null)),
            ("header", header(d.header)),
            ("line ends", eol(d.eol)),
        ],
        Format::Text(d) => vec![
            ("delimiter", byte(d.delimiter)),
            ("null", d.null.clone()),
            ("header", header(d.header)),
            ("line ends", eol(d.eol)),
        ],
        _ => Vec::new(),
    }
}

/// The words of the load command, everything spelled out that the inputs have in common.
fn command(sources: &[String], table: &str, inputs: &[SniffedInput], stated: &Stated) -> Vec<String> {
    let mut words = vec!["inrush".to_owned(), "load".to_owned()];
    // A name that begins with a dash would be taken for an option.
    words.extend(sources.iter().map(|source| match source.strip_prefix('-') {
        Some(rest) if !rest.is_empty() => format!("./{source}"),
        _ => source.clone(),
    }));
    words.extend(option("table", table));
    let first = &inputs[0].sniffed;
    // Where inputs differ in dialect each is found out by itself again.
    let dialects: Vec<Vec<String>> = inputs.iter().map(|input| format_words(&input.sniffed.format)).collect();
    if dialects.iter().all(|words| *words == dialects[0]) {
        words.extend(dialects[0].clone());
    }
    words.extend(option("encoding", stated.encoding.as_deref().unwrap_or("UTF8")));
    for (name, columns) in [("force-null", &stated.force_null), ("force-not-null", &stated.force_not_null)] {
        if !columns.is_empty() {
            words.extend(option(name, &columns.join(",")));
        }
    }
    let names = column_names(&first.columns);
    let changed = first.columns.iter().zip(&names).any(|(column, name)| column.name != *name);
    if changed && inputs.len() == 1 {
        let by_key = first.format == Format::Ndjson;
        let list: Vec<String> = first
            .columns
            .iter()
            .zip(&names)
            .map(|(column, name)| match by_key {
                true => format!("{}={}", column_word(name), column_word(&column.name)),
                false => column_word(name),
            })
            .collect();
        words.extend(option("columns", &list.join(",")));
    }
    words
}
