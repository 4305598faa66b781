"""Orders that look like those of real shops, from a seed: pure.

Names, venues, zones and currencies of the world, as far as the built-in
renderers can write them: Latin with accents, Vietnamese, Greek, Cyrillic,
Hebrew, Arabic, Chinese, Japanese and Korean.
"""

import datetime as dt
import random
from collections.abc import Iterator

import attrs

from stagedoor.order import Event, NewOrder, NewPosition, Seat, TaxLine

ROWS_LATIN = "ABCDEFGHKLMNPRST"
ROWS_JAPANESE = "いろはにほへと"
MOST_POSITIONS = 4
ADDON_SHARE = 0.18
REDUCED_SHARE = 0.2
TAX_PERCENT = {"EUR": 7, "GBP": 20, "INR": 18}


@attrs.frozen(kw_only=True)
class Category:
    """One kind of place; its price counts the currency's smallest unit, and where one stands there are no seats."""

    name: str
    amount_minor: int
    zone: str | None = None
    is_seated: bool = True


@attrs.frozen(kw_only=True)
class Show:
    """One event on sale, and who buys it.

    *starts* are local times. *family_first* writes a family's name in front, and
    *joint* stands between the two names. Where families are called otherwise for
    men, *family* has both, ``Ξενάκη|Ξενάκης``, and *men* the men's given names.
    """

    name: str
    venue: str
    tz: str
    locale: str
    currency: str
    starts: tuple[str, ...]
    doors_minutes: int | None
    categories: tuple[Category, ...]
    reduced: str
    addons: tuple[tuple[str, int], ...]
    given: tuple[str, ...]
    family: tuple[str, ...]
    men: tuple[str, ...] = ()
    family_first: bool = False
    joint: str = " "
    sub_event: str | None = None
    rows: str = ROWS_LATIN
    tax: str = ""
    terms: str = ""


def make_orders(count: int, seed: int) -> Iterator[NewOrder]:
    """Yield so many orders; the same seed yields the same ones."""
    rng = random.Random(f"programme {seed}")
    for number in range(1, count + 1):
        show = SHOWS[(number - 1) % len(SHOWS)] if number <= len(SHOWS) else rng.choice(SHOWS)
        yield _order(show, number, rng)


def _order(show: Show, number: int, rng: random.Random) -> NewOrder:
    positions = tuple(_positions(show, rng))
    total = sum(position.amount_minor for position in positions)
    starts_at = _instant(rng.choice(show.starts), show.tz)
    doors_at = None if show.doors_minutes is None else starts_at - dt.timedelta(minutes=show.doors_minutes)
    event = Event(
        name=show.name,
        venue=show.venue,
        starts_at=starts_at,
        doors_at=doors_at,
        tz=show.tz,
        sub_event=show.sub_event,
        terms=show.terms,
    )
    percent = TAX_PERCENT.get(show.currency, 0)
    taxes = (TaxLine(label=f"{show.tax} {percent} %", amount_minor=round(total * percent / (100 + percent))),)
    return NewOrder(
        event=event,
        locale=show.locale,
        currency=show.currency,
        buyer=positions[0].holder,
        positions=positions,
        receipt_number=f"{starts_at.year}-{number:05d}",
        taxes=taxes if percent and total and show.tax else (),
    )


def _instant(local: str, tz: str) -> dt.datetime:
    from zoneinfo import ZoneInfo  # noqa: PLC0415 - one use

    return dt.datetime.fromisoformat(local).replace(tzinfo=ZoneInfo(tz)).astimezone(dt.UTC)


