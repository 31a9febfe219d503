#!/usr/bin/env python3
"""Makes a long trace.dat of a short one: the packed chunks of each CPU again and again.

    benches/long_trace.py COPIES FILE OUT

FILE is of version 7, little-endian and packed with Zstandard (the program `zstd` unpacks its options). Times begin again with
each copy, which readers of a single CPU do not mind. For `benches/trace_peers.sh`.
"""

import struct
import subprocess
import sys


def section(data: bytes, at: int) -> bytes:
    """The unpacked contents of the section at that offset."""
    _, flags, _, size = struct.unpack_from("<HHIQ", data, at)
    if not flags & 1:
        return data[at + 16 : at + 16 + size]
    packed, _ = struct.unpack_from("<II", data, at + 16)
    body = data[at + 24 : at + 24 + packed]
    return subprocess.run(["zstd", "-dc"], input=body, stdout=subprocess.PIPE, check=True).stdout


def repeat(buffer: bytearray, data: bytes, out: bytearray, copies: int) -> None:
    """Appends the chunks of each CPU of a buffer, and lets the option name them."""
    count = buffer.index(b"\0", buffer.index(b"\0", 8) + 1) + 1
    count += 4 if (len(buffer) - count) % 20 == 8 else 0
    for cpu in range(struct.unpack_from("<I", buffer, count)[0]):
        entry = count + 4 + 20 * cpu + 4
        offset, size = struct.unpack_from("<QQ", buffer, entry)
        if size:
            chunks = struct.unpack_from("<I", data, offset)[0]
            struct.pack_into("<QQ", buffer, entry, len(out), size * copies)
            out += struct.pack("<I", chunks * copies) + data[offset + 4 : offset + 4 + size] * copies


def main() -> None:
    copies, source, target = int(sys.argv[1]), sys.argv[2], sys.argv[3]
    with open(source, "rb") as file:
        data = file.read()
    at = data.index(b"\0", 10) + 1 + 6
    for _ in range(2):
        at = data.index(b"\0", at) + 1
    out, options, following = bytearray(data), bytearray(), struct.unpack_from("<Q", data, at)[0]
    while following:
        part, place = section(data, following), 0
        while True:
            option, length = struct.unpack_from("<HI", part, place)
            content = bytearray(part[place + 6 : place + 6 + length])
            place += 6 + length
            if option == 0:
                following = struct.unpack("<Q", content)[0] if length >= 8 else 0
                break
            if option == 3:
                repeat(content, data, out, copies)
            options += struct.pack("<HI", option, length) + content
    options += struct.pack("<HIQ", 0, 8, 0)
    struct.pack_into("<Q", out, at, len(out))
    out += struct.pack("<HHIQ", 0, 0, 0, len(options)) + options
    with open(target, "wb") as file:
        file.write(out)


if __name__ == "__main__":
    main()
