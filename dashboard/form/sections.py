"""The order of the form: what everybody sets at the top, everything else in folded sections that say what they hold."""

from collections.abc import Sequence

import streamlit as st

from backend.contract.base import Json
from backend.contract.records import Catalog
from dashboard.form.dataset import show_dataset
from dashboard.form.draft import Draft
from dashboard.form.fields import Form, own_first, show, show_fields, show_kind, show_problems
from dashboard.form.paths import get
from dashboard.form.schema import Field, Record, Union
from dashboard.form.widgets import in_words
from dashboard.form.written import show_number
from dashboard.format import counted, model_name, plain

ESSENTIALS = (
    ("sampling.prompts_per_step", "sampling.group_size", "sampling.max_new_tokens", "budget.steps"),
    ("optimizer.learning_rate", "budget.seed"),
)
SECTIONS = ("model", "task", "rewards", "sampling", "algorithm", "optimizer", "budget", "telemetry")
TITLES = {"telemetry": "What to keep"}


def suggestions(catalog: Catalog, draft: Draft) -> dict[str, list[str]]:
    """Values to choose from where a text is free: the catalog's models, the names of the run's own rewards."""
    functions = draft.get("rewards.functions")
    names = [str(get(function, "name")) for function in functions] if isinstance(functions, list) else []
    gates = draft.get("rewards.gates")
    offers = {"model.source": [model.source for model in catalog.models]}
    for index in range(len(gates) if isinstance(gates, list) else 0):
        offers |= {f"rewards.gates.{index}.{end}": names for end in ("reward", "requires")}
    return offers


def show_essentials(form: Form, schema: Record) -> None:
    """Model, task, and the numbers that most runs differ in."""
    with st.container(border=True, key="essentials"):
        model, task, rate, seed = st.columns([3, 2, 1.5, 1.5])
        with model:
            show(form, _find(schema, "model.source"), "model.source", label="Model")
        with task:
            union = _find(schema, "task")
            if isinstance(union, Union):
                show_kind(form, union, "task", "Task")
        for column, path in ((rate, "optimizer.learning_rate"), (seed, "budget.seed")):
            with column:
                show(form, _find(schema, path), path)
        for column, path in zip(st.columns(len(ESSENTIALS[0])), ESSENTIALS[0], strict=True):
            with column:
                show(form, _find(schema, path), path)


def essential_paths() -> frozenset[str]:
    """The paths that stand at the top, and so in no section."""
    return frozenset({"model.source", *ESSENTIALS[0], *ESSENTIALS[1]})


def show_sections(form: Form, schema: Record) -> None:
    """Everything else, folded; the label tells what is inside and how much of it is wrong."""
    for name in SECTIONS:
        field = _find(schema, name)
        summary = plain(_summary(name, form.draft.get(name)))
        wrong = form.problems_in(name)
        mend = f" :red[:material/error: {wrong} to mend]" if wrong else ""
        label = f"**{TITLES.get(name, name.capitalize())}**{mend} :small[:gray[{summary}]]"
        # a data set needs an answer here; a section of its own key opens, and stays as the person leaves it
        needed = name == "task" and form.draft.get("task.kind") == "dataset"
        with st.expander(label, expanded=needed, key=f"section-{name}-dataset" if needed else f"section-{name}"):
            _show_section(form, field, name)


def _show_section(form: Form, field: Field, name: str) -> None:
    if field.help:
        st.caption(plain(field.help))
    if isinstance(field, Union):
        if form.draft.get(f"{name}.kind") == "dataset":
            show_dataset(form, field.kinds["dataset"])
        else:
            _show_task(form, field.kinds.get(str(form.draft.get(f"{name}.kind")), Record("")))
    elif isinstance(field, Record):
        show_fields(form, field.fields, name)
    show_problems(form, name)


def _show_task(form: Form, task: Record) -> None:
    """The task's own fields, then how any task's items become prompts."""
    st.caption(plain(task.help))
    show_fields(form, own_first(task.fields), "task")


def _find(schema: Record, path: str) -> Field:
    """The field at a path through records."""
    field: Field = schema
    for part in path.split("."):
        if isinstance(field, Record):
            field = next(inner for inner in field.fields if inner.name == part)
    return field


def _summary(name: str, value: Json) -> str:
    """A section in a few words, so that nobody has to open it to know."""
    parts: Sequence[str | None]
    match name:
        case "model":
            rank = get(value, "lora.rank")
            source = get(value, "source")
            parts = [
                model_name(source) if isinstance(source, str) else None,
                f"LoRA, rank {rank}" if rank else "all weights",
                _worded(value, "dtype", "precision "),
            ]
        case "task":
            parts = [_worded(value, "kind"), _worded(value, "template"), _worded(value, "prompt")]
        case "rewards":
            functions, gates = get(value, "functions"), get(value, "gates")
            shown = [f"{get(one, 'name')} × {show_number(get(one, 'weight'))}" for one in _items(functions)]
            parts = [" + ".join(shown), counted(len(_items(gates)), "gate") if gates else None]
        case "sampling":
            parts = [f"temperature {show_number(get(value, 'temperature'))}", _worded(value, "top_k", "top k ")]
        case "algorithm":
            parts = [
                _worded(value, "advantage.kind"),
                _worded(value, "surrogate.kind"),
                f"KL {show_number(get(value, 'kl.beta'))}",
                _worded(value, "aggregation"),
            ]
        case "optimizer":
            parts = [_worded(value, "schedule"), f"gradient norm at most {show_number(get(value, 'max_grad_norm'))}"]
        case "budget":
            parts = [
                _every("evaluation", get(value, "eval_every")),
                _every("checkpoint", get(value, "checkpoint_every")),
            ]
        case _:
            parts = [_worded(value, "token_traces", "token traces: ")]
    return " · ".join(part for part in parts if part)


def _every(what: str, steps: Json) -> str:
    return f"{what} every {steps} steps" if steps else f"no {what} on the way"


def _worded(value: Json, path: str, before: str = "") -> str | None:
    found = get(value, path)
    if not found:
        return None
    text = " ".join(str(found).split())
    text = text if path in ("template", "prompt") else in_words(text)
    return before + (text if len(text) <= 60 else f"{text[:59]}…")


def _items(value: Json) -> list[Json]:
    return value if isinstance(value, list) else []