def _positions(show: Show, rng: random.Random) -> Iterator[NewPosition]:
    family = rng.choice(show.family)
    category = rng.choice(show.categories)
    admissions = rng.choices((1, 2, 3, MOST_POSITIONS), weights=(30, 45, 15, 10))[0]
    seats = _seats(category, show.rows, admissions, rng=rng)
    position_id = 0
    for place in range(admissions):
        position_id += 1
        admission = position_id
        is_reduced = place > 0 and category.amount_minor > 0 and rng.random() < REDUCED_SHARE
        yield NewPosition(
            id=position_id,
            holder=_name(show, family, rng),
            category=f"{category.name}, {show.reduced}" if is_reduced else category.name,
            amount_minor=category.amount_minor * 6 // 10 if is_reduced else category.amount_minor,
            seat=seats[place],
        )
        has_room = position_id + admissions - place - 1 < MOST_POSITIONS
        if show.addons and has_room and rng.random() < ADDON_SHARE:
            position_id += 1
            name, amount = rng.choice(show.addons)
            yield NewPosition(id=position_id, holder="", category=name, amount_minor=amount, addon_to=admission)


def _seats(category: Category, rows: str, count: int, *, rng: random.Random) -> list[Seat | None]:
    """Return neighbours in one row, or no seats where one stands or sits where one likes."""
    if not category.is_seated:
        return [None] * count
    row, first = rng.choice(rows), rng.randrange(1, 28)
    return [Seat(zone=category.zone, row=row, number=str(first + place)) for place in range(count)]


def _name(show: Show, family: str, rng: random.Random) -> str:
    given = rng.choice(show.given + show.men)
    # One in five goes with somebody of another name.
    own = family if rng.random() < 4 / 5 else rng.choice(show.family)
    own = own.split("|")[-1 if given in show.men else 0]
    return f"{own}{show.joint}{given}" if show.family_first else f"{given}{show.joint}{own}"


# -- what is on -----------------------------------------------------------------

