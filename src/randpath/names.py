"""The one rule for the name of a class: on its way in, when names are compared, and on its way out."""

import unicodedata

from randpath.errors import UsageError

MOST = 255  # bytes in UTF-8: what a folder can be called


def normal(name: str) -> str:
    """The form in which names are kept and compared: an accent is one character, however it was typed (NFC).

    >>> normal("e\\u0301") == "\\u00e9"
    True
    """
    return unicodedata.normalize("NFC", name)


def fault(name: str) -> str:
    """Why a text is no name for a class, or nothing.

    >>> fault("Käfer 🐞"), fault("\\x1b[31mred"), fault(" ")
    ('', 'has characters that cannot be seen', 'is empty')
    """
    if not name.strip():
        return "is empty"
    if any(0xD800 <= ord(c) <= 0xDFFF for c in name):
        return "is not valid UTF-8"
    if any(not c.isprintable() for c in name):
        return "has characters that cannot be seen"
    if len(normal(name).encode()) > MOST:
        return f"is longer than {MOST} bytes"
    return ""


def clean(name: str) -> str:
    """A name as it is kept; what is none is refused."""
    if what := fault(name):
        raise UsageError(f"{shown(name)[:100]!r} is no name for a class: it {what}")
    return normal(name)


def shown(name: str) -> str:
    """The name with whatever cannot be printed, or would mislead the eye, escaped.

    >>> shown("a\\u202eb"), shown("\\udcff"), shown("Käfer 🐞")
    ('a\\\\u202eb', '\\\\udcff', 'Käfer 🐞')
    """
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in name)
