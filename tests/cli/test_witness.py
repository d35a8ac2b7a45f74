"""Which command lines keep us out."""

import pytest

from rankscope.cli.witness import CLEARED, REPLACED, kept_out_by_command


def _option(letter):
    return f"`python -{letter}` keeps rankscope out; leave this option out, or call rankscope.start() in the script"


@pytest.mark.parametrize(
    "command, expected",
    [
        ("python train.py -I", ""),
        ("python -u -O train.py", ""),
        ("python -I train.py", _option("I")),
        ("/usr/bin/python3.11 -uE train.py", _option("E")),
        ("python3 -W error -X dev -S train.py", _option("S")),
        ("python -Wignore::ImportWarning train.py", ""),
        ("python -XIES train.py", ""),
        ("python -m module -I", ""),
        ("python -Im module", _option("I")),
        ("nice -n 5 python -I x.py", _option("I")),
        ("env PYTHONPATH=x python train.py", REPLACED),
        ("/usr/bin/env A=1 PYTHONPATH=x torchrun train.py", REPLACED),
        ("env -i python train.py", CLEARED),
        ("torchrun --nproc-per-node 2 train.py", ""),
        ("bash run.sh -i", ""),
    ],
)
def test_what_a_command_line_says(command, expected):
    assert kept_out_by_command(command.split()) == expected
