//! Line protocol against the plain way to read it.

use crate::choices::Choices;
use crate::runner::{decode, decode_all_ways};
use inrush_core::{Fields, Record};
use inrush_decode::line::plain::{self, PlainLine, Point};
use inrush_decode::line::{Key, LineDecoder, Precision, TimeForm, Unknown, lines, measurement};

const PRECISIONS: [Precision; 6] =
    [Precision::Ns, Precision::Us, Precision::Ms, Precision::S, Precision::M, Precision::H];

/// First byte: unit and form of timestamps, whether what is unknown is refused. What follows is the chunk.
pub fn line_protocol(input: &[u8]) {
    let mut choices = Choices::of(input);
    let bits = choices.byte();
    let bytes = choices.rest();
    let precision = PRECISIONS[usize::from(bits & 7) % 6];
    let form = if bits & 8 == 0 { TimeForm::Timestamp } else { TimeForm::Number };
    let unknown = if bits & 16 == 0 { Unknown::Report } else { Unknown::Reject };

    let split: Vec<_> = lines(bytes).collect();
    assert_eq!(split, plain::lines(bytes));
    assert!(split.is_empty() || split[0].range.start == 0 && split[split.len() - 1].range.end == bytes.len());
    assert!(split.windows(2).all(|pair| pair[0].range.end == pair[1].range.start));

    let rest = bits & 32 != 0;
    let keys = [
        Key::Measurement,
        Key::Tag(b"a".into()),
        Key::Field(b"a".into()),
        Key::Any(b"b c".into()),
        Key::Time,
        Key::TagsJson { rest },
        Key::FieldsJson { rest },
        Key::Field(b"a".into()),
    ];
    let mut fast = LineDecoder::new(&keys, precision, form);
    let found = decode_all_ways(&mut fast, bytes);
    let judged = decode(&mut PlainLine::new(&keys, precision, form), bytes);
    assert_eq!(found.len(), judged.len());
    let (mut fields, mut scratch) = (Fields::new(), Vec::new());
    for ((found, judged), line) in found.iter().zip(&judged).zip(&split) {
        let shown = bytes[line.content.clone()].escape_ascii();
        assert_eq!(found.range, judged.range);
        match (&found.result, &judged.result) {
            (Ok(values), Ok(expected)) => assert_eq!(values, expected, "{shown}"),
            (Err(_), Err(_)) => {}
            (found, judged) => panic!("{shown} is {found:?} and should be {judged:?}"),
        }
        // Alone a line is what it is among others.
        for range in [line.range.clone(), line.content.clone()] {
            let alone = fast.line(bytes, range, &mut fields);
            let record = Record { input: bytes, fields: &fields };
            let alone = alone.map(|()| (0..keys.len()).map(|i| record.get(i).map(<[u8]>::to_vec)).collect());
            assert_eq!(alone, found.result, "{shown}");
        }
        if let Ok(values) = &found.result {
            let name = measurement(&bytes[line.content.clone()], &mut scratch);
            assert_eq!(name.ok(), values[0].as_deref());
        }
    }
    drift(bytes, unknown);
}

/// What no column takes is told, or refused.
fn drift(bytes: &[u8], unknown: Unknown) {
    let mut decoder =
        LineDecoder::new(&[Key::Any(b"a".into())], Precision::Ns, TimeForm::Number).unknown(unknown);
    let found = decode(&mut decoder, bytes);
    let points: Vec<Option<Point>> =
        plain::lines(bytes).iter().map(|line| plain::point(&bytes[line.content.clone()])).collect();
    for (row, point) in found.iter().zip(&points) {
        let others = |point: &Point| {
            point.tags.iter().any(|(key, _)| key != b"a") || point.fields.iter().any(|(key, _)| key != b"a")
        };
        let good = point.as_ref().is_some_and(|point| unknown == Unknown::Report || !others(point));
        assert_eq!(row.result.is_ok(), good);
    }
    let mut names: Vec<(bool, &[u8])> = Vec::new();
    if unknown == Unknown::Report {
        for point in points.iter().flatten() {
            names.extend(point.tags.iter().map(|(key, _)| (true, &key[..])));
            names.extend(point.fields.iter().map(|(key, _)| (false, &key[..])));
        }
        names.retain(|(_, name)| *name != b"a");
        names.sort_unstable();
        names.dedup();
    }
    let mut told: Vec<_> = decoder.drift().iter().map(|drift| (drift.is_tag, &drift.name[..])).collect();
    told.sort_unstable();
    if names.len() <= inrush_decode::line::MAX_DRIFT {
        assert_eq!(told, names);
    }
}
