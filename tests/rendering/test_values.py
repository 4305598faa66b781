"""Money and time as the buyer's language writes them, counted and clocked as the shop means them."""

import datetime as dt

import pytest

from stagedoor.errors import InvalidRequest
from stagedoor.order import Order, Position, Seat
from stagedoor_renderers.fields import FIELDS, Teller, event_content, short_code
from stagedoor_renderers.kit.direction import visual
from stagedoor_renderers.kit.scripts import is_right_to_left
from stagedoor_renderers.stock import Stock
from tests.rendering.orders import event, order, position


def plain(text: str) -> str:
    return text.replace("\u00a0", " ").replace("\u202f", " ").replace("\u200f", "").replace("\u200e", "")


@pytest.mark.parametrize(
    "locale, currency, amount, written",
    [
        ("de-DE", "EUR", 4500, "45,00 €"),
        ("en-GB", "EUR", 4500, "€45.00"),
        ("fr-FR", "EUR", 123456, "1 234,56 €"),
        ("ja-JP", "JPY", 1000, "￥1,000"),
        ("en-US", "JPY", 1000, "¥1,000"),
        ("en-US", "KWD", 1500, "KWD1.500"),
        ("en-IN", "INR", 123456789, "₹12,34,567.89"),
        ("de-CH", "CHF", 1250, "CHF 12.50"),
        ("hu-HU", "HUF", 10050, "100,50 Ft"),
        ("en-US", "USD", -500, "-$5.00"),
        ("sv-SE", "SEK", -500, "−5,00 kr"),
        ("de-CH", "CHF", -500, "CHF-5.00"),
    ],
)
def test_money_has_the_decimals_of_its_currency(
    stock: Stock, locale: str, currency: str, amount: int, written: str
) -> None:
    assert plain(stock.values.language(locale).money(amount, currency)) == written


@pytest.mark.parametrize(
    "locale, currency, shown",
    [
        ("ar-KW", "KWD", ".ك.د -0.500"),
        ("ar-EG", "EUR", "€ -5.00"),
        ("he-IL", "ILS", "₪ -5.00"),
        ("fa-IR", "EUR", "−€ 5.00"),
        ("en-GB", "GBP", "-£5.00"),
    ],
)
def test_the_sign_of_a_negative_amount_stands_before_its_figures(
    stock: Stock, locale: str, currency: str, shown: str
) -> None:
    """From left to right as they stand on paper; without the marks of CLDR a minus would stand behind."""
    written = stock.values.language(locale).money(-500, currency)
    assert plain(visual(written, right_to_left=is_right_to_left(written))) == shown


@pytest.mark.parametrize(
    "locale, word", [("en", "Free"), ("de-AT", "kostenlos"), ("fr-CA", "Gratuit"), ("es-MX", "Gratis"), ("sw", "Free")]
)
def test_nothing_to_pay_is_a_word(stock: Stock, locale: str, word: str) -> None:
    assert stock.values.language(locale).price(0, "EUR") == word


def test_an_unknown_currency_is_refused_by_name(stock: Stock) -> None:
    with pytest.raises(InvalidRequest, match=r"order\.currency: this is no ISO 4217 code") as raised:
        stock.values.language("de").money(1, "EURO")
    assert "EURO" not in str(raised.value)


@pytest.mark.parametrize(
    "asked, found",
    [
        ("de-DE", "de"),
        ("de_at", "de-AT"),
        ("DE-ch", "de-CH"),
        ("zh-TW", "zh-Hant"),
        ("no", "nb"),
        ("es-PE", "es-419"),
        ("pt-AO", "pt-PT"),
        ("zh-Hant-MO", "zh-Hant-HK"),
        ("en-PK", "en-001"),
        ("en-DE", "en-150"),
        ("hi-IN", "en-IN"),
        ("ta-SG", "en-SG"),
        ("zu-ZA", "en-ZA"),
        ("th-TH", "en"),
        ("xx", "en"),
        ("", "en"),
        ("not a locale", "en"),
        ("../../etc/passwd", "en"),
    ],
)
def test_a_locale_is_the_nearest_that_can_be_drawn(stock: Stock, asked: str, found: str) -> None:
    assert stock.values.language(asked).tag == found


IN_LAKH = """
en-IN hi-IN hi hi-Deva-IN hi-Latn-IN hi-u-nu-latn bn bn-IN ta-IN te mr-IN gu-IN kn-IN ml-IN or-IN pa-Guru-IN as-IN
ur-IN ks-Arab-IN sat-Olck-IN kok xx-IN bn-BD en-BD ne-NP ne dz-BT
""".split()  # noqa: SIM905 - a list of words reads better as words


@pytest.mark.parametrize("locale", IN_LAKH)
def test_where_people_count_in_lakh_amounts_and_dates_are_those_of_the_region(stock: Stock, locale: str) -> None:
    """Also in a language whose words cannot be drawn: the English that stands in for it is that of the region."""
    language = stock.values.language(locale)
    assert language.money(123456789, "INR") == "₹12,34,567.89"
    assert language.short_date(dt.datetime(2026, 7, 1, tzinfo=dt.UTC)) == "1 Jul 2026"


def told(stock: Stock, of: Order, who: Position | None = None) -> dict[str, str]:
    language = stock.values.language(of.locale)
    content = {
        **event_content(of.event, language, stock.values),
        **Teller.of(of, language).position(who or of.positions[0]),
    }
    return {name: plain(value) for name, value in content.items()}


