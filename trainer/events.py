"""TensorBoard's event files, written while the training runs: what `SummaryWriter(dir).add_scalar` would write.

A file is a sequence of records; a record is a length, an Event, and a masked CRC-32C of each. Of the Event's fields it
has wall_time (1), step (2), file_version (3) and summary (5). A summary's value has a tag (1) and a number (2).
Standard library only, as the image has neither tensorboard nor protobuf.

https://github.com/tensorflow/tensorboard/blob/master/tensorboard/compat/proto/event.proto
"""

from __future__ import annotations

import os
import socket
import struct
import time
from pathlib import Path

from log import say

CASTAGNOLI = 0x82F63B78  # the polynomial of CRC-32C, its bits reversed


def _table() -> list[int]:
    rows = []
    for number in range(256):
        value = number
        for _ in range(8):
            value = value >> 1 ^ (CASTAGNOLI if value & 1 else 0)
        rows.append(value)
    return rows


TABLE = _table()


def crc32c(data: bytes) -> int:
    """The CRC-32C of some bytes.

    >>> hex(crc32c(b"123456789"))
    '0xe3069283'
    """
    value = 0xFFFFFFFF
    for byte in data:
        value = TABLE[(value ^ byte) & 255] ^ value >> 8
    return value ^ 0xFFFFFFFF


def masked(data: bytes) -> bytes:
    """A CRC-32C as records have it: rotated, so that one of a record's own bytes differs from it."""
    value = crc32c(data)
    return struct.pack("<I", (value >> 15 | value << 17 & 0xFFFFFFFF) + 0xA282EAD8 & 0xFFFFFFFF)


def record(event: bytes) -> bytes:
    """One record of the file."""
    length = struct.pack("<Q", len(event))
    return length + masked(length) + event + masked(event)


def varint(number: int) -> bytes:
    r"""A whole number as protobuf writes it.

    >>> varint(300)
    b'\xac\x02'
    """
    more = b""
    while number > 127:
        more += bytes((number & 127 | 128,))
        number >>= 7
    return more + bytes((number,))


def sized(key: int, content: bytes) -> bytes:
    """A field of text, or a message in a message."""
    return bytes((key << 3 | 2,)) + varint(len(content)) + content


def scalar(tag: str, value: float, step: int, when: float) -> bytes:
    """The Event of one point of a curve."""
    point = sized(1, tag.encode()) + b"\x15" + struct.pack("<f", value)
    return b"\x09" + struct.pack("<d", when) + b"\x10" + varint(step) + sized(5, sized(1, point))


class Events:
    """One file in a folder, from its first point on, or nothing without a folder; no disk ends the training."""

    def __init__(self, folder: str) -> None:
        self.path: Path | None = None
        self.first = b""
        if folder:
            now = time.time()
            self.path = Path(folder) / f"events.out.tfevents.{now:.6f}.{socket.gethostname()}.{os.getpid()}"
            self.first = record(b"\x09" + struct.pack("<d", now) + sized(3, b"brain.Event:2"))

    def write(self, tag: str, value: float, step: int) -> None:
        """Add a point; a reader sees it at once."""
        if not self.path:
            return
        try:
            if self.first:
                self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("ab") as file:
                file.write(self.first + record(scalar(tag, value, step, time.time())))
            self.first = b""
        except OSError as error:
            say("events_failed", rank=0, reason=f"{self.path} cannot be written ({error.strerror}); no more are")
            self.path = None
