"""What the user wants done about a hang and a failure: `--on-hang`, `--on-failure`, `--restarts`."""

from __future__ import annotations

import argparse
from dataclasses import dataclass

from rankscope.base.errors import UserError
from rankscope.cli.options import whole_number

REPORT, STOP, RESTART = "report", "stop", "restart"
DEFAULT_RESTARTS = 3


@dataclass(frozen=True, slots=True)
class Policy:
    """What is done about a hang and a failure."""

    on_hang: str = REPORT
    """`report`, `stop` or `restart`."""
    on_failure: str = REPORT
    """`report` or `restart`."""
    restarts: int = 0
    """How often the command is started again at most."""

    @property
    def stops_hangs(self) -> bool:
        """Whether a command that hangs is ended."""
        return self.on_hang in (STOP, RESTART)

    def restarts_after(self, why: str) -> bool:
        """Whether an attempt that ended for this reason may be followed by another one."""
        return {"hang": self.on_hang, "failure": self.on_failure}.get(why) == RESTART


REPORT_ONLY = Policy()


def add_restart_options(parser: argparse.ArgumentParser) -> None:
    """The options, read with `restart_policy`."""
    parser.add_argument(
        "--on-hang", choices=(REPORT, STOP, RESTART), default=REPORT,
        help="when no rank makes progress any more and it is known why: say so (default), end the command, or end it "
        "and start it again",
    )  # fmt: skip
    parser.add_argument(
        "--on-failure", choices=(REPORT, RESTART), default=REPORT,
        help="when the command ends with an error: say so (default), or start it again",
    )  # fmt: skip
    parser.add_argument(
        "--restarts", type=whole_number(0), metavar="N",
        help=f"how often it is started again at most (default: {DEFAULT_RESTARTS})",
    )  # fmt: skip


def restart_policy(args: argparse.Namespace) -> Policy:
    """What the options say. Raises UserError where they do not fit together."""
    wanted = RESTART in (args.on_hang, args.on_failure)
    if args.restarts is not None and not wanted:
        raise UserError("--restarts says how often, but not when; add --on-hang restart, --on-failure restart or both")
    default = DEFAULT_RESTARTS if wanted else 0
    return Policy(args.on_hang, args.on_failure, default if args.restarts is None else args.restarts)
