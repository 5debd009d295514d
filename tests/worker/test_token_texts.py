"""What tokens write, with tokenizers of every make: the parts are the text, and a completion ends where its whole text first has a stop text."""

import random
from collections.abc import Callable

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast
from worker_models import random_policy, tiny_policy

from backend.contract.token_texts import TokenTexts
from worker.policy.chat import Chat
from worker.policy.policy import Policy
from worker.rollout.stop_texts import StopTexts

TEXTS = ["14", "", "2 + 2 = 4", "Grüße, 世界! 🙂🙃", "naïve — “quoted” 🧑‍🚀", "\ufffd is a sign, too"]
decode = Policy.decode
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
RESERVED = [f"<|reserved_{number}|>" for number in range(3)]


def with_bytes() -> Tokenizer:
    """A vocabulary as Llama 2's and Mistral's: what it has no word for is written byte by byte."""
    words = ["<unk>", "</s>", *BYTES, "▁", "▁a", "a", "b", "</", "▁one", "two", "4", "2"]
    vocabulary = {word: number for number, word in enumerate(words)}
    tokenizer = Tokenizer(models.BPE(vocabulary, [], byte_fallback=True, unk_token="<unk>"))
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return tokenizer


def with_letters() -> Tokenizer:
    """A vocabulary as GPT-2's: every byte is a letter."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({letter: number for number, letter in enumerate(letters)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


# ---- what each token adds


@pytest.mark.parametrize("text", TEXTS)
def test_the_parts_are_the_text_and_a_character_belongs_to_its_last_token(text: str) -> None:
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=with_letters())
    ids = list(tokenizer(text)["input_ids"])
    parts = TokenTexts(tokenizer).of(ids)
    assert len(parts) == len(ids)
    assert b"".join(parts).decode() == text
    assert all(part.decode() == part.decode(errors="ignore") for part in parts)  # each is whole characters
    half = list(tokenizer("🙂")["input_ids"])[:-1]
    assert b"".join(TokenTexts(tokenizer).of(half)).decode() == "\ufffd", "it ends inside a character"


def test_a_text_that_depends_on_what_is_before_it_is_read_with_it() -> None:
    words = {word: number for number, word in enumerate(["[unk]", "▁one", "▁two", "▁three"])}
    stripping = Tokenizer(models.WordLevel(words, unk_token="[unk]"))  # it writes no space before the first word
    stripping.pre_tokenizer, stripping.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=stripping)
    assert TokenTexts(tokenizer).of(tokenizer("one two three")["input_ids"]) == [b"one", b" two", b" three"]


class Counted:
    """A tokenizer that counts what it decodes."""

    def __init__(self) -> None:
        self.tokenizer, self.tokens = PreTrainedTokenizerFast(tokenizer_object=with_bytes()), 0

    def decode(self, ids: list[int], /) -> str:
        self.tokens += len(ids)
        return str(self.tokenizer.decode(ids))

    def __deepcopy__(self, memo: object) -> "Counted":
        return self


@pytest.mark.parametrize(
    "pieces", [["▁one", "▁", "4", "2", "▁", "▁", "two"], ["▁", "▁one"], ["4", *"世🙂", "▁one", "世", "2"]], ids="".join
)
def test_a_text_without_its_first_space_is_divided_in_time_that_grows_with_its_length(pieces: list[str]) -> None:
    counted = Counted()
    vocabulary = counted.tokenizer.get_vocab()
    ids = [
        vocabulary[one]
        for piece in pieces * 100
        for one in ([piece] if piece in vocabulary else [f"<0x{byte:02X}>" for byte in piece.encode()])
    ]
    parts = TokenTexts(counted).of(ids)
    assert counted.tokens < 10 * len(ids)
    assert b"".join(parts).decode() == counted.tokenizer.decode(ids)


def test_ending_tokens_have_their_text() -> None:
    policy = tiny_policy(reference=False)
    ids = [*policy.tokenizer("14")["input_ids"], min(policy.stop_ids)]
    assert TokenTexts(policy.tokenizer).of(ids)[-1] == policy.tokenizer.decode([min(policy.stop_ids)]).encode()


# ---- where a stop text is


def policy_with(tokenizer: Tokenizer) -> Policy:
    policy = random_policy()
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in ("</s>", *RESERVED)])
    policy.chat = Chat(PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="</s>"))
    return policy


def first_with(policy: Policy, text: str, ids: list[int]) -> int | None:
    return next((length for length in range(1, len(ids) + 1) if text in policy.decode(ids[:length])), None)


def found_by_looks(policy: Policy, text: str, ids: list[int], every: int) -> int | None:
    """As the sampler looks: at the first token, then after every few; another text, which is nowhere, is looked for, too."""
    stop, looked = StopTexts(policy, ["§", text]), 0
    for seen in [*range(1, len(ids), every), len(ids)]:
        if (found := stop.end_of(ids[:seen], looked)) is not None:
            return found
        looked = seen
    return None


@pytest.mark.parametrize("every", [1, 3, 8])
@pytest.mark.parametrize("text", ["\n\n", "終", "🙂終", " a", "b終\n"])
def test_a_text_of_byte_tokens_is_found_where_the_whole_completion_first_has_it(text: str, every: int) -> None:
    policy, draw = policy_with(with_bytes()), random.Random(text)
    numbers = policy.tokenizer.get_vocab()
    spelled = [[numbers[BYTES[byte]] for byte in written.encode()] for written in ("🙂", "終", "\n", "é", text)]
    pieces = [*spelled, *spelled, *([numbers[word]] for word in ("▁a", "a", "b", "</s>"))]
    pieces += [some[:-1] for some in spelled]  # without its last byte a character hides those beside it
    for _ in range(60):
        ids = [token for piece in draw.choices(pieces, k=16) for token in piece]
        assert found_by_looks(policy, text, ids, every) == first_with(policy, text, ids)


@pytest.mark.parametrize("vocabulary", [with_bytes, with_letters])
@pytest.mark.parametrize("every", [1, 8])
def test_tokens_that_write_nothing_hide_no_text(every: int, vocabulary: Callable[[], Tokenizer]) -> None:
    """Special ones that the tokenizer does not list as such, and those that the model has beyond the tokenizer's."""
    policy, draw = policy_with(vocabulary()), random.Random(every)
    numbers = policy.tokenizer.get_vocab()
    silent = [numbers[RESERVED[2]], len(policy.tokenizer) + 5]
    assert silent[0] not in policy.tokenizer.all_special_ids
    for _ in range(60):
        ids = [token for letter in draw.choices("ab", k=8) for token in (*draw.choices(silent, k=6), numbers[letter])]
        assert found_by_looks(policy, "abab", ids, every) == first_with(policy, "abab", ids)


def test_a_look_reads_a_window_of_a_completion_of_bytes_and_not_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    policy, read = policy_with(with_bytes()), list[int]()
    numbers = policy.tokenizer.get_vocab()
    ids = [numbers[BYTES[byte]] for byte in "終🙂\n".encode() * 100]
    monkeypatch.setattr(Policy, "decode", lambda self, some: read.append(len(some)) or decode(self, some))
    assert found_by_looks(policy, "\n\n", ids, 8) is None
    assert max(read) < 30
