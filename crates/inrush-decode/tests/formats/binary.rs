use crate::decodes;
use crate::runner::decode;
use inrush_decode::binary::{BinaryDecoder, SIGNATURE, read_header};
use proptest::prelude::*;

/// A tuple as COPY writes it.
fn tuple(values: &[Option<&[u8]>]) -> Vec<u8> {
    let mut bytes = i16::try_from(values.len()).expect("few values").to_be_bytes().to_vec();
    for value in values {
        let len = value.map_or(-1, |v| i32::try_from(v.len()).expect("short values"));
        bytes.extend(len.to_be_bytes());
        bytes.extend(value.unwrap_or_default());
    }
    bytes
}

const TRAILER: [u8; 2] = [0xff, 0xff];
const LOST: &str = "nothing behind this point of a binary file can be told apart";

fn pairs() -> Vec<u8> {
    [tuple(&[Some(b"ab"), None]), tuple(&[Some(b""), Some(b"\0x")])].concat()
}

decodes!(tuples, pairs(), [BinaryDecoder::new(Some(2)), BinaryDecoder::new(None)] => ["ab|∅", "|\\u{0}x"]);
decodes!(trailer_belongs_to_the_last_tuple, [&pairs()[..], &TRAILER].concat(), [BinaryDecoder::new(Some(2))] => ["ab|∅", "|\\u{0}x"]);
decodes!(tuples_without_fields, b"\0\0\0\0", [BinaryDecoder::new(Some(0))] => ["", ""]);
decodes!(wrong_number_of_fields, [pairs(), tuple(&[None]), pairs()].concat(), [BinaryDecoder::new(Some(2))] => [
    "ab|∅", "|\\u{0}x", format!("!22P04 row field count is 1, expected 2; {LOST}"),
]);
decodes!(length_beyond_the_end, [&pairs()[..], b"\0\x02\0\0\0\x01a\x7f\xff\xff\xffxyz"].concat(), [BinaryDecoder::new(Some(2))] => [
    "ab|∅", "|\\u{0}x", format!("!22P04 unexpected EOF in COPY data; {LOST}"),
]);
decodes!(negative_length, b"\0\x01\xff\xff\xff\xfe", [BinaryDecoder::new(Some(1))] => [format!("!22P04 invalid field size; {LOST}")]);
decodes!(half_a_count, b"\0", [BinaryDecoder::new(Some(1))] => [format!("!22P04 unexpected EOF in COPY data; {LOST}")]);
decodes!(data_behind_the_trailer, [&TRAILER[..], b"x"].concat(), [BinaryDecoder::new(Some(1))] => [format!("!22P04 received copy data after EOF marker; {LOST}")]);
decodes!(nothing_but_the_trailer, TRAILER, [BinaryDecoder::new(Some(1))] => []);

#[test]
fn the_field_at_fault_is_named() {
    let rows = decode(&mut BinaryDecoder::new(Some(2)), b"\0\x02\xff\xff\xff\xff\0\0\0\x09");
    assert_eq!(rows[0].result.clone().unwrap_err().field, Some(1));
}

#[test]
fn header_is_measured() {
    let mut head = SIGNATURE.to_vec();
    head.extend(0i32.to_be_bytes());
    head.extend(3i32.to_be_bytes());
    head.extend(b"xyz");
    head.extend(pairs());
    assert_eq!(read_header(&head).ok().flatten(), Some(22));
    for short in 0..22 {
        assert!(matches!(read_header(&head[..short]), Ok(None)), "{short}");
    }
}

#[test]
fn headers_the_server_refuses_are_refused() {
    let fact = |flags: i32, extension: i32| {
        let head = [&SIGNATURE[..], &flags.to_be_bytes(), &extension.to_be_bytes()].concat();
        read_header(&head).err().map(|error| error.fact().to_owned())
    };
    // Flags in the lower half are no reason to refuse.
    assert_eq!(fact(0xffff, 0), None);
    assert_eq!(fact(1 << 16, 0).as_deref(), Some("invalid COPY file header (WITH OIDS)"));
    assert_eq!(fact(1 << 17, 0).as_deref(), Some("unrecognized critical flags in COPY file header"));
    assert_eq!(fact(0, -1).as_deref(), Some("invalid COPY file header (missing length)"));
    assert!(read_header(b"PGCOPY\r\n").is_err());
    assert!(read_header(b"id,name\n1,x\n").is_err());
}

proptest! {
    #[test]
    fn any_bytes_end_without_a_panic(input in proptest::collection::vec(prop_oneof![3 => 0u8..4, 1 => any::<u8>()], 0..200)) {
        decode(&mut BinaryDecoder::new(Some(1)), &input);
        decode(&mut BinaryDecoder::new(None), &input);
        let _ = read_header(&input);
    }
}
