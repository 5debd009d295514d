"""Which encoding a text is in: UTF-8, what its zero bytes or its mark say, or else a guess from its letters.

Windows-1252, the Western one, is guessed unless the letters clearly speak for another: then no Western language writes most of them,
and another language in its encoding writes nearly all. Statistics over bytes, as charset_normalizer's, read English with one `é` as Polish.
"""

import codecs
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from pathlib import Path

CHUNK = 2**20
SAMPLE = 2**18  # bytes that show an encoding
WESTERN = "cp1252"
ENOUGH = 5  # letters that speak against Windows-1252 before another encoding is considered
RARE = 0.05  # share of words with such letters below which a text may take them from all Western languages: English with names
FITS_WESTERN, FITS_OTHER, FOREIGN = 0.85, 0.95, 0.5
"""Shares of the letters beyond ASCII: one language writes them; one other does; no Western one could."""

_MARKS = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF32_LE: "utf-32", codecs.BOM_UTF32_BE: "utf-32"}
_MARKS |= {codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
_WEST = {
    "Catalan": "àçèéíïòóúü·",
    "Danish": "æøåéáäöü",
    "Dutch": "áèéêëïíóöü",
    "Estonian": "äõöüšž",
    "Finnish": "äöåšž",
    "French": "àâæçèéêëîïôœùûüÿñ",
    "German": "äöüßéàè",
    "Icelandic": "áðéíóúýþæö",
    "Italian": "àèéìíîòóùú",
    "Irish": "áéíóú",
    "Portuguese": "áâãàçéêíóôõúüªº",
    "Spanish": "áéíñóúüªº",
    "Swedish": "åäöéàü",
}
_CENTRAL = {
    "Polish": "ąćęłńóśźż",
    "Czech": "áčďéěíňóřšťúůýž",
    "Slovak": "áäčďéíĺľňóôŕšťúýž",
    "Hungarian": "áéíóöőúüű",
    "Romanian": "ăâîşţ",
    "Croatian": "čćđšž",
}
_LATIN: Mapping[str, Mapping[str, str]] = {
    "cp1250": _CENTRAL,
    "iso8859_2": _CENTRAL,
    "cp1254": {"Turkish": "çğıöşüİâîû"},
    "cp1257": {"Lithuanian": "ąčęėįšųūž", "Latvian": "āčēģīķļņšūž"},
    "mac_roman": _WEST,  # a spreadsheet's on a Macintosh
    "cp850": _WEST,  # of DOS
}
# whose letters Turkish looks like
_ANY_WEST = "".join(letters for name, letters in _WEST.items() if name != "Icelandic")
_RUSSIAN = "абвгдежзийклмнопрстуфхцчшщъыьэюяё"
_SCRIPTS: Mapping[str, Mapping[str, str]] = {
    "cp1255": {"Hebrew": "אבגדהוזחטיךכלםמןנסעףפץצקרשת"},  # before Cyrillic, since it looks like small letters of that
    "cp1251": {
        "Russian": _RUSSIAN,
        "Ukrainian": "абвгґдеєжзиіїйклмнопрстуфхцчшщьюя",
        "Serbian": "абвгдђежзијклљмнњопрстћуфхцчџш",
    },
    "koi8_r": {"Russian": _RUSSIAN},
    "cp1253": {"Greek": "αβγδεζηθικλμνξοπρσςτυφχψωάέήίόύώϊϋΐΰ"},
    "cp1256": {"Arabic": "".join(map(chr, range(0x621, 0x653))) + "\u067e\u0686\u0698\u06af"},
}
_EASTERN_MARKS = frozenset("、。，．？！：；・「」『』（）【】《》“”‘’…—～　％")
KANA = 0.15
"""The least share of syllables in Japanese."""
_AROUND = "".join(chr(code) for code in range(0xA0, 0xC0) if chr(code) not in "ªº") + "؟،؛" + "‘’‚“”„†‡•…‰‹›€™–—×÷"
"""Signs that may touch a word in any of the languages, as in £5, m² or “so”."""
_WORD = re.compile(r"[A-Za-z\x80-\U0010ffff]+")
_BETWEEN = re.compile(r"[’‘“”«»–—…·×÷\xa0\xad]")  # ends a word, and a piece of don’t or of l’été


def encoding_of(path: Path, head: bytes) -> str:
    """Of the file, which begins with `head`. UTF-8 if the whole of it is, apart from a broken byte."""
    for mark, encoding in _MARKS.items():
        if head.startswith(mark):
            return encoding
    begin = head[:SAMPLE]
    if begin.count(0) > len(begin) // 5:  # half of the bytes of English in UTF-16, three of four in UTF-32
        zeros = [begin[at::4].count(0) for at in range(4)]
        if sum(zeros) > len(begin) * 0.7:
            return "utf-32-be" if zeros[0] > zeros[3] else "utf-32-le"
        return "utf-16-be" if zeros[0] + zeros[2] > zeros[1] + zeros[3] else "utf-16-le"
    sample = _first_beyond(path)
    if sample is None:
        return "utf-8"
    read = [one for one in sample.decode("utf-8", errors="replace") if one > "\x7f"]
    if read.count("\ufffd") < len(read) / 2:
        return "utf-8"  # reading it will find the broken byte, and name the line
    return guessed(sample)


def is_guess(encoding: str | None) -> bool:
    """Whether no mark, zero byte or rule of UTF-8 says it."""
    return encoding is not None and not encoding.startswith("utf")


def _first_beyond(path: Path) -> bytes | None:
    """Whole lines around the first byte that is not UTF-8; None if there is none."""
    decoder, at = codecs.getincrementaldecoder("utf-8")(), 0
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            try:
                decoder.decode(chunk)
            except UnicodeDecodeError as error:
                at += error.start
                break
            at += len(chunk)
        else:
            return None
        begin = max(0, at - SAMPLE // 2)
        file.seek(begin)
        sample = file.read(SAMPLE)
    return sample[sample.find(b"\n") + 1 if begin else 0 : sample.rfind(b"\n") + 1] or sample  # no letter cut in two


def guessed(sample: bytes) -> str:
    """The encoding of a text that is not UTF-8."""
    words = _words(sample, WESTERN)
    letters, plain = _letters(words), len(_WORD.findall(sample.decode("ascii", errors="ignore")))
    languages = [*_WEST.values(), *([_ANY_WEST] if words.total() < RARE * plain else [])]
    fits = _fit(words, languages, most=3)
    if letters * (1 - fits) < ENOUGH or fits >= FITS_WESTERN:
        return WESTERN
    shares = {name: _fit(_words(sample, name), others.values(), most=4) for name, others in _LATIN.items()}
    if 1 - _fit(words, [_ANY_WEST], most=3) >= FOREIGN:
        shares |= {name: _fit(_words(sample, name), others.values(), most=99) for name, others in _SCRIPTS.items()}
        shares |= {name: _share(sample, name, is_usual) for name, is_usual in _EASTERN.items()}
    best = max(shares, key=lambda name: shares[name])  # of equals the first
    return best if shares[best] >= FITS_OTHER else WESTERN


def _words(sample: bytes, encoding: str) -> Counter[str]:
    """The words with letters beyond ASCII, and how often each occurs."""
    pieces = _BETWEEN.sub(" ", sample.decode(encoding, errors="replace"))
    words = (word.strip(_AROUND) for word in _WORD.findall(pieces))
    return Counter(word for word in words if not word.isascii())


def _letters(words: Mapping[str, int]) -> int:
    return sum(times * sum(not one.isascii() for one in word) for word, times in words.items())


def _fit(words: Counter[str], languages: Iterable[str], *, most: int) -> float:
    """The largest share of the letters beyond ASCII that are in words of one language, given by its letters.

    None of these languages has a capital after a small letter, or more than `most` letters beyond ASCII in a row; another
    script that is read as Latin has.
    """
    too_many = re.compile(rf"[^\x00-\x7f]{{{most + 1}}}")
    plausible = {
        word: times
        for word, times in words.items()
        if not too_many.search(word) and not any(one.islower() and other.isupper() for one, other in pairwise(word))
    }

    def written(alphabet: frozenset[str]) -> int:
        fitting = (word for word in plausible if alphabet.issuperset(one for one in word if not one.isascii()))
        return _letters({word: plausible[word] for word in fitting})

    return max(written(frozenset(one + one.upper())) for one in languages) / (_letters(words) or 1)


def _share(sample: bytes, encoding: str, is_usual: Callable[[str], bool]) -> float:
    """The share of the signs beyond ASCII, apart from marks between words, that are usual; 0 for Japanese without its syllables."""
    signs = [one for one in sample.decode(encoding, errors="replace") if one > "\x7f" and one not in _EASTERN_MARKS]
    if encoding in ("cp932", "euc_jp") and sum(map(_is_kana, signs)) < KANA * len(signs):
        return 0.0
    return sum(map(is_usual, signs)) / (len(signs) or 1)


def _is_kana(sign: str) -> bool:
    return "\u3041" <= sign <= "\u30ff"


def _leads(encoding: str, low: int, high: int) -> Callable[[str], bool]:
    """Whether the first of a sign's two bytes is within bounds: there the signs lie that are used most."""

    def is_usual(sign: str) -> bool:
        written = sign.encode(encoding, errors="ignore")
        return len(written) == 2 and low <= written[0] <= high

    return is_usual


_EASTERN: Mapping[str, Callable[[str], bool]] = {
    "cp932": lambda sign: _is_kana(sign) or "\u4e00" <= sign <= "\u9fff",
    "euc_jp": lambda sign: _is_kana(sign) or "\u4e00" <= sign <= "\u9fff",
    "cp949": lambda sign: "\uac00" <= sign <= "\ud7a3",
    "gb18030": _leads("gb2312", 0xB0, 0xD7),
    "big5": _leads("big5", 0xA4, 0xC6),
}
"""In this order: Japanese shows itself by its syllables, and every Korean text is a Chinese one, too, of other signs."""
