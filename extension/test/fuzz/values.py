"""Stored values of the native types: at their borders, a step beyond, and in forms that no input function makes."""

import math
import struct

BOOL, BYTEA, CHAR, NAME, INT8, INT2, INT4, TEXT, OID = 16, 17, 18, 19, 20, 21, 23, 25, 26
POINT, FLOAT4, FLOAT8, MACADDR8, MONEY, MACADDR = 600, 700, 701, 774, 790, 829
BPCHAR, VARCHAR, DATE, TIME, TIMESTAMP, TIMESTAMPTZ, INTERVAL, TIMETZ = 1042, 1043, 1082, 1083, 1114, 1184, 1186, 1266
NUMERIC, UUID, PG_LSN = 1700, 2950, 3220

DAY = 86400 * 10**6
# date.h and timestamp.h: days and microseconds from 2000 to 4714-11-24 BC, and to the end.
FIRST_DATE, END_DATE = -2451545, 2147483494 - 2451545
FIRST_TIME, END_TIME = -211813488000000000, 9223371331200000000
ZONE_LIMIT = 16 * 3600
# Where a value meets another rule: of a header, of a page, of what is compressed or moved out of line.
LENGTHS = (0, 1, 2, 3, 7, 8, 9, 63, 64, 65, 125, 126, 127, 128, 1000, 1990, 2000, 2004, 2008, 2012, 2020, 2030, 2100,
           8100, 8192)
CHARACTERS = ("a", "b", " ", "\\", "\t", "\n", "é", "ß", "本", "🙂", "\u0301", "~", "\x7f", "\x01")
BYTES = (b"\0", b"\x80", b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xc3", b"\xe6\x9c", b"\xfe", b"\x8f\xa1",
         b"\x8e", b"\xa4\xa2", b"\xf0\x80\x80\x80")


