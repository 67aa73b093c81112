//! Values, their hashes and their shards, as a Citus cluster gave them once.

/// The fields of each value: base type, type of the column, value, hash, and of 32 shards the number of the one it
/// belongs to, with the least and the greatest hash of that. Commas and quotes are in quoted fields only.
pub fn records() -> Vec<Vec<String>> {
    let mut records = Vec::new();
    for line in include_str!("citus_vectors.csv").lines().skip(1) {
        let (mut fields, mut quoted) = (vec![String::new()], false);
        for c in line.chars() {
            match c {
                '"' => quoted = !quoted,
                ',' if !quoted => fields.push(String::new()),
                c => fields.last_mut().expect("a field").push(c),
            }
        }
        records.push(fields);
    }
    records
}
