"""How a tokenizer and its chat template write what is asked and what is answered, and which tokens end a turn."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Protocol

from transformers import PreTrainedConfig, PreTrainedTokenizerBase

from worker.errors import RunFailure

THINK = "<think>"
_PROBE = "An answer, 4711."  # which no template writes itself


class Promptable(Protocol):
    """Something that is asked: chat messages, or a raw question."""

    @property
    def question(self) -> str:
        """The question as the task words it."""

    @property
    def messages(self) -> tuple[dict[str, str], ...] | None:
        """Chat messages; None for a raw prompt."""


def embedded(config: PreTrainedConfig) -> int | None:
    """How many tokens have an embedding in a model of this configuration; None if it does not say."""
    rows = getattr(config.get_text_config(), "vocab_size", None)
    return rows if isinstance(rows, int) else None


def context_of(config: PreTrainedConfig) -> int | None:
    """The longest sequence in tokens that a model was made for; None if its configuration does not say."""
    limit = getattr(config.get_text_config(), "max_position_embeddings", None)
    return int(limit) if isinstance(limit, int) else None


def error_line(error: Exception) -> str:
    """What a library says, in one line."""
    return " ".join(str(error).split())[:500] or type(error).__name__


class Chat:
    """A tokenizer with its template.

    `ends` are tokens that end a completion whatever the template says; `rows` is how many have an embedding (None: all).
    """

    def __init__(
        self, tokenizer: PreTrainedTokenizerBase, ends: Iterable[int | None] = (), *, rows: int | None = None
    ) -> None:
        self.tokenizer, self.rows = tokenizer, rows
        self._beyond = rows is not None and len(tokenizer) > rows
        self._ends = {one for one in (*ends, tokenizer.eos_token_id) if one is not None}

    @cached_property
    def end(self) -> int | None:
        """The special token that the template writes behind an assistant's turn; None if there is none, or no template.

        Models are trained to end with it, and in some tokenizers it is not the end-of-text token.
        """
        behind = self._behind()
        ids = self.tokenizer(behind.lstrip(), add_special_tokens=False)["input_ids"] if behind else []
        return int(ids[0]) if ids and ids[0] in self.special else None

    @cached_property
    def special(self) -> set[int]:
        """The tokens that no text is made of: added ones may be runs of blanks."""
        added = self.tokenizer.added_tokens_decoder.items()
        return {*self.tokenizer.all_special_ids, *(place for place, token in added if token.special)}

    @cached_property
    def marks(self) -> set[str]:
        """The special tokens that the template writes around turns, as texts."""
        rendered = self._probed([{"role": "user", "content": _PROBE}])
        written = self.special.intersection(self.tokenizer(rendered, add_special_tokens=False)["input_ids"])
        return set(self.tokenizer.convert_ids_to_tokens(sorted(written)))

    @cached_property
    def stop_ids(self) -> set[int]:
        """The tokens that end a completion."""
        return self._ends if self.end is None else self._ends | {self.end}

    @cached_property
    def ends_turns(self) -> bool:
        """Whether one of `stop_ids` stands behind an assistant's turn, before the next one or in it, or no template says what does."""
        behind = self._behind(then=[{"role": "user", "content": "?"}]) or self._behind()
        ids = [] if behind is None else self.tokenizer(behind, add_special_tokens=False)["input_ids"]
        return behind is None or not self.stop_ids.isdisjoint(ids)

    @cached_property
    def strips_thoughts(self) -> bool:
        """Whether the template leaves out of an assistant's turn what stands between <think> and </think>."""
        return self._behind() is not None and self._behind(f"{THINK}{_PROBE}</think>{_PROBE}") is None

    @cached_property
    def unopened(self) -> str:
        """What the template writes before an answer and leaves out where one is asked for; "" where it opens the turn."""
        turns = [{"role": "user", "content": "?"}]
        asked = self._probed(turns, opened=True)
        answered = self._probed([*turns, {"role": "assistant", "content": _PROBE}])
        left, found, _ = answered.removeprefix(asked).partition(_PROBE)
        return left.strip() if found and asked == self._probed(turns) and answered.startswith(asked) else ""

    def _behind(self, answer: str = _PROBE, then: Sequence[dict[str, str]] = ()) -> str | None:
        """What the template writes behind an assistant's answer; None if it does not write the answer whole, or at all."""
        turns = [{"role": "user", "content": "?"}, {"role": "assistant", "content": answer}, *then]
        _, found, behind = self._probed(turns).rpartition(answer)
        return behind if found else None

    def _probed(self, turns: list[dict[str, str]], *, opened: bool = False) -> str:
        """The turns as the template writes them, behind a system's if it insists on one; "" without a template, or if it refuses."""
        for system in ([], [{"role": "system", "content": "?"}]) if self._templated else ():
            with suppress(Exception):  # somebody's program; where a prompt needs it, the prompt says so
                asked = [*system, *turns]
                return str(self.tokenizer.apply_chat_template(asked, tokenize=False, add_generation_prompt=opened))
        return ""

    @property
    def _templated(self) -> bool:
        return self.tokenizer.chat_template is not None

    def is_rendered(self, item: Promptable) -> bool:
        """Whether the template writes the prompt."""
        return item.messages is not None and self._templated

    def text(self, item: Promptable) -> str:
        """The prompt as the model reads it. Raises whatever the template raises."""
        if item.messages is None:
            return item.question
        if not self._templated:
            return "\n\n".join(message["content"] for message in item.messages)
        return str(self.tokenizer.apply_chat_template(list(item.messages), tokenize=False, add_generation_prompt=True))

    def tokens(self, texts: Sequence[str], *, rendered: bool) -> list[list[int]]:
        """The token ids of prompts; a rendered one has its special tokens already.

        Raises RunFailure `tokens_beyond_embedding` if the model has no embedding for one.
        """
        ids: list[list[int]] = self.tokenizer(list(texts), add_special_tokens=not rendered)["input_ids"]
        if self._beyond and (beyond := sorted({one for some in ids for one in some if one >= (self.rows or 0)})):
            names = ", ".join(map(repr, self.tokenizer.convert_ids_to_tokens(beyond[:5])))
            raise RunFailure(
                "tokens_beyond_embedding",
                f"the tokenizer gives {names} the ids from {beyond[0]} on, and the model has embeddings for {self.rows} tokens: "
                f"call model.resize_token_embeddings({len(self.tokenizer)}) and save it again, or take them out of the tokenizer",
            )
        return ids

    def encode(self, item: Promptable) -> tuple[str, list[int]]:
        """The prompt as the model reads it: its text and its token ids."""
        text = self.text(item)
        return text, self.tokens([text], rendered=self.is_rendered(item))[0]

    def encode_answered(self, item: Promptable, answer: str) -> list[int]:
        """The prompt with somebody's answer behind it, as one text: rendered by the chat template, and tokenized whole.

        It ends where sampling would end: after the token that ends a completion, without the blanks that templates put behind it.
        """
        prompt, chat = self.text(item), self.is_rendered(item)
        if prompt.rstrip().endswith(THINK) and answer.lstrip().startswith(THINK):
            answer = answer.lstrip().removeprefix(THINK).removeprefix("\n")  # it is opened already
        text = prompt + answer
        if chat:
            turns = [*(item.messages or ()), {"role": "assistant", "content": answer}]
            rendered = str(self.tokenizer.apply_chat_template(turns, tokenize=False))
            if rendered.startswith(prompt) and answer.strip() in rendered[len(prompt) :]:
                text = rendered  # others render an answered question in another way, or leave out thoughts
        ids = self.tokens([text], rendered=chat)[0]
        end = 0
        for place in range(len(ids), 0, -1):  # of several the first: there sampling would end
            if ids[place - 1] in self.stop_ids:
                end = place
            elif str(self.tokenizer.decode(ids[place - 1 : place])).strip():
                break
        if not end and chat:  # some templates open the next turn behind every answer
            begun = len(self.tokens([prompt], rendered=chat)[0])
            end = next((at + 1 for at in range(begun, len(ids)) if ids[at] in self.stop_ids), 0)
        if end:
            return ids[:end]
        last = self.end if chat and self.end is not None else self.tokenizer.eos_token_id
        return ids if last is None else [*ids, int(last)]
