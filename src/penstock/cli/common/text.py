"""Text for a terminal. Control characters are escaped, so no message can control the terminal."""

__all__ = ["printable", "shown", "text_of"]


def printable(text: str) -> str:
    r"""Return text with characters that are not printable as escapes (`\x1b`)."""
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in text
    )


def shown(text: str) -> str:
    r"""Return text with `\` doubled and characters that are not printable as escapes (`\x1b`)."""
    if text.isprintable() and "\\" not in text:
        return text
    return "".join(
        character
        if character.isprintable() and character != "\\"
        else character.encode("unicode_escape").decode()
        for character in text
    )


def text_of(value: bytes) -> str:
    r"""Return the text of a value; bytes that are not UTF-8 become escapes (`\xff`)."""
    try:
        return shown(value.decode())
    except UnicodeDecodeError:
        pass
    parts = []
    for character in value.decode("utf-8", "surrogateescape"):
        byte = ord(character) - 0xDC00
        parts.append(f"\\x{byte:02x}" if 0x80 <= byte <= 0xFF else shown(character))
    return "".join(parts)
