//! Which keys the objects of an input have, and what is under them.

use super::json::{Kind, unescape};
use super::{is_space, lines};
use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// What was seen of a key: in how many records it had which kind of value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObservedKey {
    /// The key, unescaped.
    pub name: Vec<u8>,
    /// Records in which it has a string.
    pub strings: usize,
    /// ... a number.
    pub numbers: usize,
    /// ... `true` or `false`.
    pub booleans: usize,
    /// ... `null`.
    pub nulls: usize,
    /// ... an object.
    pub objects: usize,
    /// ... an array.
    pub arrays: usize,
}

impl ObservedKey {
    /// Records that have the key at all.
    pub fn records(&self) -> usize {
        self.strings + self.numbers + self.booleans + self.nulls + self.objects + self.arrays
    }
}

/// The keys of the well-formed lines of a sample, in the order in which they were first seen.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ObservedKeys {
    /// The keys.
    pub keys: Vec<ObservedKey>,
    /// Lines that hold one JSON object.
    pub objects: usize,
    /// Other lines that are not blank.
    pub others: usize,
}

/// Keys looked at in one sample at most: an object used as a map from ids would give one per record.
const MAX_KEYS: usize = 2000;

/// Looks at every line of `sample`, which holds whole lines. Of a key that comes twice in an object, the
/// last value counts.
pub fn keys_of(sample: &[u8]) -> ObservedKeys {
    let mut seen = ObservedKeys::default();
    let mut places = HashMap::new();
    for line in lines(sample).filter(|line| !line.iter().all(|&b| is_space(b))) {
        match pairs(line) {
            Some(pairs) => {
                seen.objects += 1;
                for (name, kind) in pairs {
                    seen.count(&mut places, name, kind);
                }
            }
            None => seen.others += 1,
        }
    }
    seen
}

impl ObservedKeys {
    /// Counts a key; `places` says where in `keys` each name is.
    fn count(&mut self, places: &mut HashMap<Vec<u8>, usize>, name: Vec<u8>, kind: Kind) {
        let at = match places.get(&name) {
            Some(&at) => at,
            None if self.keys.len() == MAX_KEYS => return,
            None => {
                places.insert(name.clone(), self.keys.len());
                let (strings, numbers, booleans, nulls, objects, arrays) = (0, 0, 0, 0, 0, 0);
                self.keys.push(ObservedKey { name, strings, numbers, booleans, nulls, objects, arrays });
                self.keys.len() - 1
            }
        };
        let key = &mut self.keys[at];
        match kind {
            Kind::String { .. } => key.strings += 1,
            Kind::Number => key.numbers += 1,
            Kind::Bool => key.booleans += 1,
            Kind::Null => key.nulls += 1,
            Kind::Object => key.objects += 1,
            Kind::Array => key.arrays += 1,
        }
    }
}

/// The keys of one object and what is under them; `None` if the line is not one object.
fn pairs(line: &[u8]) -> Option<Vec<(Vec<u8>, Kind)>> {
    let mut pairs: Vec<(Vec<u8>, Kind)> = Vec::new();
    let mut places: HashMap<Vec<u8>, usize> = HashMap::new();
    std::str::from_utf8(line).ok()?;
    super::walk_object(line, 0..line.len(), |key, escaped, kind, _| {
        let mut name = Vec::new();
        if !escaped {
            name.extend_from_slice(&line[key]);
        } else if unescape(&line[key], &mut name).is_err() {
            return Ok(());
        }
        match places.entry(name) {
            Entry::Occupied(place) => pairs[*place.get()].1 = kind,
            Entry::Vacant(place) => {
                pairs.push((place.key().clone(), kind));
                place.insert(pairs.len() - 1);
            }
        }
        Ok(())
    })
    .ok()?;
    Some(pairs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_come_in_first_seen_order_with_their_kinds() {
        let sample = b"{\"b\":1,\"a\":null}\n\n{\"a\":\"x\",\"c\":[],\"b\":true,\"b\":2}\n[1]\nnot json\n{\"\\u0063\":{}}";
        let seen = keys_of(sample);
        assert_eq!((seen.objects, seen.others), (3, 2));
        let names: Vec<_> = seen.keys.iter().map(|key| key.name.as_slice()).collect();
        assert_eq!(names, [b"b", b"a", b"c"]);
        assert_eq!((seen.keys[0].numbers, seen.keys[0].booleans), (2, 0));
        assert_eq!((seen.keys[1].nulls, seen.keys[1].strings), (1, 1));
        assert_eq!((seen.keys[2].arrays, seen.keys[2].objects, seen.keys[2].records()), (1, 1, 2));
    }
}
