"""Which encoding a file that is not UTF-8 is taken for: Windows-1252 unless its letters clearly speak for another."""

from pathlib import Path

import pytest
from serving import Backend

from backend.uploads.encoding import encoding_of, guessed

pytestmark = pytest.mark.usefixtures("read_here")

SUMS = [f"What is {n} plus {n + 1}?,{2 * n + 1}" for n in range(1000)]
RARE = [
    "A book costs £5; what do 3 cost?,£15",
    "What is a jalapeño?,a pepper",
    "How much is a café au lait?,3",
    "Convert 20°C to F,68",
    "It costs €5,5",
    "He said “hello” – and it’s fine,ok",
    "Wie groß ist München?,1",
    "½ of 10?,5",
    "Calculate 3 × 4,12",
    "The area is 4 m²,4",
]
WESTERN = {
    "French": "Où êtes-vous allé cet été ?|Quelle est la forme du verbe être à la première personne ?|Comment dit-on garçon ?",
    "Spanish": "¿Cuántos años tiene la niña?|¿Cuál es la capital de España?|¿Qué número sigue al diez?|el plural de ratón",
    "Portuguese": "Quem escreveu Os Lusíadas? Camões|Qual é o contrário de não?|Como se diz pão em inglês?|três corações",
    "German": "Wie groß ist München in Fuß und Zoll?|Wie heißt die Hauptstadt von Österreich?|Wie viele Tage hat der März?",
    "Swedish": "Hur många dagar har en vecka?|Vad är två plus två?|Vem skrev Fröken Julie?|Vad är motsatsen till hög? låg",
    "Danish": "Hvor mange dage er der i måneden?|Hvad hedder øen syd for Fyn? Ærø|Hvor bor børnene nu, på gården",
    "Italian": "Qual è la città più grande?|Perché il cielo è blu? Così è|Può essere venerdì o lunedì",
    "Finnish": "Mikä on Suomen pääkaupunki?|Kuinka monta päivää on helmikuussa?|Mikä on yön vastakohta?",
}
OTHERS = {
    "cp1250": "Jaka jest stolica Polski? Kraków czy Łódź|Ile dni ma tydzień? sześć|Co to są żółte źródła?|Zażółć gęślą jaźń",
    "iso8859_2": "Příliš žluťoučký kůň úpěl ďábelské ódy|Jaké je hlavní město České republiky?|Kolik dní má týden? čtyři",
    "cp1254": "Türkiye’nin başkenti neresidir?|Şehir ığ Güneş nerede doğar?|Kırmızı ışık ağaç öğrenci",
    "cp1251": "Какая столица России?|Сколько дней в неделе? семь|Кто написал Войну и мир?",
    "koi8_r": "Какая столица России?|Сколько дней в неделе? семь|Кто написал Войну и мир?",
    "cp1253": "Ποια είναι η πρωτεύουσα της Ελλάδας;|Πόσες μέρες έχει η εβδομάδα; επτά|Τι χρώμα έχει ο ουρανός;",
    "cp1255": "מהי בירת ישראל? ירושלים|כמה ימים יש בשבוע? שבעה",
    "cp1256": "ما هي عاصمة مصر؟ القاهرة|كم يوما في الأسبوع؟ سبعة",
    "cp932": "日本の首都はどこですか。東京|一番高い山は何ですか。富士山|水は何度で沸騰しますか。百度",
    "euc_jp": "日本の首都はどこですか。東京|一番高い山は何ですか。富士山|水は何度で沸騰しますか。百度",
    "gb18030": "中国的首都是哪里？北京|一年有多少天？三百六十五|谁写了红楼梦？曹雪芹",
    "big5": "中國的首都是哪裡？北京|一年有多少天？三百六十五|誰寫了紅樓夢？曹雪芹",
    "cp949": "한국의 수도는 어디입니까? 서울|일주일은 며칠입니까? 칠일",
}


def rows(text: str) -> list[str]:
    return [f"{line.replace(',', ';')},x" for line in text.split("|")]


def table(*lines: str) -> str:
    return "\n".join(["prompt,answer", *lines, ""])


@pytest.mark.parametrize("line", RARE)
def test_a_few_letters_among_english_are_western(line: str) -> None:
    for text in (table(line, *SUMS), table(*SUMS, line), table(*SUMS[:200], line), table(*[line] * 10, *SUMS)):
        assert guessed(text.encode("cp1252")) == "cp1252"


def test_names_from_everywhere_among_english_are_western() -> None:
    names = table(*(f"Did José meet Müller; Søren; François; Núñez and Håkan {n}?,no" for n in range(500)))
    assert guessed(names.encode("cp1252")) == "cp1252"
    assert guessed(table(*rows("|".join(WESTERN.values())) * 20).encode("cp1252")) == "cp1252"


@pytest.mark.parametrize("language", WESTERN)
def test_western_languages_are_western_in_few_rows_and_many(language: str) -> None:
    lines = rows(WESTERN[language])
    for text in (table(lines[0]), table(*lines), table(*lines * 50), table(*SUMS[:500], *lines * 10)):
        assert guessed(text.encode("cp1252")) == "cp1252"


@pytest.mark.parametrize("encoding", OTHERS)
def test_letters_that_make_sense_in_one_other_encoding_say_so_in_few_rows_and_many(encoding: str) -> None:
    lines = rows(OTHERS[encoding])
    for text in (table(*lines), table(*lines * 50), table(*SUMS[:500], *lines * 20)):
        assert text.encode(encoding).decode(guessed(text.encode(encoding))) == text


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"])
def test_zero_bytes_say_what_is_no_guess(encoding: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(content := table(*SUMS, "é,x").encode(encoding))
    assert encoding_of(tmp_path / "file", content) == encoding


def test_a_guess_is_said_with_a_word_to_check_and_no_other_encoding_is(shared_backend: Backend) -> None:
    client, text = shared_backend.client, table("a,1", "How much is a café au lait?,3")
    guess = client.upload("a.csv", text.encode("cp1252"))
    assert (guess.encoding, client.preview_upload(guess.id).to_check) == ("cp1252", "café")
    joined = client.join_uploads("both", [guess.id, client.upload("b.csv", b"prompt,answer\nb,2\n").id])
    assert (joined.encoding, client.preview_upload(joined.id).to_check) == ("cp1252", "café")
    for known in ("utf-8", "utf-16"):
        assert client.preview_upload(client.upload("a.csv", text.encode(known)).id).to_check is None
