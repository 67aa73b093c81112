"""Inputs that are kept: a line of JSON that says how they are sent, and the bytes.

What only one server knows - fingerprints, the OIDs of labels, the CRC of what has those in it - is not in a file, but a
mark in its place.
"""

import hashlib
import json
import os
import struct

import frames
from mutate import Case

FINGERPRINT = b"@FINGER@"
LARGEST = 3000
# What there is to a case beside its table and its bytes.
PARTS = ("whole_pages", "ring", "client_encoding", "wrap", "end", "cuts", "odd", "done")


def label_mark(i):
    return bytes([0xE0, 0x1D, i, 0xE0])


def right_crcs(stream):
    """Where the headers of blocks are whose CRC is right."""
    at = 0
    while at + frames.HEADER <= len(stream):
        length, = struct.unpack_from("<I", stream, at + 20)
        end = at + frames.HEADER + length
        if stream[at + 6] & 1 and end <= len(stream) and \
                struct.unpack_from("<I", stream, at + 32)[0] == frames.crc32c(stream[at + frames.HEADER:end]):
            yield at
        at = end


def write(directory, case, plan, world, name=None, said=""):
    """Keeps a case. The name of its file is made from what is in it."""
    head = {"table": case.table.name, **{part: getattr(case, part) for part in PARTS}, "crc": list(right_crcs(case.stream))}
    if said:
        head["said"] = said
    stream = case.stream.replace(struct.pack("<Q", int(plan["fingerprint"], 16)), FINGERPRINT)
    for i, label in enumerate(world.every_label):
        stream = stream.replace(struct.pack("<I", label), label_mark(i))
    data = json.dumps(head).encode() + b"\n" + stream
    name = name or f"{case.table.name}-{hashlib.sha1(data).hexdigest()[:10]}"
    os.makedirs(directory, exist_ok=True)
    with open(os.path.join(directory, name), "wb") as file:
        file.write(data)
    return name


class Kept:
    """A file of the corpus, for any server."""

    def __init__(self, path):
        with open(path, "rb") as file:
            head, _, self.stream = file.read().partition(b"\n")
        self.name = os.path.basename(path)
        self.head = json.loads(head)
        self.table = self.head["table"]

    def bytes(self, ground):
        stream = self.stream.replace(FINGERPRINT, struct.pack("<Q", int(ground.plans[self.table]["fingerprint"], 16)))
        for i, label in enumerate(ground.world.every_label):
            stream = stream.replace(label_mark(i), struct.pack("<I", label))
        stream = bytearray(stream)
        for at in self.head["crc"]:
            length, = struct.unpack_from("<I", stream, at + 20)
            begin = at + frames.HEADER
            stream[at + 32:at + 36] = struct.pack("<I", frames.crc32c(stream[begin:begin + length]))
        return bytes(stream)

    def case(self, table, ground):
        case = Case(table, self.bytes(ground))
        for part in PARTS:
            setattr(case, part, self.head[part])
        return case


def read(directory):
    if not os.path.isdir(directory):
        return []
    return [Kept(os.path.join(directory, name)) for name in sorted(os.listdir(directory))]
