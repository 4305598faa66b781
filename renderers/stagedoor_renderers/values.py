"""Money, dates and words in the order's language: loaded once, then pure.

Everything that Babel and the time zone database keep in files is read when
`load_values` is called. Formatting afterwards opens nothing, which is what lets
a renderer promise that it reads no file.
"""

import copy
import datetime as dt
import functools
import importlib.metadata
import importlib.resources
import re
import tomllib
from collections.abc import Mapping
from decimal import Decimal
from zoneinfo import ZoneInfo

import attrs
import babel
from babel import dates
from babel.core import get_global
from babel.numbers import NumberPattern

from stagedoor.errors import InvalidRequest

_LOCALES = (
    "en en_001 en_150 en_AU en_CA en_GB en_IE en_IN en_NZ en_SG en_ZA de de_AT de_CH fr fr_BE fr_CA fr_CH es es_419 "
    "es_AR es_CL es_CO es_MX es_US it it_CH nl nl_BE pt pt_PT pl cs sk hu ro bg hr sl sr sr_Latn mk bs sq uk be ru "
    "el tr az he ar ar_AE ar_EG ar_SA fa hy ka ja ko zh zh_Hant zh_Hant_HK sv da nb nn fi et lv lt is ga cy ca eu gl "
    "lb mt af id ms vi sw eo uz fil"
)
"""What is loaded: the languages whose scripts can be drawn. Others are set in the English of their region."""

_ALIASES = {
    "no": "nb",
    "zh_tw": "zh_hant",
    "zh_hk": "zh_hant_hk",
    "zh_mo": "zh_hant_hk",
    "iw": "he",
    "in": "id",
    "tl": "fil",
    # They count in lakh and crore too, and have no English of their own.
    "en_bd": "en_in",
    "en_bt": "en_in",
    "en_np": "en_in",
}
"""Tags that are in use for what is called otherwise here."""

_REGION = re.compile("[a-z]{2}|[0-9]{3}")

_NO_DECIMALS = "BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX UYI VND VUV XAF XOF XPF"
_THREE_DECIMALS = "BHD IQD JOD KWD LYD OMN TND"
_FOUR_DECIMALS = "CLF UYW"

_DECIMALS = {
    **dict.fromkeys(_NO_DECIMALS.split(), 0),
    **dict.fromkeys(_THREE_DECIMALS.split(), 3),
    **dict.fromkeys(_FOUR_DECIMALS.split(), 4),
}
"""Decimals of ISO 4217 where they are not 2; Babel's own differ, for it knows how prices are written, not counted."""


@attrs.frozen(kw_only=True, eq=False)
class Language:
    """One locale: its formats and its words."""

    tag: str
    locale: babel.Locale = attrs.field(repr=False)
    words: Mapping[str, str] = attrs.field(repr=False)
    currencies: frozenset[str] = attrs.field(repr=False)
    _patterns: Mapping[int, NumberPattern] = attrs.field(init=False, repr=False)

    @_patterns.default
    def _with_decimals(self) -> Mapping[int, NumberPattern]:
        """Return the locale's way to write money, once for every number of decimals that currencies have."""
        patterns: dict[int, NumberPattern] = {}
        for decimals in (2, *_DECIMALS.values()):
            pattern = copy.copy(self.locale.currency_formats["standard"])
            pattern.frac_prec = (decimals, decimals)
            pattern.prefix = (pattern.prefix[0], self._signed(pattern.prefix[1]))
            pattern.suffix = (pattern.suffix[0], self._signed(pattern.suffix[1]))
            patterns[decimals] = pattern
        return patterns

    def _signed(self, affix: str) -> str:
        """Return what stands round a negative amount with the locale's own sign, for Babel leaves a hyphen there.

        In Arabic, Hebrew and Persian the sign has a mark of direction before it, without
        which it would be read after the amount.
        """
        sign: str = self.locale.number_symbols["latn"]["minusSign"]
        return affix.replace("-", sign)

    @property
    def is_from_right(self) -> bool:
        """Whether it is read from the right."""
        return self.locale.text_direction == "rtl"

    def word(self, name: str) -> str:
        """Return the word for *name*, in this language."""
        return self.words[name]

    def money(self, amount_minor: int, currency: str) -> str:
        """Return an amount in the currency's smallest unit as a person writes it; 0 is not "free" here.

        It may have marks of direction in it; see `kit.scripts.DIRECTION_MARKS`.

        Raises:
            InvalidRequest: the currency is unknown.
        """
        if currency not in self.currencies:
            raise InvalidRequest("order.currency: this is no ISO 4217 code that is known here; give one such as EUR")
        decimals = _DECIMALS.get(currency, 2)
        value = Decimal(amount_minor).scaleb(-decimals)
        written: str = self._patterns[decimals].apply(value, self.locale, currency=currency, currency_digits=False)
        return written

    def price(self, amount_minor: int, currency: str) -> str:
        """Return an amount as `money`, or the word for "free"."""
        return self.money(amount_minor, currency) if amount_minor else self.word("free")

    def long_date(self, when: dt.datetime) -> str:
        """Return the date with its weekday, capitalised as a line of its own begins."""
        written = dates.format_date(when, "full", locale=self.locale)
        return written[:1].upper() + written[1:]

    def short_date(self, when: dt.datetime) -> str:
        """Return the date in one short line."""
        return dates.format_date(when, "medium", locale=self.locale)

    def time(self, when: dt.datetime) -> str:
        """Return the time of day, in 12 or 24 hours as is usual."""
        return dates.format_time(when.time(), "short", locale=self.locale)


