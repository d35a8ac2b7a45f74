"""Faults that memory snapshots show.

No real snapshot of a job that ran out of memory was to be had. These are made by a small model of PyTorch's caching
allocator (segments, best fit, splitting, joining, giving back and failing as documented in
`torch/cuda/memory.py` and c10's CUDACachingAllocator), which records events as
`torch.cuda.memory._snapshot` shows them.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rankscope.analysis.imported.examiner import Answer
from rankscope.analysis.imported.examiners.memory_snapshots import MemorySnapshots, describe
from rankscope.analysis.imported.memory.digest import SnapshotDigest
from rankscope.artefacts.readers.memory_snapshot import MemorySnapshot
from rankscope.records.imported.memory_snapshot import ACTIONS

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
SITE = "/opt/venv/lib/python3.11/site-packages/torch/"
MAIN = ("/home/user/train.py", 90, "<module>")
TRAIN = ("/home/user/train.py", 41, "train")
CALL = (SITE + "nn/modules/module.py", 1553, "_call_impl")
SETUP = ((SITE + "nn/modules/module.py", 927, "_apply"), (SITE + "nn/modules/module.py", 1150, "to"), MAIN)
STEP = (SITE + "optim/optimizer.py", 391, "wrapper"), ("/home/user/train.py", 48, "train"), MAIN
STATE = ((SITE + "optim/adamw.py", 130, "_init_group"), (SITE + "optim/adamw.py", 210, "step"), *STEP)
INSIDE = ((SITE + "optim/adamw.py", 400, "_multi_tensor_adamw"), (SITE + "optim/adamw.py", 230, "step"), *STEP)
BACKWARD = ()
"""Autograd's threads have no Python frames."""

Stack = tuple[tuple[str, int, str], ...]


def forward(line: int) -> Stack:
    return (
        (SITE + "nn/functional.py", 100 + line, "linear"), CALL, ("/home/user/model.py", line, "forward"), CALL, TRAIN,
        MAIN,
    )  # fmt: skip


class Full(Exception):
    """The device has no room."""


