//! inet and cidr (network.c, inet_net_pton.c), macaddr (mac.c) and macaddr8 (mac8.c).
//!
//! Encoded: four full numbers without leading zeros, or hexadecimal IPv6 groups, with an optional prefix
//! length; hardware addresses with two digits per byte and one kind of separator.

use super::bytea::hex_pair;
use std::net::Ipv6Addr;

/// PGSQL_AF_INET and PGSQL_AF_INET6 (utils/inet.h): AF_INET, which is 2 everywhere, and one more.
const V4: u8 = 2;
const V6: u8 = 3;

pub(super) fn inet(value: &[u8], out: &mut Vec<u8>) -> bool {
    append(parse(value), false, out)
}

/// As inet, but bits to the right of the prefix must be zero: others the server refuses.
pub(super) fn cidr(value: &[u8], out: &mut Vec<u8>) -> bool {
    append(parse(value).filter(Network::host_bits_are_zero), true, out)
}

/// Family, bits, whether cidr, number of address bytes, address (network_recv).
fn append(network: Option<Network>, cidr: bool, out: &mut Vec<u8>) -> bool {
    let Some(Network { address, bits }) = network else { return false };
    match address {
        Address::V4(address) => {
            out.extend_from_slice(&[V4, bits, u8::from(cidr), 4]);
            out.extend_from_slice(&address);
        }
        Address::V6(address) => {
            out.extend_from_slice(&[V6, bits, u8::from(cidr), 16]);
            out.extend_from_slice(&address);
        }
    }
    true
}

enum Address {
    V4([u8; 4]),
    V6([u8; 16]),
}

struct Network {
    address: Address,
    bits: u8,
}

impl Network {
    fn host_bits_are_zero(&self) -> bool {
        // Both as 128 bits from the left.
        let address = match self.address {
            Address::V4(address) => u128::from(u32::from_be_bytes(address)) << 96,
            Address::V6(address) => u128::from_be_bytes(address),
        };
        address.checked_shl(u32::from(self.bits)).unwrap_or(0) == 0
    }
}

fn parse(value: &[u8]) -> Option<Network> {
    let (address, prefix) = match value.iter().position(|byte| *byte == b'/') {
        Some(at) => (&value[..at], Some(small_number(&value[at + 1..], 128)?)),
        None => (value, None),
    };
    let (address, width) = if address.contains(&b':') {
        (Address::V6(v6(address)?), 128)
    } else {
        (Address::V4(v4(address)?), 32)
    };
    let bits = prefix.unwrap_or(width);
    (bits <= width).then_some(Network { address, bits })
}

/// One to three digits without a zero in front.
fn small_number(value: &[u8], max: u16) -> Option<u8> {
    if value.is_empty() || value.len() > 3 || (value.len() > 1 && value[0] == b'0') {
        return None;
    }
    let number = super::digits::number(value)?;
    if number > u64::from(max) { None } else { u8::try_from(number).ok() }
}

fn v4(value: &[u8]) -> Option<[u8; 4]> {
    let (mut address, mut part) = ([0; 4], 0);
    let (mut number, mut digits) = (0u16, 0);
    for byte in value {
        match byte {
            b'0'..=b'9' if digits < 3 && (digits == 0 || number > 0) => {
                number = number * 10 + u16::from(byte - b'0');
                digits += 1;
            }
            b'.' if digits > 0 && part < 3 => {
                address[part] = u8::try_from(number).ok()?;
                (part, number, digits) = (part + 1, 0, 0);
            }
            _ => return None,
        }
    }
    address[part] = u8::try_from(number).ok()?;
    (part == 3 && digits > 0).then_some(address)
}

/// Groups of one to four hex digits and `::`; the mixed form with an IPv4 tail is left to the server.
fn v6(value: &[u8]) -> Option<[u8; 16]> {
    if !value.iter().all(|byte| byte.is_ascii_hexdigit() || *byte == b':') {
        return None;
    }
    let address: Ipv6Addr = std::str::from_utf8(value).ok()?.parse().ok()?;
    Some(address.octets())
}

/// `xx:xx:xx:xx:xx:xx`, the same with hyphens, `xxxxxx:xxxxxx`, `xxxxxx-xxxxxx`, `xxxx.xxxx.xxxx`,
/// `xxxx-xxxx-xxxx`, `xxxxxxxxxxxx`.
pub(super) fn macaddr(value: &[u8]) -> Option<[u8; 6]> {
    let group = match (value.len(), value.get(2), value.get(4), value.get(6)) {
        (17, Some(b':' | b'-'), ..) => 1,
        (14, _, Some(b'.' | b'-'), _) => 2,
        (13, _, _, Some(b':' | b'-')) => 3,
        (12, ..) => 6,
        _ => return None,
    };
    grouped(value, group)
}

