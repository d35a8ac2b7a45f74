"""Samples that the dataset could not give out."""

from rankscope.analysis.detectors.unreadable_sample import UnreadableSample
from rankscope.analysis.engine import examine
from rankscope.analysis.facts import Facts
from rankscope.records.batches import SampleError
from rankscope.records.loading import Fetch
from rankscope.testing.checks import Named, evidence_of, named
from rankscope.testing.silent_reading import GETITEM, READING, unreadable
from rankscope.testing.stops import BACKWARD, CLOSED, MS, STEPS, ranks, stopped

ERROR = "OSError: image file is truncated"


def ended(index: int = 123, fetched: int = 3) -> Facts:
    """Rank 1 ends with the error of a sample; rank 0 follows."""
    first, second = ranks(2)
    first.call("allreduce", BACKWARD)
    first.stand(0.5, BACKWARD)
    w, t = second.writer, second.now
    for i in range(fetched):
        w.put(Fetch, i * MS, i * MS + 10, i, name="Images", samples=8)
    w.put(SampleError, t, t, STEPS if fetched else 0, name=ERROR, index=index, exact=1, site=GETITEM, dataset="Images")
    w.put(Fetch, t - 10, t + 10, STEPS, name="Images", samples=8)
    ends = [second.end(code=1, exception=ERROR, place=GETITEM), first.end(code=1, exception=CLOSED, place=BACKWARD)]
    return stopped((first, second), ends)


def test_names_sample_worker_and_rank_where_the_program_goes_on():
    found = list(UnreadableSample().examine(unreadable()))

    assert [named(f) for f in found] == [
        Named("unreadable-sample", "warning", (1,), False, "data", "Images: sample 123", GETITEM, None)
    ]
    assert (found[0].first_step, found[0].title) == (
        11,
        "rank 1 cannot read sample 123 of Images in loader worker 1: OSError: image file is truncated;"
        " the run goes on without its batch",
    )
    assert evidence_of(found) == {
        "OSError: image file is truncated in loader worker 1; index of the sample": 123,
        "samples that could not be read": 1,
    }


def test_names_the_batch_where_the_dataset_caught_it():
    (found,) = UnreadableSample().examine(unreadable(caught=True))

    assert (found.component, found.confidence) == (
        "Images: a sample of the batch that begins with 105",
        0.8,
    )


def test_stands_before_the_exception_that_it_explains():
    found = [f for f in examine(ended()).findings if f.severity != "info"]

    assert [(f.cause, f.severity, f.ranks) for f in found] == [
        ("unreadable-sample", "critical", (1,)),
        ("rank-exception", "critical", (1,)),
    ]
    assert found[0].explains == (found[1].id,)


def test_an_error_with_the_very_first_sample_is_one_of_the_code():
    assert list(UnreadableSample().examine(ended(fetched=0))) == []


def test_is_silent_where_all_samples_are_read():
    assert list(UnreadableSample().examine(READING.facts())) == []
