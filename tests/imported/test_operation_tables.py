"""Jobs made up by a small simulator of pipeline schedules, and the published ones with their answers."""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.analysis.imported.examiner import Answer
from rankscope.analysis.imported.examiners.operation_tables import OperationTables
from rankscope.artefacts.readers.operation_table import OperationTable as Reader
from rankscope.records.imported.operation_table import OperationTable

MS = 1_000_000
SEND = 300_000
FORWARD, BACKWARD = "forward", "backward"


@dataclass
class Job:
    """A training of `replicas` x `stages`: who does what when follows from the schedule and the durations."""

    replicas: int = 2
    stages: int = 4
    chunks: int = 1
    micro_batches: int = 8
    steps: int = 12
    schedule: str = "1f1b"
    noise: float = 0.01
    seed: int = 0
    forward_ms: float = 10
    stage_factor: dict[int, float] = field(default_factory=dict)
    """Stage -> factor of its compute of micro-batches."""
    factor: object = None
    """(replica, stage, step, direction, micro-batch) -> factor of one compute."""
    optimizer: object = None
    """(replica, stage, step) -> factor."""
    no_ops: bool = False
    """Also record the transfers of the model's ends, which send nothing."""
    without: tuple[str, ...] = ()
    """Kinds that are not recorded."""

    def order(self, stage: int) -> list[tuple[str, int, int]]:
        """(direction, chunk, micro-batch) of one stage, in the order of the schedule."""
        m, v, p = self.micro_batches, self.chunks, self.stages
        if v > 1:  # Megatron's interleaved schedule: groups of `p` micro-batches go through all chunks
            slots = [(k % (p * v) // p, k // (p * v) * p + k % p) for k in range(m * v)]
            forward = [(FORWARD, c, b) for c, b in slots]
            backward = [(BACKWARD, v - 1 - c, b) for c, b in slots]
            warm = min(m * v, (p - stage - 1) * 2 + (v - 1) * p)
        else:
            forward, backward = [(FORWARD, 0, b) for b in range(m)], [(BACKWARD, 0, b) for b in range(m)]
            warm = m if self.schedule == "gpipe" else min(m, p - stage - 1)
        out = forward[:warm]
        for f, b in zip(forward[warm:], backward, strict=False):
            out += [f, b]
        return out + backward[len(forward) - warm :]

    def rows(self) -> list[tuple[int, int, int, int, str, int, int, int, int, int]]:
        """(rank, replica, stage, step, kind, start, duration, order, chunk, micro-batch), times in ns."""
        chance = np.random.default_rng(self.seed)
        rows: list[tuple[int, int, int, int, str, int, int, int, int, int]] = []
        for step in range(self.steps):
            lanes = [self._lane(replica, step, chance) for replica in range(self.replicas)]
            # Gradients are summed over the replicas of a stage, their norm over everybody.
            summed = [max(done[stage] for _, done in lanes) + 5 * MS for stage in range(self.stages)]
            ready = max(summed) if self.replicas > 1 else max(done for _, own in lanes for done in own)
            for replica, (own, done) in enumerate(lanes):
                rows += own
                for stage in range(self.stages):
                    rank = stage * self.replicas + replica
                    factor = self.optimizer(replica, stage, step) if callable(self.optimizer) else 1
                    for kind, start, end in (
                        ("grads-reduce-scatter", done[stage], summed[stage]),
                        ("optimizer-clip-main-grad", summed[stage] if self.replicas > 1 else done[stage], ready + MS),
                        ("optimizer", ready + MS, ready + MS + int(4 * MS * factor)),
                    ):
                        if self.replicas > 1 or not kind.startswith("grads"):
                            rows.append((rank, replica, stage, step, kind, start, end - start, 0, -1, -1))
        return [row for row in rows if row[4] not in self.without]

    def _lane(self, replica: int, step: int, chance: np.random.Generator):
        rows, done = [], [0] * self.stages
        arrived: dict[tuple[str, int, int], int] = {}  # (direction, piece, micro-batch) -> when its input is sent off
        orders, at = [self.order(stage) for stage in range(self.stages)], [0] * self.stages
        clock, last = [3 * MS if self.replicas > 1 else 0] * self.stages, {}
        pieces = self.stages * self.chunks
        counts: dict[tuple[int, str], int] = {}

        def row(stage: int, kind: str, start: int, end: int, of: tuple[int, int] = (-1, -1)) -> None:
            rank = stage * self.replicas + replica
            number = counts[stage, kind] = counts.get((stage, kind), -1) + 1
            rows.append((rank, replica, stage, step, kind, start, end - start, number, *of))

        if self.replicas > 1:
            for stage in range(self.stages):
                row(stage, "params-all-gather", 0, 3 * MS)
        while any(at[s] < len(orders[s]) for s in range(self.stages)):
            before = sum(at)
            for stage in range(self.stages):
                while at[stage] < len(orders[stage]):
                    direction, chunk, batch = orders[stage][at[stage]]
                    piece = chunk * self.stages + stage
                    first = piece == (0 if direction == FORWARD else pieces - 1)
                    if direction == BACKWARD and first and (FORWARD, piece + 1, batch) not in arrived:
                        break
                    if not first and (direction, piece, batch) not in arrived:
                        break
                    start = clock[stage]
                    if not first:
                        posted = last.get((stage, direction), 0)
                        end = max(posted, arrived[direction, piece, batch]) + SEND
                        row(stage, f"{direction}-recv", posted, end)
                        start = max(start, end)
                    elif self.no_ops:
                        row(stage, f"{direction}-recv", start, start)
                    base = self.forward_ms * (1 if direction == FORWARD else 2) / self.chunks
                    factor = self.stage_factor.get(stage, 1.0) * (1 + self.noise * chance.standard_normal())
                    if callable(self.factor):
                        factor *= self.factor(replica, stage, step, direction, batch)
                    end = start + int(base * MS * factor)
                    row(stage, f"{direction}-compute", start, end, (chunk, batch))
                    clock[stage] = last[stage, direction] = done[stage] = end
                    onward = piece + (1 if direction == FORWARD else -1)
                    if 0 <= onward < pieces:
                        arrived[direction, onward, batch] = end
                        row(stage, f"{direction}-send", end, end + SEND)
                    else:
                        arrived[direction, onward, batch] = end
                        if self.no_ops:
                            row(stage, f"{direction}-send", end, end)
                    at[stage] += 1
            assert sum(at) > before, "the schedule blocks itself"
        return rows, done

    def table(self, keep=lambda row: True, file: str = "job.parquet") -> OperationTable:
        return table([row for row in self.rows() if keep(row)], file)


def table(rows, file: str = "job.parquet", names: bool = True) -> OperationTable:
    kinds = tuple(dict.fromkeys(row[4] for row in rows))
    columns = list(zip(*rows, strict=True)) if rows else [[]] * 10
    number = {kind: i for i, kind in enumerate(kinds)}
    return OperationTable(
        file=file,
        rank=None,
        row_rank=np.array(columns[0], np.int32),
        replica=np.array(columns[1], np.int32),
        stage=np.array(columns[2], np.int32) if names else np.full(len(rows), -1, np.int32),
        step=np.array(columns[3], np.int64),
        kind=np.array([number[k] for k in columns[4]], np.int16),
        start_ns=np.array(columns[5], np.int64),
        duration_ns=np.array(columns[6], np.int64),
        order=np.array(columns[7], np.int32),
        chunk=np.array(columns[8], np.int32),
        micro_batch=np.array(columns[9], np.int32),
        kinds=kinds,
        dropped=0,
    )


def answer(*tables: OperationTable) -> Answer:
    examiner = OperationTables()
    return examiner.examine([examiner.digest(t) for t in tables], None)


def told(given: Answer) -> list[tuple[str, tuple[int, ...]]]:
    return [(f.cause, f.ranks) for f in given.findings]


SHAPES = {
    "1f1b": Job(),
    "gpipe": Job(schedule="gpipe"),
    "replicas alone": Job(replicas=8, stages=1),
    "one micro-batch": Job(replicas=8, stages=1, micro_batches=1),
    "pipeline alone": Job(replicas=1),
    "two stages": Job(stages=2),
    "interleaved": Job(chunks=2),
    "interleaved, three": Job(chunks=3, stages=2, micro_batches=4),
    "interleaved, with no-ops": Job(chunks=2, no_ops=True),
    "no optimizer": Job(without=("optimizer", "optimizer-clip-main-grad")),
    "no syncs": Job(without=("grads-reduce-scatter", "params-all-gather")),
    "one rank": Job(replicas=1, stages=1),
    "noisy": Job(noise=0.03),
    "many replicas": Job(replicas=32, stages=2, micro_batches=4, steps=6),
}


@pytest.mark.parametrize("name", SHAPES)
def test_is_silent_where_nothing_is_slow(name):
    given = answer(SHAPES[name].table())

    assert told(given) == []
    assert given.replayed is not None
    assert 0.97 < given.replayed.slowdown < 1.1


@pytest.mark.parametrize("name", [n for n in SHAPES if n not in ("one rank", "no syncs")])
def test_a_replay_of_what_was_measured_takes_as_long_as_what_was_measured(name):
    job = SHAPES[name]
    from rankscope.analysis.imported.optable.digest import digest
    from rankscope.analysis.imported.optable.shapes import job as made

    found = made(digest(job.table()))

    assert found.whatif.actual_ns == pytest.approx(found.step_ns.mean(), rel=0.002)
    assert (found.unmatched, found.left_out, found.filled) == (0, 0, 1)


@pytest.mark.parametrize(
    "job",
    [
        Job(stage_factor={3: 1.5}),
        Job(stage_factor={3: 1.5}, schedule="gpipe"),
        Job(stage_factor={3: 1.5}, chunks=2),
        Job(stage_factor={3: 1.5}, replicas=1),
        Job(stage_factor={3: 1.5}, replicas=3, without=("optimizer", "grads-reduce-scatter")),
    ],
)
def test_names_the_long_stage_and_its_ranks(job):
    given = answer(job.table())

    ranks = tuple(range(3 * job.replicas, 4 * job.replicas))
    assert told(given) == [("pipeline-imbalance", ranks)]
    assert given.findings[0].cost.recoverable_share == pytest.approx(0.18, abs=0.04)
    assert given.findings[0].title.startswith("pipeline stage 3 ")
    assert given.replayed is not None
    assert max(given.replayed.by_stage, key=lambda s: given.replayed.by_stage[s]) == "3"
    assert given.replayed.stage_share > 0.9


def test_two_long_stages_are_both_named():
    given = answer(Job(stage_factor={0: 1.5, 2: 1.5}).table())

    assert told(given) == [("pipeline-imbalance", (0, 1, 4, 5))]


@pytest.mark.parametrize("job", [Job(replicas=4, stages=2), Job(replicas=6, stages=1), Job(replicas=2, stages=2)])
def test_names_the_rank_that_is_slow_in_everything(job):
    rank = job.replicas * (job.stages - 1) + 1
    job = Job(
        replicas=job.replicas,
        stages=job.stages,
        factor=lambda replica, stage, *_: 1.4 if stage * job.replicas + replica == rank else 1,
        optimizer=lambda replica, stage, _: 1.4 if stage * job.replicas + replica == rank else 1,
    )

    given = answer(job.table())

    assert told(given) == [("slow-device", (rank,))]
    assert given.findings[0].all_ranks is False
    assert given.replayed is not None
    assert given.replayed.worker_share > 0.9
    assert given.findings[0].cost.recoverable_share == pytest.approx(1 - 1 / 1.37, abs=0.06)


def test_a_device_that_slows_down_later_is_named_with_the_step():
    def slow(replica, stage, step, *_):
        return 1.5 if (replica, stage) == (2, 0) and step >= 7 else 1

    given = answer(Job(replicas=4, stages=1, factor=slow, optimizer=slow).table())

    assert [(f.cause, f.ranks, f.first_step) for f in given.findings] == [("slow-device", (2,), 7)]


def test_a_rank_with_more_work_is_no_slow_device():
    """The optimizer does not depend on the batch, and takes a measurable part here."""
    given = answer(Job(replicas=4, stages=1, factor=lambda r, *_: 1.5 if r == 1 else 1, micro_batches=2).table())

    assert told(given) == [("uneven-work", (1,))]
    assert given.findings[0].all_ranks is False


def test_a_rank_slow_in_one_pass_alone_runs_other_code():
    job = Job(replicas=4, stages=1, factor=lambda r, _s, _t, d, _b: 1.8 if r == 1 and d == FORWARD else 1)

    given = answer(job.table())

    assert [(f.cause, f.ranks, f.phase) for f in given.findings] == [("slow-code", (1,), "forward")]


def test_work_that_moves_from_step_to_step_is_of_all_ranks():
    chance = np.random.default_rng(1)
    slowest = chance.integers(0, 8, 40)
    job = Job(replicas=8, stages=1, steps=40, factor=lambda r, _s, t, *_: 1.5 if r == slowest[t] else 1)

    given = answer(job.table())

    assert [(f.cause, f.all_ranks) for f in given.findings] == [("uneven-work", True)]
    assert given.findings[0].cost.recoverable_share == pytest.approx(0.25, abs=0.08)


def test_sequences_of_different_length_are_uneven_work():
    chance = np.random.default_rng(2)
    length = chance.lognormal(0, 0.4, (12, 4, 8))
    job = Job(replicas=4, stages=2, factor=lambda r, _s, t, _d, b: float(length[t, r, b]))

    given = answer(job.table())

    assert [(f.cause, f.all_ranks) for f in given.findings] == [("uneven-work", True)]
    assert "micro-batches" in given.findings[0].title


def test_noise_that_no_operation_shares_is_not_uneven_work():
    given = answer(Job(replicas=8, stages=2, noise=0.12, steps=20).table())

    assert told(given) == []


def test_a_missing_rank_is_said_and_blamed_for_nothing():
    given = answer(Job(replicas=3).table(keep=lambda row: row[0] != 4))

    assert told(given) == []
    assert [(n, why) for _, n, why in given.not_examined] == [
        ("all ranks", "1 of 12 ranks are missing; their operations were taken to be as long as the mean")
    ]


def test_a_missing_stage_is_not_examined():
    given = answer(Job().table(keep=lambda row: row[2] != 1))

    assert (given.examined, given.replayed, told(given)) == (False, None, [])
    assert given.not_examined[0][2].startswith("no rank of stage 1 is in the table")


def test_stages_follow_from_who_sends_to_whom():
    job = Job(stage_factor={3: 1.5})

    given = answer(table([(*row[:1], -1, *row[2:]) for row in job.rows()], names=False))

    assert told(given) == [("pipeline-imbalance", (6, 7))]


def test_rows_that_repeat_count_once():
    rows = Job().rows()

    once, twice = answer(table(rows)), answer(table(rows + rows[::3]))

    assert once.replayed == twice.replayed


def test_a_cut_step_is_left_out_and_said():
    job = Job(stages=2, steps=12)

    given = answer(job.table(keep=lambda row: row[3] != 11 or row[5] < 60 * MS))

    assert given.steps == 11
    assert given.not_examined[0][2] == "1 steps have other operations than the rest"


def test_files_of_single_ranks_go_together_and_the_same_job_again_is_left_out():
    job = Job(stages=2)
    parts = [job.table(keep=lambda row, r=r: row[0] == r, file=f"rank{r}.parquet") for r in range(4)]

    given = answer(*parts, job.table(keep=lambda row: row[3] < 3, file="again.json"))

    assert given.replayed == answer(job.table()).replayed
    assert given.unused == {"again.json": "it has ranks and steps that rank3.parquet has as well"}


def test_operations_in_a_circle_are_not_replayed():
    rows = []
    for stage, kinds in ((0, ("forward-compute", "forward-send")), (1, ("forward-recv", "forward-compute"))):
        for number in range(2):
            for at, kind in enumerate(kinds):
                rows.append((stage, 0, stage, 0, kind, 100 * number + 10 * at, 5, number, 0, number))
    # What stage 0 sends it receives from itself before it can compute it.
    rows += [(0, 0, 0, 0, "backward-recv-forward-recv", -50, 5, 0, 0, 0)]

    given = answer(table(rows))

    assert told(given) == []


def test_shapes_without_a_second_rank_are_not_examined():
    given = answer(SHAPES["one rank"].table())

    assert given.examined is False
    assert given.not_examined == (
        (
            "pipeline-imbalance, slow-device, uneven-work",
            "operations of at least two ranks and their dependencies",
            "the table holds one rank: there is nobody to compare with",
        ),
    )


def test_time_between_operations_is_said():
    rows = [(*row[:5], row[5] * 2, *row[6:]) for row in Job(replicas=2, stages=1).rows()]

    given = answer(table(rows))

    assert ("slow-data-loading, launch-bound", "the host's side") in [(a, b) for a, b, _ in given.not_examined]


KINDS = (
    "forward-compute", "backward-compute", "forward-send", "forward-recv", "backward-send", "backward-recv", "x",
    "params-all-gather", "grads-reduce-scatter", "optimizer", "backward-send-forward-recv", "barrier",
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 3), st.integers(-1, 2), st.integers(-1, 3), st.integers(0, 3), st.sampled_from(KINDS),
            st.integers(-1000, 10**6), st.integers(0, 10**6), st.integers(-1, 3), st.integers(-1, 2),
            st.integers(-1, 3),
        ),
        min_size=1,
        max_size=60,
    )
)  # fmt: skip
def test_any_rows_give_an_answer(rows):
    given = answer(table(rows))

    assert given.replayed is None or given.replayed.slowdown >= 0


