#!/usr/bin/env python3
"""Makes a long trace.dat of a short one: the recording of each CPU again and again, later each time.

    benches/long_trace.py COPIES FILE OUT

FILE is little-endian, of version 6 (`trace-cmd convert --file-version 6`), with pages of 4 KiB. The moments of timers within
the events grow as well. For `benches/speed.py`.
"""

import re
import struct
import sys

PAGE = 4096
# Between two copies.
PAUSE_NS = 1_000_000
# Fields of events that are moments, and what is in front of the events of a page.
MOMENTS = {b"expires", b"softexpires", b"now"}
HEAD = 16


def moments(data: bytes) -> dict:
    """By the id of an event, the offsets of its moments."""
    found = {}
    for match in re.finditer(rb"name: (hrtimer_start|hrtimer_expire_entry)\nID: (\d+)\nformat:\n(.*?)\nprint fmt", data, re.S):
        fields = re.findall(rb"field:[^;]*?(\w+);\toffset:(\d+);", match[3])
        found[int(match[2])] = [int(offset) for name, offset in fields if name in MOMENTS]
    return found


def later(page: bytes, of: dict) -> tuple:
    """Offsets in a page of 64-bit moments (its own, those of timers), and of absolute time stamps."""
    at, end, found, stamps = HEAD, HEAD + (struct.unpack_from("<Q", page, 8)[0] & 0xFFFFF), [0], []
    while at + 4 <= end:
        word = struct.unpack_from("<I", page, at)[0] & 31
        start, at = at + 4, at + 4
        if word in (30, 31):  # Time that grows, and time stamps.
            stamps += [start - 4] if word == 31 else []
            at += 4
            continue
        if word == 29:  # Padding.
            at += struct.unpack_from("<I", page, at)[0]
            continue
        if word == 0:
            start, size = at + 4, struct.unpack_from("<I", page, at)[0]
            at += size
        else:
            at += 4 * word
        found += [start + offset for offset in of.get(struct.unpack_from("<H", page, start)[0], [])]
    return found, stamps


def add_to_stamp(part: bytearray, at: int, span: int) -> None:
    """A stamp has 27 bits behind its type, and 32 more."""
    low, high = struct.unpack_from("<II", part, at)
    time = (high << 27 | low >> 5) + span
    struct.pack_into("<II", part, at, (time & 0x7FFFFFF) << 5 | 31, time >> 27 & 0xFFFFFFFF)


def main() -> None:
    copies, source, target = int(sys.argv[1]), sys.argv[2], sys.argv[3]
    with open(source, "rb") as file:
        data = bytearray(file.read())
    assert data[3:10] == b"tracing" and data[10:12] == b"6\0", "not a trace.dat of version 6"
    at = data.index(b"flyrecord\0") + len(b"flyrecord\0")
    cpus = []
    while True:
        offset, size = struct.unpack_from("<QQ", data, at)
        if not (offset and size and offset % PAGE == 0 and offset + size <= len(data)):
            break
        cpus.append((at, offset, size))
        at += 16
        if at >= cpus[0][1]:
            break
    of = moments(data)
    times = [struct.unpack_from("<Q", data, page)[0] for _, offset, size in cpus for page in range(offset, offset + size, PAGE)]
    # The last page lasts as long as the one before it did, about.
    span = max(times) - min(times) + PAUSE_NS
    with open(target, "wb") as out:
        end = cpus[0][1]
        parts = []
        for entry, offset, size in cpus:
            struct.pack_into("<QQ", data, entry, end, size * copies)
            end += size * copies
            parts.append(data[offset : offset + size])
        out.write(data[: cpus[0][1]])
        for part in parts:
            pages = range(0, len(part), PAGE)
            found = [(page, later(part[page : page + PAGE], of)) for page in pages]
            moments_at = [page + at for page, (moments_of, _) in found for at in moments_of]
            stamps_at = [page + at for page, (_, stamps) in found for at in stamps]
            for _ in range(copies):
                out.write(part)
                for at in moments_at:
                    struct.pack_into("<Q", part, at, struct.unpack_from("<Q", part, at)[0] + span)
                for at in stamps_at:
                    add_to_stamp(part, at, span)


if __name__ == "__main__":
    main()
