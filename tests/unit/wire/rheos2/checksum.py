"""CRC32 bit by bit, from its polynomial: an encoder for tests that owes nothing to zlib."""


def crc32(data: bytes) -> int:
    """The IEEE CRC32: reflected polynomial 0xEDB88320, all ones in, inverted out."""
    register = 0xFFFFFFFF
    for byte in data:
        register ^= byte
        for _ in range(8):
            register = register >> 1 ^ (0xEDB88320 if register & 1 else 0)
    return register ^ 0xFFFFFFFF


def sealed(text: str) -> bytes:
    """The bytes of hexadecimal `text` and, behind them, their checksum."""
    packet = bytes.fromhex(text)
    return packet + crc32(packet).to_bytes(4, "little")
