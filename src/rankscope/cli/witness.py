"""Why a command was not observed, seen from outside: which Python processes it started, and whether they let us in."""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

from rankscope.cli.family import descendants

INSTEAD = "or call rankscope.start() in the script"
CLEARED = f"the command clears the environment, through which rankscope gets in; keep it, {INSTEAD}"
REPLACED = (
    "the command replaces PYTHONPATH, through which rankscope gets in; "
    f"write PYTHONPATH=YOURS:$PYTHONPATH in it, {INSTEAD}"
)
NO_PYTHON = "the command started no Python program"
NO_TRAINING = "its Python program did not train: no process used torch to train, to serve or in a process group"
NO_TORCH = "its Python program did not import torch"

_PYTHON = re.compile(r"python[0-9.]*$")
_TAKES_VALUE = "WX"
"""Options of Python whose value is the rest of the word or the next word."""


class Witness:
    """Looks at the command's processes until one of them is observed; costs some ms a look, ever more rarely."""

    def __init__(self, command: Sequence[str], site: str, ring_folders: Sequence[Path]) -> None:
        self._site = site
        self._folders = ring_folders
        self.observed = False
        """Whether a process of the command has let us in."""
        self._python = False
        self._torch = False
        self._kept_out = kept_out_by_command(command)
        program = shutil.which(command[0]) or command[0]
        if self._kept_out or any(is_python(word) for word in command) or _has_python_line(program):
            self._python = True
        self._pause_s = 0.1
        self._next = 0.0

    def look(self, pid: int) -> None:
        """Look at `pid` and its descendants, where it is time and nothing has been observed yet."""
        if self.observed or time.monotonic() < self._next:
            return
        self._pause_s = min(self._pause_s * 1.5, 5.0)
        self._next = time.monotonic() + self._pause_s
        if any(next(folder.glob("*.ring"), None) for folder in self._folders):
            self.observed = True
            return
        for process in descendants(pid):
            self._look_at(f"/proc/{process}")

    def _look_at(self, folder: str) -> None:
        words = _words(f"{folder}/cmdline")
        if not words or not is_python(words[0]):
            return
        self._python = True
        torch = "/libtorch" in _read(f"{folder}/maps")
        self._torch = self._torch or torch
        why = kept_out_by_options(words) or self._kept_out_by_environment(f"{folder}/environ")
        if why and (torch or not self._kept_out):
            self._kept_out = why

    def _kept_out_by_environment(self, path: str) -> str:
        if not os.access(path, os.R_OK):
            return ""  # a process of another user, or one that has just ended
        values = dict(word.split("=", 1) for word in _words(path) if "=" in word)
        if not any(name.startswith("RANKSCOPE_") for name in values):
            return CLEARED
        if self._site not in values.get("PYTHONPATH", "").split(os.pathsep):
            return REPLACED
        return ""

    def reason(self) -> str:
        """Why no process was observed, as far as can be told; meant for a run without any."""
        if self._kept_out:
            return self._kept_out
        if self._torch:
            return NO_TRAINING
        return NO_TORCH if self._python else NO_PYTHON


def is_python(word: str) -> bool:
    """Whether a word of a command line is a Python interpreter."""
    return bool(_PYTHON.match(os.path.basename(word)))


def kept_out_by_options(words: Sequence[str]) -> str:
    """Why the interpreter `words[0]` with these arguments does not load our site folder; "" where it does."""
    skip = False
    for word in words[1:]:
        if skip:
            skip = False
            continue
        if not word.startswith("-") or word.startswith("--") or word == "-":
            return ""
        for at, letter in enumerate(word[1:], 1):
            if letter in "IES":
                return f"`python -{letter}` keeps rankscope out; leave this option out, {INSTEAD}"
            if letter in "cm":
                return ""
            if letter in _TAKES_VALUE:
                skip = at == len(word) - 1
                break
    return ""


def kept_out_by_command(command: Sequence[str]) -> str:
    """The same for a whole command line, for programs that end before anybody can look at them."""
    through_env = os.path.basename(command[0]) == "env"
    for at, word in enumerate(command):
        if through_env and word in ("-", "-i", "--ignore-environment"):
            return CLEARED
        if through_env and word.startswith("PYTHONPATH="):
            return REPLACED
        if is_python(word):
            return kept_out_by_options(command[at:])
    return ""


def _has_python_line(program: str) -> bool:
    """Whether a program is a script whose first line names Python."""
    try:
        with open(program, "rb") as file:
            first = file.readline(200)
    except OSError:
        return False
    return first.startswith(b"#!") and b"python" in first


def _words(path: str) -> list[str]:
    """What stands between the NUL bytes of a file in /proc."""
    return [word for word in _read(path).split("\0") if word]


def _read(path: str) -> str:
    """A file as text; empty where it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""
