"""The order of the form: what everybody sets at the top, everything else in folded sections that say what they hold."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import streamlit as st

from backend.contract.base import Json
from backend.contract.client import ApiError, Unreachable
from backend.contract.model_choice import Models
from backend.contract.records import Worker
from dashboard.form.dataset import show_dataset
from dashboard.form.draft import Draft
from dashboard.form.fields import Form, own_first, show, show_fields, show_kind, show_problems
from dashboard.form.model import SOURCE, show_model
from dashboard.form.schema import Field, Record, Union
from dashboard.format import counted, model_name, plain
from dashboard.session import client
from dashboard.stored import REWARDS, get, reward_functions, rewards_in, text_at
from dashboard.wording import in_words, label_of, show_number

# reward kind -> its field that names something of a worker's
NAMING = {"judge": "endpoint", "ranking": "endpoint", "python": "function"}
EVERY_RUN = ("optimizer.learning_rate", "budget.seed")  # at the top whatever the kind, as the model is


@dataclass(frozen=True)
class Layout:
    """Dotted paths. `kinds` are unions whose kind is chosen at the top; `numbers` are what most runs differ in."""

    kinds: tuple[str, ...]
    numbers: tuple[str, ...]
    sections: tuple[str, ...]


POLICY = Layout(
    kinds=("task",),
    numbers=("sampling.prompts_per_step", "sampling.group_size", "sampling.max_new_tokens", "budget.steps"),
    sections=("model", "task", "rewards", "sampling", "algorithm", "optimizer", "budget", "telemetry", "compute"),
)


def layout_of(config: Mapping[str, Json]) -> Layout:
    """The layout for the configuration's kind, and for where its pairs come from."""
    if config.get("kind", "grpo") == "grpo":
        return POLICY
    numbers = ("budget.pairs_per_step", "budget.steps", *(("beta",) if config["kind"] == "dpo" else ()))
    if get(dict(config), "pairs.kind") == "dataset":
        return Layout(("pairs",), numbers, ("model", "pairs", "optimizer", "budget"))
    sections = ("model", "pairs", "pairs.task", "pairs.rewards", "pairs.decoding", "optimizer", "budget")
    return Layout(("pairs", "pairs.task"), ("pairs.prompts", *numbers), sections)


@st.cache_data(ttl=0.5, max_entries=1, show_spinner=False)
def fetch_workers() -> list[Worker]:
    """The workers that are alive."""
    return [worker for worker in client().workers() if worker.alive]


def workers_now() -> list[Worker]:
    """The same, and nobody while the backend is away."""
    try:
        return fetch_workers()
    except (Unreachable, ApiError):
        return []


def offered_by_workers(draft: Draft) -> dict[str, list[str]]:
    """By path, what the rewards of the draft may name; nothing where no worker has any, or the backend is away."""
    named = {
        f"{path}.{NAMING[kind]}": kind
        for path, function in rewards_in(draft.config)
        if (kind := text_at(function, "kind")) in NAMING
    }
    workers = workers_now() if named else []
    have = {
        "judge": sorted({name for worker in workers for name in worker.judges}),
        "python": sorted({name for worker in workers for name in worker.functions}),
    }
    have["ranking"] = have["judge"]
    return {path: have[kind] for path, kind in named.items() if have[kind]}


def suggestions(draft: Draft) -> dict[str, list[str]]:
    """Values to choose from where a text is free: what workers have, trained reward models, the run's own rewards."""
    offers = {**offered_by_workers(draft), **_reward_models(draft)}
    for rewards in REWARDS:
        names = [text_at(function, "name") for function in reward_functions(draft.config, rewards)]
        for index in range(len(_items(draft.get(f"{rewards}.gates")))):
            offers |= {f"{rewards}.gates.{index}.{end}": names for end in ("reward", "requires")}
    return offers


def _reward_models(draft: Draft) -> dict[str, list[str]]:
    """By path, the finished reward models that a reward of the draft may be."""
    paths = [
        f"{path}.source" for path, function in rewards_in(draft.config) if text_at(function, "kind") == "reward_model"
    ]
    try:
        trained = client().runs(kind="reward_model", status="finished", limit=50).items if paths else []
    except (Unreachable, ApiError):
        trained = []
    sources = [f"run:{run.id}@{run.progress.step}" for run in trained]
    return dict.fromkeys(paths, sources) if sources else {}


def show_essentials(form: Form, schema: Record, models: Models | None) -> None:
    """Model, task or pairs, and the numbers that most runs differ in."""
    layout, draft = layout_of(form.draft.config), form.draft
    with st.container(border=True, key="essentials"):
        show_model(form, _find(schema, SOURCE, draft), models)
        *kinds, rate, seed = st.columns([*(2 for _ in layout.kinds), 1.5, 1.5])
        for column, path in zip(kinds, layout.kinds, strict=True):
            union = _find(schema, path, draft)
            if isinstance(union, Union):
                with column:
                    show_kind(form, union, path, label_of(path.rpartition(".")[2]))
        columns = (rate, seed, *st.columns(len(layout.numbers)))
        for column, path in zip(columns, (*EVERY_RUN, *layout.numbers), strict=True):
            with column:
                show(form, _find(schema, path, draft), path)


