"""Who is blamed where ranks stop: made-up ranks that call, wait and end."""

import pytest

from rankscope.analysis.hangs import HOLDS_LOCK, blame
from rankscope.base.outside import STOPPED
from rankscope.records.host import OutsideStack
from rankscope.records.loading import PendingFetch
from rankscope.records.training import Step
from rankscope.testing.stops import (
    BACKWARD,
    CLOSED,
    FILE,
    HEALTHY_STOPS,
    MS,
    STEPS,
    STOPS,
    VALIDATE,
    WAIT,
    S,
    StoppedRank,
    ranks,
    stopped,
)

LINES = {
    "dead-rank": None,
    "rank-exception": 20,
    "uneven-inputs": 60,
    "missing-collective": 40,
    "collective-shape-mismatch": 50,
    "slow-rank-timeout": 70,
    "stuck-rank": 2,
    "loader-deadlock": 2,
}
ALL = {"collective-order-mismatch": (0, 1), "slow-rank-timeout": (0,), "network-error": (0,)}
"""Where it is not the last rank, or rank 1 of three."""


def judged(*made, ends=()):
    return blame(stopped(made, ends))


def summary(found):
    return found and (found.cause, found.positions, found.place and found.place.line)


def seen(rank, line, **flags):
    """The recorder has looked at a rank whose sampler is silent, in a line of the user's."""
    rank.writer.put(OutsideStack, rank.now, rank.now, STEPS, name=line, of=rank.pid, depth=0, known=1, **flags)


def one_stopped(seconds=12):
    """(rank 0, which waits; rank 1, which SIGSTOP has stopped)."""
    first, second = ranks(2)
    first.call("allreduce", BACKWARD)
    first.stand(seconds, BACKWARD)
    second.now += 5 * S
    seen(second, f"{FILE}:70:save", state=ord("T"))
    second.now = first.now
    return first, second


@pytest.mark.parametrize("cause", STOPS)
def test_cause_and_rank_of_each_stop(cause):
    facts = STOPS[cause]()
    found = blame(facts)

    assert found is not None
    last = 2 if cause == "collective-shape-mismatch" else 1
    assert (found.cause, found.positions) == (cause, ALL.get(cause, (last,)))
    if LINES.get(cause) is not None:
        assert found.place.line == LINES[cause]


@pytest.mark.parametrize("name", HEALTHY_STOPS)
def test_nobody_is_blamed_for_a_run_that_only_looks_stopped(name):
    assert blame(HEALTHY_STOPS[name]()) is None


@pytest.mark.parametrize("sizes, cause", [((3, 3), "collective-shape-mismatch"), ((3, 4), None)])
def test_gathers_must_agree_where_they_always_have(sizes, cause):
    """Backends differ in whether inputs of a gather may be of different sizes: the run's own habit tells."""
    made = ranks(2)
    for _ in range(5):
        for r, size in zip(made, sizes, strict=True):
            r.call("allgather", f"{FILE}:70:collect", shape=f"float32[{size}]")
    for r in made:
        r.call("allgather", f"{FILE}:70:collect", shape=f"float32[{5 + r.rank}]")
        r.stand(9, f"{FILE}:70:collect", below=WAIT)
    found = judged(*made)

    assert (found and found.cause) == cause


def test_a_collective_on_its_way_is_no_stop():
    first, second = ranks(2)
    first.call("allreduce", f"{FILE}:55:metric")
    first.stand(2, f"{FILE}:55:metric", below=WAIT)
    second.stand(2, f"{FILE}:70:load", below=(), asleep=False)

    assert judged(first, second) is None


def test_a_collective_that_nobody_else_calls():
    first, second = ranks(2)
    first.call("allreduce", f"{FILE}:55:metric")
    first.stand(9, f"{FILE}:55:metric", below=WAIT)
    second.call("barrier", f"{FILE}:80:main")
    second.stand(9, f"{FILE}:80:main", below=WAIT)

    assert judged(first, second).cause == "missing-collective"


def test_of_two_ranks_the_one_is_odd_that_skips_what_both_call_as_a_rule():
    first, second = made = ranks(2)
    for r in made:
        for number in range(STEPS, STEPS + 9):
            r.step(number)
        r.call("allreduce", BACKWARD, step=STEPS + 9)
    first.call("allgather", VALIDATE, step=STEPS + 9)
    first.stand(9, VALIDATE, below=WAIT)
    second.call("allreduce", BACKWARD, step=STEPS + 10)
    second.stand(9, BACKWARD)

    assert summary(judged(first, second)) == ("missing-collective", (1,), 40)


def test_what_a_peer_raises_first_only_follows():
    first, second = ranks(2)
    first.call("allreduce", BACKWARD)
    first.stand(0.5, BACKWARD)
    ends = [first.end(code=1, exception=CLOSED, place=BACKWARD)]
    second.now = first.now + 20 * MS  # its death was seen later than what its peer raised
    ends.append(second.end(signal=11))

    assert summary(judged(first, second, ends=ends))[:2] == ("dead-rank", (1,))


