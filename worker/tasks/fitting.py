"""A look at every prompt before step 0: each is rendered by the model's template and counted, and what cannot be asked is named.

What was found is kept by the hash of all that it depends on: no prompt is looked at twice.
"""

import json
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError
from transformers import PreTrainedConfig, PreTrainedTokenizerBase

from backend.contract.task import Dataset
from worker.errors import RunFailure
from worker.policy.chat import THINK, Chat, context_of, embedded, error_line
from worker.ranks.ranks import ALONE, Ranks
from worker.tasks.items import Item, Items, Prompted

BATCH = 512  # prompts between two looks at whether somebody asked to end
KEPT = 200  # results; the oldest go
MOST_NAMED = 5  # reasons
ROWS_NAMED = 3  # of each
MORE = "are more than the model's context"  # which fewer new tokens may mend
_FORM = 2  # of what is kept: another one when a look finds other things
Show = Callable[[str, int, int], None]
LOOKING = "prompts"  # the phase


def kept_below(home: Path) -> Path:
    """Where it is kept what was found in prompts."""
    return home.resolve() / "prompts"


@dataclass(frozen=True)
class Reader:
    """How prompts are read: the tokenizer with its template, and the longest sequence in tokens (None: not known)."""

    chat: Chat
    context: int | None

    @staticmethod
    def of(tokenizer: PreTrainedTokenizerBase, config: PreTrainedConfig, ends: Iterable[int | None]) -> "Reader":
        """As a policy of this configuration, whose completions end with these tokens, would read them."""
        return Reader(Chat(tokenizer, ends, rows=embedded(config)), context_of(config))


@dataclass(frozen=True)
class Look:
    """What was found: `longest` in tokens; by their places the prompts that cannot be asked, and why; what else to say."""

    prompts: int
    longest: int = 0
    unfit: dict[int, str] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()


_LOOK = TypeAdapter(Look)


def look_at(items: Sequence[Item], reader: Reader, new_tokens: int, show: Show, kept: Path | None = None) -> Look:
    """Render and count all of them.

    `new_tokens` may follow each; `show` may raise to end it; `kept` is a folder of earlier results.
    """
    show(LOOKING, 0, len(items))  # before the template is asked for anything: it may not end
    place = None if kept is None else kept / f"{_key(items, reader, new_tokens, show)}.json"
    if place is not None and (found := _read(place)) is not None:
        return found
    unfit: dict[int, str] = {}
    longest = rendered_twice = thinking = 0
    marks = reader.chat.marks
    for start in range(0, len(items), BATCH):
        show(LOOKING, start, len(items))
        batch = items[start : start + BATCH]
        for at, read in enumerate(_texts(batch, reader.chat), start):
            if isinstance(read, str):
                unfit[at] = read
                continue
            text, ids = read
            longest = max(longest, len(ids))
            if why := _why_not(items[at], text, len(ids), reader.context, new_tokens):
                unfit[at] = why
            thinking += text.rstrip().endswith(THINK)
            rendered_twice += items[at].messages is not None and any(mark in items[at].question for mark in marks)
    look = Look(len(items), longest, unfit, tuple(_remarks(items, reader.chat, rendered_twice, thinking)))
    if place is not None:
        _keep(place, look)
    return look


def _texts(batch: Sequence[Item], chat: Chat) -> list[tuple[str, list[int]] | str]:
    """Each prompt's text and token ids, or why it has none."""
    with suppress(Exception):  # one by one, then, to see which
        texts, rendered = [chat.text(item) for item in batch], {chat.is_rendered(item) for item in batch}
        if len(rendered) == 1:
            return list(zip(texts, chat.tokens(texts, rendered=rendered.pop()), strict=True))
    found: list[tuple[str, list[int]] | str] = []
    for item in batch:
        try:
            found.append(chat.encode(item))
        except RunFailure as failure:
            found.append(failure.message)
        except Exception as error:  # noqa: BLE001 — a template is somebody's program
            found.append(f"the model's chat template refuses it: {error_line(error)}")
    return found