def elsewhere(draft: Draft) -> frozenset[str]:
    """The paths that stand at the top or in a section of their own, and so in no other."""
    layout = layout_of(draft.config)
    below = (path for path in layout.sections if "." in path)
    return frozenset((SOURCE, *EVERY_RUN, *layout.numbers, *below))


def show_sections(form: Form, schema: Record) -> None:
    """Everything else, folded; the label tells what is inside and how much of it is wrong."""
    sections = layout_of(form.draft.config).sections
    for name in sections:
        field = _find(schema, name, form.draft)
        summary = plain(_summary(name, form.draft.get(name)))
        inside = [other for other in sections if other.startswith(f"{name}.")]
        wrong = form.problems_in(name) - sum(form.problems_in(other) for other in inside)
        mend = f" :red[:material/error: {wrong} to correct] ·" if wrong else ""
        label = f"**{label_of(name.rpartition('.')[2])}**{mend} :small[:gray[{summary}]]"
        # a data set needs an answer here; a section of its own key opens, and stays as the person leaves it
        kind = str(form.draft.get(f"{name}.kind"))
        key, needed = f"section-{name.replace('.', '-')}", kind == "dataset"
        with st.expander(label, expanded=needed, key=f"{key}-dataset" if needed else key):
            if field.help:
                st.caption(plain(field.help))
            if name == "compute":
                st.caption(_processes_offered(workers_now()))
            if isinstance(field, Record):
                show_fields(form, field.fields, name)
            elif isinstance(field, Union) and needed:
                show_dataset(form, field.kinds[kind], name)
            elif isinstance(field, Union):
                record = field.kinds.get(kind, Record(""))
                st.caption(plain(record.help))
                show_fields(form, own_first(record.fields), name)
            show_problems(form, name)


def _processes_offered(workers: Sequence[Worker]) -> str:
    """With how many processes a run can be trained now."""
    most = max((worker.processes for worker in workers), default=0)
    if most > 1:
        offering = sorted(worker.name for worker in workers if worker.processes == most)
        return f"Of the connected workers {plain(offering[0])} offers the most: {most} processes for one run."
    each = "each connected worker trains a run in one process" if workers else "no worker is connected"
    return f"Now {each}. One that is started with `groupscope worker --processes 4` trains a run with up to 4."


def _find(schema: Record, path: str, draft: Draft) -> Field:
    """The field at a path through records, and through unions by the kinds that are chosen."""
    field: Field = schema
    passed: list[str] = []
    for part in path.split("."):
        if isinstance(field, Union):
            field = field.kinds.get(str(draft.get(".".join([*passed, "kind"]))), Record(""))
        if isinstance(field, Record):
            field = next(inner for inner in field.fields if inner.name == part)
        passed.append(part)
    return field


def _summary(name: str, value: Json) -> str:
    """A section in a few words, so that nobody has to open it to know."""
    parts: Sequence[str | None]
    at, worded = partial(get, value), partial(_worded, value)
    match name.rpartition(".")[2]:
        case "model":
            source, rank = at("source"), at("lora.rank")
            model = model_name(source) if isinstance(source, str) else None
            parts = [model, f"LoRA, rank {rank}" if rank else "all weights", worded("dtype", "precision ")]
        case "task":
            parts = [worded("kind"), worded("template"), worded("prompt")]
        case "rewards":
            functions, gates = _items(at("functions")), _items(at("gates"))
            shown = [f"{get(one, 'name')} × {show_number(get(one, 'weight'))}" for one in functions]
            parts = [" + ".join(shown), counted(len(gates), "gate") if gates else None]
        case "pairs":
            asked, size = show_number(at("prompts")), show_number(at("group_size"))
            parts = [worded("kind"), f"{asked} groups of {size}" if asked else None, worded("source")]
        case "sampling" | "decoding":
            engine, temperature = at("engine") or "native", f"temperature {show_number(at('temperature'))}"
            parts = [temperature, worded("top_k", "top k "), f"engine {engine}" if engine != "native" else None]
        case "algorithm":
            kl = f"KL {show_number(at('kl.beta'))}"
            parts = [worded("advantage.kind"), worded("surrogate.kind"), kl, worded("aggregation")]
        case "optimizer":
            parts = [worded("schedule", "learning rate "), f"gradient norm at most {show_number(at('max_grad_norm'))}"]
        case "budget":
            kept = at("keep.last")
            parts = [
                _every("evaluation", at("eval_every")),
                _every("checkpoint", at("checkpoint_every")),
                f"the newest {show_number(kept)} kept" if kept else None,
            ]
        case "compute":
            shards = at("shards")
            parts = [
                counted(int(number), "process", "processes") if isinstance(number := at("processes"), int) else None
            ]
            parts.append(f"weights in {counted(shards, 'shard')}" if isinstance(shards, int) and shards else None)
        case _:
            parts = [worded("token_traces", "token traces: ")]
    return " · ".join(part for part in parts if part)


def _every(what: str, steps: Json) -> str:
    if not steps:
        return f"no {what} during training"
    return f"{what} every step" if steps == 1 else f"{what} every {steps} steps"


def _worded(value: Json, path: str, before: str = "") -> str | None:
    found = get(value, path)
    if not found:
        return None
    text = " ".join(str(found).split())
    text = text if path in ("template", "prompt") else in_words(text)
    return before + (text if len(text) <= 60 else f"{text[:59]}…")


def _items(value: Json) -> list[Json]:
    return value if isinstance(value, list) else []