def published(data, name: str) -> dict[str, object]:
    return json.loads((data("optable/answers") / name).read_text())


@pytest.mark.parametrize("file", ["trace.parquet", "timeline.json.gz"])
def test_equals_the_published_answers(data, file):
    path = data("optable/megatron-8gpu") / file
    examiner = OperationTables()

    given = examiner.examine([examiner.digest(t) for t in Reader().read(path)], None)

    result, mw, ms = (published(data, n) for n in ("result.json", "mw.json", "ms.json"))
    replayed = given.replayed
    assert replayed is not None
    near = {"rel": 0.005}
    assert replayed.slowdown == pytest.approx(1.17870, **near)
    assert replayed.by_stage == pytest.approx(result["blocking_decompose_by_stage"], **near)
    assert replayed.by_operation == pytest.approx(result["blocking_decompose_by_optype"], **near)
    by_replica, by_stage = result["blocking_decompose_by_dp_rank"], result["blocking_decompose_by_stage"]
    assert replayed.by_rank == pytest.approx(
        {rank: min(by_replica[str(rank % 2)], by_stage[str(rank // 2)]) for rank in range(8)}, **near
    )
    assert replayed.worker_share == pytest.approx(mw["Mw"], **near)
    assert replayed.stage_share == pytest.approx(ms["Ms"], **near)
    assert told(given) == [("pipeline-imbalance", (6, 7))]
    assert given.findings[0].cost.ms_per_step == pytest.approx(295.5, rel=0.01)
    assert (given.world_size, given.steps, given.examined) == (8, 32, True)


def test_the_ideal_timeline_of_that_job_is_healthy(data, tmp_path):
    """The published tool's own replay without stragglers, read as a trace: nothing is left to find."""
    source = data("optable/answers/ideal-timeline.json.gz")
    path = tmp_path / "ideal.json"
    path.write_bytes(gzip.decompress(Path(source).read_bytes()))
    examiner = OperationTables()

    given = examiner.examine([examiner.digest(t) for t in Reader().read(path)], None)

    assert told(given) == []
    assert given.replayed is not None
    assert given.replayed.slowdown == pytest.approx(1, abs=0.001)