def _why_not(item: Item, text: str, tokens: int, context: int | None, new_tokens: int) -> str:
    """Why the prompt cannot be asked; "" if it can. A template that expects another form leaves messages out; blanks may differ."""
    if not tokens:
        return "it has no tokens; give it some text, or a chat template"
    if context is not None and tokens >= context:
        return f"its {tokens:,} tokens alone fill the model's context ({context:,})"
    if context is not None and tokens + new_tokens > context:
        return f"{tokens:,} tokens and {new_tokens:,} new ones {MORE} of {context:,}"
    written = ""
    for message in item.messages or ():
        if message["content"].strip() not in text:
            written = written or "".join(text.split())
            if "".join(message["content"].split()) not in written:
                return f"the model's chat template leaves the {message['role']}'s message out"
    return ""


def _remarks(items: Sequence[Item], chat: Chat, rendered_twice: int, thinking: int) -> Iterable[str]:
    asked = f"{len(items):,} prompts"
    if rendered_twice:
        yield (
            f"{rendered_twice:,} of {asked} hold {', '.join(sorted(chat.marks))[:100]}, which the chat template writes, too: "
            "they seem to be rendered already, and are rendered again; set prompt_format to raw"
        )
    if thinking:
        yield f"{thinking:,} of {asked} end with an opening <think>, so that a completion begins inside the thoughts"
    if items and chat.is_rendered(items[0]) and not chat.ends_turns:
        ends = ", ".join(map(repr, chat.tokenizer.convert_ids_to_tokens(sorted(chat.stop_ids)))) or "no token"
        yield (
            f"the chat template ends an assistant's turn with none of the tokens that end a completion ({ends}): completions "
            "may run to max_new_tokens; set stop texts, or choose a model whose template and tokenizer belong together"
        )
    if items and chat.is_rendered(items[0]) and chat.unopened:
        yield (
            f"the chat template ignores add_generation_prompt: {chat.unopened[:100]!r}, which it writes before an answer, is not "
            "behind a prompt, so that the model may go on with the question; mend the template, or choose another model"
        )


def fit(
    items: Items,
    task: Prompted,
    reader: Reader,
    new_tokens: int,
    show: Show,
    kept: Path | None = None,
    *,
    ranks: Ranks = ALONE,
) -> tuple[Items, tuple[str, ...]]:
    """The items that can be asked, and what the log should say of them: of a data set that says so the others are left out.

    All of its processes call it together, and the first one looks. Raises RunFailure `prompts_unfit` where nothing may be left
    out, or too little would be left.
    """
    asked = [*items.train, *items.held_out]
    look = look_at(asked, reader, new_tokens, show, kept) if ranks.first else Look(0)
    return fitted(items, task, ranks.of_first(look))


def fitted(items: Items, task: Prompted, look: Look) -> tuple[Items, tuple[str, ...]]:
    """What `fit` gives, from a look at the items to train on and then those held out. Raises as `fit`."""
    asked = [*items.train, *items.held_out]
    if not look.unfit:
        return items, look.remarks
    gone = {id(asked[place]) for place in look.unfit}
    train, held_out = (_without(part, gone) for part in (items.train, items.held_out))
    parts = [(_without(part, gone), share) for part, share in items.parts]
    enough = train and all(part for part, _ in parts) and bool(held_out) == bool(items.held_out)
    wanted = getattr(task, "leave_out_unfit", False)
    if not enough or not wanted:
        raise unfit(asked, task, look, too_few=wanted)
    at, why = next(iter(look.unfit.items()))
    said = f"{len(gone):,} of {look.prompts:,} prompts are left out; the first: {_names([asked[at]], task)}: {why}"
    return replace(items, train=train, held_out=held_out, parts=parts), (*look.remarks, said)


def _without(items: Sequence[Item], gone: set[int]) -> list[Item]:
    return [item for item in items if id(item) not in gone]


