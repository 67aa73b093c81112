//! The table of a line of line protocol.

use crate::config::Into;
use crate::inputs::allowed;
use inrush_core::{BadRecord, Code, Error, Result};
use inrush_decode::line;

/// A name with places for what a line has.
#[derive(Debug)]
pub(crate) struct Template(Vec<Piece>);

#[derive(Debug)]
enum Piece {
    Text(String),
    Measurement,
    Tag(String),
}

impl Template {
    /// Reads `{measurement}`, which `{table}` means as well, and `{tag:NAME}`. `{topic}` is filled in before.
    ///
    /// # Errors
    /// Code `usage`, of other braces.
    pub fn parse(text: &str) -> Result<Template> {
        let wrong = |what: &str| {
            Error::new(Code::Usage, format!("into.table = {text:?}: {what}")).hint(
                "{measurement} and {tag:NAME} stand for what a line of line protocol has, {topic} for the topic of \
                 Kafka, {table} for the table in the path of a request.",
            )
        };
        let (mut pieces, mut rest) = (Vec::new(), text);
        while let Some(open) = rest.find(['{', '}']) {
            let (before, behind) = rest.split_at(open);
            let Some((name, behind)) = behind.strip_prefix('{').and_then(|behind| behind.split_once('}'))
            else {
                return Err(wrong("a brace has no other one"));
            };
            if !before.is_empty() {
                pieces.push(Piece::Text(before.to_owned()));
            }
            pieces.push(match (name, name.strip_prefix("tag:")) {
                ("measurement" | "table", _) => Piece::Measurement,
                (_, Some(tag)) if !tag.is_empty() => Piece::Tag(tag.to_owned()),
                _ => return Err(wrong(&format!("{{{name}}} is not known"))),
            });
            rest = behind;
        }
        if !rest.is_empty() {
            pieces.push(Piece::Text(rest.to_owned()));
        }
        Ok(Template(pieces))
    }

    /// Whether all lines have the same name.
    pub fn is_fixed(&self) -> bool {
        self.0.iter().all(|piece| matches!(piece, Piece::Text(_)))
    }
}

/// Says which table a line belongs to.
pub(super) struct Naming<'n> {
    template: Template,
    /// None where the name does not come from outside.
    into: Option<&'n Into>,
    scratch: Vec<u8>,
}

impl<'n> Naming<'n> {
    /// All lines are of this table.
    pub fn fixed(table: &str) -> Naming<'static> {
        Naming { template: Template(vec![Piece::Text(table.to_owned())]), into: None, scratch: Vec::new() }
    }

    /// As an input says it; by its measurement if it says nothing.
    pub fn of(into: &'n Into) -> Result<Naming<'n>> {
        let template = match &into.table {
            Some(text) => Template::parse(text)?,
            None => Template(vec![Piece::Measurement]),
        };
        Ok(Naming { template, into: Some(into), scratch: Vec::new() })
    }

    /// Writes the name of the table of a line.
    pub fn name(&mut self, line: &[u8], name: &mut String) -> Result<(), BadRecord> {
        name.clear();
        for piece in &self.template.0 {
            let text = match piece {
                Piece::Text(text) => {
                    name.push_str(text);
                    continue;
                }
                Piece::Measurement => line::measurement(line, &mut self.scratch)?,
                Piece::Tag(tag) => match line::tag(line, tag.as_bytes(), &mut self.scratch)? {
                    Some(value) => value,
                    None => {
                        let fact = format!("the line has no tag {tag:?}, which names its table");
                        return Err(BadRecord::format(fact));
                    }
                },
            };
            // Both have been checked.
            name.push_str(std::str::from_utf8(text).unwrap_or_default());
        }
        Ok(())
    }

    /// Whether the input may write into a table of this name.
    pub fn check(&self, name: &str) -> Result<(), BadRecord> {
        match self.into {
            Some(into) if !allowed(into, name) => Err(BadRecord {
                sqlstate: "42501",
                fact: format!("table {name:?} is not among those that this input may write"),
                field: None,
            }),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_made_of_what_a_line_has() {
        let into = Into { table: Some("m_{measurement}_{tag:site}".to_owned()), ..Into::default() };
        let mut naming = Naming::of(&into).unwrap();
        let mut name = String::new();
        let mut of = |line: &str| naming.name(line.as_bytes(), &mut name).map(|()| name.clone());
        assert_eq!(of("cpu,host=a,site=berlin v=1").unwrap(), "m_cpu_berlin");
        assert_eq!(of("cpu\\ load,site=b\\,c v=1 5").unwrap(), "m_cpu load_b,c");
        assert!(of("cpu,host=a v=1").unwrap_err().fact.contains("no tag \"site\""));
        assert!(of("cpu v=\",site=x\"").is_err());
        assert!(of(",site=x v=1").is_err());
    }

    #[test]
    fn templates_are_read() {
        assert!(Template::parse("metrics").unwrap().is_fixed());
        assert!(!Template::parse("a_{tag:x}").unwrap().is_fixed());
        for wrong in ["{", "a}", "{x}", "{tag:}", "{}", "{topic}"] {
            assert!(Template::parse(wrong).is_err(), "{wrong}");
        }
    }
}
