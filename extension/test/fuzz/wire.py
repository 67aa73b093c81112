"""A session that speaks the protocol itself: psql would cut the messages of a COPY as it likes, and end it politely."""

import os
import socket
import struct


class Closed(Exception):
    """The server has ended the session; with what it has said before."""

    def __init__(self, result):
        super().__init__(result.message if result.error else "the connection was closed")
        self.result = result


class Hang(Exception):
    """No answer in time."""


class Result:
    def __init__(self):
        self.rows = []
        self.data = []
        self.tag = ""
        self.error = {}
        self.warnings = []

    @property
    def state(self):
        return self.error.get("C", "")

    @property
    def message(self):
        return ": ".join(self.error[field] for field in "MD" if field in self.error)


def message(kind, body=b""):
    return kind + struct.pack("!I", len(body) + 4) + body


def fields(body):
    return {part[:1].decode(): part[1:].decode(errors="replace") for part in body.split(b"\0") if part}


class Session:
    def __init__(self, database, patience):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(patience)
        self.socket.connect(f"{os.environ['PGHOST']}/.s.PGSQL.{os.environ.get('PGPORT', '5432')}")
        self.buffer = bytearray()
        self.mark = 0
        parameters = {"user": os.environ.get("PGUSER", "postgres"), "database": database,
                      "application_name": "inrush fuzz", "TimeZone": "UTC"}
        body = struct.pack("!I", 196608) + b"".join(
            name.encode() + b"\0" + value.encode() + b"\0" for name, value in parameters.items()) + b"\0"
        self.socket.sendall(struct.pack("!I", len(body) + 4) + body)
        self.answer()

    def close(self):
        self.socket.close()

    def receive(self, count, result):
        while len(self.buffer) < count:
            try:
                part = self.socket.recv(262144)
            except TimeoutError:
                raise Hang() from None
            except OSError:
                part = b""
            if not part:
                raise Closed(result)
            self.buffer += part
        taken = bytes(self.buffer[:count])
        del self.buffer[:count]
        return taken

    def answer(self):
        """Everything up to ReadyForQuery."""
        result = Result()
        while True:
            kind, length = struct.unpack("!cI", self.receive(5, result))
            body = self.receive(length - 4, result)
            if kind == b"Z":
                return result
            if kind == b"E":
                result.error = fields(body)
            elif kind == b"N":
                result.warnings.append(fields(body))
            elif kind == b"C":
                result.tag = body[:-1].decode()
            elif kind == b"d":
                result.data.append(body)
            elif kind == b"D":
                result.rows.append(self.row(body))

    @staticmethod
    def row(body):
        values, at = [], 2
        for _ in range(struct.unpack_from("!H", body)[0]):
            length, = struct.unpack_from("!i", body, at)
            at += 4
            values.append(None if length < 0 else body[at:at + length])
            at += max(length, 0)
        return values

    def send(self, data):
        try:
            self.socket.sendall(data)
        except TimeoutError:
            raise Hang() from None
        except OSError:
            # Why it was closed is still to be read.
            pass

    def ask(self, text):
        self.send(message(b"Q", text.encode() + b"\0"))
        return self.answer()

    def do(self, text):
        """What must not fail. The rows, as text."""
        result = self.ask(text)
        if result.error:
            raise ValueError(f"{text[:200]}: {result.state} {result.message}")
        return [[None if value is None else value.decode(errors="replace") for value in row] for row in result.rows]

    def begin_copy(self, text, messages, end):
        """A COPY FROM STDIN: everything is sent at once, as a client may that does not wait for CopyInResponse."""
        self.send(message(b"Q", text.encode() + b"\0") + b"".join(messages) + end)

    def copy(self, text, messages, end):
        self.begin_copy(text, messages, end)
        return self.answer()

    def settle(self):
        """Reads what is left of answers: each Sync that came behind the end of a COPY has one."""
        self.mark += 1
        self.send(message(b"Q", f"SELECT 'mark {self.mark}'\0".encode()))
        while True:
            result = self.answer()
            # In a transaction that has failed the mark is refused, and nothing else is.
            if result.rows == [[f"mark {self.mark}".encode()]] or result.state == "25P02":
                return
