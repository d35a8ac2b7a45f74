"""What a trace says of itself beside its events."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

from rankscope.records.imported.device_trace import Group

_VERSION: Final = re.compile(r"[A-Za-z0-9_.+\- ]{1,64}")
_MOST_RANKS: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Header:
    """The fields that are used; None and empty where the file has none, or `null`, or something else in their place."""

    rank: int | None
    world_size: int | None
    backend: str | None
    groups: tuple[Group, ...]
    device_names: tuple[str, ...]
    num_sms: int | None
    base_ns: int
    """To be added to all time stamps."""
    has_base: bool
    versions: tuple[tuple[str, str], ...]


def header_of(found: dict[str, Any]) -> Header:
    """The header, whatever there is of it."""
    job = found.get("distributedInfo")
    job = job if isinstance(job, dict) else {}
    devices = found.get("deviceProperties") or found.get("computeProperties")
    devices = [one for one in devices if isinstance(one, dict)] if isinstance(devices, list) else []
    base = _whole(found.get("baseTimeNanoseconds"))
    backend = job.get("backend")
    return Header(
        rank=_natural(job.get("rank")),
        world_size=_natural(job.get("world_size")) or None,
        backend=backend if isinstance(backend, str) and backend else None,
        groups=_groups(job.get("pg_config")),
        device_names=tuple(str(one.get("name") or "") for one in devices),
        num_sms=(_natural(devices[0].get("numSms")) or None) if devices else None,
        base_ns=base or 0,
        has_base=base is not None,
        versions=_versions(found, job),
    )


def _groups(listed: Any) -> tuple[Group, ...]:
    """`pg_config`; in some versions a dictionary by name, or the group's number alone."""
    if isinstance(listed, dict):
        listed = [{"pg_name": name, **one} for name, one in listed.items() if isinstance(one, dict)]
    if not isinstance(listed, list):
        return ()
    groups = []
    for one in listed:
        if not isinstance(one, dict):
            continue
        ranks = one.get("ranks")
        ranks = ranks if isinstance(ranks, list) and len(ranks) <= _MOST_RANKS else []
        numbers = tuple(number for rank in ranks if (number := _natural(rank)) is not None)
        groups.append(Group(str(one.get("pg_name", "")), str(one.get("pg_desc", "")), numbers))
    return tuple(groups)


def _versions(found: dict[str, Any], job: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    pairs = [*found.items(), *job.items()]
    return tuple(
        (key, str(value))
        for key, value in pairs
        if isinstance(key, str) and key.endswith("_version") and _VERSION.fullmatch(str(value))
    )


def _natural(value: Any) -> int | None:
    number = _whole(value)
    return number if number is not None and 0 <= number < 2**31 else None


def _whole(value: Any) -> int | None:
    if isinstance(value, bool):
        return None
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if abs(number) < 2**62 else None
