use crate::PgType;
use crate::key_words::is_key_word;
use serde::Serialize;

/// What kind of relation a table is (pg_class.relkind).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RelKind {
    /// `r`
    Table,
    /// `p`
    Partitioned,
    /// `v`
    View,
    /// `f`
    Foreign,
}

/// What a column holds when no value is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Default {
    /// NULL.
    None,
    /// An expression the server evaluates.
    Expression,
}

/// Whether a column is computed by the server (pg_attribute.attgenerated). COPY refuses values for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Generated {
    /// An ordinary column.
    No,
    /// `s`
    Stored,
    /// `v`, PostgreSQL 18 and later.
    Virtual,
}

/// Whether a column is an identity column (pg_attribute.attidentity). COPY accepts explicit values for both.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Identity {
    /// Not one.
    No,
    /// `a`
    Always,
    /// `d`
    ByDefault,
}

/// One column of the target.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Column {
    /// Name as the catalog has it (not quoted).
    pub name: String,
    /// pg_attribute.attnum.
    pub attnum: i16,
    /// Type.
    pub ty: PgType,
    /// pg_attribute.atttypmod, -1 where none.
    pub typmod: i32,
    /// NOT NULL.
    pub not_null: bool,
    /// What is stored when no value is sent.
    pub default: Default,
    /// Computed by the server?
    pub generated: Generated,
    /// Identity column?
    pub identity: Identity,
}

/// The target of a load, as the catalog describes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Table {
    /// pg_class.oid.
    pub oid: u32,
    /// Schema name (not quoted).
    pub schema: String,
    /// Table name (not quoted).
    pub name: String,
    /// Kind.
    pub kind: RelKind,
    /// pg_class.relpersistence = 'u'.
    pub unlogged: bool,
    /// Live columns in order of attnum, dropped ones left out.
    pub columns: Vec<Column>,
}

impl Table {
    /// `schema.name`, quoted where SQL needs it.
    pub fn qualified(&self) -> String {
        format!("{}.{}", quote_ident(&self.schema), quote_ident(&self.name))
    }

    /// The column of this exact name.
    pub fn column(&self, name: &str) -> Option<&Column> {
        self.columns.iter().find(|c| c.name == name)
    }
}

/// Quotes an identifier for SQL where it needs it, as the server's quote_ident() does (ruleutils.c,
/// quote_identifier): names of `[a-z0-9_]` that do not begin with a digit and are no key words stay bare.
pub fn quote_ident(name: &str) -> String {
    let plain = name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
        && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
        && !is_key_word(name);
    if plain { name.to_owned() } else { format!("\"{}\"", name.replace('"', "\"\"")) }
}

/// A string for SQL, whatever standard_conforming_strings is.
pub fn quote_literal(text: &str) -> String {
    let quoted = text.replace('\'', "''");
    if quoted.contains('\\') { format!("E'{}'", quoted.replace('\\', "\\\\")) } else { format!("'{quoted}'") }
}

#[cfg(test)]
mod tests {
    use super::{quote_ident, quote_literal};

    #[test]
    fn literals_are_quoted() {
        assert_eq!(quote_literal("16GB"), "'16GB'");
        assert_eq!(quote_literal("it's"), "'it''s'");
        assert_eq!(quote_literal(r"a\'b"), r"E'a\\''b'");
    }

    #[test]
    fn quotes_what_could_be_misread() {
        assert_eq!(quote_ident("c_1"), "c_1");
        assert_eq!(quote_ident("public"), "public");
        assert_eq!(quote_ident("name"), "name");
        assert_eq!(quote_ident("values"), "\"values\"");
        assert_eq!(quote_ident("order"), "\"order\"");
        assert_eq!(quote_ident("current_user"), "\"current_user\"");
        assert_eq!(quote_ident("Ab"), "\"Ab\"");
        assert_eq!(quote_ident("a\"b"), "\"a\"\"b\"");
        assert_eq!(quote_ident("1a"), "\"1a\"");
        assert_eq!(quote_ident("größe"), "\"größe\"");
        assert_eq!(quote_ident(""), "\"\"");
    }
}
