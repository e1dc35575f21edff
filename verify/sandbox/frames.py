"""What travels out of a child: one frame on the reply pipe (untrusted), JSON lines on the control pipe (trusted)."""

import json
import os
import struct
from typing import Any

REPLY, ERROR = b"R", b"E"
_HEADER = struct.Struct(">cQ")  # kind, length of the payload


def write_frame(descriptor: int, kind: bytes, payload: bytes) -> None:
    """Write the only frame of a child: kind, length, payload."""
    rest = memoryview(_HEADER.pack(kind, len(payload)) + payload)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def read_frame(received: bytes) -> tuple[bytes, bytes] | None:
    """Kind and payload, or None unless `received` is exactly one frame: nothing missing, nothing after it."""
    if len(received) < _HEADER.size:
        return None
    kind, length = _HEADER.unpack_from(received)
    if kind not in (REPLY, ERROR) or length != len(received) - _HEADER.size:
        return None
    return kind, received[_HEADER.size :]


def frame_size(payload_bytes: int) -> int:
    """Bytes on the pipe for a payload of that many."""
    return _HEADER.size + payload_bytes


def report(descriptor: int, **fields: object) -> None:
    """One JSON line on the control pipe."""
    os.write(descriptor, json.dumps(fields).encode() + b"\n")


def read_reports(received: bytes) -> dict[str, Any]:
    """All complete lines merged: `locked` from the worker as it locks, `ended` and `cpu_seconds` from its guard."""
    merged: dict[str, Any] = {}
    for line in received.split(b"\n")[:-1]:
        merged |= json.loads(line)
    return merged