def unfit(items: Sequence[Item], task: Prompted, look: Look, *, too_few: bool = False) -> RunFailure:
    """That prompts cannot be asked: which, why, and what to do. `too_few`: without them a part of the data would be empty."""
    by_reason = defaultdict[str, list[Item]](list)
    for at, why in look.unfit.items():
        by_reason[why].append(items[at])
    named = [f"{_names(some, task)}: {why}" for why, some in islice(by_reason.items(), MOST_NAMED)]
    others = len(look.unfit) - sum(len(some) for some in islice(by_reason.values(), MOST_NAMED))
    advice = ["mend them", "choose another model"]
    if any(MORE in why for why in by_reason):
        advice.append("lower max_new_tokens")
    if any(message["role"] == "system" for at in look.unfit for message in items[at].messages or ()):
        advice.append("clear system_prompt, if it is that which the template refuses")
    if isinstance(task, Dataset) and len(look.unfit) < look.prompts and not too_few:
        advice.append("have them left out (leave_out_unfit)")
    why = " Without them nothing is left to train on, to hold out, or of a source with a share." if too_few else ""
    return RunFailure(
        "prompts_unfit",
        f"{len(look.unfit):,} of {look.prompts:,} prompts cannot be asked of this model. {'. '.join(named)}."
        f"{f' And {others:,} more.' if others else ''}{why} What you can do: {'; '.join(advice)}.",
    )


def _names(some: Sequence[Item], task: Prompted) -> str:
    """The first of the items, by their rows where they have any, and how many others there are."""
    if some[0].row is None:
        named = ", ".join(f"“{' '.join(item.question.split())[:60]}”" for item in some[:ROWS_NAMED])
    else:
        rows = ", ".join(str(item.row) for item in some[:ROWS_NAMED])
        named = f"{'Rows' if len(some) > 1 else 'Row'} {rows}"
    more = f" and {len(some) - ROWS_NAMED:,} more" if len(some) > ROWS_NAMED else ""
    column = "" if some[0].row is None else f", column {getattr(task, 'prompt_column', 'prompt')}"
    return f"{named}{more}{column}"


def _key(items: Sequence[Item], reader: Reader, new_tokens: int, show: Show) -> str:
    """The hash of all that a look depends on. `show` may raise to end it: a million rows take seconds."""
    tokenizer: Any = reader.chat.tokenizer
    backend = getattr(tokenizer, "backend_tokenizer", None)
    how = repr(sorted(tokenizer.get_vocab().items()))
    if backend is not None:  # but for what each call sets anew
        how = repr({**json.loads(backend.to_str()), "truncation": None, "padding": None})
    chat = reader.chat
    limits = _FORM, reader.context, chat.rows, new_tokens, sorted(chat.stop_ids), tokenizer.chat_template
    hashed = sha256(repr(limits).encode())
    hashed.update(how.encode())
    hashed.update(repr(sorted(map(str, tokenizer.special_tokens_map.items()))).encode())
    for at, item in enumerate(items):
        if at % BATCH == 0:
            show(LOOKING, 0, len(items))
        hashed.update(repr((item.question, item.messages)).encode(errors="surrogatepass"))
    return hashed.hexdigest()[:32]


def _read(place: Path) -> Look | None:
    try:
        return _LOOK.validate_json(place.read_bytes())
    except (OSError, ValidationError):
        return None


def _keep(place: Path, look: Look) -> None:
    """Nothing depends on its being kept: no run ends because a disk is full."""
    with suppress(OSError, ValueError):
        place.parent.mkdir(parents=True, exist_ok=True)
        partial = place.with_suffix(f".{os.getpid()}.partial")
        partial.write_bytes(_LOOK.dump_json(look))
        os.replace(partial, place)
        for old in sorted(place.parent.glob("*.json"), key=lambda file: file.stat().st_mtime)[:-KEPT]:
            old.unlink(missing_ok=True)