/// Six bytes, which the server widens by ff:fe in the middle, or eight; `xx` pairs separated by all colons,
/// all hyphens or nothing.
pub(super) fn macaddr8(value: &[u8]) -> Option<[u8; 8]> {
    match value.len() {
        23 => grouped(value, 1),
        16 => grouped(value, 8),
        17 | 12 => {
            let [a, b, c, d, e, f]: [u8; 6] = grouped(value, if value.len() == 17 { 1 } else { 6 })?;
            Some([a, b, c, 0xff, 0xfe, d, e, f])
        }
        _ => None,
    }
}

/// Hex pairs in groups of `group` bytes with the same separator between all groups. The length fits.
fn grouped<const N: usize>(value: &[u8], group: usize) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    let separator = *value.get(2 * group).unwrap_or(&b':');
    if !matches!(separator, b':' | b'-' | b'.') {
        return None;
    }
    let mut at = 0;
    for (i, byte) in bytes.iter_mut().enumerate() {
        if i > 0 && i % group == 0 {
            if value.get(at) != Some(&separator) {
                return None;
            }
            at += 1;
        }
        *byte = hex_pair(*value.get(at)?, *value.get(at + 1)?)?;
        at += 2;
    }
    (at == value.len()).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn encode(value: &str, with: fn(&[u8], &mut Vec<u8>) -> bool) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        with(value.as_bytes(), &mut out).then_some(out)
    }

    #[test]
    fn networks() {
        assert_eq!(encode("192.168.0.1", inet), Some(vec![2, 32, 0, 4, 192, 168, 0, 1]));
        assert_eq!(encode("192.168.0.1/24", inet), Some(vec![2, 24, 0, 4, 192, 168, 0, 1]));
        assert_eq!(encode("10.0.0.0/8", cidr), Some(vec![2, 8, 1, 4, 10, 0, 0, 0]));
        assert_eq!(encode("0.0.0.0/0", cidr), Some(vec![2, 0, 1, 4, 0, 0, 0, 0]));
        assert_eq!(
            encode("2001:db8::/32", cidr),
            Some(vec![3, 32, 1, 16, 0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0])
        );
        assert_eq!(encode("::/0", cidr).map(|bytes| bytes[1]), Some(0));
        assert_eq!(encode("::1/127", cidr), None);
        assert_eq!(encode("10.1.0.0/8", cidr), None);
        for odd in [
            "10.0.0",
            "010.0.0.1",
            "256.0.0.1",
            "1.1.1.1/33",
            "1.1.1.1/",
            "::1/129",
            "::ffff:1.2.3.4",
            "",
            "1.1.1.1.1",
            ":::",
        ] {
            assert_eq!(encode(odd, inet), None, "{odd}");
        }
    }

    proptest! {
        // The standard library takes exactly the same IPv4 forms.
        #[test]
        fn v4_as_the_standard_library(value in "[0-9]{0,4}(\\.[0-9]{0,4}){0,4}|([0-9]{1,3}\\.){3}[0-2]?[0-9]{1,2}") {
            let expected = value.parse::<std::net::Ipv4Addr>().ok().map(|address| address.octets());
            prop_assert_eq!(v4(value.as_bytes()), expected);
        }
    }

    #[test]
    fn hardware_addresses() {
        let six = Some([0x08, 0x00, 0x2b, 0x01, 0x02, 0x0a]);
        for form in [
            "08:00:2b:01:02:0a",
            "08-00-2B-01-02-0A",
            "08002b:01020a",
            "08002b-01020a",
            "0800.2b01.020a",
            "0800-2b01-020a",
            "08002b01020a",
        ] {
            assert_eq!(macaddr(form.as_bytes()), six, "{form}");
        }
        for odd in
            ["08:00:2b:01:02-0a", "8:0:2b:1:2:a", "08.00.2b.01.02.0a", "0800:2b01:020a", "08002b01020g", ""]
        {
            assert_eq!(macaddr(odd.as_bytes()), None, "{odd}");
        }
        let eight = Some([0x08, 0x00, 0x2b, 0x01, 0x02, 0x03, 0x04, 0x05]);
        for form in ["08:00:2b:01:02:03:04:05", "08-00-2b-01-02-03-04-05", "08002b0102030405"] {
            assert_eq!(macaddr8(form.as_bytes()), eight, "{form}");
        }
        assert_eq!(macaddr8(b"08:00:2b:01:02:0a"), Some([8, 0, 0x2b, 0xff, 0xfe, 1, 2, 0xa]));
        assert_eq!(macaddr8(b"08:00-2b:01:02:0a"), None);
    }
}
