"""What is good: named reward functions, their weights, and the gates between them."""

import re
from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal, get_args

from pydantic import AfterValidator, Field, model_validator

from backend.contract.base import CleanText, Frozen, Json, Misfit
from backend.contract.model import ModelSource
from backend.contract.reading import Reading
from backend.contract.stored import number_at, reward_functions
from backend.contract.task import Task

Name = Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9_.-]+$")]
Weight = Annotated[float, Field(ge=-1000, le=1000)]
_FUNCTION = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*:[A-Za-z_][A-Za-z0-9_]*")


def _known_function(name: str) -> str:
    if _FUNCTION.fullmatch(name):
        return name
    raise ValueError("choose a function: file.py:function of the worker's folder of rewards, or module:function")


PythonFunction = Annotated[str, Field(max_length=200), AfterValidator(_known_function)]
Unit = Literal["completion", "group"]
"""What a reward function gets at a time, and what stays unscored where a call fails."""
Argument = bool | int | float | Annotated[CleanText, Field(max_length=10_000)]
ArgumentName = Annotated[str, Field(max_length=64, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
KL_PENALTY = "kl_penalty"
"""The component that a KL penalty in the reward adds to a completion's: minus the sum of its tokens' KL, weighted by β."""
REWARD_CHANGED = "reward_changed"
"""The code of a run that ended since a file that scored it is another now."""
# A class such as [\u0000-\uffff] takes 5 ms to compile, and a form asks at every change; an ASCII one takes nothing.
_BEYOND_ASCII = re.compile(r"[^\x00-\x7f]|\\[uUN]")
MOST_WIDE_CLASSES = 50
Tag = Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[A-Za-z][A-Za-z0-9_-]*$")]


class _Function(Frozen):
    bounded: ClassVar[bool] = True  # whether its raw score is from 0 to 1
    name: Name = Field(description="Unique in the run; the metric is rewards/<name>/mean.")
    weight: Weight = Field(1.0, description="The total is the sum of weight × raw score; with 0 it is only measured.")


class Correctness(_Function):
    """1 if the answer in the completion is the reference answer, else 0."""

    kind: Literal["correctness"] = "correctness"
    extract: Literal["answer_tag", "last_number", "boxed", "whole"] = Field(
        "answer_tag",
        description="Where the answer stands: the last <answer>…</answer>, the last number, the last \\boxed{…}, or all of the text.",
    )
    match: Literal["task", "exact", "numeric", "symbolic"] = Field(
        "task",
        description="How it is compared. task: as the task itself defines (countdown checks the expression), own rows as each "
        "reference is; exact: the same text; numeric: the same number; symbolic: the same mathematical value (math-verify).",
    )


class Format(_Function):
    """1 if the completion is exactly these tags, in this order, each once, nothing outside them; else 0."""

    kind: Literal["format"] = "format"
    tags: Annotated[list[Tag], Field(min_length=1, max_length=8)] = Field(
        ["think", "answer"],
        description="The tags in their order: think, answer means <think>…</think><answer>…</answer>.",
    )

    @model_validator(mode="after")
    def _each_once(self) -> "Format":
        if len(set(self.tags)) != len(self.tags):
            raise ValueError(f"tags {self.tags} name one twice, and each must occur once; name each once")
        return self


class Length(_Function):
    """1 inside the bounds, falling in a straight line to 0 over the ramp outside them."""

    kind: Literal["length"] = "length"
    unit: Literal["tokens", "words", "characters"] = Field("tokens", description="What is counted.")
    minimum: Annotated[int, Field(ge=0, le=1_000_000)] = Field(
        0, description="The shortest length that scores 1; equal bounds make a target."
    )
    maximum: Annotated[int, Field(ge=0, le=1_000_000)] = Field(256, description="The longest length that scores 1.")
    ramp: Annotated[int, Field(ge=1, le=1_000_000)] = Field(
        64, description="How far outside the bounds the score reaches 0."
    )

    @model_validator(mode="after")
    def _bounds(self) -> "Length":
        if self.minimum > self.maximum:
            text = f"minimum ({self.minimum}) is above maximum ({self.maximum}); swap them"
            raise Misfit(text, "minimum", {"minimum": self.maximum, "maximum": self.minimum})
        return self


class Pattern(_Function):
    """The share of the given keywords or regular expressions that occur in the completion."""

    kind: Literal["pattern"] = "pattern"
    syntax: Literal["keyword", "regex"] = Field("keyword", description="How the patterns are read.")
    patterns: Annotated[
        list[Annotated[CleanText, Field(min_length=1, max_length=1000)]], Field(min_length=1, max_length=50)
    ] = Field(description="Each found pattern adds its share of the score.")
    case_sensitive: bool = Field(True, description="Whether upper and lower case differ.")

    @model_validator(mode="after")
    def _compiles(self) -> "Pattern":
        if self.syntax == "regex":
            wide = sum(pattern.count("[") for pattern in self.patterns if _BEYOND_ASCII.search(pattern))
            if wide > MOST_WIDE_CLASSES:
                raise Misfit(
                    f"the regular expressions have {wide} character classes with letters beyond ASCII, which take long to "
                    f"compile; use at most {MOST_WIDE_CLASSES}",
                    "patterns",
                )
            for pattern in self.patterns:
                try:
                    re.compile(pattern)
                except (re.error, OverflowError, RecursionError) as error:
                    raise Misfit(f"the regular expression {pattern!r} does not compile: {error}", "patterns") from None
        return self


class Python(_Function):
    """What a Python function says: one of your own in the worker's folder of rewards, or one that its operator allowed."""

    kind: Literal["python"] = "python"
    bounded = False
    function: PythonFunction = Field(
        description="file.py:function for a file in <home>/rewards of the worker; module:function for what its "
        "GROUPSCOPE_REWARD_FUNCTIONS lists."
    )
    unit: Unit = Field(
        "completion",
        description="completion: called for one completion at a time. group: called once for all completions of a prompt, so "
        "that it can compare them; where that fails, all of them stay unscored.",
    )
    arguments: Annotated[dict[ArgumentName, Argument], Field(max_length=32)] = Field(
        default_factory=dict, description="Values for the function's parameters that have a default."
    )

    @property
    def file(self) -> str | None:
        """The file in the folder of rewards; None for a function that an operator allowed."""
        return file_of(self.function)


def file_of(function: str) -> str | None:
    """The file that `file.py:function` names; None where it is `module:function`."""
    module = function.partition(":")[0]
    return module if module.endswith(".py") and module.count(".") == 1 else None


JudgeName = Annotated[Name, Field(description="The judge's name in the worker's GROUPSCOPE_JUDGES.")]
Instruction = Annotated[CleanText, Field(min_length=1, max_length=20_000)]
ReplyLength = Annotated[
    int, Field(ge=1, le=32_768, description="The longest reply; a judge that reasons before its verdict needs more.")
]


class Judge(_Function):
    """A language model's verdict from 0 to 1: the number in its reply, as a share of the scale."""

    kind: Literal["judge"] = "judge"
    endpoint: JudgeName
    instruction: Instruction = Field(
        "Rate how well the answer does what the task asks.\n\nTask:\n{prompt}\n\nAnswer:\n{completion}\n\n"
        'Reply with a number from 0 (useless) to 10 (perfect) and nothing else, as {"score": number}.',
        description="The instruction for the judge; {prompt} and {completion} are replaced, and {answer} by the reference answer.",
    )
    minimum: Annotated[float, Field(ge=-1e6, le=1e6)] = Field(0.0, description="The verdict that scores 0.")
    maximum: Annotated[float, Field(ge=-1e6, le=1e6)] = Field(10.0, description="The verdict that scores 1.")
    max_tokens: ReplyLength = 256

    @model_validator(mode="after")
    def _can_judge(self) -> "Judge":
        if self.minimum >= self.maximum:
            raise Misfit(f"maximum ({self.maximum:g}) must be above minimum ({self.minimum:g})", "maximum")
        require_places(self.instruction, "{prompt}", "{completion}")
        return self


class Ranking(_Function):
    """A language model's order of all completions of a prompt: 1 for the best, 0 for the last, the others evenly between."""

    kind: Literal["ranking"] = "ranking"
    endpoint: JudgeName
    instruction: Instruction = Field(
        "Order the answers by how well they do what the task asks.\n\nTask:\n{prompt}\n\n{completions}\n\n"
        'Reply with the numbers of all answers, the best first, and nothing else, as {"order": [numbers]}.',
        description="The instruction for the judge; {prompt} and {completions} are replaced, and {answer} by the reference answer.",
    )
    rounds: Annotated[int, Field(ge=1, le=8)] = Field(
        2,
        description="How often it is asked about a group, with the answers shown in another order; places are averaged. With an even "
        "number, each order is also shown backwards, and a preference for a place cancels out.",
    )
    max_tokens: ReplyLength = 256

    @model_validator(mode="after")
    def _can_rank(self) -> "Ranking":
        require_places(self.instruction, "{prompt}", "{completions}")
        return self


def require_places(instruction: str, *places: str) -> None:
    """Raises Misfit where the instruction for a judge leaves out what it should judge."""
    for place in places:
        if place not in instruction:
            raise Misfit(f"instruction has no {place}; the judge cannot rate what it is not shown", "instruction")


class LearnedReward(_Function):
    """What a reward model gives: the logit of a sequence classifier, not bounded to 0 and 1."""

    kind: Literal["reward_model"] = "reward_model"
    bounded = False
    source: ModelSource = Field(
        description="run:<id>@<step> for a checkpoint of a run that trained a reward model, a Hub id of a sequence "
        "classifier, or local:<folder> under the worker's model root."
    )
    label: Annotated[int, Field(ge=0, le=1023)] = Field(
        0, description="Which output counts, from 0, if the classifier has several."
    )


RewardFunction = Annotated[
    Correctness | Format | Length | Pattern | LearnedReward | Judge | Ranking | Python, Field(discriminator="kind")
]
BOUNDED = frozenset(one.model_fields["kind"].default for one in get_args(get_args(RewardFunction)[0]) if one.bounded)
"""The kinds whose raw score is from 0 to 1."""


class Gate(Frozen):
    """A reward that counts only if another one is high enough: correctness only with the right format."""

    reward: Name = Field(description="The reward that is gated.")
    requires: Name = Field(description="The reward it depends on.")
    at_least: float = Field(1.0, ge=-1000, le=1000, description="The raw score that the required reward must reach.")


def _right_and_well_formed() -> list[RewardFunction]:
    return [Correctness(name="correctness", weight=0.9), Format(name="format", weight=0.1)]


class Rewards(Frozen):
    """The whole scoring: functions, gates, and what happens when a function fails."""

    functions: Annotated[list[RewardFunction], Field(min_length=1, max_length=16)] = Field(
        default_factory=_right_and_well_formed, description="The reward functions; their weighted scores are added up."
    )
    gates: Annotated[list[Gate], Field(max_length=16)] = Field(
        default_factory=list, description="Rewards that count only if another one is high enough."
    )
    max_unscored: Annotated[float, Field(ge=0, le=1)] = Field(
        0.2, description="The run fails if a larger share of completions than this is unscored."
    )
    time_limit: Annotated[float, Field(gt=0, le=600)] = Field(
        5.0, description="Seconds that one reward function may take for one completion before the function is killed."
    )
    reading: Reading = None

    @model_validator(mode="after")
    def _names_agree(self) -> "Rewards":
        names = [function.name for function in self.functions]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise Misfit(f"names must be unique; {', '.join(twice)} occurs more than once: rename one", "functions")
        if KL_PENALTY in names:
            text = f"the name {KL_PENALTY} is the KL penalty's, where it is in the reward; choose another"
            raise Misfit(text, "functions")
        for gate in self.gates:
            for name in (gate.reward, gate.requires):
                if name not in names:
                    raise Misfit(f"a gate names {name!r}, but the rewards are {', '.join(names)}", "gates")
            if gate.reward == gate.requires:
                raise Misfit(f"the gate on {gate.reward!r} requires itself; name another reward", "gates")
        return self

    def require_answers(self, task: Task) -> None:
        """Raises Misfit at `task.answer_column` where a reward compares with an answer that the task's rows do not have."""
        comparing = [function.name for function in self.functions if function.kind == "correctness"]
        if task.kind == "dataset" and task.answer_column is None and comparing:
            text = f"the reward {comparing[0]!r} compares with a reference answer, and the data set has no answer_column; name it"
            raise Misfit(text, "task.answer_column")


def reward_bound(config: Mapping[str, Json]) -> float | None:
    """The highest total reward of a stored configuration, of which any field may be absent: any version may have written it.

    None if a function's score has no bound, or if no function can add to the reward.
    """
    weighing = [one for one in reward_functions(config) if number_at(one, "weight", 1.0)]
    if any(one.get("kind") not in BOUNDED for one in weighing):
        return None
    return float(sum(max(0.0, number_at(one, "weight", 1.0)) for one in weighing)) or None
