//! Values to try: the forms of the documentation, extremes, odd spellings, and random changes of them.

use crate::seeds::{ARRAYS, seeds};

/// xorshift64*: repeatable from a seed.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        random.next();
        random
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub fn below(&mut self, n: usize) -> usize {
        (self.next() >> 16) as usize % n.max(1)
    }

    fn pick<'a, T: ?Sized>(&mut self, from: &[&'a T]) -> &'a T {
        from[self.below(from.len())]
    }
}

/// The column types tried, as SQL.
pub const COLUMNS: &[&str] = &[
    "boolean",
    "smallint",
    "integer",
    "bigint",
    "oid",
    "real",
    "double precision",
    "numeric",
    "numeric(10,2)",
    "numeric(3,5)",
    "numeric(4,-2)",
    "text",
    "varchar",
    "varchar(5)",
    "char(5)",
    "bpchar",
    "name",
    "bytea",
    "date",
    "time",
    "time(2)",
    "timetz",
    "timetz(0)",
    "timestamp",
    "timestamp(3)",
    "timestamptz",
    "timestamptz(0)",
    "interval",
    "interval(2)",
    "interval day to second",
    "interval year to month",
    "interval minute to second(1)",
    "uuid",
    "json",
    "jsonb",
    "inet",
    "cidr",
    "macaddr",
    "macaddr8",
    "mood",
    "positive",
    "code",
    "price",
    "long_price",
    "tags",
    "boolean[]",
    "integer[]",
    "bigint[]",
    "double precision[]",
    "numeric(6,2)[]",
    "text[]",
    "varchar(3)[]",
    "name[]",
    "bytea[]",
    "date[]",
    "timestamp[]",
    "timestamptz(1)[]",
    "interval[]",
    "uuid[]",
    "jsonb[]",
    "inet[]",
    "macaddr8[]",
    "mood[]",
    "positive[]",
    "code[]",
    "tags[]",
];

/// The listed values of a column type and random ones.
pub fn values_for(column: &str, random: &mut Random) -> Vec<Vec<u8>> {
    let count = std::env::var("INRUSH_VALUES").ok().and_then(|text| text.parse().ok()).unwrap_or(80);
    let array = column.strip_suffix("[]").or((column == "tags").then_some("text"));
    let family = array.unwrap_or(column);
    let family = family.split('(').next().unwrap_or(family);
    let seeds = seeds(family);
    let mut values: Vec<Vec<u8>> = seeds.iter().map(|seed| seed.as_bytes().to_vec()).collect();
    if array.is_some() {
        values = ARRAYS.iter().map(|seed| seed.as_bytes().to_vec()).collect();
        values.extend(seeds.iter().map(|seed| format!("{{{seed}}}").into_bytes()));
        values.extend(seeds.iter().map(|seed| [b"{", quoted(seed.as_bytes()).as_slice(), b"}"].concat()));
        for _ in 0..count / 2 {
            let value = random_array(seeds, random);
            values.push(value);
        }
    }
    let listed = values.len();
    for _ in 0..count / 2 {
        if let Some(value) = generated(family, random).filter(|_| array.is_none()) {
            values.push(value);
        }
        let mut value = values[random.below(listed)].clone();
        for _ in 0..=random.below(3) {
            mutate(&mut value, random);
        }
        values.push(value);
    }
    values
}

fn mutate(value: &mut Vec<u8>, random: &mut Random) {
    const BYTES: &[u8] = b"00112359+-.:,;/ eETZxXnN_'\"\\{}()[]\t\n\x0b\x0c\rabAfF\x7f\x00\xc3\xa4\xa0\xff";
    let at = random.below(value.len() + 1);
    let byte = BYTES[random.below(BYTES.len())];
    match random.below(8) {
        0 | 1 => value.insert(at, byte),
        2 | 3 if at < value.len() => value[at] = byte,
        4 if at < value.len() => drop(value.remove(at)),
        5 if at < value.len() => value[at] ^= 0x20,
        6 => {
            let end = at + random.below(value.len() - at + 1).min(9);
            let piece = value[at..end].to_vec();
            value.splice(at..at, piece);
        }
        7 => value.splice(at..at, "ä".bytes().take(1 + random.below(2))).for_each(drop),
        _ => value.push(byte),
    }
}

fn quoted(element: &[u8]) -> Vec<u8> {
    let mut out = vec![b'"'];
    for byte in element {
        if matches!(byte, b'"' | b'\\') {
            out.push(b'\\');
        }
        out.push(*byte);
    }
    out.push(b'"');
    out
}

