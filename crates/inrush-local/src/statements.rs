//! Cuts what is typed into statements, at the semicolons that end one.

/// Takes lines, gives statements. A semicolon in a literal, a quoted identifier, a comment or between
/// parentheses ends none (psqlscan.l).
#[derive(Debug, Default)]
pub(crate) struct Statements {
    text: String,
    /// Up to here `text` has been looked at.
    at: usize,
    within: Within,
    parentheses: u32,
}

#[derive(Debug, Default, Clone, PartialEq)]
enum Within {
    #[default]
    Nothing,
    LineComment,
    /// Comments nest in SQL.
    Comment(u32),
    Literal {
        backslashes: bool,
    },
    Identifier,
    /// `$tag$`, with both dollars.
    Dollar(String),
}

impl Statements {
    pub(crate) fn push(&mut self, line: &str) {
        self.text.push_str(line);
        if !line.ends_with('\n') {
            self.text.push('\n');
        }
    }

    /// Whether nothing has been begun.
    pub(crate) fn is_empty(&self) -> bool {
        self.within == Within::Nothing && self.text.trim().is_empty()
    }

    /// The next complete statement, with its semicolon.
    pub(crate) fn next(&mut self) -> Option<String> {
        while let Some(c) = self.text[self.at..].chars().next() {
            let rest = &self.text[self.at..];
            let mut step = c.len_utf8();
            match self.within.clone() {
                Within::Nothing => match c {
                    ';' if self.parentheses == 0 => {
                        let statement: String = self.text.drain(..=self.at).collect();
                        self.at = 0;
                        return Some(statement.trim().to_owned());
                    }
                    '(' => self.parentheses += 1,
                    ')' => self.parentheses = self.parentheses.saturating_sub(1),
                    '"' => self.within = Within::Identifier,
                    '\'' => {
                        let before = &self.text.as_bytes()[..self.at];
                        // E'...', but not the end of a longer word.
                        let backslashes = before.last().is_some_and(|b| b.eq_ignore_ascii_case(&b'e'))
                            && !before.len().checked_sub(2).is_some_and(|i| is_word(before[i]));
                        self.within = Within::Literal { backslashes };
                    }
                    '-' if rest.starts_with("--") => self.within = Within::LineComment,
                    '/' if rest.starts_with("/*") => {
                        self.within = Within::Comment(1);
                        step = 2;
                    }
                    '$' if !self.text[..self.at].bytes().last().is_some_and(is_word) => {
                        if let Some(tag) = dollar_tag(rest) {
                            step = tag.len();
                            self.within = Within::Dollar(tag.to_owned());
                        }
                    }
                    _ => {}
                },
                Within::LineComment if c == '\n' => self.within = Within::Nothing,
                Within::Comment(depth) if rest.starts_with("*/") => {
                    step = 2;
                    self.within = if depth == 1 { Within::Nothing } else { Within::Comment(depth - 1) };
                }
                Within::Comment(depth) if rest.starts_with("/*") => {
                    step = 2;
                    self.within = Within::Comment(depth + 1);
                }
                // A doubled quote ends one literal and begins the next, to the same effect.
                Within::Identifier if c == '"' => self.within = Within::Nothing,
                Within::Literal { .. } if c == '\'' => self.within = Within::Nothing,
                Within::Literal { backslashes: true } if c == '\\' => {
                    step += rest[1..].chars().next().map_or(0, char::len_utf8);
                }
                Within::Dollar(tag) if rest.starts_with(&tag) => {
                    step = tag.len();
                    self.within = Within::Nothing;
                }
                _ => {}
            }
            self.at += step;
        }
        None
    }

    /// What is left at the end of the input, if it is anything.
    pub(crate) fn rest(&mut self) -> Option<String> {
        let rest = std::mem::take(self).text;
        Some(rest.trim().to_owned()).filter(|rest| !rest.is_empty())
    }
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$') || byte >= 0x80
}

/// `$$` or `$name$` at the start of `text`.
fn dollar_tag(text: &str) -> Option<&str> {
    let length = text[1..].find('$')?;
    let name = &text[1..=length];
    let starts_well = !name.starts_with(|c: char| c.is_ascii_digit());
    (starts_well && name.bytes().all(|b| is_word(b) && b != b'$')).then(|| &text[..length + 2])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(input: &str) -> (Vec<String>, Option<String>) {
        let mut statements = Statements::default();
        let mut found = Vec::new();
        for line in input.split_inclusive('\n') {
            statements.push(line);
            found.extend(std::iter::from_fn(|| statements.next()));
        }
        (found, statements.rest())
    }

    #[test]
    fn only_a_semicolon_that_ends_a_statement_counts() {
        for statement in [
            "SELECT ';'",
            "SELECT 'it''s;', \"a\"\";b\"",
            "SELECT E'\\';', 'x\\'",
            "SELECT 1 -- ; not\n + 1",
            "SELECT /* ; /* ; */ ; */ 1",
            "DO $$ BEGIN PERFORM 1; END $$",
            "SELECT $a$ ; $b$ ; $$ ; $a$",
            "SELECT a$1 FROM t",
            "CREATE RULE r AS ON INSERT TO t DO (SELECT 1; SELECT 2)",
            "SELECT 'zeile 1\n;zeile 2', 'ü;'",
            "SELECT 'name'':'';'",
        ] {
            let (found, rest) = cut(&format!("{statement};\nSELECT 2;"));
            assert_eq!(found, [format!("{statement};"), "SELECT 2;".to_owned()]);
            assert_eq!(rest, None);
        }
    }

    #[test]
    fn several_in_a_line_and_one_unfinished() {
        let (found, rest) = cut("SELECT 1; SELECT 2;\nSELECT 'open;\n");
        assert_eq!(found, ["SELECT 1;", "SELECT 2;"]);
        assert_eq!(rest.as_deref(), Some("SELECT 'open;"));
    }
}
