"""Blocks and frames of docs/format-inrush.md: taken apart, put together, and where in them each field lies."""

import struct

HEADER = 64
# Name, place and bytes of the fields of a block's header.
HEADER_FIELDS = (("magic", 0, 4), ("version", 4, 2), ("flags", 6, 2), ("fingerprint", 8, 8), ("rows", 16, 4),
                 ("bytes", 20, 4), ("natts", 24, 2), ("block size", 26, 2), ("alignment", 28, 1), ("zeros", 29, 3),
                 ("crc", 32, 4), ("more zeros", 36, 28))
LONG_LIMIT = 126


def crc_table():
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


CRC = crc_table()


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ CRC[(crc ^ byte) & 255]
    return crc ^ 0xFFFFFFFF


def aligned(at, align):
    return (at + align - 1) // align * align


class Row:
    """The values of a row, None for null: without headers and padding. `forms` says where a header lies."""

    def __init__(self, values, forms=None):
        self.values = values
        self.forms = forms or {}

    def copy(self):
        return Row(self.values[:], dict(self.forms))


class Frame:
    """The bytes of a frame, and its fields: (name, from, to). What comes before `data` is the frame's header."""

    def __init__(self, data, fields):
        self.data, self.fields = data, fields


def varlena(column, value, at, form):
    """Padding, header and value. `form` is how the header shall lie, or None."""
    size = len(value)
    if form is None:
        form = "short" if size <= LONG_LIMIT and column["storage"] != "p" else "long"
    if form == "short":
        return b"", bytes([(size + 1) * 2 + 1 & 0xFF])
    if form == "external":
        return b"", b"\x01"
    padding = bytes(aligned(at, column["align"]) - at)
    number = size + 4 << 2
    if form == "compressed":
        number |= 2
    elif form == "one more":
        number += 4
    elif form == "one less":
        number -= 4
    elif form == "huge":
        number |= 0xFFFFFF00
    elif form == "none":
        number = 0
    return padding, struct.pack("<I", number & 0xFFFFFFFF)


def encode(columns, row, wide=None):
    """The frame of a row."""
    natts = len(columns)
    nulls = any(value is None for value in row.values)
    bitmap = bytearray((natts + 7) // 8) if nulls else bytearray()
    hoff = aligned(23 + len(bitmap), 8)
    data = bytearray()
    places = []
    varwidth = False
    for i, (column, value) in enumerate(zip(columns, row.values)):
        if value is None:
            continue
        if nulls:
            bitmap[i // 8] |= 1 << i % 8
        if column["length"] == -1:
            varwidth = True
            padding, header = varlena(column, value, len(data), row.forms.get(i))
        else:
            padding, header = bytes(aligned(len(data), column["align"]) - len(data)), b""
        for name, part in (("padding", padding), ("varlena", header), ("value", value)):
            if part:
                places.append((name, len(data), len(data) + len(part)))
                data += part
    zeros = hoff - 23 - len(bitmap)
    length = len(bitmap) + zeros + len(data)
    if wide is None:
        wide = length > 0xFFFF
    infomask = 0x0800 | (1 if nulls else 0) | (2 if varwidth else 0)
    head = struct.pack("<HHHB", 0 if wide else length & 0xFFFF, natts, infomask, hoff & 0xFF)
    fields = [("datalen", 0, 2), ("infomask2", 2, 4), ("infomask", 4, 6), ("hoff", 6, 7)]
    if wide:
        fields += [("wide zero", 7, 8), ("wide length", 8, 12)]
        head += struct.pack("<BI", 0, length)
    if bitmap:
        fields.append(("bitmap", len(head), len(head) + len(bitmap)))
    fields.append(("hoff zeros", len(head) + len(bitmap), len(head) + len(bitmap) + zeros))
    start = len(head) + len(bitmap) + zeros
    fields += [(name, start + begin, start + end) for name, begin, end in places]
    return Frame(bytes(head + bitmap + bytes(zeros) + data), fields)


def split(stream):
    """The frames of a stream that the server has taken: from byte 23 of the tuple on, with the bytes of that."""
    at = 0
    while at < len(stream):
        rows, length = struct.unpack_from("<II", stream, at + 16)
        begin = place = at + HEADER
        for _ in range(rows):
            place += (place - begin) % 2
            size, = struct.unpack_from("<H", stream, place)
            infomask, hoff = struct.unpack_from("<HB", stream, place + 4)
            data = place + 7
            if size == 0:
                size, = struct.unpack_from("<I", stream, place + 8)
                data = place + 12
            yield infomask, hoff, stream[data:data + size]
            place = data + size
        at = begin + length


def decode(columns, stream):
    """The rows of a stream that is known to be right."""
    for infomask, hoff, data in split(stream):
        values, at = [], hoff - 23
        begin = at
        for i, column in enumerate(columns):
            if infomask & 1 and not data[i // 8] >> i % 8 & 1:
                values.append(None)
                continue
            if column["length"] == -1 and data[at] & 1:
                size, start = (data[at] >> 1) - 1, at + 1
            else:
                at = begin + aligned(at - begin, column["align"])
                size, start = column["length"], at
                if size == -1:
                    size, start = (struct.unpack_from("<I", data, at)[0] >> 2) - 4, at + 4
            values.append(data[start:start + size])
            at = start + size
        yield Row(values)


def join(frames):
    """A payload, with the zeros between."""
    payload = bytearray()
    for frame in frames:
        payload += bytes(len(payload) % 2)
        payload += frame.data
    return bytes(payload)


def block(plan, rows, payload, crc=False):
    return struct.pack("<4sHHQIIHHB3xI28x", b"INRU", 1, int(crc), int(plan["fingerprint"], 16), rows & 0xFFFFFFFF,
                       len(payload), len(plan["columns"]), plan["block_size"], plan["max_align"],
                       crc32c(payload) if crc else 0) + payload
