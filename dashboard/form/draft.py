"""The run that is being written: one plain dict, what may change it, and the way out of and into a YAML file."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast
from uuid import NAMESPACE_URL, uuid4, uuid5

import streamlit as st
import yaml
from pydantic import ValidationError

from backend.contract.base import Json
from backend.contract.config import RUN_CONFIG
from backend.contract.grpo import GrpoConfig
from backend.contract.records import Run
from backend.contract.trl_parser import is_trl, read_trl
from backend.contract.trl_script import trl_script
from backend.contract.yaml_text import Unreadable, read
from dashboard.form.schema import FIELDS, complete, fields_of, unknown
from dashboard.format import plain
from dashboard.stored import get, put
from dashboard.wording import dump

_KEY = "draft"
_YAML, _TRL = "YAML", "TRL script"


@dataclass
class Draft:
    """What the form holds. Widgets show `config` and write into it.

    Whatever changes values from outside their widgets (a recipe, a file, a fix) gives new keys to the widgets that show them, so that
    these start again from the dict. All others stay, with what somebody is typing in them.
    """

    config: dict[str, Json] = field(default_factory=dict)
    # the latest configuration that the address, or a file, leads to
    kept: dict[str, Json] = field(default_factory=dict)
    name: str = ""
    tags: list[str] = field(default_factory=list)
    parent_id: int | None = None
    fork_at: int | None = None  # the step of the parent after which the run goes on
    origin: str | None = None  # the address that filled it, so that the same address fills it once
    left_out: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)  # what of TRL's settings has no counterpart
    sample_id: int | None = None  # what was sampled before the launch
    sample_before: int | None = None  # the same completions as they were scored before the latest change
    sample_prompts: int = 4
    sample_completions: int | None = None  # None: as many as a forecast needs
    sample_right: float | None = None  # the reward that counts as right; None: the highest
    sample_band: tuple[int, int] = (20, 80)  # success rates to keep, in percent
    sample_bar: int | None = None  # of the success rates, whose groups are shown; None: of all
    sample_kept: tuple[Json, frozenset[str]] | None = (
        None  # the task that reads prompts of the sample alone, and their ids
    )
    sample_refused: str | None = None
    sample_files: frozenset[tuple[str, str]] | None = None  # files of rewards with their hashes when it was asked for
    changes: Counter[str] = field(default_factory=Counter)  # by path, from outside the widgets; "" is all of it
    given: tuple[str, dict[str, Json]] | None = None  # a model's source, and the config.json that was given for it
    id: str = field(default_factory=lambda: uuid4().hex)

    @property
    def config_json(self) -> dict[str, Json] | None:
        """What was given for the model that is chosen now."""
        return self.given[1] if self.given is not None and self.given[0] == self.get("model.source") else None

    def key(self, path: str) -> str:
        """The key of the widget at a path."""
        inside = (times for changed, times in self.changes.items() if _overlap(changed, path))
        return f"{path}@{sum(inside)}"

    def get(self, path: str) -> Json:
        """The value at a path."""
        return get(self.config, path)

    def write(self, path: str, value: Json) -> None:
        """Take what a widget holds."""
        self.config = cast("dict[str, Json]", put(self.config, path, value))

    def change(self, values: Mapping[str, Json]) -> None:
        """Set values from outside the widgets."""
        for path, value in values.items():
            self.write(path, value)
        self.changes.update(values.keys())

    def taking(self, path: str, shown: object, read: Callable[..., Json] = lambda value: value) -> Callable[[], None]:
        """The callback of the widget at a path that shows something: write what it holds then, as `read` makes a value of it."""
        return on_change(self.key(path), shown, lambda held: self.write(path, read(held)))

    def fill(self, config: Mapping[str, Json]) -> None:
        """Replace the whole configuration; what it lacks gets its default, what nobody knows is left out and named."""
        self.config = cast("dict[str, Json]", complete(fields_of(dict(config)), dict(config)))
        self.left_out, self.remarks = list(unknown(dict(config), self.config)), []
        self.kept = self.config
        self.changes[""] += 1

    def fill_from_run(self, run: Run, *, checkpoint: int | None = None, fork_at: int | None = None) -> None:
        """Start from a run's stored configuration, and from its weights where a checkpoint is given, or go on from one as a fork."""
        config: Json = dict(run.config)
        if checkpoint is not None:
            config = put(config, "model.source", f"run:{run.id}@{checkpoint}")
        self.fill(cast("dict[str, Json]", config))
        step = checkpoint if fork_at is None else fork_at
        self.name = f"{run.name} (copy)" if step is None else f"{run.name} from step {step}"
        self.tags = list(run.tags)
        self.parent_id, self.fork_at = run.id, fork_at

    def submission_key(self) -> str:
        """The same for the same content of the same form: pressing Start twice makes one run."""
        content = yaml.safe_dump([self.id, self.config, self.name, self.tags, self.parent_id, self.fork_at])
        return str(uuid5(NAMESPACE_URL, content))


