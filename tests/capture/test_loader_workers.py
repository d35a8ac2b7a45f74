"""Loader workers, however they are started."""

import pytest


@pytest.fixture(scope="module")
def run(observed, tmp_path_factory):
    run = observed.observe(tmp_path_factory.mktemp("loaders"), str(observed.PROGRAMS / "loaders.py"))
    assert run.code == 0, run.errors
    return run


def workers(run, section):
    """The workers that fetched in a part of the program, by worker id."""
    found = [(w.process.worker, w) for w in run.workers if w.of("fetch", between=run.section(section))]
    return [w for _, w in sorted(found, key=lambda pair: pair[0])]


def test_the_rank_waits_for_each_batch(run):
    (rank,) = run.ranks
    for section, count in (("fork", 2), ("persistent", 2), ("spawn", 1), ("forkserver", 1)):
        waits = [w for w in rank.of("batch_wait", between=run.section(section)) if not w.ended]
        assert [w.ordinal for w in waits] == [0, 1, 2, 3] * 2
        assert {(w.workers, w.name) for w in waits} == {(count, "Numbers")}


@pytest.mark.parametrize("section", ["fork", "persistent", "spawn", "forkserver"])
def test_workers_fetch_what_the_rank_asks_for(run, section):
    (rank,) = run.ranks
    seen = workers(run, section)
    fetched = [(f.worker, f.first_index, f.samples) for w in seen for f in w.of("fetch")]

    if section in ("fork", "persistent"):
        assert sorted(fetched) == sorted([(1, 0, 2), (2, 2, 2), (1, 4, 2), (2, 6, 2)] * 2)
    else:
        assert sorted(fetched) == sorted([(1, 0, 2), (1, 2, 2), (1, 4, 2), (1, 6, 2)] * 2)
    assert {w.process.parent for w in seen} in ({rank.process.pid}, {w.process.parent for w in seen})


def test_workers_start_once_an_epoch_or_once(run):
    def started(section):
        return len(workers(run, section))

    assert {s: started(s) for s in ("fork", "persistent", "spawn", "forkserver")} == {
        "fork": 4,
        "persistent": 2,
        "spawn": 1,
        "forkserver": 1,
    }


def test_a_worker_tells_how_long_its_start_took(run):
    for worker in run.workers:
        (start,) = worker.of("worker_start")
        assert 0 < start.duration_ns < 60e9
        assert start.worker == worker.process.worker


def test_iterators_that_reuse_their_workers_say_so(run):
    (rank,) = run.ranks

    assert [(s.persistent, s.reused) for s in rank.of("loader_start", between=run.section("persistent"))] == [
        (1, 0),
        (1, 1),
    ]
    assert [(s.persistent, s.reused) for s in rank.of("loader_start", between=run.section("fork"))] == [(0, 0)] * 2


def test_a_worker_s_stack_is_sampled_or_it_was_too_quick(run):
    for worker in run.workers:
        assert all(s.phase == "data" for s in worker.of("stack_sample"))