def test_an_exception_that_was_caught_before_a_call_of_its_own():
    made = ranks(3)
    for r in (made[0], made[2]):
        r.call("allgather", VALIDATE)
        r.stand(9, VALIDATE, below=WAIT)
    made[1].catch("ValueError: no score", f"{FILE}:21:judge")
    made[1].call("allreduce", f"{FILE}:63:main")
    made[1].stand(9, f"{FILE}:63:main", below=WAIT)

    assert summary(judged(*made)) == ("rank-exception", (1,), 21)


def test_a_launcher_that_catches_what_ends_the_program():
    first, second = ranks(2)
    second.catch("KeyError: 'label'", f"{FILE}:24:read")
    ends = [second.end(code=1), first.end(code=1, exception=CLOSED)]

    assert summary(judged(first, second, ends=ends)) == ("rank-exception", (1,), 24)


def test_a_rank_that_waited_in_vain_for_others_to_come():
    (only,) = ranks(1, steps=0)
    text = "DistStoreError: Timed out after 301 seconds waiting for clients. 1/2 clients joined."

    assert judged(only, ends=[only.end(code=1, exception=text)]).cause == "rendezvous-failure"


def test_a_pair_that_does_not_meet():
    """A pipeline whose first stage sends one micro-batch too few, and goes on to the reduction."""
    first, second = made = ranks(2)
    for _ in range(3):
        first.pair("send", 0, 1, f"{FILE}:45:forward_stage")
        second.pair("recv", 0, 1, f"{FILE}:50:next_input")
    second.pair("recv", 0, 1, f"{FILE}:50:next_input")
    second.stand(9, f"{FILE}:50:next_input", below=WAIT)
    first.call("allreduce", BACKWARD)
    first.stand(9, BACKWARD)

    found = judged(*made)
    assert summary(found) == ("missing-collective", (0,), 50)
    assert "did not send to rank 1" in found.why


@pytest.mark.parametrize("busy", [True, False])
def test_a_rank_that_waits_for_one_that_works_may_yet_come(busy):
    """Rank 0 waits for rank 1 in their pair, rank 1 for rank 2 in theirs; rank 2 computes, or has gone on."""
    made = ranks(3)
    for step in range(5):
        for r in made:
            if r.rank < 2:
                r.call("broadcast", f"{FILE}:44:share", group="group:1|0,1", step=STEPS + step)
            if r.rank > 0:
                r.call("allreduce", f"{FILE}:50:sync", group="group:2|1,2", step=STEPS + step)
    first, second, third = made
    first.call("broadcast", f"{FILE}:44:share", group="group:1|0,1", step=STEPS + 5)
    first.stand(15, f"{FILE}:44:share", below=WAIT)
    second.call("allreduce", f"{FILE}:50:sync", group="group:2|1,2", step=STEPS + 5)
    second.stand(15, f"{FILE}:50:sync", below=WAIT)
    if busy:
        third.stand(15, f"{FILE}:70:sample", below=(), asleep=False)
    else:
        third.call("barrier", f"{FILE}:80:main", step=STEPS + 5)
        third.stand(15, f"{FILE}:80:main", below=WAIT)
    found = judged(*made)

    assert (found is None) == busy


def test_a_short_time_out_is_enough_for_a_rank_that_was_busy():
    first, second = ranks(2)
    second.call("barrier", f"{FILE}:60:main")
    first.stand(6.5, f"{FILE}:70:tokenise", below=(), asleep=False)
    second.stand(6, f"{FILE}:60:main", below=WAIT)
    ends = [second.end(code=1, exception="RuntimeError: Timed out waiting 6000ms for recv"), first.end(signal=15)]

    assert summary(judged(first, second, ends=ends)) == ("slow-rank-timeout", (0,), 70)


def test_a_watchdog_that_aborts_the_rank_that_waits():
    first, second = ranks(2)
    second.call("barrier", f"{FILE}:60:main")
    first.stand(16, f"{FILE}:70:tokenise", below=(), asleep=False)
    second.stand(15, f"{FILE}:60:main", below=WAIT)

    assert summary(judged(first, second, ends=[second.end(signal=6), first.end(signal=15)])) == (
        "slow-rank-timeout", (0,), 70
    )  # fmt: skip


def test_an_exception_that_is_caught_at_each_step_is_not_the_reason():
    first, second = made = ranks(2)
    for r in made:
        for number in range(STEPS, STEPS + 9):
            r.catch("OSError: no cache", f"{FILE}:15:look_up")
            r.step(number)
        r.call("allreduce", BACKWARD, step=STEPS + 9)
    first.call("allgather", VALIDATE, step=STEPS + 9)
    first.stand(9, VALIDATE, below=WAIT)
    second.catch("OSError: no cache", f"{FILE}:15:look_up")
    second.call("allreduce", BACKWARD, step=STEPS + 10)
    second.stand(9, BACKWARD)

    assert summary(judged(*made)) == ("missing-collective", (1,), 40)


