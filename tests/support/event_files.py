"""TensorBoard's event files, read with tensorboardX's own records."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def scalars(path: Path) -> list[tuple[str, int, float]]:
    """(tag, step, value) of an event file, each record's length and masked CRC checked: TensorFlow's TFRecord."""
    from tensorboardX.crc32c import crc32c
    from tensorboardX.proto.event_pb2 import Event

    def masked(data: bytes) -> int:
        crc: int = crc32c(data)
        return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF

    raw, at, values = path.read_bytes(), 0, []
    while at < len(raw):
        (length,) = struct.unpack_from("<Q", raw, at)
        body = raw[at + 12 : at + 12 + length]
        assert struct.unpack_from("<I", raw, at + 8)[0] == masked(raw[at : at + 8])
        assert struct.unpack_from("<I", raw, at + 12 + length)[0] == masked(body)
        event = Event.FromString(body)
        values += [(value.tag, event.step, round(value.simple_value, 4)) for value in event.summary.value]
        at += 16 + length
    return values