SHOWS: tuple[Show, ...] = (
    Show(
        name="Der Widerspenstigen Zähmung",
        venue="Theater am Fluss, Berlin",
        tz="Europe/Berlin",
        locale="de-DE",
        currency="EUR",
        starts=("2027-03-27T20:00", "2027-03-28T18:00", "2027-10-30T20:00", "2027-10-31T18:00"),
        doors_minutes=45,
        categories=(
            Category(name="Parkett", amount_minor=4500, zone="Parkett"),
            Category(name="1. Rang", amount_minor=3200, zone="1. Rang"),
            Category(name="Galerie", amount_minor=1800, zone="Galerie"),
        ),
        reduced="ermäßigt",
        addons=(("Programmheft", 350), ("Glas Sekt", 750)),
        given=("Jürgen", "Käthe", "Sören", "Zoë", "Anneliese", "Mareike", "Jörg", "Björn", "Renée", "Ümit"),
        family=("Groß", "Müller-Lüdenscheidt", "Weiß", "Šimek", "von der Höhe", "Yılmaz", "Schäfer", "Krüger"),
        tax="MwSt.",
        terms="Einlass nach Beginn nur in der Pause. Ermäßigung bitte am Eingang nachweisen.\n"
        "Die Karte gilt nur zusammen mit dem QR-Code und nur einmal.",
    ),
    Show(
        name="能「羽衣」",
        venue="京都観世会館",
        tz="Asia/Tokyo",
        locale="ja-JP",
        currency="JPY",
        starts=("2027-04-10T13:30", "2027-09-12T18:30"),
        doors_minutes=30,
        categories=(
            Category(name="正面席", amount_minor=8000, zone="正面"),
            Category(name="脇正面席", amount_minor=6000, zone="脇正面"),
            Category(name="中正面席", amount_minor=5000, zone="中正面"),
        ),
        reduced="学生",
        addons=(("パンフレット", 800),),
        given=("太郎", "花子", "健一", "さくら", "陽菜", "大翔", "美咲", "蓮"),
        family=("山田", "佐藤", "鈴木", "高橋", "渡辺", "小林", "齋藤"),
        family_first=True,
        rows=ROWS_JAPANESE,
        terms="開演後のご入場はお待ちいただく場合がございます。",
    ),
    Show(
        name="ليلة الموسيقى العربية",
        venue="دار الأوبرا، الكويت",
        tz="Asia/Kuwait",
        locale="ar-KW",
        currency="KWD",
        starts=("2027-02-18T20:00", "2027-11-04T20:30"),
        doors_minutes=60,
        categories=(
            Category(name="الصالة", amount_minor=15000, zone="الصالة"),
            Category(name="الشرفة", amount_minor=9500, zone="الشرفة"),
        ),
        reduced="مخفّضة",
        addons=(("كتيّب البرنامج", 1500),),
        given=("فاطمة", "يوسف", "مريم", "عبدالله", "نورة", "خالد", "ليلى", "حسن"),
        family=("العتيبي", "الصباح", "المطيري", "الراشد", "الخالدي"),
        rows="123456789",
        terms="يُسمح بالدخول مرة واحدة فقط بهذه التذكرة.",
    ),
    Show(
        name="Αντιγόνη",
        venue="Θέατρο στο Λόφο, Αθήνα",
        tz="Europe/Athens",
        locale="el-GR",
        currency="EUR",
        starts=("2027-07-16T21:00", "2027-08-21T21:00"),
        doors_minutes=60,
        categories=(
            Category(name="Κάτω διάζωμα", amount_minor=5000, zone="Κάτω διάζωμα"),
            Category(name="Άνω διάζωμα", amount_minor=2500, is_seated=False),
        ),
        reduced="μειωμένο",
        addons=(("Πρόγραμμα", 500),),
        given=("Ελένη", "Μαρία", "Σοφία", "Κατερίνα"),
        men=("Γιώργος", "Δημήτρης", "Νίκος", "Άγγελος"),
        family=("Παπαδοπούλου|Παπαδόπουλος", "Νικολάου", "Μαύρου|Μαύρος", "Ξενάκη|Ξενάκης", "Ιωάννου"),
        rows="ΑΒΓΔΕΖΗΘ",
        tax="ΦΠΑ",
    ),
    Show(
        name="Múa rối nước Thăng Long",
        venue="Nhà hát Múa rối, Hà Nội",
        tz="Asia/Ho_Chi_Minh",
        locale="vi-VN",
        currency="USD",
        starts=("2027-02-06T17:15", "2027-02-07T18:30", "2027-05-01T20:00"),
        doors_minutes=20,
        categories=(
            Category(name="Hạng A", amount_minor=900, zone="Tầng trệt"),
            Category(name="Hạng B", amount_minor=600, zone="Ban công"),
        ),
        reduced="trẻ em",
        addons=(("Quạt giấy", 300),),
        given=("Thị Ánh", "Văn Đức", "Ngọc Huyền", "Minh Quân", "Thị Hằng", "Quốc Bảo", "Thùy Dương"),
        family=("Nguyễn", "Trần", "Lê", "Phạm", "Đỗ", "Vũ", "Bùi"),
        family_first=True,
    ),
    Show(
        name="Лісова пісня",
        venue="Театр на Подолі, Київ",
        tz="Europe/Kyiv",
        locale="uk-UA",
        currency="EUR",
        starts=("2027-03-27T19:00", "2027-06-05T19:00"),
        doors_minutes=30,
        categories=(
            Category(name="Партер", amount_minor=1800, zone="Партер"),
            Category(name="Балкон", amount_minor=900, zone="Балкон"),
        ),
        reduced="пільговий",
        addons=(("Програма", 200),),
        given=("Оксана", "Тарас", "Соломія", "Ярослав", "Юлія", "Дмитро", "Ївга", "Максим"),
        family=("Шевченко", "Ковальчук", "Бондаренко", "Мельник", "Їжакевич", "Савченко"),
        rows="АБВГДЕЖ",
        tax="ПДВ",
    ),
    Show(
        name="שיר השירים",
        venue="היכל התרבות, תל אביב",
        tz="Asia/Jerusalem",
        locale="he-IL",
        currency="USD",
        starts=("2027-05-20T20:30", "2027-09-02T20:00"),
        doors_minutes=45,
        categories=(
            Category(name="אולם", amount_minor=6200, zone="אולם"),
            Category(name="יציע", amount_minor=4100, zone="יציע"),
        ),
        reduced="מוזל",
        addons=(("תוכנייה", 400),),
        given=("נועה", "איתי", "תמר", "יונתן", "מאיה", "דוד", "שירה", "אורי"),
        family=("כהן", "לוי", "מזרחי", "פרץ", "ביטון", "אברהם"),
        rows="123456789",
    ),
    Show(
        name="판소리 춘향가",
        venue="한강소극장, 서울",
        tz="Asia/Seoul",
        locale="ko-KR",
        currency="USD",
        starts=("2027-04-24T15:00", "2027-10-09T19:30"),
        doors_minutes=30,
        categories=(
            Category(name="R석", amount_minor=5500, zone="1층"),
            Category(name="S석", amount_minor=3800, zone="2층"),
        ),
        reduced="청소년",
        addons=(("프로그램북", 500),),
        given=("민준", "서연", "지훈", "하은", "도윤", "수아", "예준"),
        family=("김", "이", "박", "최", "정", "강"),
        family_first=True,
        joint="",
    ),
    Show(
        name="茶馆",
        venue="外滩剧院，上海",
        tz="Asia/Shanghai",
        locale="zh-CN",
        currency="USD",
        starts=("2027-03-13T19:15", "2027-12-04T19:15"),
        doors_minutes=45,
        categories=(
            Category(name="甲等票", amount_minor=6800, zone="一层"),
            Category(name="乙等票", amount_minor=4200, zone="二层"),
        ),
        reduced="学生票",
        addons=(("节目单", 300),),
        given=("伟", "芳", "秀英", "静怡", "建国", "思远", "雨桐"),
        family=("王", "李", "张", "刘", "陈", "欧阳"),
        family_first=True,
        joint="",
    ),
    Show(
        name="Le Bourgeois gentilhomme",
        venue="Théâtre de la Gaîté, Paris",
        tz="Europe/Paris",
        locale="fr-FR",
        currency="EUR",
        starts=("2027-01-22T20:30", "2027-06-19T16:00"),
        doors_minutes=None,
        categories=(
            Category(name="Carré or", amount_minor=6900, zone="Orchestre"),
            Category(name="Première catégorie", amount_minor=4800, zone="Corbeille"),
            Category(name="Strapontin", amount_minor=1500, zone="Balcon"),
        ),
        reduced="tarif réduit",
        addons=(("Livret", 600), ("Vestiaire", 200)),
        given=("François", "Hélène", "Éloïse", "Jérôme", "Noël", "Maëlys", "Gaëtan", "Anaïs"),
        family=("Lefèvre", "D’Hérouville", "Béranger", "N’Guessan", "Châtelain", "Œuvrard"),
        tax="TVA",
    ),
    Show(
        name="Twelfth Night, or What You Will",
        venue="The Wharf Playhouse, London",
        tz="Europe/London",
        locale="en-GB",
        currency="GBP",
        starts=("2027-03-28T14:00", "2027-03-28T19:30", "2027-10-31T19:30"),
        doors_minutes=30,
        categories=(
            Category(name="Stalls", amount_minor=5250, zone="Stalls"),
            Category(name="Dress Circle", amount_minor=4100, zone="Dress Circle"),
            Category(name="Yard (standing)", amount_minor=1000, is_seated=False),
        ),
        reduced="under 16",
        addons=(("Programme", 500), ("Interval ice cream", 350)),
        given=("Siân", "Niamh", "Oluwaseun", "Harriet", "Ruaridh", "Priya", "Chloë", "Tom"),
        family=("O’Brien", "Fitzgerald & Sons", "Mac an tSaoir", "Adébáyò", "Smith-Wrigley", "Patel"),
        tax="VAT",
        terms="Latecomers are seated at a suitable break. No re-admission.\n"
        "<b>Bags</b> larger than A4 & umbrellas stay in the cloakroom.",
    ),
    Show(
        name="Ragas at Dawn",
        venue="Amber Courtyard, Jaipur",
        tz="Asia/Kolkata",
        locale="en-IN",
        currency="INR",
        starts=("2027-02-14T05:45", "2027-11-28T06:00"),
        doors_minutes=45,
        categories=(
            Category(name="Courtyard", amount_minor=150000, is_seated=False),
            Category(name="Pavilion", amount_minor=12500000, zone="Pavilion"),
        ),
        reduced="student",
        addons=(("Chai and breakfast", 45000),),
        given=("Ānanda", "Meera", "Śyāma", "Arjun", "Lakṣmī", "Rohan", "Kāvya"),
        family=("Śarmā", "Rāṭhauṛ", "Iyer", "Banerjee", "Kaur", "D’Souza"),
        tax="GST",
    ),
    Show(
        name="Ljóðakvöld — opið svið",
        venue="Iðnó við Tjörnina, Reykjavík",
        tz="Atlantic/Reykjavik",
        locale="is-IS",
        currency="EUR",
        starts=("2027-06-17T20:00", "2027-12-01T20:00"),
        doors_minutes=None,
        categories=(Category(name="Almennt", amount_minor=0, is_seated=False),),
        reduced="",
        addons=(),
        given=("Þórunn", "Ásdís", "Sigríður", "Björk"),
        men=("Guðmundur", "Ævar", "Ísak"),
        family=("Jónsdóttir|Jónsson", "Ólafsdóttir|Ólafsson", "Þorsteinsdóttir|Þorsteinsson", "Ægisdóttir|Ægisson"),
    ),
    Show(
        name="A Midsummer Night’s Dream",
        venue="Pier 61 Stage, New York",
        tz="America/New_York",
        locale="en-US",
        currency="USD",
        starts=("2027-03-13T20:00", "2027-03-14T20:00", "2027-11-06T20:00", "2027-11-07T20:00"),
        doors_minutes=45,
        categories=(
            Category(name="Orchestra", amount_minor=12900, zone="Orchestra Left"),
            Category(name="Mezzanine", amount_minor=8900, zone="Mezzanine"),
            Category(name="Rush", amount_minor=0, is_seated=False),
        ),
        reduced="senior",
        addons=(("Playbill, signed", 2000), ("Coat check", 400)),
        given=("Mackenzie", "José", "Siobhán", "DeAndre", "Zoë", "Ngozi", "Björn", "Xiomara"),
        family=("Núñez", "O'Shaughnessy", "Kowalczyk", "Washington", "Ågren", "St. John"),
        sub_event="Late show",
    ),
    Show(
        name="Rusalka",
        venue="Divadlo U Řeky, Praha",
        tz="Europe/Prague",
        locale="cs-CZ",
        currency="EUR",
        starts=("2027-05-08T19:00", "2027-10-28T17:00"),
        doors_minutes=30,
        categories=(
            Category(name="Přízemí", amount_minor=3900, zone="Přízemí"),
            Category(name="I. balkon", amount_minor=2600, zone="I. balkon"),
        ),
        reduced="zlevněné",
        addons=(("Program", 150),),
        given=("Šárka", "Zdeňka", "Ľubica", "Růžena"),
        men=("Jiří", "Matěj", "Ondřej", "Bořivoj"),
        family=("Řehořová|Řehoř", "Dvořáková|Dvořák", "Černá|Černý", "Šťastná|Šťastný", "Příhodová|Příhoda"),
        tax="DPH",
    ),
    Show(
        name="Karagöz ile Hacivat",
        venue="Çınaraltı Sahnesi, İstanbul",
        tz="Europe/Istanbul",
        locale="tr-TR",
        currency="EUR",
        starts=("2027-03-20T15:00", "2027-09-18T21:00"),
        doors_minutes=15,
        categories=(Category(name="Serbest oturma", amount_minor=700, is_seated=False),),
        reduced="çocuk",
        addons=(("Gölge oyunu figürü", 450),),
        given=("Işıl", "İbrahim", "Ayşe", "Gökçe", "Çağrı", "Şule", "Oğuz"),
        family=("Yılmaz", "Öztürk", "Güneş", "Çelik", "Işık", "Doğan"),
        tax="KDV",
    ),
)