def test_two_ranks_that_both_receive_first():
    first, second = made = ranks(2)
    first.pair("recv", 1, 0, f"{FILE}:45:exchange")
    second.pair("recv", 0, 1, f"{FILE}:45:exchange")
    for r in made:
        r.stand(9, f"{FILE}:45:exchange", below=WAIT)

    assert summary(judged(*made)) == ("collective-order-mismatch", (0, 1), 45)


def test_a_receive_whose_sender_is_busy_blames_nobody():
    first, second = made = ranks(2)
    second.pair("recv", 0, 1, f"{FILE}:50:next_input")
    second.stand(9, f"{FILE}:50:next_input", below=WAIT)
    first.stand(9, f"{FILE}:70:load", below=(), asleep=False)

    assert judged(*made) is None


@pytest.mark.parametrize(
    "text",
    [
        "RuntimeError: DataLoader worker (pid(s) 1001) exited unexpectedly",
        "RuntimeError: DataLoader worker (pid 1001) is killed by signal: Killed. ",
        "ConnectionResetError: [Errno 104] Connection reset by peer",  # the tensor was to come through its socket
    ],
)
def test_a_loader_worker_that_was_killed(text):
    first, second = made = ranks(2)
    worker = second.worker()
    worker.writer.put(PendingFetch, worker.now, worker.now, 0, samples=16, worker=1, first_index=96)
    worker.now += 100 * MS
    killed = worker.end(signal=9)
    for r in made:
        r.now += 300 * MS
    ends = [killed, second.end(code=1, exception=text), first.end(code=1, exception=CLOSED)]

    found = judged(*made, ends=ends)
    assert (found.cause, found.positions) == ("rank-exception", (1,))
    assert found.why == "loader worker 0 (process 1001) was ended by SIGKILL, in the batch that begins with sample 96"


@pytest.mark.parametrize("calls", [1, 7])
def test_two_groups_that_wait_for_each_other(calls):
    """Also where a step has many equal calls, so that one more looks like all the others."""
    pair = "group:1|0,1"
    made = [StoppedRank(rank, 4) for rank in range(4)]
    for step in range(5):
        for r in made:
            if r.rank < 2:
                r.call("alltoall_base", f"{FILE}:44:exchange", group=pair, step=40 + step)
            for _ in range(calls):
                r.call("allreduce", f"{FILE}:50:sync", step=40 + step)
            r.now += 100 * MS
            r.writer.put(Step, r.now - 100 * MS, r.now, 40 + step)
    made[0].call("alltoall_base", f"{FILE}:44:exchange", group=pair, step=45)
    made[0].stand(9, f"{FILE}:44:exchange", below=WAIT)
    for r in made[1:]:
        r.call("allreduce", f"{FILE}:50:sync", step=45)
        r.stand(9, f"{FILE}:50:sync", below=WAIT)

    assert summary(judged(*made)) == ("missing-collective", (1,), 44)


@pytest.mark.parametrize("seconds", [6, 60])
def test_a_rank_that_is_stopped_while_its_peers_wait(seconds):
    found = judged(*one_stopped(seconds))

    assert (*summary(found), found.why) == ("stuck-rank", (1,), 70, STOPPED)


@pytest.mark.parametrize("seconds, expected", [(8, None), (12, ("stuck-rank", (1,), 70))])
def test_a_rank_that_sleeps_with_the_interpreter_lock_while_its_peers_wait(seconds, expected):
    first, second = ranks(2)
    first.call("allreduce", BACKWARD)
    first.stand(seconds, BACKWARD)
    second.now += 6 * S
    seen(second, f"{FILE}:70:tokenise", state=ord("S"), holds_lock=1)

    found = judged(first, second)
    assert summary(found) == expected
    assert found is None or found.why == HOLDS_LOCK


def test_ranks_that_a_launcher_kills_because_they_hang():
    """torchrun after Ctrl-C: who does not answer is killed, one after the other."""
    first, second = one_stopped()
    second.now += 31 * MS

    assert summary(judged(first, second, ends=[first.end(signal=9), second.end(signal=9)])) == ("stuck-rank", (1,), 70)


def test_a_rank_that_is_killed_because_it_did_not_end_when_it_was_told_to():
    first, second = one_stopped()
    second.now += 30 * S

    assert summary(judged(first, second, ends=[first.end(signal=15), second.end(signal=9)])) == ("stuck-rank", (1,), 70)


@pytest.mark.parametrize("later", [100 * MS, 30 * S])
def test_a_rank_that_is_killed_before_its_peers_are_told_to_end_has_died(later):
    """Also one that stood still before: memory was short."""
    first, second = ranks(2)
    first.call("allreduce", BACKWARD)
    first.stand(12, BACKWARD)
    second.stand(12, f"{FILE}:70:load", below=())
    first.now += later

    assert summary(judged(first, second, ends=[second.end(signal=9), first.end(signal=15)]))[:2] == ("dead-rank", (1,))