class Allocator:
    """A model of the caching allocator for one device and one stream."""

    def __init__(self, device_bytes: int) -> None:
        self.left = device_bytes
        self.segments: dict[int, int] = {}
        self.blocks: dict[int, list] = {}  # address -> [bytes, asked for, stack or None, segment]
        self.events: list[dict] = []
        self.next, self.now = 0x7F0000000000, 1_700_000_000_000_000

    def note(self, action: str, address: int, size: int, stack: Stack) -> None:
        self.now += 7
        where = {"device_free" if action == "oom" else "addr": address}
        self.events.append(
            {"action": action, **where, "size": size, "stream": 0, "time_us": self.now, "compile_context": "N/A",
             "user_metadata": "", "frames": frames(stack)}
        )  # fmt: skip

    def take(self, size: int, stack: Stack) -> int:
        rounded = -(-size // 512) * 512
        small = rounded <= MIB
        for attempt in range(3):
            fit = [(b[0], a) for a, b in self.blocks.items()
                   if b[2] is None and b[0] >= rounded and (self.segments[b[3]] == 2 * MIB) == small]  # fmt: skip
            if fit:
                break
            whole = 2 * MIB if small else 20 * MIB if rounded < 10 * MIB else -(-rounded // (2 * MIB)) * 2 * MIB
            if whole <= self.left:
                address, self.next = self.next, self.next + whole + 2 * MIB
                self.left -= whole
                self.segments[address] = whole
                self.blocks[address] = [whole, 0, None, address]
                self.note("segment_alloc", address, whole, stack)
            elif attempt == 0:
                self.give_back(stack)
            else:
                self.note("oom", self.left, size, stack)
                raise Full
        block, address = min(fit)
        segment = self.blocks[address][3]
        if block - rounded >= (512 if small else MIB + 1):
            self.blocks[address + rounded] = [block - rounded, 0, None, segment]
            block = rounded
        self.blocks[address] = [block, size, stack, segment]
        self.note("alloc", address, size, stack)
        return address

    def free(self, address: int, stack: Stack) -> None:
        block = self.blocks[address]
        self.note("free_requested", address, block[1], stack)
        self.note("free_completed", address, block[1], stack)
        block[2] = None
        same = sorted(a for a, b in self.blocks.items() if b[3] == block[3])
        at = same.index(address)
        for a, b in [(address, same[at + 1 : at + 2]), (same[max(0, at - 1)], [address] if at else [])]:
            if b and self.blocks[a][2] is None and self.blocks[b[0]][2] is None:
                self.blocks[a][0] += self.blocks.pop(b[0])[0]

    def give_back(self, stack: Stack) -> None:
        for address, size in list(self.segments.items()):
            if address in self.blocks and self.blocks[address][0] == size and self.blocks[address][2] is None:
                del self.blocks[address], self.segments[address]
                self.left += size
                self.note("segment_free", address, size, stack)

    def snapshot(self) -> dict:
        segments = []
        for address, size in sorted(self.segments.items()):
            mine = sorted(a for a, b in self.blocks.items() if b[3] == address)
            blocks = [
                {"address": a, "size": self.blocks[a][0], "requested_size": self.blocks[a][1],
                 "state": "inactive" if self.blocks[a][2] is None else "active_allocated",
                 "frames": frames(self.blocks[a][2] or ())} for a in mine
            ]  # fmt: skip
            used = sum(b["size"] for b in blocks if b["state"] != "inactive")
            segments.append(
                {"device": 0, "address": address, "total_size": size, "allocated_size": used, "active_size": used,
                 "requested_size": used, "stream": 0, "segment_type": "small" if size == 2 * MIB else "large",
                 "segment_pool_id": (0, 0), "is_expandable": False, "frames": [], "blocks": blocks}
            )  # fmt: skip
        settings = {"PYTORCH_CUDA_ALLOC_CONF": "", "max_split_size": -1, "expandable_segments": False}
        return {"segments": segments, "device_traces": [self.events], "allocator_settings": settings}


FRAMES: dict[tuple[str, int, str], dict] = {}


def frames(stack: Stack) -> list[dict]:
    """New lists of shared frames, as PyTorch makes them."""
    return [FRAMES.setdefault(f, {"filename": f[0], "line": f[1], "name": f[2]}) for f in stack]


class Training:
    """A model of `layers` layers, trained with AdamW."""

    def __init__(self, device_bytes: int = 80 * GIB, layers: int = 6, act: int = 96 * MIB, weight: int = 64 * MIB):
        self.memory = Allocator(device_bytes)
        self.layers, self.weight, self.act = layers, weight, act
        self.weights = [self.memory.take(weight, SETUP) for _ in range(layers)]
        self.states: list[int] = []
        self.kept: list[int] = []

    def step(self, length: float = 1.0, keep: Callable[[int], bool] = lambda layer: False, extra: int = 0) -> None:
        m = self.memory
        saved, grads = [], []
        for layer in range(self.layers):
            act = m.take(int(self.act * length), forward(layer))
            (self.kept if keep(layer) else saved).append(act)
            m.free(m.take(int(self.act * length / 2), forward(50 + layer)), forward(layer))
        if extra:
            m.free(m.take(extra, forward(99)), forward(99))
        for act in reversed(saved):
            grads.append(m.take(self.weight, BACKWARD))
            m.free(m.take(self.act // 3, BACKWARD), BACKWARD)
            m.free(act, BACKWARD)
        grads += [m.take(self.weight, BACKWARD) for _ in range(self.layers - len(grads))]
        if not self.states:
            for _ in range(2 * self.layers):
                self.states.append(m.take(self.weight, STATE))
        temporary = [m.take(self.weight, INSIDE) for _ in range(2)]
        for t in temporary:
            m.free(t, INSIDE)
        for grad in grads:
            m.free(grad, ((SITE + "optim/optimizer.py", 900, "zero_grad"), TRAIN, MAIN))

    def run(self, steps: int, **more: object) -> Training:
        for _ in range(steps):
            self.step(**more)
        return self


def until_full(action: Callable[[], object]) -> None:
    with pytest.raises(Full):
        action()


def digests(tmp_path: Path, *snapshots: dict, rank: int = 0) -> list[SnapshotDigest]:
    found = []
    for number, snapshot in enumerate(snapshots):
        path = tmp_path / str(number) / f"memory_rank{rank}.pickle"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(pickle.dumps(snapshot))
        found += [MemorySnapshots().digest(table) for table in MemorySnapshot().read(path)]
    return found


def examined(tmp_path: Path, *snapshots: dict, **more: object) -> Answer:
    return MemorySnapshots().examine(digests(tmp_path, *snapshots, **more), None)


def shown(answer: Answer) -> list[tuple[str, str, tuple[int, ...], str]]:
    return [(f.cause, f.severity, f.ranks, f.component or "") for f in answer.findings]


def value(answer: Answer, text: str) -> float | None:
    return next(e.value for e in answer.findings[0].evidence if text in e.text)


class TestHealthy:
    def test_is_silent_on_a_training(self, tmp_path):
        answer = examined(tmp_path, Training().run(10).memory.snapshot())

        assert (answer.findings, answer.not_examined, answer.examined) == ((), (), True)

    @pytest.mark.parametrize("steps", [0, 1, 2])
    def test_says_what_few_steps_do_not_show(self, tmp_path, steps):
        answer = examined(tmp_path, Training().run(steps).memory.snapshot())

        assert answer.findings == ()
        assert [one[0] for one in answer.not_examined] == ["growing-cache"]

    def test_is_silent_on_lengths_that_vary(self, tmp_path):
        training = Training()
        for length in (0.5, 1.3, 0.7, 1.0, 1.6, 0.9, 0.4, 1.9, 1.1, 0.8, 1.2):
            training.step(length)

        assert examined(tmp_path, training.memory.snapshot()).findings == ()

    def test_is_silent_where_a_library_tries_out_a_large_workspace_once(self, tmp_path):
        training = Training()
        training.step(extra=4 * GIB)
        training.run(9, extra=10 * MIB)

        assert examined(tmp_path, training.memory.snapshot()).findings == ()

    def test_is_silent_where_losses_are_kept_for_the_log(self, tmp_path):
        training = Training()
        for _ in range(12):
            training.step()
            training.memory.take(4, (TRAIN, MAIN))

        assert examined(tmp_path, training.memory.snapshot()).findings == ()

    def test_is_silent_on_a_cache_that_has_been_filled(self, tmp_path):
        training = Training()
        for step in range(16):
            training.step(keep=lambda layer, step=step: layer == 0 and step < 6)

        assert examined(tmp_path, training.memory.snapshot()).findings == ()

    def test_is_silent_on_the_middle_of_one_long_forward(self, tmp_path):
        memory = Allocator(80 * GIB)
        for _ in range(60):
            memory.take(128 * MIB, forward(7))

        assert examined(tmp_path, memory.snapshot()).findings == ()

    def test_is_silent_on_inference(self, tmp_path):
        memory = Allocator(80 * GIB)
        for _ in range(4):
            memory.take(500 * MIB, SETUP)
        for request in range(20):
            held = [memory.take((1 + request % 5) * 40 * MIB, forward(layer)) for layer in range(8)]
            for address in held:
                memory.free(address, (TRAIN, MAIN))

        assert examined(tmp_path, memory.snapshot()).findings == ()

    def test_says_that_a_state_alone_tells_nothing_of_time(self, tmp_path):
        snapshot = Training().run(3).memory.snapshot() | {"device_traces": [[]]}

        answer = examined(tmp_path, snapshot)

        assert answer.findings == ()
        assert "_record_memory_history" in answer.not_examined[0][1]
        assert not answer.examined

    def test_says_that_nothing_was_recorded(self, tmp_path):
        answer = examined(tmp_path, {"segments": [], "device_traces": [[], []]})

        assert answer.findings == ()
        assert answer.not_examined[0][2].endswith("nothing was recorded")

    def test_several_states_of_a_training_do_not_grow(self, tmp_path):
        training = Training()
        snapshots = []
        for _ in range(5):
            training.run(2)
            snapshots.append(training.memory.snapshot() | {"device_traces": [list(training.memory.events)]})

        assert examined(tmp_path, *snapshots).findings == ()


class TestCategories:
    def test_tells_them_from_stacks_and_lifetimes(self, tmp_path):
        training = Training(layers=4)
        training.step()
        training.step()
        # In the middle of a third forward: weights, states, activations are held, gradients are not.
        for layer in range(3):
            training.memory.take(900 * MIB, forward(layer))

        found = digests(tmp_path, training.memory.snapshot())[0]

        assert found.peak == 4 * 64 * MIB + 8 * 64 * MIB + 3 * 900 * MIB
        assert dict(found.categories) == {
            "activations": 3 * 900 * MIB,
            "optimizer state": 8 * 64 * MIB,
            "parameters and buffers": 4 * 64 * MIB,
        }
        assert [h.place for h in found.at_peak[:3]] == [f"forward (model.py:{layer})" for layer in range(3)]
        assert (found.num_steps, found.steps_by) == (2, "optimizer steps")

    def test_gradients_outlive_backward(self, tmp_path):
        training = Training(layers=2, act=2 * MIB)
        training.step()

        found = digests(tmp_path, training.memory.snapshot())[0]

        # The peak is in the optimizer: weights, gradients, states and two temporaries.
        assert dict(found.categories) == {
            "optimizer state": 4 * 64 * MIB,
            "parameters and buffers": 2 * 64 * MIB,
            "gradients": 2 * 64 * MIB,
            "temporaries of the optimizer": 2 * 64 * MIB,
        }

    def test_describes_a_healthy_snapshot(self, tmp_path):
        lines = describe(digests(tmp_path, Training(layers=2).run(2).memory.snapshot())[0])

        assert lines[0] == "device 0: 12 segments, 13 blocks, 78 events, 20 lines of code"
        assert any("optimizer state" in line for line in lines)


class TestLeaks:
    def test_names_the_line_whose_tensors_pile_up(self, tmp_path):
        training = Training().run(10, keep=lambda layer: layer == 3)

        answer = examined(tmp_path, training.memory.snapshot(), rank=5)

        assert shown(answer) == [("growing-cache", "warning", (5,), "forward (model.py:3)")]
        assert value(answer, "kept more with every step") == 96 * MIB
        assert answer.findings[0].location.file == "/home/user/model.py"
        assert "96.0 MiB more with every step" in answer.findings[0].title

    def test_knows_a_graph_by_its_many_lines(self, tmp_path):
        training = Training().run(10, keep=lambda layer: True)

        answer = examined(tmp_path, training.memory.snapshot())

        assert [f.cause for f in answer.findings] == ["retained-graph"]
        assert value(answer, "kept more with every step") == 6 * 96 * MIB

    def test_names_the_leak_where_it_ends_in_a_failure(self, tmp_path):
        training = Training(device_bytes=6 * GIB)
        until_full(lambda: training.run(100, keep=lambda layer: layer == 2))

        answer = examined(tmp_path, training.memory.snapshot())

        assert shown(answer) == [("growing-cache", "critical", (0,), "forward (model.py:2)")]
        assert "did not fit" in answer.findings[0].title

    def test_sees_a_leak_without_optimizer_and_without_stacks(self, tmp_path):
        memory = Allocator(80 * GIB)
        for _ in range(12):
            held = [memory.take(200 * MIB, ()) for _ in range(5)]
            memory.take(24 * MIB, ())
            for address in held:
                memory.free(address, ())
        snapshot = memory.snapshot()
        for event in snapshot["device_traces"][0]:
            del event["frames"]

        answer = examined(tmp_path, snapshot)

        assert [f.cause for f in answer.findings] == ["growing-cache"]
        assert "no stack was recorded" in answer.findings[0].title

    def test_sees_growth_over_snapshots_of_one_rank(self, tmp_path):
        training = Training()
        snapshots = []
        for _ in range(4):
            training.run(2, keep=lambda layer: layer == 1)
            last = training.memory.events[-1:]
            snapshots.append(training.memory.snapshot() | {"device_traces": [last]})

        answer = examined(tmp_path, *snapshots, rank=2)

        assert shown(answer) == [("growing-cache", "warning", (2,), "forward (model.py:1)")]
        assert value(answer, "held in the last of 4 snapshots") == 8 * 96 * MIB


class TestFailures:
    def test_says_what_was_asked_for_and_what_was_missing(self, tmp_path):
        memory = Allocator(10 * GIB)
        for layer in range(9):
            memory.take(GIB, forward(layer))
        until_full(lambda: memory.take(3 * GIB, forward(40)))

        answer = examined(tmp_path, memory.snapshot(), rank=3)

        assert shown(answer) == [("out-of-memory", "critical", (3,), "forward (model.py:40)")]
        assert (value(answer, "asked for"), value(answer, "free on the device")) == (3 * GIB, GIB)
        assert (value(answer, "missing"), value(answer, "held by tensors")) == (2 * GIB, 9 * GIB)
        assert answer.findings[0].title == (
            "rank 3: out of memory: 3.00 GiB for forward (model.py:40) did not fit, 2.00 GiB short; "
            "activations hold 9.00 GiB of 9.00 GiB"
        )

    def test_says_where_a_limit_was_set(self, tmp_path):
        memory = Allocator(10 * GIB)
        memory.take(GIB, forward(1))
        memory.note("oom", 9 * GIB, 2 * GIB, forward(2))

        answer = examined(tmp_path, memory.snapshot())

        assert answer.findings[0].cause == "out-of-memory"
        assert "set_per_process_memory_fraction" in answer.findings[0].next[0]

    def test_only_warns_where_the_program_goes_on(self, tmp_path):
        training = Training(device_bytes=8 * GIB)
        until_full(lambda: training.memory.take(9 * GIB, forward(1)))
        training.run(10)

        answer = examined(tmp_path, training.memory.snapshot())

        assert [(f.cause, f.severity) for f in answer.findings] == [("out-of-memory", "warning")]

    def test_knows_free_memory_that_lies_in_pieces(self, tmp_path):
        memory = Allocator(8 * GIB)
        # Twenty segments of 300 MiB, in each of which something small stays.
        large = [memory.take(300 * MIB, forward(1)) for _ in range(20)]
        for address in large:
            memory.free(address, forward(1))
        kept = []
        for _ in range(20):
            first = memory.take(290 * MIB, forward(2))
            memory.take(8 * MIB, forward(3))
            kept.append(first)
        for address in kept:
            memory.free(address, forward(2))
        until_full(lambda: memory.take(3 * GIB, forward(9)))

        answer = examined(tmp_path, memory.snapshot())

        assert shown(answer) == [("memory-fragmentation", "critical", (0,), "forward (model.py:9)")]
        assert value(answer, "blocks that keep them") == 20 * 8 * MIB
        assert value(answer, "free in it") == 20 * 292 * MIB
        assert value(answer, "largest free piece") < 3 * GIB
        assert "expandable_segments" in answer.findings[0].next[0]

    def test_warns_where_even_the_peak_leaves_most_of_what_is_reserved_free(self, tmp_path):
        memory = Allocator(80 * GIB)
        for _ in range(20):
            address = memory.take(600 * MIB, forward(2))
            # What was allocated in front of it and behind it is gone, only 12 MiB in the middle stay.
            memory.free(address, forward(2))
            memory.blocks[address][0] = 300 * MIB
            memory.blocks[address + 300 * MIB] = [12 * MIB, 12 * MIB, forward(3), address]
            memory.note("alloc", address + 300 * MIB, 12 * MIB, forward(3))
            memory.blocks[address + 312 * MIB] = [288 * MIB, 0, None, address]
            memory.take(300 * MIB, forward(5))
            memory.take(288 * MIB, forward(5))
        for address in [a for a, b in memory.blocks.items() if b[2] == forward(5)][4:]:
            memory.free(address, forward(5))
        memory.events = memory.events[-2:]  # the history begins late

        answer = examined(tmp_path, memory.snapshot())

        assert shown(answer) == [("memory-fragmentation", "warning", (0,), "forward (model.py:3)")]

    def test_knows_optimizer_state_that_does_not_fit(self, tmp_path):
        training = Training(device_bytes=6 * 64 * MIB * 3 + 200 * MIB, act=8 * MIB)
        until_full(lambda: training.run(1))

        answer = examined(tmp_path, training.memory.snapshot())

        assert shown(answer) == [("optimizer-state-memory", "critical", (0,), "train (train.py:48)")]
        assert "in the first optimizer step" in answer.findings[0].title

    def test_knows_that_the_second_step_fails_for_the_state_of_the_first(self, tmp_path):
        weights = 6 * 64 * MIB
        training = Training(device_bytes=28 * 64 * MIB, act=192 * MIB)
        until_full(lambda: training.run(2))

        answer = examined(tmp_path, training.memory.snapshot())

        assert [f.cause for f in answer.findings] == ["optimizer-state-memory"]
        assert value(answer, "optimizer state that appeared") == 2 * weights

    def test_knows_the_sample_that_is_too_long(self, tmp_path):
        training = Training(device_bytes=4 * GIB)
        training.run(7)
        until_full(lambda: training.step(length=6.0))

        answer = examined(tmp_path, training.memory.snapshot(), rank=1)

        assert [(f.cause, f.severity, f.ranks, f.first_step) for f in answer.findings] == [
            ("overlong-sample", "critical", (1,), 7)
        ]
        assert value(answer, "over the largest") == pytest.approx(6.0)

    def test_warns_of_one_sample_that_sets_the_peak(self, tmp_path):
        training = Training(act=200 * MIB).run(6)
        training.step(length=5.0)
        training.run(3)

        answer = examined(tmp_path, training.memory.snapshot())

        assert [(f.cause, f.severity, f.first_step) for f in answer.findings] == [("overlong-sample", "warning", 6)]

    def test_names_all_ranks_that_fail_alike(self, tmp_path):
        found = []
        for rank in (0, 4):
            memory = Allocator(10 * GIB)
            memory.take(9 * GIB, forward(1))
            until_full(lambda memory=memory: memory.take(3 * GIB, forward(40)))
            found += digests(tmp_path, memory.snapshot(), rank=rank)

        answer = MemorySnapshots().examine(found, 8)

        assert [(f.cause, f.ranks, f.all_ranks) for f in answer.findings] == [("out-of-memory", (0, 4), False)]


class TestMoreHealthyPrograms:
    def test_accumulation_of_gradients(self, tmp_path):
        m = Allocator(80 * GIB)
        for _ in range(6):
            m.take(64 * MIB, SETUP)
        for _ in range(8):
            grads = []
            for micro in range(8):
                saved = [m.take(50 * MIB, forward(layer)) for layer in range(6)]
                kept_loss = m.take(4, (TRAIN, MAIN))
                for address in reversed(saved):
                    if micro == 0:
                        grads.append(m.take(64 * MIB, BACKWARD))
                    m.free(address, BACKWARD)
                m.free(kept_loss, (TRAIN, MAIN))
            m.free(m.take(64 * MIB, INSIDE), INSIDE)
            for address in grads:
                m.free(address, ((SITE + "optim/optimizer.py", 900, "zero_grad"), TRAIN, MAIN))

        assert examined(tmp_path, m.snapshot()).findings == ()

    def test_evaluation_with_larger_batches_after_every_epoch(self, tmp_path):
        training = Training()
        for _ in range(4):
            training.run(5)
            for _ in range(3):
                held = [training.memory.take(400 * MIB, forward(layer)) for layer in range(6)]
                for address in held:
                    training.memory.free(address, (TRAIN, MAIN))

        assert examined(tmp_path, training.memory.snapshot()).findings == ()

    def test_a_cache_of_keys_that_is_made_anew_with_every_token(self, tmp_path):
        memory = Allocator(80 * GIB)
        for _ in range(4):
            memory.take(500 * MIB, SETUP)
        cache = [memory.take(MIB, forward(60 + layer)) for layer in range(8)]
        for token in range(2, 200):
            for layer in range(8):
                new = memory.take(token * MIB, forward(60 + layer))
                memory.free(cache[layer], forward(60 + layer))
                cache[layer] = new

        assert examined(tmp_path, memory.snapshot()).findings == ()

    def test_an_average_of_the_weights_that_begins_late(self, tmp_path):
        training = Training().run(6)
        for _ in range(6):
            training.memory.take(64 * MIB, ((SITE + "optim/swa_utils.py", 200, "update_parameters"), TRAIN, MAIN))
        training.run(8)

        assert examined(tmp_path, training.memory.snapshot()).findings == ()

    def test_the_end_of_a_ring_of_events(self, tmp_path):
        snapshot = Training().run(12).memory.snapshot()
        for start in range(100, 400, 37):
            cut = snapshot | {"device_traces": [snapshot["device_traces"][0][start:]]}

            assert examined(tmp_path, cut).findings == ()


EVENT = st.fixed_dictionaries(
    {
        "action": st.sampled_from([*ACTIONS, "?"]),
        "addr": st.sampled_from([-1, 0, 512, 1024, 4096, 1 << 46]),
        "size": st.sampled_from([-5, 0, 1, 512, 700, 1 << 40]),
        "time_us": st.sampled_from([-1, 0, 5, 3]),
    }
)
BLOCK = st.fixed_dictionaries(
    {"size": st.sampled_from([-1, 0, 512, 4096]), "state": st.sampled_from(["inactive", "active_allocated", "else"])}
)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    events=st.lists(EVENT, max_size=60),
    blocks=st.lists(BLOCK, max_size=4),
    stacks=st.lists(st.sampled_from([None, (), forward(1), forward(2), STATE, INSIDE]), min_size=60, max_size=60),
)
def test_any_history_is_examined(tmp_path, events, blocks, stacks):
    for one, stack in zip(events, stacks, strict=False):
        if stack is not None:
            one["frames"] = frames(stack)
        if one["action"] == "oom":
            one["device_free"] = one["addr"]
    segments = [{"address": a, "total_size": 1 << 20, "blocks": list(blocks)} for a in (0, 4096)]

    answer = examined(tmp_path, {"segments": segments, "device_traces": [events]})

    assert len(answer.findings) <= 1


class TestRealFile:
    def test_is_healthy_and_shown(self, data):
        path = data("memory/snapshot/mini_snapshot.pickle")

        found = [MemorySnapshots().digest(table) for table in MemorySnapshot().read(path)]
        answer = MemorySnapshots().examine(found, None)

        assert answer.findings == ()
        assert describe(found[0])[:2] == (
            "device 0: 14 segments, 14 blocks, 50 events, 200 lines of code",
            "0 B held of 402.0 MiB reserved at the end; at most 384.1 MiB held, 402.0 MiB reserved",
        )
        assert [(h.place, h.count) for h in found[0].at_peak[:2]] == [
            ("main (attention.py:358)", 16),
            ("get_input (attention.py:206)", 1),
        ]