def on_change(key: str, shown: object, take: Callable[[Any], None]) -> Callable[[], None]:
    """The callback of the widget with this key that shows something: `take` what it holds, if that is something else.

    A click may come while the browser still has widgets of older keys. Streamlit has forgotten what they held and
    calls back for each of them, as if a person had changed it: what newer widgets wrote would be undone.
    """
    shown = st.session_state.get(key, shown)  # as a person wrote it: 09, not 9

    def callback() -> None:
        nonlocal shown
        if (held := st.session_state[key]) != shown:
            shown = held
            take(held)

    return callback


def _overlap(one: str, other: str) -> bool:
    """Whether one of two paths is the other, or lies within it."""
    short, long = sorted((one, other), key=len)
    return not short or long == short or long.startswith(f"{short}.")


def current() -> Draft:
    """This browser session's draft."""
    return cast(Draft, st.session_state.setdefault(_KEY, Draft()))


def discard() -> None:
    """The next visit starts a new one."""
    st.session_state.pop(_KEY, None)


def from_text(text: str, base: Mapping[str, Json]) -> tuple[dict[str, Json], list[str]]:
    """The configuration in the text, as YAML or as one of TRL's on the base; with a line for each setting of TRL's that it lacks.

    Raises Unreadable. A valid one gets the defaults of the model itself, as a submitted file would; of any other, the form shows what is wrong.
    """
    remarks: list[str] = []
    try:
        if is_trl(text):
            of_groups = base if base.get("kind") == "grpo" else GrpoConfig().model_dump(mode="json")
            config: Json
            config, remarks = read_trl(text, of_groups)
        else:
            config = read(text)
    except Unreadable as error:
        raise Unreadable(f"This configuration cannot be read: {error}.") from error
    if not isinstance(config, dict) or not config:
        raise Unreadable("A configuration is a mapping such as `sampling: {group_size: 8}`.")
    kind = str(config.setdefault("kind", "grpo"))
    if kind not in FIELDS:
        raise Unreadable(f"This form is for runs of the kinds {', '.join(FIELDS)}, and the file's kind is {kind}.")
    try:
        return RUN_CONFIG.validate_python(config).model_dump(mode="json"), remarks
    except ValidationError:
        return config, remarks


def _decoded(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise Unreadable(f"This file is not text in UTF-8 ({error}): save it as such.") from error


@st.dialog("Configuration as a file", width="large")
def show_files(draft: Draft) -> None:
    """Two tabs: the draft to take away, and a file or text to bring in."""
    away, bring = st.tabs(["Export", "Import"])
    with away:
        forms = [_YAML, _TRL] if draft.get("kind") == "grpo" else [_YAML]
        form = st.segmented_control("Form", forms, default=_YAML, required=True, label_visibility="collapsed")
        text = dump(draft.config) if form == _YAML else trl_script(draft.config, draft.name or "a run of the form")
        ending = "yaml" if form == _YAML else "py"
        st.download_button("Download", text, file_name=f"{draft.name or 'run'}.{ending}", icon=":material/download:")
        if form == _TRL:
            st.caption(
                "Trains under TRL 1.16 and is recorded here. It is read back under Import, with what you change in GRPOConfig."
            )
        st.code(text, language=None, height=420)
    with bring:
        file = st.file_uploader("YAML file, or a configuration of TRL's", type=["yaml", "yml", "json", "py"])
        pasted = st.text_area("or paste it here", height=240)
        st.caption(
            "A Python script with a GRPOConfig is read and never run. Model, task and rewards stay as in the form unless it names them."
        )
        if st.button("Fill the form", type="primary", disabled=not (file or pasted.strip())):
            try:
                config, remarks = from_text(_decoded(file.getvalue()) if file else pasted, draft.config)
                draft.fill(config)
            except Unreadable as reason:
                st.error(plain(str(reason)), icon=":material/error:")
            else:
                draft.parent_id, draft.fork_at, draft.remarks = None, None, remarks
                st.rerun()