def test_times_are_on_the_clocks_of_the_event(stock: Stock) -> None:
    told_ = told(stock, order(event=event(doors_at=dt.datetime(2026, 7, 1, 17, 0, tzinfo=dt.UTC))))
    assert (told_["start"], told_["doors"], told_["offset"], told_["zone_name"]) == (
        "20:00",
        "19:00",
        "UTC+2",
        "Europe/Berlin",
    )


@pytest.mark.parametrize("instant, offset", [("2026-10-25T00:30:00", "UTC+2"), ("2026-10-25T01:30:00", "UTC+1")])
def test_the_hour_that_comes_twice_is_told_apart(stock: Stock, instant: str, offset: str) -> None:
    when = dt.datetime.fromisoformat(instant).replace(tzinfo=dt.UTC)
    told_ = told(stock, order(event=event(starts_at=when)))
    assert (told_["start"], told_["offset"]) == ("02:30", offset)


@pytest.mark.parametrize(
    "zone, offset",
    [("UTC", "UTC"), ("Asia/Kolkata", "UTC+5:30"), ("America/St_Johns", "UTC-2:30"), ("Asia/Kathmandu", "UTC+5:45")],
)
def test_offsets_of_half_and_quarter_hours_are_whole(stock: Stock, zone: str, offset: str) -> None:
    assert told(stock, order(event=event(tz=zone)))["offset"] == offset


def test_the_day_is_the_one_of_the_event_not_of_utc(stock: Stock) -> None:
    late = event(starts_at=dt.datetime(2026, 12, 31, 20, 0, tzinfo=dt.UTC), tz="Asia/Tokyo")
    assert told(stock, order(event=late))["date"] == "Friday, 1 January 2027"


def test_doors_on_another_day_show_their_day(stock: Stock) -> None:
    doors = dt.datetime(2026, 6, 30, 17, 0, tzinfo=dt.UTC)
    assert told(stock, order(event=event(doors_at=doors)))["doors"] == "30 Jun 2026, 19:00"


@pytest.mark.parametrize(
    "starts, opens, doors",
    [
        ("2026-10-25T01:30:00", "2026-10-25T00:30:00", "02:30 (UTC+2)"),
        ("2026-10-25T00:30:00", "2026-10-24T23:30:00", "01:30"),
        ("2026-10-25T09:00:00", "2026-10-24T20:00:00", "24 Oct 2026, 22:00 (UTC+2)"),
        ("2026-10-25T09:00:00", "2026-10-25T08:00:00", "09:00"),
        ("2026-03-29T01:30:00", "2026-03-29T00:30:00", "01:30 (UTC+1)"),
        ("2026-03-29T01:30:00", "2026-03-28T22:00:00", "28 Mar 2026, 23:00 (UTC+1)"),
        ("2026-07-02T18:00:00", "2026-07-01T18:00:00", "1 Jul 2026, 20:00"),
    ],
)
def test_doors_on_other_clocks_than_the_start_show_their_offset(
    stock: Stock, starts: str, opens: str, doors: str
) -> None:
    starts_at, doors_at = (dt.datetime.fromisoformat(when).replace(tzinfo=dt.UTC) for when in (starts, opens))
    assert told(stock, order(event=event(starts_at=starts_at, doors_at=doors_at)))["doors"] == doors


def test_an_unknown_zone_is_refused_by_name(stock: Stock) -> None:
    with pytest.raises(InvalidRequest, match=r"event\.tz: this is no time zone") as raised:
        told(stock, order(event=event(tz="Mars/Olympus")))
    assert "Mars" not in str(raised.value)


# -- seats and holders --------------------------------------------------------


def test_an_addon_has_the_seat_and_holder_of_its_parent(stock: Stock) -> None:
    parent = position(1, holder="Anna", seat=Seat(row="C", number="8"))
    addon = position(2, holder="", seat=None, addon_to=1, category="Programme")
    told_ = told(stock, order(parent, addon), addon)
    assert (told_["holder"], told_["seat"], told_["addon_to"]) == ("Anna", "Row C · Seat 8", "Parkett · Anna")


def test_an_addon_with_a_seat_of_its_own_keeps_it(stock: Stock) -> None:
    addon = position(2, seat=Seat(number="12"), addon_to=1)
    assert told(stock, order(position(1), addon), addon)["seat"] == "Seat 12"


@pytest.mark.parametrize("seat", [None, Seat(), Seat(zone="", row=None, number="")])
def test_no_seat_is_general_admission_and_never_none(stock: Stock, seat: Seat | None) -> None:
    told_ = told(stock, order(position(seat=seat)))
    assert told_["seat"] == told_["general_admission"] == "General admission"
    assert "None" not in "".join(told_.values())


def test_equal_addons_are_counted(stock: Stock) -> None:
    addons = [position(n, addon_to=1, category=name) for n, name in ((2, "Drink"), (3, "Programme"), (4, "Drink"))]
    assert told(stock, order(position(1), *addons))["addons"] == "2 × Drink · Programme"


def test_a_refunded_addon_is_not_listed(stock: Stock) -> None:
    assert told(stock, order(position(1), position(2, addon_to=1, status="refunded")))["addons"] == ""


def test_the_short_code_is_the_tokens_beginning(stock: Stock) -> None:
    assert short_code("K7QF2M3NZX4ABCDEFGHIJ234YZ") == "K7QF-2M3N"
    assert short_code("K7Q") == "K7Q"


def test_nothing_is_told_that_is_not_declared(stock: Stock) -> None:
    """What an output may show is a list; whatever else an order may carry one day stays out of it."""
    whole = order(position(1), position(2, addon_to=1))
    language = stock.values.language("en-GB")
    told = {*Teller.of(whole, language).position(whole.positions[1]), *event_content(event(), language, stock.values)}
    assert {name for name in told if not name.startswith("label.")} == FIELDS.keys()
