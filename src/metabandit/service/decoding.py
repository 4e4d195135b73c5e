"""JSON as messages; and what does not fit in words: the field, what it had, and what is accepted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from metabandit.errors import InvalidInput
from metabandit.service.messages import Column, Level, Message

T = TypeVar("T")


def decoded(decoder: msgspec.json.Decoder[T], body: bytes) -> T:
    """A message; what does not fit is refused with its place, its value and what was expected."""
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise _misfit(body, str(error)) from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidInput("body", "<no JSON>", f"JSON; {error}") from None
    except UnicodeDecodeError:
        raise InvalidInput("body", "<no UTF-8>", "JSON in UTF-8") from None


def _misfit(body: bytes, said: str) -> InvalidInput:
    said, _, place = said.partition(" - at ")
    path = place.partition("` in `")[2] or place  # `key` in `$.metadata`
    path = path.strip("`").removeprefix("$").replace("[...]", f".{ANY}")
    words, _, name = said.partition(" field `")
    if name:  # "Object contains unknown field `x`", "Object missing required field `x`"
        field, value = _found(body, f"{path}.{name.rstrip('`')}")
        if "missing" in words:
            return InvalidInput(field, "<nothing>", "a value; the field is required")
        return InvalidInput(field, value, "no such field; /schema lists those there are")
    field, value = _found(body, path)
    of_keys = "keys: " if place.startswith("`key`") else ""
    return InvalidInput(field, value, of_keys + wanted(field, said))


# -- where it is -----------------------------------------------------------------------------------------------

ANY = "[*]"  # a key of a dict, which the decoder does not name


def _found(body: bytes, path: str) -> tuple[str, Any]:
    """What a path like .tasks[3].metadata is called in full, and what is there."""
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):  # of another part of the body
        return path.replace(f".{ANY}", "").removeprefix(".") or "body", "<not shown>"
    names = ""
    for step in path.replace(f".{ANY}", "\0").replace("[", ".[").replace("\0", f".{ANY}").split(".")[1:]:
        key: Any = step
        if step == ANY and isinstance(value, dict):
            key = next((key for key, one in value.items() if not _fits(one)), None)
            if key is None:
                break
        elif step.startswith("[") and step[1:-1].isdigit():
            key = int(step[1:-1])
        names += step if isinstance(key, int) else f".{key}"
        try:
            value = value[key]
        except (KeyError, IndexError, TypeError):  # a field that is missing, or given twice
            break
    return names.removeprefix(".") or "body", value


def _fits(value: Any) -> bool:
    """Whether this can stand in either kind of metadata: a task's, or a bandit's columns."""
    try:
        msgspec.convert(value, Column if isinstance(value, dict) else Level | None)
    except msgspec.ValidationError:
        return False
    return True


# -- what it could be ------------------------------------------------------------------------------------------

# What the decoder calls things, and what the library does.
PLAIN = {
    "float": "a number", "int": "a whole number", "str": "a text", "bool": "true or false", "array": "a list",
    "object": "an object", "null": "null",
}  # fmt: skip
BOUNDS = {">=": "at least", "<=": "at most"}
SPECIAL = {
    "bool | int | float | str | null": "a text, a number, true, false or null",
    r"str matching regex '^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$(?!\\n)'": "1 to 100 letters, digits, dots, hyphens and "
    "underscores, the first a letter or a digit",
}


def wanted(field: str, said: str) -> str:
    """What a field accepts, from what the decoder said."""
    if said.startswith("Invalid enum value"):
        return f"one of {', '.join(CHOICES[field.rpartition('.')[2]])}"
    if said.startswith("Number out of range"):
        return "a number that fits in 64 bits"
    accepted = said.removeprefix("Expected ").partition(", got ")[0].replace("`", "")
    kinds = [_in_words(kind) for kind in accepted.split(" | ")]
    return SPECIAL.get(accepted, " or ".join(kinds))


def _in_words(kind: str) -> str:
    name, of, size = kind.partition(" of length ")
    if of:
        sign, number = size.split()
        return f"{PLAIN[name]} of {BOUNDS[sign]} {number} {'characters' if name == 'str' else 'elements'}"
    name, space, bound = kind.partition(" ")
    return PLAIN.get(name, name) + space + bound


def _literals(hint: Any) -> Iterator[str]:
    if get_origin(hint) is Literal:
        yield from get_args(hint)
    else:
        for part in get_args(hint):
            yield from _literals(part)


CHOICES = {
    name: found
    for kind in Message.__subclasses__()
    for name, hint in get_type_hints(kind).items()
    if (found := list(_literals(hint)))
}
"""by field; no two fields of one name have different ones"""
