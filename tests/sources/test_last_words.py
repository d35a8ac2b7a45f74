"""What a process says before an end that runs no exit handler."""

import logging
import os
import subprocess
import sys
import traceback

from rankscope.recorder.fault_files import read_fault


def test_a_logged_exception_is_written_with_the_line_that_raised_it(watched):
    def log_one():
        try:
            {}["label"]
        except KeyError:
            logging.getLogger("here").exception("no label")

    seen = watched(log_one)

    (caught,) = seen.of("caught_exception")
    assert caught.name == "KeyError: 'label'"
    assert caught.site.endswith(".log_one")


def test_an_exception_that_was_never_raised_is_nothing(watched):
    assert watched(lambda: traceback.format_exception(ValueError("made"))).of("caught_exception") == []


PROGRAM = """
import os, sys
import torch
from rankscope.base.clock import now_ns
from rankscope.capture import observer
from rankscope.capture.config import Config

observer.start(Config(ring_folders=(sys.argv[1],)), now_ns()).open()

def leave():
    {call}

leave()
"""


def run(tmp_path, call):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.format(call=call))
    return subprocess.run([sys.executable, program, tmp_path], check=False, capture_output=True).returncode


def test_os_exit_is_written_before_it_ends_the_process(observed, tmp_path):
    assert run(tmp_path, "os._exit(9)") == 9
    (seen,) = observed.read(tmp_path)

    (call,) = seen.of("last_call")
    assert (call.name, call.status) == ("os._exit", 9)
    assert call.site.endswith("program.py:11:leave")


def test_a_fatal_signal_leaves_the_stack_beside_the_ring(observed, tmp_path):
    assert run(tmp_path, "import ctypes; ctypes.string_at(0)") == -11
    (ring,) = tmp_path.glob("*.ring")

    frames = read_fault(ring)
    assert [frame.rpartition(":")[2] for frame in frames][:2] == ["string_at", "leave"]
    assert not ring.with_suffix(".fault").exists()


def test_the_users_own_functions_come_back(watched):
    before = os._exit, os.abort, traceback.TracebackException.__init__
    watched(lambda: None)

    assert (os._exit, os.abort, traceback.TracebackException.__init__) == before
