"""JSON documents with a schema line: written readably, read with errors that name file and field."""

from __future__ import annotations

import re
from typing import TypeVar

import msgspec

from rankscope.base.errors import UserError

T = TypeVar("T")


class _Head(msgspec.Struct):
    schema: str | None = None


def encode(schema: str, value: dict[str, object], *, indent: int) -> str:
    """`value` as JSON, the schema line first. What is no finite number becomes null. Indent -1: one line."""
    document = {"schema": schema, **value}
    try:
        data = msgspec.json.encode(document)
    except UnicodeEncodeError:
        # A file name that is not UTF-8 reaches Python as lone surrogates, which JSON cannot hold.
        data = msgspec.json.encode(_without_surrogates(document))
    return msgspec.json.format(data, indent=indent).decode()


def decode(text: str | bytes, schema: str, kind: type[T], source: str) -> T:
    """The document in `text`; UserError that names `source` and the field if it is not one of `schema`."""
    try:
        head = msgspec.json.decode(text, type=_Head)
        if head.schema != schema:
            raise UserError(f"{source}: field schema is {head.schema!r}, not {schema!r}; {_HINT}")
        return msgspec.json.decode(text, type=kind)
    except msgspec.DecodeError as error:
        raise UserError(f"{source}: {_in_words(str(error))}; {_HINT}") from None
    except UnicodeError as error:
        raise UserError(f"{source}: not UTF-8 text ({error}); {_HINT}") from None


_HINT = "give a file that this version of rankscope wrote"


def _in_words(message: str) -> str:
    """msgspec's message with the field in front: `$.run.steps` is `run.steps` to a user."""
    found = re.fullmatch(r"(.*) - at `\$\.?(.*)`", message, re.DOTALL)
    what, field = (found[1], found[2]) if found else (message, "")
    missing = re.fullmatch(r"Object missing required field `(.*)`", what)
    if missing:
        return f"field {'.'.join(filter(None, (field, missing[1])))} is missing"
    what = what[:1].lower() + what[1:] if not what.startswith("JSON") else what
    return f"field {field}: {what}" if field else what


def _without_surrogates(value: object) -> object:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {_without_surrogates(key): _without_surrogates(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_surrogates(item) for item in value]
    return value
