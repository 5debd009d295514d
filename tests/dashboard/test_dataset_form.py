"""A person's own data in the form: what was found in the file, how it is divided, and which columns the prompts are made of."""

from collections.abc import Sequence
from concurrent.futures import Future
from threading import Event
from types import SimpleNamespace
from typing import Any, BinaryIO

import pytest
from on_screen import Open, arrive, choose, draft_of, key, send, start_disabled, texts, uploader
from serving import Backend, one_for_all
from streamlit.testing.v1 import AppTest

from backend.contract.client import Client
from backend.contract.records import Upload
from dashboard.form import dataset
from dashboard.form.dataset import _show_sent

SEMICOLONS = "Frage;Antwort;Fach\n" + "".join(
    f"Was ist {n} + {n}, größer als 1?;{2 * n};{'ab'[n % 2]}\n" for n in range(40)
)
CHATS = b"".join(
    b'{"prompt": [{"role": "system", "content": "Add."}, {"role": "user", "content": "1 + %d"}], "answer": "%d"}\n'
    % (n, 1 + n)
    for n in (1, 2)
)

backend = pytest.fixture(one_for_all)  # what a test leaves in the list of uploads is nothing to the others


@pytest.fixture
def at(open_page: Open) -> AppTest:
    """The form, with the task dataset."""
    at = open_page("new-run")
    at.selectbox(key=key(at, "task.kind")).set_value("dataset").run()
    return at


def test_it_says_how_a_file_was_read_and_what_is_odd_about_its_rows(at: AppTest) -> None:
    content = "Our *sums*\n" + SEMICOLONS + ";;\n" + SEMICOLONS.splitlines()[1] + "\n"
    send(at, ("mine.csv", content.encode("cp1252")))
    assert "Skipped above the table: Our *sums*" in texts(at)
    assert "41 rows · 3 columns" in texts(at)
    assert (
        "CSV, separated by semicolons · written in cp1252 · **1 row equal to an earlier one** · 1 empty row left out"
        in texts(at)
    )
    assert list(at.dataframe[0].value.iloc[1]) == ["Was ist 1 + 1, größer als 1?", "2", "b"]
    assert "its encoding was guessed: cp1252" in texts(at)
    assert "reads **größer**" in texts(at)


def test_chats_are_prompts_and_rows_that_cannot_be_asked_stop_the_start(at: AppTest) -> None:
    send(at, ("mine.jsonl", CHATS))
    assert draft_of(at).get("task.prompt_column") == "prompt"
    assert '"role": "system"' in at.dataframe[0].value.iloc[0, 0]
    assert list(at.dataframe[1].value.iloc[0]) == [1, "system: Add.\n\nuser: 1 + 1", "2", "as the number 2"]
    assert not start_disabled(at)

    send(at, ("mine.jsonl", CHATS.replace(b'"user"', b'"assistant"')))
    assert start_disabled(at)
    assert "the chat of row 1 ends with assistant; its last turn must be the user's" in texts(at)

    send(at, ("mine.jsonl", b'{"prompt": "a", "answer": "1", "topic": "x"}\n{"prompt": "b", "answer": "2"}\n'))
    at.text_area(key=key(at, "task.template")).set_value("{topic}: {prompt}").run()
    assert start_disabled(at)
    assert "column topic is missing in row 2" in texts(at)


@pytest.mark.thorough
def test_several_files_are_sources_whose_shares_can_be_chosen_and_go_with_their_rows(
    at: AppTest, backend: Backend
) -> None:
    before = {upload.id for upload in backend.client.uploads()}
    rows = "".join(f"{n} + 1,{n + 1}\n" for n in range(20)).encode()
    send(at, ("easy.csv", b"question,answer\n" + rows), ("hard.csv", b"question,answer\n" + rows))
    [upload] = [one for one in backend.client.uploads() if one.id not in before]
    assert (upload.name, upload.rows) == ("easy.csv and 1 more", 40)
    assert draft_of(at).get("task.source_column") == "source"
    sources = next(one.value for one in at.dataframe if "to train on" in one.value.columns)
    assert sources["source"].tolist() == ["easy.csv", "hard.csv"]
    assert (sources["to train on"] + sources["held out"]).tolist() == [20, 20]
    next(button for button in at.button if button.label == "Equal shares").click().run()
    assert draft_of(at).get("task.shares") == {"easy.csv": 1, "hard.csv": 1}
    assert not start_disabled(at)
    at.text_area(key=key(at, "task.shares")).set_value("easy.csv: 3\nhard.csv: 0").run()
    assert start_disabled(at)
    at.text_area(key=key(at, "task.shares")).set_value("easy.csv: 1\nhrd.csv: 3").run()
    assert start_disabled(at)
    assert "no row to train on is from hrd.csv; the rows are from easy.csv, hard.csv" in texts(at)

    for answer in (2, 3):  # under one name: the newer one stays chosen
        send(at, ("twice.csv", f"prompt,answer\n1 + 1,{answer}\n2 + 2,4\n".encode()))
    at.run()
    assert draft_of(at).get("task.source") == f"upload:{backend.client.uploads()[0].id}"

    file = (SEMICOLONS + ";;\n").encode()
    send(at, ("mine.csv", file), ("second.csv", file))
    assert "CSV, separated by semicolons · 2 empty rows left out" in texts(at)
    send(at, ("mine.tsv", b"question\tanswer\n1\t2\n"))
    assert "1 row · 2 columns · 30 B · TSV" in texts(at)

    many = "".join(f"{n} + 1,{n + 1},s{n // 2:02}\n" for n in range(42))
    draft_of(at).change({"task.shares": {"mine.csv": 1.0}})
    send(at, ("many.csv", f"question,answer,source\n{many}".encode()))
    assert draft_of(at).get("task.shares") == {}
    assert "The first 20 of 21 sources, by name" in texts(at)
    assert not any(button.label == "Equal shares" for button in at.button)


