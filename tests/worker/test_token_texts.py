"""What each token adds to the text: put together it is the text, whatever the tokenizer does."""

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast
from worker_models import tiny_policy

from backend.contract.token_texts import TokenTexts

TEXTS = ["14", "", "2 + 2 = 4", "Grüße, 世界! 🙂🙃", "naïve — “quoted” 🧑‍🚀", "\ufffd is a sign, too"]


def byte_level() -> PreTrainedTokenizerFast:
    """A tokenizer that has hardly more than the 256 bytes, so that most characters are several tokens."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(TEXTS, trainers.BpeTrainer(vocab_size=262, initial_alphabet=alphabet))
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer)


def stripping() -> PreTrainedTokenizerFast:
    """A tokenizer that writes no space before the first word: what a token says depends on what is before it."""
    words = {word: number for number, word in enumerate(["[unk]", "▁one", "▁two", "▁three"])}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="[unk]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer)


@pytest.mark.parametrize("text", TEXTS)
def test_the_parts_are_the_text_and_a_character_belongs_to_its_last_token(text: str) -> None:
    tokenizer = byte_level()
    ids = list(tokenizer(text)["input_ids"])
    parts = TokenTexts(tokenizer).of(ids)
    assert len(parts) == len(ids)
    assert b"".join(parts).decode() == text
    assert all(part.decode() == part.decode(errors="ignore") for part in parts)  # each is whole characters


def test_a_text_that_ends_inside_a_character_shows_the_replacement_sign() -> None:
    tokenizer = byte_level()
    ids = list(tokenizer("🙂")["input_ids"])[:-1]
    assert b"".join(TokenTexts(tokenizer).of(ids)).decode() == "\ufffd"


def test_a_text_that_depends_on_what_is_before_it_is_read_with_it() -> None:
    tokenizer = stripping()
    ids = list(tokenizer("one two three")["input_ids"])
    assert TokenTexts(tokenizer).of(ids) == [b"one", b" two", b" three"]


def with_bytes() -> PreTrainedTokenizerFast:
    """One as SentencePiece makes them: without the first space, and with a token for each byte."""
    pieces = ["[unk]", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", "▁one", "two", "4", "2"]
    tokenizer = Tokenizer(models.BPE({piece: number for number, piece in enumerate(pieces)}, [], byte_fallback=True))
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    tokenizer.decoder = decoders.Sequence(steps)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer)


class Counted:
    """A tokenizer that counts what it decodes."""

    def __init__(self) -> None:
        self.tokenizer, self.tokens = with_bytes(), 0

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
