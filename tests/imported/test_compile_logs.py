"""What several ranks' compile logs say together."""

from __future__ import annotations

from rankscope.analysis.imported.examiners.compile_logs import CompileLogs
from rankscope.artefacts.readers.torch_trace import TorchTrace
from rankscope.records.imported.compile_log import Compilation, CompileLog


def compilation(number, *, reason="size mismatch", schedule=(), caches=()):
    reason = f"0/{number - 1}: {reason}" if number and reason else ""
    return Compilation(f"0/{number}", "kernel", "/home/me/train.py", 6, 0.5, reason, "", caches, schedule)


def answer(*per_rank):
    examiner = CompileLogs()
    logs = [CompileLog(file=f"rank_{r}.log", rank=r, compilations=tuple(c), damaged=0) for r, c in enumerate(per_rank)]
    return examiner.examine([examiner.digest(log) for log in logs], None)


def test_a_frame_that_is_compiled_again_and_again_is_named_with_its_guard():
    found = answer([compilation(n) for n in range(8)], [compilation(0)])

    (finding,) = found.findings
    assert (finding.cause, finding.ranks, finding.location.line) == ("recompilation", (0,), 6)
    assert finding.title == "kernel is compiled again 7 times: size mismatch"
    assert [(e.text, e.value) for e in finding.evidence][:2] == [
        ("times that frame 0 is compiled again", 7.0), ("time that took", 3.5),
    ]  # fmt: skip


def test_a_few_compilations_are_usual():
    assert answer([compilation(n) for n in range(3)], [compilation(n) for n in range(3)]).findings == ()


def test_other_collectives_in_one_graph_are_a_mismatch():
    one, other = ("all_reduce_", "wait_tensor"), ("wait_tensor", "all_reduce_")
    found = answer(*([compilation(0, schedule=s)] for s in (one, one, other)))

    assert [(f.cause, f.ranks) for f in found.findings] == [("collective-order-mismatch", (2,))]


def test_ids_and_caches_that_differ_are_told_and_blamed_on_nobody():
    found = answer([compilation(0, caches=("fx_graph_cache_hit",))], [compilation(0, caches=("fx_graph_cache_miss",))])

    assert found.findings == ()
    assert found.notes[-1] == "cache outcomes diverge between ranks: rank 0 1; rank 1 1"


def test_real_logs_diverge(data):
    examiner = CompileLogs()
    logs = [log for path in sorted(data("torch_trace/multi_rank_logs").iterdir()) for log in TorchTrace().read(path)]
    found = examiner.examine([examiner.digest(log) for log in logs], None)

    assert [note.split(":")[0] for note in found.notes[-2:]] == [
        "compile ids diverge between ranks", "cache outcomes diverge between ranks",
    ]  # fmt: skip
    assert [(f.cause, f.ranks) for f in found.findings] == [("recompilation", (1, 3))]