/// A rectangular array of listed elements, quoted or not, sometimes with spaces.
fn random_array(seeds: &[&str], random: &mut Random) -> Vec<u8> {
    let dimensions = 1 + random.below(3);
    let lengths: Vec<usize> = (0..dimensions).map(|_| 1 + random.below(3)).collect();
    let plain = random.below(2) == 0;
    fn level(lengths: &[usize], seeds: &[&str], plain: bool, random: &mut Random) -> Vec<u8> {
        let space = |random: &mut Random| [&b""[..], b"", b"", b" ", b"\t "][random.below(5)];
        let mut out = vec![b'{'];
        for i in 0..lengths[0] {
            if i > 0 {
                out.push(b',');
            }
            out.extend_from_slice(space(random));
            if lengths.len() > 1 {
                out.extend(level(&lengths[1..], seeds, plain, random));
            } else if random.below(8) == 0 {
                out.extend_from_slice(random.pick(&["NULL", "null", "Null"]).as_bytes());
            } else {
                // Mostly an early element: those are the plain ones, and the array is accepted.
                let few = if random.below(4) == 0 { seeds.len() } else { seeds.len().min(6) };
                let element = random.pick(&seeds[..few]).as_bytes();
                out.extend(if plain { element.to_vec() } else { quoted(element) });
            }
            out.extend_from_slice(space(random));
        }
        out.push(b'}');
        out
    }
    level(&lengths, seeds, plain, random)
}

/// A random value of ordinary form, for families where the range matters.
fn generated(family: &str, random: &mut Random) -> Option<Vec<u8>> {
    let bits = random.next() >> random.below(64);
    let digits = |random: &mut Random, most: usize| -> String {
        (0..random.below(most + 1)).map(|_| char::from(b"0000123456789999"[random.below(16)])).collect()
    };
    let fraction = |random: &mut Random| match random.below(3) {
        0 => String::new(),
        1 => format!(".{}", digits(random, 7)),
        _ => format!(".{:09}", random.below(1_000_000_000)),
    };
    let day = |random: &mut Random| {
        format!("{:04}-{:02}-{:02}", random.below(10_000), random.below(14), random.below(33))
    };
    let clock = |random: &mut Random| {
        let seconds = format!(":{:02}{}", random.below(62), fraction(random));
        format!(
            "{:02}:{:02}{}",
            random.below(25),
            random.below(61),
            if random.below(6) == 0 { "" } else { &seconds }
        )
    };
    let zone = |random: &mut Random| {
        let sign = random.pick(&["+", "-", " +", " -"]);
        let (h, m, s) = (random.below(17), random.below(62), random.below(62));
        match random.below(7) {
            0 => String::new(),
            1 => "Z".into(),
            2 => format!("{sign}{h:02}"),
            3 => format!("{sign}{h:02}{m:02}"),
            4 => format!("{sign}{h:02}:{m:02}"),
            5 => format!("{sign}{h:02}:{m:02}:{s:02}"),
            _ => format!("{sign}{h}"),
        }
    };
    Some(
        match family {
            "smallint" | "integer" | "bigint" | "oid" | "positive" => {
                let sign = random.pick(&["", "", "-", "+"]);
                format!("{sign}{}{bits}", "0".repeat(random.below(3)))
            }
            "real" | "double precision" => match random.below(4) {
                0 => format!("{:e}", f64::from_bits(random.next())),
                1 => format!("{}", f32::from_bits(bits as u32)),
                2 => {
                    format!("{}.{}e{}", digits(random, 20), digits(random, 30), random.below(90) as i64 - 45)
                }
                _ => format!(
                    "{}.{}e{}",
                    digits(random, 20),
                    digits(random, 30),
                    random.below(660) as i64 - 330
                ),
            },
            "numeric" | "price" | "long_price" => {
                let sign = random.pick(&["", "-", "+"]);
                let exponent = match random.below(5) {
                    0 => format!("e{}", random.below(60) as i64 - 30),
                    _ => String::new(),
                };
                let point = random.pick(&[".", ".", ""]);
                let longest = [4, 12, 50][random.below(3)];
                format!("{sign}{}{point}{}{exponent}", digits(random, longest), digits(random, longest))
            }
            "date" => day(random),
            "time" | "timetz" => clock(random) + &zone(random),
            "timestamp" | "timestamptz" => {
                day(random) + random.pick(&[" ", "T", " ", "t", "  "]) + &clock(random) + &zone(random)
            }
            family if family.starts_with("interval") => {
                let mut text = String::new();
                for unit in ["year", "years", "mon", "mons", "months", "day", "days", "hour", "mins", "secs"]
                {
                    if random.below(4) == 0 {
                        let sign = random.pick(&["", "-", "+"]);
                        text += &format!("{sign}{} {unit} ", digits(random, 7));
                    }
                }
                if random.below(2) == 0 {
                    text += random.pick(&["", "-", "+"]);
                    text += &format!(
                        "{}:{:02}:{:02}{}",
                        digits(random, 6),
                        random.below(61),
                        random.below(61),
                        fraction(random)
                    );
                }
                text.trim_end().to_owned()
            }
            "inet" | "cidr" => {
                let mut group = || if random.below(2) == 0 { 0 } else { random.next() as u16 };
                let v6: Vec<u16> = (0..8).map(|_| group()).collect();
                let v4 = format!("{}.{}.{}.{}", v6[0] & 255, v6[1] & 255, v6[2] & 255, v6[3] & 255);
                let v6 = std::net::Ipv6Addr::new(v6[0], v6[1], v6[2], v6[3], v6[4], v6[5], v6[6], v6[7]);
                let address = if bits & 1 == 0 { v4 } else { v6.to_string() };
                if random.below(2) == 0 { address } else { format!("{address}/{}", random.below(131)) }
            }
            _ => return None,
        }
        .into_bytes(),
    )
}
