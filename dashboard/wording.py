"""Names as words, and values as people type them: numbers such as 2e-4, lists one entry a line, settings as `name: value` lines."""

import math
import re

import yaml

from backend.contract.advantage import ESTIMATORS
from backend.contract.base import Json
from backend.contract.surrogate import SURROGATES
from backend.contract.yaml_text import Unreadable, read
from dashboard.format import scientific

_BREAK = re.compile(r"(\\*)\n|(\\+)n")  # a line break, or a written \n, with all backslashes before it
_WRITTEN_BREAK = re.compile(r"(\\+)n")


def show_number(value: Json) -> str:
    """A number as it would be typed: 0.04, 2e-4, 1000000."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return "" if value is None else str(value)
    small = 0 < abs(value) < 1e-3 and float(scientific(abs(value))) == abs(value)
    if small:
        return ("-" if value < 0 else "") + scientific(abs(value))
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(value)


def read_number(text: str | None) -> Json:
    """The number; what is none stays as it was typed, for the backend to refuse in its words. Nothing is None."""
    typed = (text or "").strip().replace("−", "-")
    try:
        number = float(typed)
    except ValueError:
        return typed or None
    return number if math.isfinite(number) else typed


def show_lines(value: Json) -> str:
    """One entry a line. A line break within an entry is written \\n; backslashes before that, or before a letter n, are doubled."""
    entries = value if isinstance(value, list) else [value]
    return "\n".join(
        _BREAK.sub(lambda m: (m[1] or m[2] or "") * 2 + ("\\n" if m[0][-1] == "\n" else "n"), str(entry))
        for entry in entries
    )


def read_lines(text: str | None, word: str | None = None) -> Json:
    """The entries of lines that are not empty; the one word that stands for a list of its own is itself."""
    lines = [line for line in (text or "").split("\n") if line != ""]
    if word is not None and [line.strip() for line in lines] == [word]:
        return word
    return [
        _WRITTEN_BREAK.sub(lambda m: m[1][: len(m[1]) // 2] + ("\n" if len(m[1]) % 2 else "n"), line) for line in lines
    ]


def show_settings(value: Json) -> str:
    """One `name: value` a line."""
    if value is None or value in ({}, [], ""):
        return ""
    return dump(value).removesuffix("\n") if isinstance(value, dict) else str(value)


def read_settings(text: str | None) -> Json:
    """The settings; what cannot be read stays as it was typed."""
    try:
        value = read(text or "")
    except Unreadable:
        return text
    return {} if value is None else value


class _WrittenOut(yaml.SafeDumper):
    """Writes a part that stands in two places twice, since no alias is read back."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 — asked of each part, by the library
        return True


def dump(value: Json) -> str:
    """The value as YAML that reads back the same; letters stay letters where the library can carry them."""
    text: str = yaml.dump(value, Dumper=_WrittenOut, allow_unicode=True, sort_keys=False)
    try:
        same = read(text) == value
    except Unreadable:
        same = False
    # U+0085 within a text comes back as a space
    return text if same else str(yaml.dump(value, Dumper=_WrittenOut, sort_keys=False))


_ACRONYMS = {kind for kind, one in ESTIMATORS.items() if one.acronym} | {
    kind for kind, one in SURROGATES.items() if one.acronym
}


def in_words(name: str) -> str:
    """A word of the schema as people write it: `group_zscore` is group z-score, `gae` is GAE."""
    if name in _ACRONYMS:
        return name.upper()
    return name.replace("zscore", "z-score").replace("_", " ")


_LABELS = {
    "telemetry": "Records",
    "compute": "Processes",
    "processes": "How many",
    "eval_every": "Steps between evaluations",
    "eval_items": "Prompts per evaluation",
    "eval_samples": "Samples per prompt in evaluations",
    "checkpoint_every": "Steps between checkpoints",
    "trace_every": "Steps between traces",
    "probe_every": "Steps between probes",
    "sync_every": "Steps between reference renewals",
    "keep": "Checkpoints to keep",
    "last": "How many of the newest",
    "every": "Also steps divisible by",
    "best": "The best one",
    "held_out": "Share held out",
    "max_unscored": "Unscored share allowed",
    "time_limit": "Time limit in seconds",
}
_WORDS = {"lora": "LoRA", "kl": "KL", "std": "std", "eps": "ε", "dtype": "precision", "eval": "evaluation"}
_WORDS |= {"logprob": "log-prob", "logprobs": "log-probs", "lam": "lambda", "grad": "gradient", "gib": "(GiB)"}


def title(name: str) -> str:
    """A field's name in words: `top_k` is Top k, `kl` is KL, `eps` is ε."""
    words = " ".join(_WORDS.get(word, word) for word in name.split("_"))
    return words[:1].upper() + words[1:] if words.isascii() else words


def label_of(name: str) -> str:
    """A field's label in the form: what is counted, and in which unit, if the name alone does not say it."""
    return _LABELS.get(name) or title(name)
