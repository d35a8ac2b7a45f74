"""What compile logs of several ranks say."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rankscope.analysis.imported.examiner import Answer
from rankscope.analysis.imported.examiners.compile_logs import CompileLogs
from rankscope.artefacts.readers.torch_trace import TorchTrace
from rankscope.records.imported.compile_log import CodePlace, Compilation, CompileLog, GraphBreak

TRAIN = CodePlace("/home/me/train.py", 6, "step")
FIRST = Compilation(
    autograd="", frame=0, count=0, attempt=0, code=TRAIN, caller=TRAIN, start_ns=None, seconds=1.0, reasons=(),
    failure="", suppressed=False, limit=8, fx_cache="hit", autograd_cache="hit", collectives=0, waits=0, planned=None,
)  # fmt: skip


def again(count: int, seconds: float | None = 1.0) -> list[Compilation]:
    reason = "0/0: tensor 'x' size mismatch at index 0. expected 2, actual {}"
    return [FIRST, *(replace(FIRST, count=n, seconds=seconds, reasons=(reason.format(n),)) for n in range(1, count))]


def log(rank: int | None, *compilations: Compilation, breaks: tuple[GraphBreak, ...] = (), broken: int = 0,
        start_s: int = 1_000_000) -> CompileLog:  # fmt: skip
    return CompileLog(file=f"rank{rank}.log", rank=rank, compilations=compilations, breaks=breaks,
                      start_ns=start_s * 10**9, num_records=9, num_broken=broken,
                      first_broken_line=3 if broken else None, num_dropped=0)  # fmt: skip


def examined(*logs: CompileLog) -> Answer:
    examiner = CompileLogs()
    return examiner.examine([examiner.digest(one) for one in logs], None)


def short(answer: Answer) -> list[tuple[str, str, tuple[int, ...]]]:
    return [(f.cause, f.severity, f.ranks) for f in answer.findings]


@pytest.mark.parametrize(
    "logs",
    [
        (log(0, FIRST), log(1, FIRST)),
        (log(0, *again(3)), log(1, *again(3))),
        (log(0, replace(FIRST, collectives=2, waits=2)),),
        (log(0, replace(FIRST, collectives=1, waits=0, planned=("all_reduce_",))),),  # its caller waits
        (log(0, replace(FIRST, collectives=1), replace(FIRST, frame=1, waits=1)),),  # the next graph waits
        (log(0, replace(FIRST, failure="Unsupported: call print")),),
        (log(0, replace(FIRST, failure="BackendCompilerFailed: no", suppressed=True)),),
        (log(0),),
    ],
)
def test_healthy_logs_raise_nothing(logs):
    assert short(examined(*logs)) == []


def test_a_function_that_reaches_the_limit_is_named():
    answer = examined(log(0, *again(8)), log(1, *again(8)))

    (found,) = answer.findings
    assert (found.cause, found.severity, found.ranks, found.all_ranks) == ("recompilation", "warning", (0, 1), True)
    assert found.title == (
        "step (train.py:6) is compiled 8 times on ranks 0 and 1 (all but the first two take 6 s): "
        "tensor 'x' size mismatch at index 0"
    )
    assert found.location is not None
    assert (found.location.file, found.location.line) == ("/home/me/train.py", 6)
    assert [(e.value, e.unit) for e in found.evidence] == [(8, "count"), (6, "s"), (14, "count"), (8, "count")]


def test_few_recompilations_that_take_long_are_named_and_of_unknown_length_not():
    assert short(examined(log(0, *again(4, 20.0)))) == [("recompilation", "warning", (0,))]
    assert short(examined(log(0, *again(4, None)))) == []


def test_planned_waits_that_the_code_lacks():
    plan = ("all_reduce_", "wait_tensor", "all_gather_into_tensor", "wait_tensor")
    bad = replace(FIRST, count=1, collectives=2, waits=0, planned=plan)

    (found,) = examined(log(0, FIRST, bad), log(1, FIRST, replace(bad, waits=2))).findings

    assert (found.cause, found.severity, found.ranks) == ("missing-collective", "warning", (0,))
    assert found.title == (
        "compiled code on rank 0 does not wait for its collectives: planned waits are missing, 2 in graph -_0_1_0"
    )
    assert [(e.value, e.ranks) for e in found.evidence] == [(2, (0,))]


def test_waits_that_nobody_planned_are_a_remark():
    assert short(examined(log(0, replace(FIRST, collectives=1)))) == [("missing-collective", "info", (0,))]


def test_ranks_that_compile_different_graphs_are_a_remark():
    answer = examined(log(0, FIRST), log(1, *again(3)), log(2, FIRST))

    assert short(answer) == [("recompilation", "info", (1,))]
    assert answer.findings[0].title == "compile ids differ between ranks: 1 on ranks 0 and 2, 3 on rank 1"
    assert answer.world_size == 3


def test_logs_that_begin_far_apart_may_be_of_different_runs():
    near = examined(log(0, FIRST), log(1, *again(2))).findings[0]
    far = examined(log(0, FIRST), log(1, *again(2), start_s=2_000_000)).findings[0]

    assert (near.confidence, far.confidence) == (0.6, 0.3)
    assert far.evidence[-1].value == 1_000_000


def test_a_rank_that_compiles_what_others_had_in_their_cache():
    answer = examined(log(0, FIRST), log(1, replace(FIRST, fx_cache="miss")))

    assert short(answer) == [("slow-start", "info", (1,))]


@pytest.mark.parametrize(
    ("odd", "expected"),
    [
        (("all_gather_into_tensor", "all_reduce_"), ("collective-order-mismatch", "warning", (2,))),
        (("all_reduce_",), ("missing-collective", "info", (2,))),
    ],
)
def test_collectives_of_the_same_graph_that_differ(odd, expected):
    plan = replace(FIRST, planned=("all_reduce_", "wait_tensor", "all_gather_into_tensor", "wait_tensor"))

    answer = examined(log(0, plan), log(1, plan), log(2, replace(plan, planned=odd)))

    assert short(answer) == [expected]


def test_a_last_compilation_that_failed_and_was_raised():
    failed = replace(FIRST, count=1, failure="BackendCompilerFailed: no")

    assert short(examined(log(0, FIRST, failed))) == [("rank-exception", "warning", (0,))]
    assert short(examined(log(0, failed, replace(FIRST, frame=1)))) == []


def test_notes_say_what_is_in_the_files_and_what_could_not_be_read():
    stop = GraphBreak(TRAIN, "call print")
    answer = examined(log(0, *again(2), breaks=(stop, stop), broken=1), log(0, FIRST, start_s=5))

    assert answer.notes[0] == (
        "rank 0: compilations: 2 in 2 s, again: 1; Inductor's cache: hits 2, misses 0; "
        "graph breaks: 2, most in step (train.py:6): call print"
    )
    assert [(what, why) for what, _, why in answer.not_examined] == [
        ("torch.compile", "of rank0.log, damaged records were left out: 1, the first one in line 3"),
        ("differences between ranks", "rank 0 left several; the newest is compared"),
        ("differences between ranks", "there is no other rank to compare with"),
    ]


def real(data, folder: str) -> Answer:
    return examined(*(t for path in sorted(data(f"torch_trace/{folder}").iterdir()) for t in TorchTrace().read(path)))


def test_the_graphs_that_lack_waits_are_named(data):
    (found,) = real(data, "collectives_parity").findings

    assert (found.cause, found.ranks) == ("missing-collective", (0,))
    assert [(e.text.split()[3], e.value) for e in found.evidence] == [("-_0_1_0", 3), ("-_0_0_0", 1)]


def test_ranks_that_diverge_are_named(data):
    answer = real(data, "multi_rank_logs")

    assert short(answer) == [("recompilation", "warning", (1,)), ("recompilation", "info", (1, 3))]
    counts = {e.text: e.value for e in answer.findings[1].evidence}
    assert (counts["compilations on ranks 0 and 2"], counts["compilations on rank 1"]) == (1, 15)
    assert counts["and compiled, as the cache did not have them, on rank 1"] == 5
    assert counts["of them out of Inductor's cache on rank 3"] == 7


def test_single_logs_are_healthy(data):
    assert short(real(data, "single")) == []
