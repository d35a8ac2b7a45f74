"""`rankscope timeline`: all ranks on one clock, for Perfetto."""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rankscope.base.errors import UserError
from rankscope.cli.command import Command
from rankscope.cli.options import add_runs_dir, runs_dir

if TYPE_CHECKING:
    from rankscope.report.timeline.parts import Part
    from rankscope.report.timeline.window import Window

MOST_TOLD = 10
"""Files that are not used, each in a line."""

Steps = tuple[int, int | None]


@dataclass(frozen=True, slots=True)
class Ranks:
    """Which ranks were asked for, as (first, last) pairs."""

    ranges: tuple[tuple[int, int], ...]

    def __call__(self, rank: int) -> bool:
        return any(first <= rank <= last for first, last in self.ranges)


class Timeline(Command):
    """Write all ranks on one clock into one file that Perfetto opens."""

    name = "timeline"
    example = "rankscope timeline last -o run.pftrace --steps 100:120"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "path", nargs="+", metavar="RUN|PATH",
            help="a run (folder, id, name, `last`), or traces of torch.profiler: files, folders, archives",
        )  # fmt: skip
        parser.add_argument(
            "-o", "--output", metavar="FILE", type=Path, required=True,
            help="Perfetto's own format; Chrome's where the name ends in .json; packed where it ends in .gz",
        )  # fmt: skip
        parser.add_argument(
            "--steps", metavar="A:B", type=steps, help="from step A up to, not with, B; A:, :B and A work as well"
        )
        parser.add_argument("--ranks", metavar="LIST", type=ranks, help="only these ranks: 0,2-3")
        add_runs_dir(parser)

    def run(self, args: argparse.Namespace) -> int:
        from rankscope.cli.inputs import sort_out

        check_target(args.output)
        found = sort_out(args.path)
        gone = next((text for text in args.path if len(Path(text).parts) > 1 and not Path(text).exists()), None)
        if gone is not None:
            raise UserError(f"{gone}: does not exist; see `rankscope runs` for the runs of this folder")
        if found is None or found.runs:
            if len(args.path) > 1 or (found is not None and (len(found.runs) > 1 or found.files)):
                raise UserError("give one run, or traces of torch.profiler and no run")
            _of_run(args)
        else:
            _of_traces(args, found.files)
        return 0


def steps(text: str) -> Steps:
    """`A:B`, `A:`, `:B` or `A` as (first, the one after the last); an argparse type."""
    match = re.fullmatch(r"(\d*)(:?)(\d*)", text)
    if match is None or not (match[1] or match[3]):
        raise argparse.ArgumentTypeError(f"{text!r} is no range of steps: write A:B, for example 100:120")
    first = int(match[1] or 0)
    stop = first + 1 if not match[2] else int(match[3]) if match[3] else None
    if stop is not None and stop <= first:
        raise argparse.ArgumentTypeError(f"{text} is empty: A:B ends before step B, so B has to be above A")
    return first, stop


def ranks(text: str) -> Ranks:
    """`0,2-3`; an argparse type."""
    found = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d+)(?:-(\d+))?\s*", part)
        if match is None or (match[2] and int(match[2]) < int(match[1])):
            raise argparse.ArgumentTypeError(f"{text!r} is no list of ranks: write for example 0,2-3")
        found.append((int(match[1]), int(match[2] or match[1])))
    return Ranks(tuple(found))


def check_target(path: Path) -> None:
    """Find out before the work that the file cannot be written."""
    folder = path.absolute().parent
    if not folder.is_dir():
        raise UserError(f"{path}: its folder {folder} does not exist; create it or choose another place")
    if path.is_dir():
        raise UserError(f"{path}: is a folder; give the name of a file, for example {path / 'timeline.pftrace'}")
    if not os.access(path if path.exists() else folder, os.W_OK):
        raise UserError(f"{path}: cannot be written; choose another place")


def check_ranks(wanted: Ranks | None, known: Iterable[int]) -> None:
    """UserError where a part of `--ranks` names no rank that there is."""
    from rankscope.analysis.wording import numbered

    there = sorted(set(known))
    for first, last in wanted.ranges if wanted is not None else ():
        if not any(first <= rank <= last for rank in there):
            text = f"{first}" if first == last else f"{first}-{last}"
            raise UserError(f"--ranks {text}: there is no such rank; there {'is' if len(there) == 1 else 'are'} "
                            f"{numbered(there)}")  # fmt: skip


