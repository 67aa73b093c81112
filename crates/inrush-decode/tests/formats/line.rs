use crate::decodes;
use crate::line_check::line_protocol;
use crate::runner::{decode, decode_all_ways};
use inrush_core::{Fields, Record};
use inrush_decode::line::{
    Drift, FieldKind, Key, LineDecoder, Precision, TimeForm, Unknown, lines, measurement, tag as tag_of,
};
use inrush_decode::line::{keys as keys_of_line, plain};
use proptest::prelude::*;

fn tag(name: &str) -> Key {
    Key::Tag(name.into())
}

fn field(name: &str) -> Key {
    Key::Field(name.into())
}

fn of(keys: &[Key]) -> LineDecoder {
    LineDecoder::new(keys, Precision::Ns, TimeForm::Timestamp)
}

fn usual() -> LineDecoder {
    of(&[Key::Measurement, tag("host"), field("v"), Key::Time])
}

fn v() -> LineDecoder {
    of(&[field("v")])
}

decodes!(columns_come_in_the_order_asked_for,
    "cpu,host=a v=1.5 1556813561098000000\nmem v=2i\r\n  disk,x=y,host=b w=t,v=\"s\"  -1  ",
    [usual()] => ["cpu|a|1.5|2019-05-02 16:12:41.098000+00", "mem|∅|2|∅", "disk|b|s|1969-12-31 23:59:59.999999+00"]);
decodes!(values_as_postgresql_reads_them,
    "m v=1\nm v=-1.5e-3\nm v=.5\nm v=1.\nm v=7i\nm v=-7i\nm v=18446744073709551615u\nm v=t\nm v=TRUE\nm v=False\nm v=\"\"",
    [v()] => ["1", "-1.5e-3", ".5", "1.", "7", "-7", "18446744073709551615", "true", "true", "false", ""]);
decodes!(what_is_no_value,
    "m v=\nm v=NaN\nm v=inf\nm v=+1\nm v=1x\nm v=-\nm v=1e\nm v=.\nm v=1.5i\nm v=-1u\nm v=9223372036854775808i\nm v=yes\nm v=truee\nm v='x'\nm v=\"x\"y\nm v=1ii",
    [v()] => [
    "!22P04 invalid line protocol: expected a field value at byte 4, found the end of the line",
    "!22P04 invalid line protocol: expected a field value at byte 4, found \"NaN\"",
    "!22P04 invalid line protocol: expected a field value at byte 4, found \"inf\"",
    "!22P04 invalid line protocol: expected a field value at byte 4, found \"+1\"",
    "!22P04 invalid line protocol: expected a comma, a space or the end of the line at byte 5, found \"x\"",
    "!22P04 invalid line protocol: expected a digit at byte 5, found the end of the line",
    "!22P04 invalid line protocol: expected a digit at byte 6, found the end of the line",
    "!22P04 invalid line protocol: expected a digit at byte 5, found the end of the line",
    "!22P04 invalid line protocol: expected a comma, a space or the end of the line at byte 7, found \"i\"",
    "!22P04 invalid line protocol: an unsigned integer has no sign at byte 4, found \"-1u\"",
    "!22003 invalid line protocol: an integer out of range at byte 4, found \"9223372036854775808i\"",
    "!22P04 invalid line protocol: expected a field value at byte 4, found \"yes\"",
    "!22P04 invalid line protocol: expected a field value at byte 4, found \"truee\"",
    "!22P04 invalid line protocol: expected a field value at byte 4, found \"'x'\"",
    "!22P04 invalid line protocol: expected a comma, a space or the end of the line at byte 7, found \"y\"",
    "!22P04 invalid line protocol: expected a comma, a space or the end of the line at byte 6, found \"i\"",
]);
decodes!(what_is_no_point,
    ",host=a v=1\nm\nm,host=a\nm \nm,host v=1\nm,=a v=1\nm,host= v=1\nm,host=a=b v=1\nm, v=1\nm v\nm =1\nm v=1,\nm v=1 x\nm v=1 1 2\nm v=1 99999999999999999999",
    [usual()] => [
    "!22P04 invalid line protocol: expected a measurement at byte 0, found \",host=a v=1\"",
    "!22P04 invalid line protocol: expected a space and fields at byte 1, found the end of the line",
    "!22P04 invalid line protocol: expected a space and fields at byte 8, found the end of the line",
    "!22P04 invalid line protocol: expected a space and fields at byte 1, found the end of the line",
    "!22P04 invalid line protocol: expected \"=\" behind the key at byte 6, found \" v=1\"",
    "!22P04 invalid line protocol: expected a tag key at byte 2, found \"=a v=1\"",
    "!22P04 invalid line protocol: expected a tag value at byte 7, found \" v=1\"",
    "!22P04 invalid line protocol: expected a space and fields at byte 8, found \"=b v=1\"",
    "!22P04 invalid line protocol: expected a tag key at byte 2, found \" v=1\"",
    "!22P04 invalid line protocol: expected \"=\" behind the key at byte 3, found the end of the line",
    "!22P04 invalid line protocol: expected a field key at byte 2, found \"=1\"",
    "!22P04 invalid line protocol: expected a field key at byte 6, found the end of the line",
    "!22P04 invalid line protocol: expected a timestamp at byte 6, found \"x\"",
    "!22P04 invalid line protocol: expected the end of the line at byte 8, found \"2\"",
    "!22008 invalid line protocol: a timestamp out of range at byte 6, found \"99999999999999999999\"",
]);
decodes!(escapes_of_names, r#"a\,b\ c\=d\e,ho\st\ =x\=y\,z\ \q v=1
a\\,b,ho\\st=1 v=2"#, [of(&[Key::Measurement, tag("ho\\st "), tag("ho\\\\st"), field("v")])] => [
    r"a,b c\=d\e|x=y,z \q|∅|1", r"a\,b|∅|1|2"]);
