"""Where one reply of Redis ends and the next begins: just enough of RESP2 and RESP3."""

_LINES = b"+-:_#,("
_BULKS = b"$=!"
_LISTS = b"*~>"
_PAIRS = b"%|"


def reply_length(data: bytes | bytearray, start: int = 0) -> int | None:
    """Return how many bytes from *start* on the first reply takes, None while its end has not come."""
    end = _end_of(data, start)
    return None if end is None else end - start


def _end_of(data: bytes | bytearray, start: int) -> int | None:
    owed, at = 1, start
    while owed:
        line_end = data.find(b"\r\n", at)
        if line_end < 0:
            return None
        kind, rest = data[at], bytes(data[at + 1 : line_end])
        at = line_end + 2
        owed -= 1
        if kind in _BULKS and rest != b"-1":
            at += int(rest) + 2
        elif kind in _LISTS and rest != b"-1":
            owed += int(rest)
        elif kind in _PAIRS:
            owed += 2 * int(rest) + (kind == ord("|"))
        elif kind not in _LINES and kind not in _BULKS + _LISTS:
            raise ValueError(f"this is no reply of Redis: {bytes(data[start : start + 40])!r}")
        if at > len(data):
            return None
    return at
