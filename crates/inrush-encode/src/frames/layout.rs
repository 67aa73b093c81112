//! The server's plan for a table: what `inrush.plan()` answers (docs/format-inrush.md, "The plan").

use crate::types::stored::Labels;
use inrush_core::{Code, Error, Result};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The version of the format that is written here.
pub const VERSION: u16 = 1;

/// How the frames of a table are laid out, as the server says.
#[derive(Debug, Clone, Deserialize)]
pub struct FrameLayout {
    /// The version of the format.
    pub version: u16,
    /// Why the table does not qualify.
    pub refusal: Option<Refusal>,
    /// What block headers carry: of this layout and no other.
    #[serde(deserialize_with = "fingerprint")]
    pub fingerprint: u64,
    /// The server's encoding, as it names it.
    pub encoding: String,
    /// Bytes of a heap block.
    pub block_size: u16,
    /// Bytes of the largest alignment.
    pub max_align: u8,
    /// Bytes of a tuple, header included, beyond which the server compresses and moves values out of line.
    pub toast_threshold: u32,
    /// Every attribute in order, dropped ones included.
    pub columns: Vec<LayoutColumn>,
    /// Labels of enums, by the OID of the enum.
    #[serde(skip)]
    pub(crate) labels: BTreeMap<u32, Labels>,
}

/// Why a table does not qualify.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Refusal {
    /// A code of the format's page, which never changes its meaning.
    pub code: String,
    /// What it is about, for a person.
    pub detail: String,
}

/// How values of a column travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    /// In their stored form.
    Native,
    /// As the type's receive function reads them, in a varlena.
    Receive,
    /// Not at all.
    Refuse,
    /// The column is dropped: NULL.
    Dropped,
}

/// One attribute.
#[derive(Debug, Clone, Deserialize)]
pub struct LayoutColumn {
    /// Its name.
    pub name: String,
    /// How its values travel.
    pub class: Class,
    /// Whether it is in the column list; if not it is NULL in every frame.
    pub sent: bool,
    /// OID of its type.
    #[serde(rename = "type")]
    pub ty: u32,
    /// OID of the type under the domains.
    pub base_type: u32,
    /// The type modifier under the domains, -1 where none.
    pub typmod: i32,
    /// Bytes of the stored form, -1 for a varlena.
    pub length: i32,
    /// Its alignment in bytes.
    pub align: usize,
    /// pg_attribute.attstorage, as far as it matters: `p` if short headers are not allowed.
    pub storage: String,
    /// Whether NULL is refused.
    pub not_null: bool,
    /// `e` if the type under the domains is an enum, else `b`.
    pub kind: String,
}

fn fingerprint<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    let text = String::deserialize(deserializer)?;
    let number = (text.len() == 16).then(|| u64::from_str_radix(&text, 16).ok()).flatten();
    number.ok_or_else(|| serde::de::Error::custom("a fingerprint has 16 hexadecimal digits"))
}

impl FrameLayout {
    /// Reads the answer of `inrush.plan()`. Fails with [`Code::Server`] if it is not of version [`VERSION`] or
    /// not what the format's page describes. A refusal is not a failure: look at [`FrameLayout::refusal`].
    pub fn parse(json: &str) -> Result<FrameLayout> {
        let odd = |fact: String| {
            Error::new(Code::Server, fact)
                .hint("The extension inrush on the server is of another version than this program.")
        };
        let layout: FrameLayout = serde_json::from_str(json).map_err(|error| {
            odd(format!("the server's plan for FORMAT inrush is not understood: {error}"))
        })?;
        if layout.version != VERSION {
            return Err(odd(format!("the server speaks version {} of FORMAT inrush", layout.version)));
        }
        let aligned = |align: usize| matches!(align, 1 | 2 | 4 | 8);
        let sane = matches!(layout.max_align, 4 | 8)
            // MaxHeapAttributeNumber
            && layout.columns.len() <= 1600
            && layout.columns.iter().all(|column| aligned(column.align) || column.class == Class::Dropped);
        if !sane {
            return Err(odd("the server's plan for FORMAT inrush has an alignment or a number of columns that is not possible".into()));
        }
        Ok(layout)
    }

    /// OIDs of the enums whose labels are needed, each once: those of sent columns.
    ///
    /// Their labels are `SELECT oid, enumlabel FROM pg_catalog.pg_enum WHERE enumtypid = $1`.
    pub fn enums(&self) -> Vec<u32> {
        let sent = self.columns.iter().filter(|column| column.sent && column.kind == "e");
        let mut types: Vec<u32> = sent.map(|column| column.base_type).collect();
        types.sort_unstable();
        types.dedup();
        types
    }

    /// Says which labels an enum has, and their OIDs. A value that is not among them is unsure, so labels that
    /// are added later cost speed and nothing else; without this call every value of the enum is unsure.
    ///
    /// A label renamed during the load goes on to be stored under its OID, hence under its new name.
    pub fn set_labels<L: Into<Vec<u8>>>(
        &mut self,
        enum_type: u32,
        labels: impl IntoIterator<Item = (L, u32)>,
    ) {
        let labels = labels.into_iter().map(|(label, oid)| (label.into(), oid)).collect();
        self.labels.insert(enum_type, Arc::new(labels));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the format's page.
    const EXAMPLE: &str = r#"{"version": 1, "refusal": null, "fingerprint": "83b1f0a2c55d9e07", "encoding": "UTF8",
        "block_size": 8192, "max_align": 8, "toast_threshold": 2032, "columns": [
        {"name": "id", "class": "native", "sent": true, "type": 23, "base_type": 23, "typmod": -1, "length": 4,
         "align": 4, "storage": "p", "not_null": true, "kind": "b"}]}"#;

    #[test]
    fn a_plan_is_read() {
        let layout = FrameLayout::parse(EXAMPLE).expect("the example");
        assert_eq!(layout.fingerprint, 0x83b1_f0a2_c55d_9e07);
        assert_eq!(layout.columns[0].class, Class::Native);
        assert!(layout.enums().is_empty());
        let refused = EXAMPLE.replace("null,", r#"{"code": "trigger", "detail": "trigger \"t\""},"#);
        let refused = FrameLayout::parse(&refused).expect("a refusal is an answer");
        assert_eq!(refused.refusal.map(|refusal| refusal.code).as_deref(), Some("trigger"));
    }

    #[test]
    fn odd_plans_are_refused() {
        for (from, to) in [
            ("\"version\": 1", "\"version\": 2"),
            ("83b1f0a2c55d9e07", "83b1"),
            ("\"align\": 4", "\"align\": 3"),
            ("\"native\"", "\"psychic\""),
            ("\"max_align\": 8", "\"max_align\": 0"),
        ] {
            assert_ne!(EXAMPLE.replace(from, to), EXAMPLE);
            assert!(FrameLayout::parse(&EXAMPLE.replace(from, to)).is_err(), "{to}");
        }
    }
}