decodes!(what_came_at_a_place_may_not_come_again, r#"m,a\ b=1 v=1
m,a b=2 v=2
m,a\ b=3 v\=3
m,ab=4 v=4,v2=5
m,a\ b=5 v=5"#, [of(&[tag("a b"), field("v")])] => [
    "1|1",
    r#"!22P04 invalid line protocol: expected "=" behind the key at byte 3, found " b=2 v=2""#,
    r#"!22P04 invalid line protocol: expected "=" behind the key at byte 13, found the end of the line"#,
    "∅|4", "5|5"]);
decodes!(strings_know_two_escapes, r#"m v="say \"hi\", C:\\dir\n \x = 1",w=2
m v="\\"
m v="a\\\"b""#, [v()] => [r#"say "hi", C:\dir\n \x = 1"#, r"\", r#"a\"b"#]);
decodes!(a_string_may_have_newlines, "m v=\"a\n# b\n\",w=1 5\nm,host=\"x v=3\n", [v()] => ["a\\n# b\\n", "3"]);
decodes!(a_quote_is_no_string_elsewhere, "m\"x,host=\"a v=1\nm \"v\"=2,v=3\nm a\\=\"=1,v=4", [usual()] => [
    "m\"x|\"a|1|∅", "m|∅|3|∅", "m|∅|4|∅"]);
decodes!(a_string_without_end_takes_its_line_only, "m v=1\nm v=\"a\nm v=2\n", [v()] => [
    "1", "!22P04 invalid line protocol: expected a string with a closing quote at byte 4, found \"\"a\"", "2"]);
decodes!(last_of_a_field_wins, "m v=1,v=2\nm v=\"a\\\"\",v=3i", [v()] => ["2", "3"]);
decodes!(no_tag_key_twice, "m,b=1,a=2,b=1 v=1\nm,b=1,a=2 v=2\nm,a=1,a=2 v=1", [v()] => [
    "!22P04 invalid line protocol: expected each tag key once at byte 10, found \"b=1 v=1\"",
    "2",
    "!22P04 invalid line protocol: expected each tag key once at byte 6, found \"a=2 v=1\"",
]);
decodes!(a_field_goes_before_a_tag_of_its_name, "m,a=1 a=2\nm,a=1 b=2\nm a=3,b=1", [of(&[Key::Any("a".into()), tag("a"), field("a")])] => [
    "2|1|2", "1|1|∅", "3|∅|3"]);
decodes!(invalid_bytes_refuse_their_line_only, b"m v=\"\xc3(\"\nm v=\"\xc3\xa4\"\nm v=\"\0\"\n", [v()] => [
    "!22021 invalid byte sequence for encoding \"UTF8\": 0xc3 0x28",
    "ä",
    "!22021 invalid byte sequence for encoding \"UTF8\": 0x00",
]);
decodes!(everything_else_as_json, "m,a=x\\ y,b=\"q v=1i,w=007,x=.5,y=-1.e5,z=t,s=\"a\\\"\\\\\n\u{1}\"",
    [of(&[tag("a"), Key::TagsJson { rest: true }, Key::TagsJson { rest: false }, Key::FieldsJson { rest: true }, field("v"), Key::FieldsJson { rest: false }])] => [
    r#"x y|{"b":"\"q"}|{"a":"x y","b":"\"q"}|{"w":7,"x":0.5,"y":-1e5,"z":true,"s":"a\"\\\n\u0001"}|1|{"v":1,"w":7,"x":0.5,"y":-1e5,"z":true,"s":"a\"\\\n\u0001"}"#]);
decodes!(no_tags_are_an_empty_object, "m v=1", [of(&[Key::TagsJson { rest: false }, Key::FieldsJson { rest: true }, field("v")])] => ["{}|{}|1"]);
decodes!(unknown_ones_are_refused_on_request, "m,a=1 v=1\nm v=1,b\\ c=2\nm v=3", [v().unknown(Unknown::Reject)] => [
    "!22P04 no column for the tag \"a\"", "!22P04 no column for the field \"b\\ c\"", "3"]);

#[test]
fn comments_and_blank_lines_belong_to_a_neighbour() {
    let input = b"\n# a v=\"\n\nm v=1\n\t# b\n \nm v=2\n#";
    let rows = decode_all_ways(&mut v(), input);
    assert_eq!(rows.iter().map(|row| row.range.clone()).collect::<Vec<_>>(), [0..23, 23..30]);
    let found: Vec<_> = lines(input).map(|line| (line.content, line.number)).collect();
    assert_eq!(found, [(10..15, 4), (23..28, 7)]);
    assert!(decode_all_ways(&mut v(), b"# only\n\n").is_empty());
}

#[test]
fn lines_are_numbered_through_strings() {
    let found: Vec<_> = lines(b"m v=\"\n\n\"\n\nm v=2").map(|line| line.number).collect();
    assert_eq!(found, [1, 5]);
}

#[test]
fn a_line_without_timestamp_has_the_time_of_its_receipt() {
    let shown = |precision, form, received| {
        let mut decoder = LineDecoder::new(&[Key::Time], precision, form);
        decoder.received(received);
        decode(&mut decoder, b"m v=1")[0].to_string()
    };
    assert_eq!(shown(Precision::S, TimeForm::Timestamp, 1_500_000), "1970-01-01 00:00:01.500000+00");
    assert_eq!(shown(Precision::S, TimeForm::Number, 1_500_000), "1");
    assert_eq!(shown(Precision::Ns, TimeForm::Number, -1), "-1000");
    assert!(shown(Precision::Ns, TimeForm::Number, i64::MAX).starts_with("!22008"));
}

#[test]
fn timestamps_of_every_precision() {
    for (text, number, expected) in [
        ("n", "-1", "1969-12-31 23:59:59.999999+00"),
        ("us", "1", "1970-01-01 00:00:00.000001+00"),
        ("ms", "1", "1970-01-01 00:00:00.001000+00"),
        ("second", "86400", "1970-01-02 00:00:00+00"),
        ("m", "-1", "1969-12-31 23:59:00+00"),
        ("h", "24", "1970-01-02 00:00:00+00"),
    ] {
        let precision = Precision::parse(text).expect(text);
        let mut decoder = LineDecoder::new(&[Key::Time], precision, TimeForm::Timestamp);
        assert_eq!(decode(&mut decoder, format!("m v=1 {number}").as_bytes())[0].to_string(), expected);
    }
    let mut hours = LineDecoder::new(&[Key::Time], Precision::H, TimeForm::Timestamp);
    assert!(decode(&mut hours, b"m v=1 9223372036854775807")[0].to_string().starts_with("!22008"));
    assert_eq!(Precision::parse("d"), None);
}

#[test]
fn drift_is_told_once_and_of_good_lines_only() {
    let mut decoder = v().unknown(Unknown::Report);
    decode(&mut decoder, b"m,t=1 v=1,x=1i\nm,bad=1 x=1\x00\nm,u= v=1\nm x=1.5,y=1i,z=1u\nm z=2i,y=t,t=\"\"");
    let drift = |name: &str, is_tag, kind| Drift { name: name.into(), is_tag, kind };
    assert_eq!(
        decoder.drift(),
        [
            drift("t", true, FieldKind::String),
            drift("x", false, FieldKind::Float),
            drift("y", false, FieldKind::String),
            drift("z", false, FieldKind::Float),
            drift("t", false, FieldKind::String),
        ]
    );
    decoder.clear_drift();
    assert!(decoder.drift().is_empty());
}

#[test]
fn drift_and_time_are_bounded() {
    use std::fmt::Write;
    let mut decoder = v().unknown(Unknown::Report);
    let mut line = String::from("m");
    for i in 0..60_000 {
        // Not in order, so that the keys have to be sorted.
        write!(line, ",t{}=x", i ^ 0x2a).expect("a string");
    }
    line.push_str(" v=1");
    let begun = std::time::Instant::now();
    assert_eq!(decode(&mut decoder, line.as_bytes())[0].to_string(), "1");
    assert_eq!(decoder.drift().len(), inrush_decode::line::MAX_DRIFT);
    let quotes = "m v=1".to_owned() + &",\\=\"=1".repeat(60_000);
    assert_eq!(decode(&mut decoder, quotes.as_bytes())[0].to_string(), "1");
    assert!(begun.elapsed().as_secs() < 10, "{:?}", begun.elapsed());
}

#[test]
fn the_measurement_alone() {
    let mut scratch = Vec::new();
    assert_eq!(measurement(b"cpu,host=", &mut scratch), Ok(&b"cpu"[..]));
    assert_eq!(measurement(br"c\ p\,u\x v=1", &mut scratch), Ok(&br"c p,u\x"[..]));
    assert!(measurement(b" v=1", &mut scratch).is_err());
    assert!(measurement(b"\xff v=1", &mut scratch).is_err());
}

#[test]
fn a_tag_alone() {
    let mut scratch = Vec::new();
    let line = br"cpu,host=a,si\ te=b\,c v=1";
    assert_eq!(tag_of(line, b"host", &mut scratch), Ok(Some(&b"a"[..])));
    assert_eq!(tag_of(line, b"si te", &mut scratch), Ok(Some(&b"b,c"[..])));
    assert_eq!(tag_of(line, b"v", &mut scratch), Ok(None));
    assert_eq!(tag_of(b"cpu v=\",host=a\"", b"host", &mut scratch), Ok(None));
    assert!(tag_of(b"cpu,host v=1", b"host", &mut scratch).is_err());
    assert!(tag_of(b"cpu,host=\xff v=1", b"host", &mut scratch).is_err());
}

#[test]
fn the_keys_of_a_line() {
    let keys = |line: &[u8]| {
        keys_of_line(line)
            .into_iter()
            .map(|key| String::from_utf8(key).unwrap())
            .collect::<Vec<_>>()
            .join("|")
    };
    assert_eq!(keys(br#"cpu,host=a,si\ te=b v="x,w=1",u=2i 17"#), "host|si te|v|u");
    assert_eq!(keys(b"cpu v=1"), "v");
    assert_eq!(keys(b"cpu,host"), "");
    assert_eq!(keys(b""), "");
}

/// A point, written by the rules of the protocol and read back.
fn written(point: &plain::Point) -> Vec<u8> {
    fn escaped(text: &[u8], specials: &[u8]) -> Vec<u8> {
        text.iter().flat_map(|&b| if specials.contains(&b) { vec![b'\\', b] } else { vec![b] }).collect()
    }
    let mut line = escaped(&point.measurement, b", ");
    for (key, value) in &point.tags {
        line.extend([b",", &escaped(key, b",= ")[..], b"=", &escaped(value, b",= ")].concat());
    }
    for (i, (key, value)) in point.fields.iter().enumerate() {
        line.extend([if i == 0 { b" " } else { b"," }, &escaped(key, b",= ")[..], b"="].concat());
        match value {
            plain::Value::Float(text) => line.extend(text.as_bytes()),
            plain::Value::Int(text) => line.extend(format!("{text}i").into_bytes()),
            plain::Value::Unsigned(text) => line.extend(format!("{text}u").into_bytes()),
            plain::Value::Bool(truth) => line.extend(truth.to_string().into_bytes()),
            plain::Value::String(text) => line.extend([b"\"", &escaped(text, b"\"\\")[..], b"\""].concat()),
        }
    }
    if let Some(time) = point.time {
        line.extend(format!(" {time}").into_bytes());
    }
    line
}

/// Names that can be written: a backslash before what is escaped, or at the end, cannot.
fn name() -> impl Strategy<Value = Vec<u8>> {
    "[abä\\\\\"#, =]{0,5}[abz]".prop_filter_map("cannot be written", |name| {
        let lost = ["\\,", "\\ ", "\\="].iter().any(|pair| name.contains(pair));
        (!lost && !name.starts_with(['#', ' '])).then(|| name.into_bytes())
    })
}

fn any_point() -> impl Strategy<Value = plain::Point> {
    let value = prop_oneof![
        "-?[0-9]{1,3}(\\.[0-9]{0,3})?(e[+-]?[0-9]{1,2})?".prop_map(plain::Value::Float),
        any::<i64>().prop_map(|n| plain::Value::Int(n.to_string())),
        any::<u64>().prop_map(|n| plain::Value::Unsigned(n.to_string())),
        any::<bool>().prop_map(plain::Value::Bool),
        "[a\"\\\\\n, =#ä]{0,8}".prop_map(|text| plain::Value::String(text.into_bytes())),
    ];
    let tags = prop::collection::btree_map(name(), name(), 0..4);
    let fields = prop::collection::btree_map(name(), value, 1..5);
    (name(), tags, fields, prop::option::of(any::<i64>())).prop_map(|(measurement, tags, fields, time)| {
        plain::Point {
            measurement,
            tags: tags.into_iter().collect(),
            fields: fields.into_iter().collect(),
            time,
        }
    })
}

proptest! {
    #[test]
    fn points_come_back(points in prop::collection::vec(any_point(), 1..4)) {
        let chunk = points.iter().map(written).collect::<Vec<_>>().join(&b'\n');
        let found: Vec<_> = lines(&chunk).collect();
        prop_assert_eq!(found.len(), points.len());
        for (line, point) in found.iter().zip(&points) {
            let read = plain::point(&chunk[line.content.clone()]);
            prop_assert_eq!(read.as_ref(), Some(point));
            let mut keys = vec![Key::Measurement, Key::Time];
            keys.extend(point.tags.iter().map(|(key, _)| Key::Tag(key.clone())));
            keys.extend(point.fields.iter().map(|(key, _)| Key::Field(key.clone())));
            let mut decoder = LineDecoder::new(&keys, Precision::Ns, TimeForm::Number).unknown(Unknown::Reject);
            let mut fields = Fields::new();
            prop_assert_eq!(decoder.line(&chunk, line.content.clone(), &mut fields), Ok(()));
            let record = Record { input: &chunk, fields: &fields };
            prop_assert_eq!(record.get(0), Some(&point.measurement[..]));
            let time = point.time.map(|time| time.to_string().into_bytes());
            prop_assert_eq!(record.get(1), time.as_deref());
            for (i, (_, value)) in point.tags.iter().enumerate() {
                prop_assert_eq!(record.get(2 + i), Some(&value[..]));
                let mut scratch = Vec::new();
                let alone = tag_of(&chunk[line.content.clone()], &point.tags[i].0, &mut scratch);
                prop_assert_eq!(alone, Ok(Some(&value[..])));
            }
        }
    }

    #[test]
    fn any_bytes_as_the_plain_way(bits in any::<u8>(), bytes in "[ab=, \"\\\\\n#\r\t1itu.e\\-]{0,60}") {
        line_protocol(&[&[bits], bytes.as_bytes()].concat());
    }

    #[test]
    fn broken_points_as_the_plain_way(
        points in prop::collection::vec(any_point(), 1..4),
        bits in any::<u8>(), at in any::<prop::sample::Index>(), byte in "[ \"\\\\\n=,i\u{1}]",
    ) {
        let mut chunk = points.iter().map(written).collect::<Vec<_>>().join(&b'\n');
        let at = at.index(chunk.len());
        chunk[at] = byte.as_bytes()[0];
        line_protocol(&[&[bits], &chunk[..]].concat());
    }
}
