"""`rankscope causes`: what the codes in a report mean."""

from __future__ import annotations

import argparse
import sys

from rankscope.base.causes import CAUSES, KINDS, Cause, cause
from rankscope.cli.command import Command

NOT_YET = " [not looked for yet]"


class Causes(Command):
    """Say what a cause means, what shows it and what to do; without CODE, list all causes."""

    name = "causes"
    example = "rankscope causes slow-data-loading"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("code", nargs="?", metavar="CODE", help="the code of a cause, as it stands in a report")

    def run(self, args: argparse.Namespace) -> int:
        sys.stdout.write(_page(args.code) if args.code else _list())
        return 0


def _page(code: str) -> str:
    """The catalogue's meaning, and the docstring of the detector that finds it."""
    from rankscope.analysis import detectors
    from rankscope.analysis.detector import Detector
    from rankscope.base.plugins import load_all
    from rankscope.report.pages import format_page

    bodies = {cls.name: cls.__doc__ or "" for cls in load_all(detectors, Detector, entry_points=True)}
    if code in bodies and code not in CAUSES:
        return format_page(Cause(code, "of a plug-in", "Not in the catalogue of rankscope."), bodies[code])
    return format_page(cause(code), bodies.get(code) or "No detector of this version looks for it.")


def _list() -> str:
    from rankscope.analysis import detectors
    from rankscope.analysis.detector import Detector
    from rankscope.base.plugins import load_all

    looked_for = {cls.name for cls in load_all(detectors, Detector, entry_points=True)}
    width = max(map(len, CAUSES)) + 2
    lines = []
    for kind in KINDS:
        lines.append(kind)
        for one in CAUSES.values():
            if one.kind == kind:
                lines += _wrapped(one, width, "" if one.code in looked_for else NOT_YET)
    lines += ["", f"{len(looked_for)} of them are looked for by this version"]
    return "\n".join(lines) + "\n"


def _wrapped(one: Cause, width: int, note: str) -> list[str]:
    import textwrap

    first = f"  {one.code}".ljust(width + 2)
    return textwrap.wrap(one.meaning + note, 100, initial_indent=first, subsequent_indent=" " * len(first))