@attrs.frozen(kw_only=True, eq=False)
class Values:
    """All languages and time zones."""

    languages: Mapping[str, Language] = attrs.field(repr=False)
    zones: Mapping[str, ZoneInfo] = attrs.field(repr=False)
    fingerprint: str
    _parents: Mapping[str, str] = attrs.field(repr=False)
    _likely: Mapping[str, str] = attrs.field(repr=False)

    def language(self, tag: str) -> Language:
        """Return the nearest language to a BCP 47 tag: itself, its parent, the English of its region, English."""
        key = tag.replace("-", "_").lower()
        return self._nearest(key) or self._nearest(f"en_{self._region(key)}") or self.languages["en"]

    def _nearest(self, key: str) -> Language | None:
        """Return the first of *key*, what CLDR has it inherit from, and so on, that is loaded."""
        key = _ALIASES.get(key, key)
        while key and key not in self.languages:
            key = self._parents.get(key) or key.rpartition("_")[0]
            key = _ALIASES.get(key, key)
        return self.languages.get(key)

    def _region(self, key: str) -> str:
        """Return the region that *key* names, or else the one where most speakers of its language live."""
        language, *others = key.split("_")
        for subtag in others:
            if len(subtag) == 1:  # an extension begins
                break
            if _REGION.fullmatch(subtag):
                return subtag
        return self._likely.get(language, "").rpartition("_")[2]

    def local(self, when: dt.datetime, zone: str, *, field: str) -> dt.datetime:
        """Return *when* on the clocks of *zone*.

        Raises:
            InvalidRequest: the zone is unknown, or *when* has no zone of its own.
        """
        found = self.zones.get(zone)
        if found is None:
            raise InvalidRequest("event.tz: this is no time zone; give an IANA name such as Europe/Berlin")
        if when.utcoffset() is None:
            raise InvalidRequest(f"{field}: the time has no zone; give it in UTC")
        return when.astimezone(found)


def utc_offset(when: dt.datetime) -> str:
    """Return how far the clocks of *when* are from UTC: UTC+2, UTC-3:30, UTC."""
    minutes = round((when.utcoffset() or dt.timedelta()).total_seconds() / 60)
    if not minutes:
        return "UTC"
    hours, rest = divmod(abs(minutes), 60)
    return f"UTC{'+' if minutes > 0 else '-'}{hours}" + (f":{rest:02}" if rest else "")


def load_values() -> Values:
    """Read all languages and zones; takes about a second, opens files, is not for renders."""
    versions = [importlib.metadata.version(name) for name in ("babel", "tzdata")]
    return Values(
        languages=_languages(),
        zones=_zones(),
        fingerprint=f"babel {versions[0]} tzdata {versions[1]}",
        parents={name.lower(): parent.lower() for name, parent in get_global("parent_exceptions").items()},
        likely={name.lower(): full.lower() for name, full in get_global("likely_subtags").items()},
    )


@functools.cache  # a file of this package, which does not change while it is in use
def _words() -> Mapping[str, Mapping[str, str]]:
    return tomllib.loads((importlib.resources.files("stagedoor_renderers") / "words.toml").read_text("utf-8"))


def word_names() -> tuple[str, ...]:
    """Return the names of all words, as layouts use them after ``label.``; opens a file."""
    return tuple(_words()["en"])


def _languages() -> Mapping[str, Language]:
    words = _words()
    languages: dict[str, Language] = {}
    # English has a name for every currency; small languages lack some.
    currencies = frozenset(babel.Locale.parse("en").currencies)
    for name in _LOCALES.split():
        locale = babel.Locale.parse(name)
        language = Language(
            tag=name.replace("_", "-"),
            locale=locale,
            words={**words["en"], **words.get(locale.language, {})},
            currencies=currencies,
        )
        _touch(language)
        languages[name.lower()] = language
    return languages


def _touch(language: Language) -> None:
    """Use every format once, for Babel resolves its data on first use."""
    when = dt.datetime(2026, 7, 1, 18, 0, tzinfo=dt.UTC)
    language.long_date(when)
    language.short_date(when)
    language.time(when)
    for currency in ("EUR", "JPY", "KWD", "INR"):
        language.money(-123456789, currency)


def _zones() -> Mapping[str, ZoneInfo]:
    """Return every zone of the installed tzdata package: the system's own database may be of another year."""
    root = importlib.resources.files("tzdata")
    zones: dict[str, ZoneInfo] = {}
    for name in (root / "zones").read_text("utf-8").split():
        with root.joinpath("zoneinfo", *name.split("/")).open("rb") as file:
            zones[name] = ZoneInfo.from_file(file, key=name)
    return zones