@pytest.mark.thorough
def test_of_several_files_of_which_one_cannot_be_read_or_joined_none_is_kept_or_sent_again_or_in_nobodys_way(
    at: AppTest, monkeypatch: pytest.MonkeyPatch, backend: Backend
) -> None:
    before = backend.client.uploads()
    wide = [",".join(f"{letter}{n}" for n in range(200)) + "\n" + "1," * 199 + "1\n" for letter in "ab"]
    send(at, *((f"{place}.csv", text.encode()) for place, text in enumerate(wide)))
    assert "0.csv and 1 more: line 2: brings the file to 401 columns; an upload may have 256" in texts(at)
    send(at, ("good.csv", b"question,answer\n1,2\n"), ("bad.pdf", b"%PDF-1.7"))
    assert "bad.pdf: The file is a PDF. Save it as CSV" in texts(at)

    send(at, ("bad.pdf", b"%PDF-1.7"))
    with monkeypatch.context() as nothing_is_sent:
        nothing_is_sent.setattr(Client, "upload", None)
        at.text_area(key=key(at, "task.system_prompt")).set_value("Reckon.").run()
    assert "bad.pdf: The file is a PDF" in texts(at)
    button = next(button for button in at.button if button.label == "Use these rows")
    assert not button.disabled
    button.click().run()
    assert "Paste rows into the box first" in texts(at)
    assert backend.client.uploads() == before

    rows = "question\tanswer\n1 + 1\t2\n2 + 2\t4\n"
    next(area for area in at.text_area if area.label == "Rows").set_value(rows).run()
    next(button for button in at.button if button.label == "Use these rows").click().run()
    arrive(at)
    upload = backend.client.uploads()[0]
    assert (upload.name, upload.rows, upload.separator) == ("pasted", 2, "tab")
    assert draft_of(at).get("task.source") == f"upload:{upload.id}"
    assert list(at.dataframe[0].value.iloc[0]) == ["1 + 1", "2"]


def test_an_upload_goes_on_when_something_else_is_clicked_meanwhile(
    at: AppTest, backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrived, sent, upload = Event(), list[str](), Client.upload

    def slow(self: Client, name: str, *args: Any, **kwargs: Any) -> Upload:
        sent.append(name)
        assert arrived.wait(60)
        return upload(self, name, *args, **kwargs)

    monkeypatch.setattr(Client, "upload", slow)
    choose(at, ("mine.csv", SEMICOLONS.encode()))
    at.text_area(key=key(at, "task.system_prompt")).set_value("Rechne.").run()
    assert uploader(at).disabled
    assert draft_of(at).get("task.source") == ""
    arrived.set()
    arrive(at)
    assert sent == ["mine.csv"]
    assert draft_of(at).get("task.source") == f"upload:{backend.client.uploads()[0].id}"
    assert draft_of(at).get("task.system_prompt") == "Rechne."
    assert "**36** rows to train on" in texts(at)


def test_columns_are_offered_for_a_file_that_is_sent_once_the_split_is_shown_and_the_template_is_checked(
    at: AppTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[Sequence[tuple[str, BinaryIO]]] = []
    upload = Client.upload_files

    def counted(client: Client, files: Sequence[tuple[str, BinaryIO]], **options: Any) -> Upload:
        sent.append(files)
        return upload(client, files, **options)

    monkeypatch.setattr(Client, "upload_files", counted)
    monkeypatch.setattr(dataset, "TICK", 60.0)  # it arrives before the page is drawn again

    name, column = key(at, "name"), key(at, "task.prompt_column")
    send(at, ("mine.csv", SEMICOLONS.encode()))
    assert key(at, "name") == name
    assert key(at, "task.prompt_column") != column

    assert draft_of(at).get("task.prompt_column") == "Frage"
    assert "In the template: {Frage}, {Antwort}, {Fach}, and {prompt} for the prompt column." in texts(at)
    at.selectbox(key=key(at, "task.answer_column")).set_value("Antwort").run()
    at.text_area(key=key(at, "task.template")).set_value("{Fach}: {prompt}").run()
    at.text_area(key=key(at, "task.system_prompt")).set_value("Rechne.").run()
    assert not start_disabled(at)
    at.text_area(key=key(at, "task.template")).set_value("Rechne {Frge}").run()
    assert start_disabled(at)
    assert "there are {prompt}, {Frage}, {Antwort}, {Fach}" in texts(at)
    at.text_area(key=key(at, "task.template")).set_value("no place at all").run()
    assert start_disabled(at)
    assert "template has no {prompt} and no other column; say where the prompt goes" in texts(at)

    assert "**36** rows to train on, **4** held out for evaluations; the same prompts" in texts(at)
    at.text_input(key=key(at, "task.held_out")).set_value("0.5").run()
    assert "**20** rows to train on, **20** held out" in texts(at)
    assert len(sent) == 1


@pytest.mark.parametrize(
    ("rows", "words"),
    [(None, "waiting for its turn, or being put together"), (1, "1 row read"), (5000, "5,000 rows read")],
)
def test_a_file_that_was_sent_says_how_many_of_its_rows_were_read(
    rows: int | None, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[str] = []
    monkeypatch.setattr(dataset.st, "progress", lambda share, text: shown.append(text))
    monkeypatch.setattr(dataset, "client", lambda: SimpleNamespace(upload_progress=lambda key: rows))
    transfer = SimpleNamespace(upload=Future(), sent=("mine", 7, 7), key="key")
    _show_sent(transfer)  # type: ignore[arg-type]
    assert shown == [f"mine: {words}"]
