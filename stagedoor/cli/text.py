"""Text from elsewhere, made fit for one line of a terminal or a log.

Order data, entries and error messages may hold anything: line ends that would
forge a second line, ESC sequences that would drive the terminal, marks that turn
the direction of writing. Whatever is not printable is written as an escape.
"""

LONGEST = 300


def printable(text: str, longest: int = LONGEST) -> str:
    """Return *text* as one line without anything that is not printable, cut at *longest* characters.

    ``str.isprintable`` is false for control characters, ESC, U+0085, U+2028 and U+2029, for
    marks of direction, for lone surrogates, and for every space but the plain one.
    """
    cut = text if len(text) <= longest else text[: longest - 1] + "…"
    if cut.isprintable():
        return cut
    return "".join(char if char.isprintable() else escaped(char) for char in cut)


def escaped(char: str) -> str:
    """Return one character as Python writes it in ASCII."""
    return ascii(char)[1:-1]