def _of_run(args: argparse.Namespace) -> None:
    from rankscope.analysis.facts import Facts
    from rankscope.analysis.tables import load
    from rankscope.base.manifest import read_manifest
    from rankscope.cli.commands.diagnose import diagnose
    from rankscope.cli.history import find_run, read_report
    from rankscope.cli.progress import working
    from rankscope.cli.session import open_when_free
    from rankscope.report.attempts import last_part
    from rankscope.report.timeline import of_run
    from rankscope.report.timeline.window import chosen_window, usual_window
    from rankscope.store.store import StoreError

    run = find_run(args.path[0], runs_dir(args))
    try:
        report = read_report(run) if read_manifest(run.root).finished else diagnose(run)[0]
    except UserError:  # it has none, or one that cannot be read
        report = diagnose(run)[0]
    try:
        with working("reading the records"), open_when_free(run) as store:
            facts = Facts(load(store, last_part(read_manifest(run.root))))
    except StoreError as error:
        raise UserError(f"{run.store}: cannot be read ({str(error).splitlines()[0]})") from error
    whole = of_run.whole_run(facts)
    if whole is None:
        raise UserError(f"{run.root}: nothing was recorded that could be drawn; `rankscope diagnose` says why")
    check_ranks(args.ranks, (rank.rank for rank in facts.ranks))
    chosen = args.ranks or (lambda rank: True)
    known = of_run.run_steps(facts)
    window = (
        chosen_window(known, args.steps, whole)
        if args.steps is not None
        else usual_window(known, of_run.run_starts(facts, chosen), None, whole)
    )
    _say_left_out(window)
    _write(args.output, of_run.run_parts(facts, report, chosen, known, window), window)


def _of_traces(args: argparse.Namespace, files: tuple[Path, ...]) -> None:
    from rankscope.cli.progress import counting
    from rankscope.report.timeline import of_traces
    from rankscope.report.timeline.reading import ReadTrace, read_traces
    from rankscope.report.timeline.window import chosen_window, usual_window

    if not files:
        raise UserError(f"{', '.join(args.path)}: there are no files in it")
    where = args.output.resolve().parent if args.output.is_file() or not args.output.exists() else None
    with _workshop(where) as folder:
        found, unused = [], []
        with counting("reading traces", len(files)) as tell:
            for number, one in enumerate(read_traces(files, folder), 1):
                found.append(one) if isinstance(one, ReadTrace) else unused.append(one)
                tell(min(number, len(files)))
        if not found:
            file, why = unused[0]
            more = f" (and {len(unused) - 1} more files are none)" if len(unused) > 1 else ""
            raise UserError(f"{file}: {why}; give traces of torch.profiler, or a run{more}")
        _say_unused(unused)
        check_ranks(args.ranks, (one.rank for one in found if one.rank is not None))
        chosen = args.ranks or (lambda rank: True)
        traces = of_traces.together(found)
        window = (
            chosen_window(traces.steps, args.steps, traces.whole)
            if args.steps is not None
            else usual_window(traces.steps, *of_traces.trace_starts(traces, chosen), traces.whole)
        )
        _say_left_out(window)
        _write(args.output, of_traces.trace_parts(traces, chosen, window), window)


@contextmanager
def _workshop(where: Path | None) -> Iterator[Path]:
    """A folder that is gone afterwards; beside the file that is written, as that disk has room."""
    try:
        with tempfile.TemporaryDirectory(prefix=".timeline-", dir=where) as folder:
            yield Path(folder)
    except OSError as error:
        place = where or tempfile.gettempdir()
        raise UserError(f"{place}: cannot be written ({error.strerror or error}); choose another place") from error


def _say_unused(unused: list[tuple[str, str]]) -> None:
    for file, why in unused[:MOST_TOLD]:
        print(f"rankscope: {file}: {why}", file=sys.stderr)
    if len(unused) > MOST_TOLD:
        print(f"rankscope: {len(unused) - MOST_TOLD} more files are left out", file=sys.stderr)


def steps_text(window: Window) -> str:
    """`steps 100 to 119`; empty where none is known."""
    if window.first_step is None:
        return ""
    if window.first_step == window.last_step:
        return f"step {window.first_step:,}"
    return f"steps {window.first_step:,} to {window.last_step:,}"


def _say_left_out(window: Window) -> None:
    if window.left_out:
        what = steps_text(window) or "the newest"
        print(
            f"rankscope: too much for one look: {what} are drawn, about {window.left_out:,} older slices are not; "
            "--steps A:B chooses others",
            file=sys.stderr,
        )


def _write(path: Path, parts: Iterable[Part], window: Window) -> None:
    from rankscope.cli.progress import working
    from rankscope.views.perfetto.file import write_timeline
    from rankscope.views.quantities import bytes_text

    try:
        with working("writing the timeline"):
            written = write_timeline(path, parts)
    except BrokenPipeError:
        raise  # whoever read it has gone: nothing is wrong
    except OSError as error:
        raise UserError(f"{path}: cannot be written ({error.strerror or error})") from error
    what = ", ".join(part for part in (steps_text(window), f"{written.slices:,} slices") if part)
    print(
        f"rankscope: timeline written to {path} ({what}, {bytes_text(written.bytes)}); "
        "open it with https://ui.perfetto.dev",
        file=sys.stderr,
    )
