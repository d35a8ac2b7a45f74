"""The `rankscope` command: finds the sub-command, turns errors into one line and an exit code."""

from __future__ import annotations

import argparse
import os
import sys
import textwrap
from collections.abc import Sequence
from typing import Any, NoReturn

import rankscope
from rankscope.base.errors import UserError
from rankscope.base.plugins import load_all
from rankscope.cli import commands
from rankscope.cli.command import Command
from rankscope.cli.streams import prepare


class _Parser(argparse.ArgumentParser):
    """Bad arguments end with one line and exit code 2."""

    def error(self, message: str) -> NoReturn:
        # argparse lists every command here, the internal ones too.
        message = message.partition(" (choose from")[0] if message.startswith("argument COMMAND") else message
        self.exit(2, f"rankscope: {message} (see `{self.prog} --help`)\n")


def make_parser() -> argparse.ArgumentParser:
    """The parser with every command of `cli/commands`."""
    parser = _Parser(
        prog="rankscope",
        description="Says what makes a PyTorch run slow, on which rank, in which line, and what fixing it would gain.",
        epilog="example: rankscope run -- torchrun --nproc-per-node 2 train.py",
    )
    parser.add_argument("--version", action="version", version=f"rankscope {rankscope.__version__}")
    words = parser.add_subparsers(dest="command", metavar="COMMAND", required=True, parser_class=_Parser)
    for cls in load_all(commands, Command):
        first_line = (cls.__doc__ or "").splitlines()[0]
        about: dict[str, Any] = {
            "description": textwrap.fill(first_line, 79),
            "epilog": f"example: {cls.example}",
            "formatter_class": argparse.RawDescriptionHelpFormatter,  # an example is copied: no line break in it
            "allow_abbrev": False,
        }
        if not cls.internal:
            about["help"] = first_line
        own = words.add_parser(cls.name, **about)
        command = cls()
        command.add_arguments(own)
        own.set_defaults(run_command=command.run)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code. No traceback reaches the user."""
    prepare()
    try:
        args = make_parser().parse_args(arguments)
        code = int(args.run_command(args))
        sys.stdout.flush()
        return code
    except UserError as error:
        print(f"rankscope: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("rankscope: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        return 0  # whoever read our output has gone (`rankscope show | head`): nothing is wrong
    except Exception as error:  # the last wall: one line, and the way to the traceback
        if os.environ.get("RANKSCOPE_DEBUG"):
            raise
        print(
            f"rankscope: internal error, {type(error).__name__}: {error} (set RANKSCOPE_DEBUG=1 for the traceback)",
            file=sys.stderr,
        )
        return 70
