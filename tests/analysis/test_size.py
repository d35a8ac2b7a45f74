"""Analysis of a long run stays quick and small."""

import subprocess
import sys

PROGRAM = """
import pathlib, re, time
from dataclasses import replace
from rankscope.analysis.facts import Facts
from rankscope.base.manifest import Manifest
from rankscope.report.build import build_report
from rankscope.testing.known_runs import BASE

run = replace(BASE, steps=2000, noise=0.05).build()
before = time.process_time()
report = build_report(Facts(run.tables), Manifest("r", "r", (), ""))
seconds = time.process_time() - before
# Not getrusage: what it calls the most memory is that of the process which started this one, where that is larger.
kilobytes = re.search("VmHWM:\\s+(\\d+)", pathlib.Path("/proc/self/status").read_text())[1]
print(seconds, int(kilobytes) / 1024, report.run.steps)
"""


def test_2000_steps_of_two_ranks_take_seconds_and_megabytes():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    seconds, megabytes, steps = (float(x) for x in done.stdout.split())

    assert steps == 2000
    assert seconds < 5
    assert megabytes < 500
