"""A measured figure: several values, their median, and what was promised."""

import statistics
from collections.abc import Sequence

import attrs


@attrs.frozen(kw_only=True)
class Figure:
    """Values of one figure from several runs.

    *at_least* or *at_most* is the target; without one the figure is only reported.
    """

    name: str
    values: Sequence[float]
    unit: str = "×"
    at_least: float | None = None
    at_most: float | None = None

    @property
    def median(self) -> float:
        """The middle value."""
        return statistics.median(self.values)

    @property
    def shown(self) -> str:
        """The median with its unit."""
        return f"{self.median:,.3g} {self.unit}" if self.median < 1000 else f"{self.median:,.0f} {self.unit}"

    @property
    def spread(self) -> str:
        """The least and the largest value."""
        return f"{min(self.values):,.3g} – {max(self.values):,.3g}"

    @property
    def target_shown(self) -> str:
        """The target in words."""
        if self.at_least is not None:
            return f"≥ {self.at_least:g}"
        return "" if self.at_most is None else f"≤ {self.at_most:g}"

    @property
    def verdict(self) -> str:
        """Whether the median meets the target; empty without one."""
        if self.at_least is not None:
            return "ok" if self.median >= self.at_least else "BELOW TARGET"
        if self.at_most is not None:
            return "ok" if self.median <= self.at_most else "ABOVE TARGET"
        return ""


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value below which this share of the values lies."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
