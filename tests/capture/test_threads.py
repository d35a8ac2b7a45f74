"""Threads and forks: lanes come back, samples go on, and nobody writes into another thread's lane."""

import gc
import threading

from rankscope.capture.ring import Ring
from rankscope.recorder.ring_reader import RingReader
from rankscope.records.ring_layout import RANK_SIZES


def test_stacks_are_sampled_after_many_forks(observed, tmp_path):
    run = observed.observe(tmp_path, str(observed.PROGRAMS / "many_forks.py"))

    (rank,) = run.ranks
    (forked,) = [s["forked"] for s in run.said]
    late = [r for r in rank.of("stack_sample") if r.time_ns > forked]
    assert len(late) >= 5
    assert rank.lost == 0


def test_threads_that_come_and_go_lose_nothing(observed, tmp_path):
    run = observed.observe(tmp_path, str(observed.PROGRAMS / "threads.py"))

    (rank,) = run.ranks
    assert [r.value for r in sorted(rank.of("metric"), key=lambda r: r.time_ns)] == list(range(40))
    assert len(rank.of("span", "beside")) == 40
    assert len(rank.of("step")) == 41
    assert rank.lost == 0


def test_a_lane_goes_on_where_the_thread_before_it_stopped(tmp_path):
    ring = Ring(tmp_path / "1-1.ring")
    ring.lane()(0, 0, 1, 0, 0, 0, 0, 0)
    for i in range(3 * RANK_SIZES.other_lanes):
        thread = threading.Thread(target=lambda i=i: ring.lane()(i, 0, 2, 0, 0, 0, 0, 0))
        thread.start()
        thread.join()
        gc.collect()
    reader = RingReader(ring.path)

    news, lost = reader.read()

    assert (lost, reader.dropped) == (0, 0)
    assert sorted(int(row["time_ns"]) for lane, rows in news if lane for row in rows) == list(range(21))


def test_a_thread_too_many_is_counted(tmp_path):
    ring = Ring(tmp_path / "1-1.ring")
    done = threading.Event()
    written = threading.Barrier(RANK_SIZES.other_lanes + 3)

    def work():
        ring.lane()(0, 0, 2, 0, 0, 0, 0, 0)
        written.wait()
        done.wait()

    threads = [threading.Thread(target=work) for _ in range(RANK_SIZES.other_lanes + 2)]
    for thread in threads:
        thread.start()
    written.wait()
    reader = RingReader(ring.path)
    news, lost = reader.read()
    done.set()
    for thread in threads:
        thread.join()

    assert sum(len(rows) for _, rows in news) == RANK_SIZES.other_lanes + 1
    assert (lost, reader.dropped) == (0, 1)


def test_short_pieces_of_python_are_seen_where_they_are(observed, tmp_path):
    # Steps are 3 ms: within the usual budget the governor would take samples away.
    run = observed.observe(tmp_path, str(observed.PROGRAMS / "short_python.py"), env={"RANKSCOPE_BUDGET": "50%"})

    (rank,) = run.ranks
    (said,) = run.said
    # The whole text of a program is compiled and run within the first samples; two threads come last.
    samples = [r for r in rank.of("stack_sample") if r.step and r.eager]
    inside = [r for r in samples if rank.stacks[r.stack][0].endswith(":in_python")]
    assert len(inside) > 0.6 * len(samples) > 15
    assert (said["before"], said["alone"]) == (0.005, 0.00025)


def test_the_user_s_switch_interval_stays_where_threads_compete_and_comes_back(observed, tmp_path):
    run = observed.observe(tmp_path, str(observed.PROGRAMS / "short_python.py"))

    (said,) = run.said
    assert (said["together"], said["after"]) == (0.005, 0.001)


def test_the_switch_interval_comes_back_with_the_last_sample(observed, tmp_path):
    run = observed.observe(tmp_path, str(observed.PROGRAMS / "turned_down.py"))

    assert run.code == 0, run.errors
    assert [(s["eager"], s["after"]) for s in run.said] == [(0.00025, 0.005)]
