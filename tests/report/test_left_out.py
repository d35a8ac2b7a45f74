"""What could not be looked at is listed, never taken for healthy."""

from rankscope.base.manifest import Manifest
from rankscope.records.numerics import Sampling
from rankscope.report.build import build_report
from rankscope.testing.trainings import Training


def listed(training):
    manifest = Manifest(id="r", name="r", command=("train.py",), started="2026-01-01T00:00:00Z", started_ns=0)
    missing = build_report(training.facts(), manifest).not_examined
    return [(one.needs, one.why.partition(":")[0]) for one in missing if one.detector == "numerics"]


def test_parameters_that_were_not_read_are_counted():
    def unread(writer, rank, step, begin_ns):
        writer.put(Sampling, begin_ns, begin_ns + 1, step, tensors=4, left_out=3 + rank)

    assert listed(Training(extra=unread)) == [
        ("statistics of all parameters", "4 gradients and parameters of a step were not read")
    ]


def test_where_all_were_read_nothing_is_listed():
    assert listed(Training()) == []
