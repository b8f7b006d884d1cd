"""
YAML whose lines are remembered, so that a message can name them.

PyYAML's safe loader, with three differences: mappings and sequences know where each key and item stands, a key that is given
twice is a problem, and every failure comes in plain words as an ``UnreadableError``.
"""

import reprlib
from collections.abc import Generator
from typing import Any, NamedTuple

import yaml


class Problem(NamedTuple):
    """One problem: the line, if it is known and not the line of the key under check, and what is wrong."""

    line: int | None
    text: str


class UnreadableError(Exception):
    """A file that cannot be read at all."""

    def __init__(self, line: int | None, text: str) -> None:
        super().__init__(text)
        self.problem = Problem(line, text)


class LineMapping(dict[Any, Any]):
    """A YAML mapping that knows the line of each key; of a merged key (``<<``) it is the line where the key is written."""

    def __init__(self, lines: dict[Any, int] | None = None) -> None:
        super().__init__()
        self.lines = lines or {}


class LineSequence(list[Any]):
    """A YAML sequence that knows the line of each item."""

    def __init__(self, lines: list[int] | None = None) -> None:
        super().__init__()
        self.lines = lines or []


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader, with line numbers, and with a list of the keys that are given twice."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.duplicates: list[Problem] = []

    def compose_mapping_node(self, anchor: Any) -> Any:
        # Here, and not in the construction: that one has put the merged keys among the mapping's own.
        node: Any = super().compose_mapping_node(anchor)
        first_lines: dict[tuple[str, str], int] = {}
        for key_node, _ in node.value:
            if isinstance(key_node, yaml.ScalarNode) and key_node.tag != "tag:yaml.org,2002:merge":
                name, line = (key_node.tag, key_node.value), _first_line(key_node)
                if name in first_lines:
                    text = f"{show(key_node.value)} is given twice, first in line {first_lines[name]}"
                    self.duplicates.append(Problem(line, text))
                first_lines.setdefault(name, line)
        return node

    def construct_object(self, node: Any, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:  # from `!!int x`, 2001-99-99
            problem = f"cannot read {show(node.value)} as {_short_tag(node.tag)}"
            raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark) from error

    def construct_yaml_map(self, node: Any) -> Generator[LineMapping, None, None]:
        data = LineMapping()
        yield data
        data.update(self.construct_mapping(node))
        data.lines = {self.construct_object(key_node): _first_line(key_node) for key_node, _ in node.value}

    def construct_yaml_seq(self, node: Any) -> Generator[LineSequence, None, None]:
        data = LineSequence()
        yield data
        data.extend(self.construct_sequence(node))
        data.lines = [_first_line(item) for item in node.value]


_Loader.add_constructor("tag:yaml.org,2002:map", _Loader.construct_yaml_map)
_Loader.add_constructor("tag:yaml.org,2002:seq", _Loader.construct_yaml_seq)


def _first_line(node: Any) -> int:
    return int(node.start_mark.line) + 1


def _short_tag(tag: str) -> str:
    return tag.replace("tag:yaml.org,2002:", "!!")


def load_yaml(text: str) -> tuple[Any, list[Problem]]:
    """
    :param text: a YAML document
    :return: the document, made of ``LineMapping`` and ``LineSequence``, and the keys that are given twice
    :raises UnreadableError: if it is not plain YAML
    """
    try:
        loader = _Loader(text)
        document = loader.get_single_data()
    except yaml.MarkedYAMLError as error:
        raise UnreadableError(*_explain(error, text)) from error
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise UnreadableError(line, f"the character {chr(error.character)!r} is not allowed in YAML") from error
    except RecursionError as error:
        raise UnreadableError(None, "the YAML is nested too deeply, or an alias contains itself") from error
    return document, loader.duplicates


def _explain(error: yaml.MarkedYAMLError, text: str) -> Problem:
    """Put PyYAML's message in plain words."""
    mark = error.problem_mark or error.context_mark
    lines = text.splitlines()
    line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
    problem, context = error.problem or "", error.context or ""
    source_line = lines[line - 1] if line <= len(lines) else ""
    if "\t" in source_line[: len(source_line) - len(source_line.lstrip())]:
        return Problem(line, "the line is indented with a tab: YAML wants spaces")
    if "while scanning a quoted scalar" in context and error.context_mark:
        return Problem(error.context_mark.line + 1, f"column {error.context_mark.column + 1}: the quote is not closed")
    if problem.startswith("could not determine a constructor for the tag"):
        tag = _short_tag(problem.partition("tag ")[2])
        return Problem(line, f"unknown tag {tag}: only plain YAML is read, no objects")
    for theirs, ours in (
        ("mapping values are not allowed here", "a ':' is not expected here: check the indentation, or quote the text"),
        ("could not find expected ':'", "a ':' is missing after the key"),
        ("but found '<block", "the indentation does not fit the lines above"),
        ("expected ',' or", "a bracket is not closed, or a comma is missing"),
        ("found unhashable key", "a key must be a plain name"),
    ):
        if theirs in problem:
            return Problem(line, f"column {column}: {ours}")
    return Problem(line, f"column {column}: {' '.join(f'{context} {problem}'.split())}")


def line_of(container: Any, key: Any) -> int | None:
    """
    :param container: a mapping or sequence
    :param key: its key or index
    :return: the line on which it stands, if that is known
    """
    if isinstance(container, LineMapping):
        return container.lines.get(key)
    return container.lines[key] if isinstance(container, LineSequence) and key is not None else None


class _Repr(reprlib.Repr):
    # reprlib finds these by the name of the class.
    repr_LineMapping = reprlib.Repr.repr_dict
    repr_LineSequence = reprlib.Repr.repr_list


_SHORT = _Repr()
_SHORT.maxstring = _SHORT.maxother = 80


def show(value: Any) -> str:
    """
    :param value: a value from the file
    :return: how to show it in a message: in YAML's words, and shortened
    """
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    try:
        return _SHORT.repr(value)
    except Exception:  # a number of 5000 digits, a broken __repr__
        return f"a {type(value).__name__}"