def number(random, bits):
    """An integer of so many bits, as bytes."""
    edge = random.choice((0, 1, -1, 2, 1 << bits - 1, (1 << bits - 1) - 1, -(1 << bits - 1), 255, 256, 10000,
                          9999, 32767, 65535))
    value = random.choice((edge, edge, random.getrandbits(bits), random.randrange(-100, 100)))
    return (value & (1 << bits) - 1).to_bytes(bits // 8, "little")


def near(random, bits, edges):
    value = random.choice(edges) + random.choice((0, 0, 0, 1, -1, random.randrange(-1000, 1000)))
    return (value & (1 << bits) - 1).to_bytes(bits // 8, "little")


def floating(random, code):
    if random.random() < 0.4:
        return random.randbytes(struct.calcsize(code))
    usual = random.uniform(-9, 9)
    return struct.pack(code, random.choice((0.0, -0.0, 1.5, math.inf, -math.inf, math.nan, 1e-40, 3.4e38, usual)))


def instant(random, column, bits=64, edges=()):
    """A number of microseconds; mostly one that the type's precision allows."""
    value = int.from_bytes(near(random, bits, edges), "little", signed=True)
    digits = column["typmod"]
    if 0 <= digits < 6 and random.random() < 0.8 and abs(value) < (1 << 63) - 1:
        value -= value % 10 ** (6 - digits)
    return (value & (1 << 64) - 1).to_bytes(8, "little")


def characters(random, column, encoding):
    """Text that mostly has the length its type wants, in bytes that are mostly text."""
    typmod = column["typmod"]
    limit = typmod - 4 if typmod >= 4 and column["base_type"] != TEXT else None
    length = random.choice(LENGTHS) if limit is None else limit + random.choice((0, 0, 0, 0, -1, 1))
    if random.random() < 0.1:
        # One flaw in what is read many bytes at a time.
        data = bytearray(b"a" * max(length, 1))
        data[random.choice((0, -1, random.randrange(len(data))))] = random.choice((0x00, 0x7f, 0x80, 0xbf, 0xff))
        return bytes(data)
    one = random.choice(CHARACTERS)
    text = "".join(random.choice(CHARACTERS) for _ in range(min(max(length, 0), 12)))
    text = (text + one * length)[:max(length, 0)]
    if random.random() < 0.2:
        text = text.rstrip() if random.random() < 0.5 else text + " " * random.randrange(3)
    try:
        data = text.encode(encoding)
    except UnicodeEncodeError:
        data = text.encode("ascii", errors="replace")
    if random.random() < 0.15:
        at = random.randrange(len(data) + 1)
        data = data[:at] + random.choice(BYTES) + data[at:]
    return data


def name(random, encoding):
    text = characters(random, {"typmod": random.choice((4, 5, 12, 62, 66, 67, 68)), "base_type": VARCHAR}, encoding)
    filling = b"\0" if random.random() < 0.9 else random.choice((b" ", b"\0a", b"\xff"))
    return (text[:64] + filling * 64)[:64]


def numeric(random, column):
    """A header and digits, put together as the format has it or a little otherwise."""
    special = random.random()
    if special < 0.12:
        data = struct.pack("<H", random.choice((0xC000, 0xD000, 0xF000, 0xE000, 0xC001, 0xD0FF)))
        return data if special < 0.09 else data + random.randbytes(random.choice((1, 2, 4)))
    digits = [random.choice((0, 1, 9, 10, 100, 1000, 5000, 9990, 9999, random.randrange(10000)))
              for _ in range(random.choice((0, 1, 1, 1, 2, 2, 3, 5, 40)))]
    weight = random.choice((0, 0, 0, 0, 1, 1, -1, 2, -2, 63, 64, -64, -65, 32767, -32768, random.randrange(-70, 70)))
    scale = random.choice((0, 0, 2, 3, 4, 8, 20, 63, 64, 1000, 16383))
    typmod = column["typmod"]
    if typmod >= 4 and random.random() < 0.9:
        precision, wanted = (typmod - 4 >> 16) & 0xFFFF, ((typmod - 4 & 0x7FF) ^ 1024) - 1024
        scale = max(wanted, 0)
        if random.random() < 0.9:
            weight = min(weight, (precision - wanted + 3) // 4 - random.choice((0, 1, 1)))
        digits = digits[:max(weight + 1 + (max(scale, 0) + 3) // 4, 1)]
        if digits and len(digits) - weight - 1 > 0 and scale % 4:
            digits[-1] -= digits[-1] % 10 ** (4 - scale % 4)
    tidy = random.random() < 0.85
    if tidy:
        while digits and digits[0] == 0:
            digits, weight = digits[1:], weight - 1
        while digits and digits[-1] == 0:
            digits.pop()
        if not digits:
            weight = 0
        # As many decimals shown as there are.
        fraction = max(0, (len(digits) - weight - 1) * 4)
        if typmod < 4 and scale < fraction < 16384:
            scale = fraction
    elif random.random() < 0.5 and digits:
        digits[random.randrange(len(digits))] = random.choice((10000, 32767, -1, -9999, -32768))
    negative = bool(digits) and random.random() < 0.4 or not tidy and random.random() < 0.1
    short = scale <= 63 and -64 <= weight <= 63
    if random.random() < 0.06:
        short = not short
    if short:
        head = struct.pack("<H", 0x8000 | (0x2000 if negative else 0) | (scale & 63) << 7 |
                           (0x40 if weight < 0 else 0) | weight & 63)
    else:
        head = struct.pack("<HH", (0x4000 if negative else 0) | scale & 0x3FFF, weight & 0xFFFF)
    return head + b"".join(struct.pack("<h", digit if -32768 <= digit < 32768 else 0) for digit in digits)


def span(random):
    """An interval; any bits are one."""
    if random.random() < 0.4:
        return struct.pack("<qii", random.randrange(-DAY, DAY), random.randrange(-40, 40), random.randrange(-30, 30))
    return number(random, 64) + number(random, 32) + number(random, 32)


def value(random, column, old, world):
    """Another value for a column. `world` has the labels of enums, the encoding, and values that were received."""
    kind = column["base_type"]
    if column["class"] == "receive":
        return received(random, column, old, world)
    if column["kind"] == "e":
        if random.random() < 0.8 and world.labels.get(kind):
            return struct.pack("<I", random.choice(world.labels[kind]))
        return random.choice((number(random, 32), struct.pack("<I", random.choice(world.every_label))))
    if kind in WHOLE:
        return number(random, WHOLE[kind])
    if kind in FIXED:
        return random.choice((random.randbytes(FIXED[kind]), bytes(FIXED[kind]), b"\xff" * FIXED[kind]))
    if kind == BOOL:
        return bytes([random.choice((0, 1, 1, 0, 0, 1, 2, 3, 128, 255))])
    if kind == DATE:
        return near(random, 32, (0, -(1 << 31), (1 << 31) - 1, FIRST_DATE, END_DATE - 1, END_DATE, 8000))
    if kind in (TIMESTAMP, TIMESTAMPTZ):
        return instant(random, column, edges=(0, 0, -(1 << 63), (1 << 63) - 1, FIRST_TIME, END_TIME - 1, END_TIME, 7 * 10**14))
    if kind == TIME:
        return instant(random, column, edges=(0, DAY, DAY // 2, DAY - 1, DAY // 3, -(1 << 63)))
    if kind == TIMETZ:
        zone = near(random, 32, (0, 3600, -3600, ZONE_LIMIT - 1, ZONE_LIMIT, -ZONE_LIMIT, -ZONE_LIMIT + 1, -(1 << 31)))
        return instant(random, column, edges=(0, DAY, DAY // 2, DAY - 1)) + zone
    if kind == INTERVAL:
        return span(random)
    if kind == POINT:
        return floating(random, "<d") + floating(random, "<d")
    if kind in (FLOAT4, FLOAT8):
        return floating(random, "<f" if kind == FLOAT4 else "<d")
    if kind == NAME:
        return name(random, world.encoding)
    if kind == NUMERIC:
        return numeric(random, column)
    if kind == BYTEA:
        return random.choice((random.randbytes, bytes))(random.choice(LENGTHS))
    return characters(random, column, world.encoding)


def received(random, column, old, world):
    """What the type's send function made of another value, or that with something wrong."""
    data = random.choice(world.received.get(column["base_type"]) or [old or b""])
    if random.random() < 0.5:
        return data
    data = bytearray(data)
    for _ in range(random.choice((1, 1, 2, 4))):
        at = random.randrange(len(data) + 1)
        kind = random.randrange(4)
        if kind == 0:
            del data[at:at + random.choice((1, 2, 4))]
        elif kind == 1:
            data[at:at] = random.choice((b"\0", b"\xff", random.randbytes(4), b"\0\0\0\1"))
        elif kind == 2:
            data[at:at + 4] = random.choice((b"\0\0\0\0", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\0\0\0\2", b"\x80\0\0\0"))
        elif at < len(data):
            data[at] ^= 1 << random.randrange(8)
    return bytes(data)


WHOLE = {CHAR: 8, INT2: 16, INT4: 32, OID: 32, INT8: 64, MONEY: 64, PG_LSN: 64}
FIXED = {UUID: 16, MACADDR: 6, MACADDR8: 8}
