//! The names a table has columns for, found by guessing.

use std::collections::HashMap;

/// Places of a line for which a guess is kept: lines with ever more keys must not make it grow.
const MAX_GUESSES: usize = 1024;

/// The columns of each name, of tags or of fields.
#[derive(Debug, Default)]
pub(super) struct Names {
    entries: Vec<Entry>,
    by_name: HashMap<Vec<u8>, usize>,
    /// Which name came at which place of the last line. Points of a measurement mostly have the same keys in
    /// the same order, so this is right more often than not and saves hashing.
    guesses: Vec<Option<usize>>,
}

/// A name and its columns, nearly always one.
#[derive(Debug)]
struct Entry {
    name: Vec<u8>,
    /// On a line it is written as it is, without escapes.
    plain: bool,
    columns: Vec<usize>,
}

impl Names {
    pub(super) fn add(&mut self, name: &[u8], column: usize) {
        if let Some(&entry) = self.by_name.get(name) {
            self.entries[entry].columns.push(column);
        } else {
            self.by_name.insert(name.to_vec(), self.entries.len());
            let plain = !name.is_empty() && !name.iter().any(|byte| b",= \\\n".contains(byte));
            self.entries.push(Entry { name: name.to_vec(), plain, columns: vec![column] });
        }
    }

    /// If the line goes on with the name that stood at `place` of the last one, and with `=`: its length. It
    /// is compared before it is looked for, which is what most of the time goes into otherwise.
    #[inline]
    pub(super) fn expected(&self, rest: &[u8], place: usize) -> Option<usize> {
        let &guess = self.guesses.get(place)?;
        let entry = &self.entries[guess?];
        let len = entry.name.len();
        (rest.get(len) == Some(&b'=') && entry.plain && rest[..len] == entry.name).then_some(len)
    }

    /// The columns of the name that stands at `place` of its line.
    #[inline]
    pub(super) fn find(&mut self, name: &[u8], place: usize) -> Option<&[usize]> {
        let found = match self.guesses.get(place) {
            Some(&Some(guess)) if self.entries[guess].name == name => Some(guess),
            _ => self.look_up(name, place),
        };
        found.map(|entry| &self.entries[entry].columns[..])
    }

    fn look_up(&mut self, name: &[u8], place: usize) -> Option<usize> {
        let found = self.by_name.get(name).copied();
        if place < self.guesses.len() {
            self.guesses[place] = found;
        } else if place == self.guesses.len() && place < MAX_GUESSES {
            self.guesses.push(found);
        }
        found
    }
}
