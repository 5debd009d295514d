"""YAML as people write and paste it, read as plain JSON values: by the form, by a sweep's values and by `groupscope submit`."""

import json

import yaml

from backend.contract.base import Json, storable

MOST_LETTERS = 2**20  # twice what the backend takes as a configuration
_MOST_VALUES = 20_000  # a second's reading; a configuration has some hundred
_LONGEST_NUMBER = 100  # letters; the library turns 1:1:1:… into a product of as many sixties
_INT64 = 2**63


class Unreadable(ValueError):
    """The text holds no plain values; the message says where, why and what to do."""


class _Plain(yaml.SafeLoader):
    """Refuses aliases, which make a short text large, and tags and dates, which JSON does not have."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._values = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        event: yaml.Event = self.peek_event()  # type: ignore[no-untyped-call]  # the library's
        if isinstance(event, yaml.AliasEvent):
            raise _refused(f"*{event.anchor} repeats another part; write that part out", event)
        if (tag := getattr(event, "tag", None)) is not None:
            raise _refused(f"leave out the tag {tag}", event)
        self._values += 1
        if self._values > _MOST_VALUES:
            raise _refused(f"more than {_MOST_VALUES:,} values; shorten it", event)
        return super().compose_node(parent, index)

    def number(self, node: yaml.ScalarNode) -> int | float:
        """A whole number or a float of a bounded length."""
        if len(node.value) > _LONGEST_NUMBER:
            raise _refused(f"a number has at most {_LONGEST_NUMBER} digits; put a longer one in quotes", node)
        is_whole = node.tag.endswith(":int")
        return self.construct_yaml_int(node) if is_whole else self.construct_yaml_float(node)

    def date(self, node: yaml.ScalarNode) -> Json:
        """No JSON value is a date."""
        raise _refused(f"put the date {node.value} in quotes", node)


def _refused(problem: str, at: yaml.Event | yaml.Node) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=at.start_mark)  # type: ignore[arg-type]  # its stubs know no mark of an event


_Plain.add_constructor("tag:yaml.org,2002:int", _Plain.number)
_Plain.add_constructor("tag:yaml.org,2002:float", _Plain.number)
_Plain.add_constructor("tag:yaml.org,2002:timestamp", _Plain.date)


def read(text: str) -> Json:
    """The values in the text: finite numbers, texts that UTF-8 can carry, lists, and mappings by name. Raises Unreadable."""
    if len(text) > MOST_LETTERS:
        raise Unreadable(f"it has more than {MOST_LETTERS:,} letters; shorten it")
    try:
        value: object = yaml.load(text, _Plain)  # noqa: S506 — a SafeLoader that reads less
        written = json.dumps(value, allow_nan=False, ensure_ascii=False)
        written.encode()
        plain: Json = json.loads(written, parse_int=_whole)
        storable(plain)
    except yaml.MarkedYAMLError as error:
        mark, where = error.problem_mark, ""
        if mark is not None:
            where = f"line {mark.line + 1}, column {mark.column + 1}: "
        raise Unreadable(f"{where}{error.problem or error.context}") from error
    except yaml.YAMLError as error:
        raise Unreadable(str(error).splitlines()[0]) from error
    except RecursionError as error:
        raise Unreadable("it is nested too deeply; flatten it") from error
    except UnicodeEncodeError as error:
        raise Unreadable("it holds half of a pair such as \\ud800, which is not a character; remove it") from error
    except (ValueError, TypeError, OverflowError) as error:
        raise Unreadable(f"it holds what JSON cannot carry; correct it ({error})") from error
    return plain


def write(value: Json) -> str:
    """The text of a configuration, as `read` takes it."""
    return yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=100)


def _whole(digits: str) -> int:
    number = int(digits)
    if not -_INT64 <= number < _INT64:
        raise ValueError("a whole number beyond 64 bits")
    return number
