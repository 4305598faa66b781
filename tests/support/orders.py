"""One small order, for tests that need any order at all."""

from typing import Any

SEAT: dict[str, Any] = {"row": "C", "number": "8"}
NACHTMUSIK: dict[str, Any] = {
    "event": {
        "name": "Nachtmusik",
        "venue": "Philharmonie",
        "starts_at": "2026-07-01T18:00:00Z",
        "tz": "Europe/Berlin",
    },
    "locale": "de-DE",
    "currency": "EUR",
    "buyer": "Ana",
    "positions": [{"id": 1, "holder": "Ana", "category": "Parkett", "amount_minor": 4500, "seat": SEAT}],
}
