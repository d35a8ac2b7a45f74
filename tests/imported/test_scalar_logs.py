"""Faults that logged scalars show, and the many healthy curves that show none."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.analysis.imported.examiner import Answer
from rankscope.analysis.imported.examiners.scalar_logs import ScalarLogs
from rankscope.analysis.imported.scalars.names import name, run_of
from rankscope.artefacts.readers.tensorboard import Tensorboard
from rankscope.records.imported.scalar_log import ScalarLog

SEEDS = range(12)


def log(curves: dict[str, tuple[object, object]], run: str = "/runs/a", start: int = 0) -> ScalarLog:
    """Tags with (steps, values), as a file has them."""
    tags, steps, values, times = [], [], [], []
    for number, (s, v) in enumerate(curves.values()):
        tags += [number] * len(s)
        steps += list(s)
        values += list(v)
        times += list(range(start, start + len(s)))
    return ScalarLog(
        file=f"{run}/events.out.tfevents.{start}", rank=None, run=run, tags=tuple(curves), tag=np.array(tags, np.int32),
        step=np.array(steps, np.int64), time_ns=np.array(times, np.int64) * 10**9, value=np.array(values, np.float64),
        num_records=len(values), num_damaged=0, truncated_bytes=0,
    )  # fmt: skip


def examined(*logs: ScalarLog) -> Answer:
    examiner = ScalarLogs()
    return examiner.examine([examiner.digest(one) for one in logs], None)


def shown(answer: Answer) -> list[tuple[str, str]]:
    return [(f.cause, f.severity) for f in answer.findings]


def warnings(answer: Answer) -> list[str]:
    return [f"{f.cause}: {f.title}" for f in answer.findings if f.severity != "info"]


def falling(count: int = 1000, seed: int = 0, spread: float = 0.05, first: float = 8.0, end: float = 2.5):
    """A loss of a language model: noise in proportion to it, heavy tails."""
    chance = np.random.default_rng(seed)
    level = end + (first - end) * (1 + np.arange(count) / 30) ** -0.7
    return level * np.exp(spread * chance.standard_t(5, count) / 1.3)


def one(values, tag: str = "train/loss", every: int = 10, **more) -> Answer:
    return examined(log({tag: (np.arange(len(values)) * every, values)} | more))


class TestHealthy:
    @pytest.mark.parametrize("seed", SEEDS)
    @pytest.mark.parametrize("spread", [0.0, 0.01, 0.05])
    def test_is_silent_on_losses_that_fall(self, seed, spread):
        assert one(falling(seed=seed, spread=spread)).findings == ()

    @pytest.mark.parametrize("seed", SEEDS)
    @pytest.mark.parametrize("spread", [0.1, 0.2, 0.4])
    def test_does_not_warn_where_the_noise_has_heavy_tails(self, seed, spread):
        assert warnings(one(falling(seed=seed, spread=spread))) == []

    @pytest.mark.parametrize("seed", SEEDS)
    def test_is_silent_on_short_and_on_long_runs(self, seed):
        for count in (3, 20, 60, 200, 20_000):
            assert warnings(one(falling(count, seed))) == []

    @pytest.mark.parametrize("seed", SEEDS)
    def test_is_silent_on_a_fine_tuning_that_falls_a_little(self, seed):
        assert warnings(one(falling(400, seed, 0.1, first=2.2, end=1.9))) == []

    @pytest.mark.parametrize("seed", SEEDS)
    def test_is_silent_on_a_loss_of_single_samples(self, seed):
        chance = np.random.default_rng(seed)
        level = 0.3 + 2 * np.exp(-np.arange(2000) / 300)

        assert warnings(one(level * chance.gamma(1.5, 1 / 1.5, 2000))) == []

    @pytest.mark.parametrize("seed", SEEDS)
    def test_is_silent_on_losses_that_come_near_zero(self, seed):
        chance = np.random.default_rng(seed)
        level = 2.3 * np.exp(-np.arange(3000) / 250) + 1e-4

        assert warnings(one(level * np.exp(0.8 * chance.standard_normal(3000)))) == []

    @pytest.mark.parametrize("seed", SEEDS)
    def test_is_silent_on_warm_restarts(self, seed):
        count = 1200
        rate = 0.05 * (1 + np.cos(np.pi * (np.arange(count) % 300) / 300)) + 1e-4
        loss = falling(count, seed, 0.03, 2.5, 0.4) * (1 + 12 * rate)

        answer = examined(log({"loss": (np.arange(count), loss), "lr": (np.arange(count), rate)}))

        assert answer.findings == ()

    @pytest.mark.parametrize("seed", SEEDS)
    def test_is_silent_on_steps_of_the_learning_rate(self, seed):
        loss = falling(900, seed, 0.05) * np.repeat([1.0, 0.6, 0.5], 300)

        assert one(loss).findings == ()

    @pytest.mark.parametrize("seed", SEEDS)
    def test_is_silent_on_reinforcement_learning(self, seed):
        chance = np.random.default_rng(seed)
        steps = np.arange(500) * 2048
        curves = {
            "rollout/ep_rew_mean": (steps, np.cumsum(chance.normal(0.1, 2, 500))),
            "train/value_loss": (steps, np.exp(chance.normal(0, 1, 500)) * np.linspace(1, 30, 500)),
            "train/loss": (steps, chance.normal(0.2, 0.3, 500)),
            "time/fps": (steps, np.linspace(900, 700, 500)),
        }

        answer = examined(log(curves))

        assert answer.findings == ()
        assert answer.not_examined[0][0] == "loss-not-decreasing"
        assert not answer.examined

    @pytest.mark.parametrize(
        "tags", [("loss_G", "loss_D"), ("generator/loss", "discriminator/loss"), ("d_loss", "g_loss")]
    )
    def test_is_silent_on_two_players(self, tags):
        chance = np.random.default_rng(1)
        steps = np.arange(800)
        curves = {tags[0]: (steps, 0.7 + np.linspace(0, 4, 800) + chance.normal(0, 0.3, 800)),
                  tags[1]: (steps, np.abs(0.7 + chance.normal(0, 0.2, 800)))}  # fmt: skip

        assert examined(log(curves)).findings == ()

    def test_is_silent_on_parts_of_a_loss(self):
        steps = np.arange(600)
        chance = np.random.default_rng(3)
        curves = {
            "train/loss": (steps, falling(600)),
            "train/aux_loss": (steps, 1.0 + chance.normal(0, 0.01, 600)),
            "train/kl_loss": (steps, np.linspace(0, 20, 600)),
            "train/loss_scale": (steps, np.repeat([65536.0, 32768.0], 300)),
        }

        assert examined(log(curves)).findings == ()

    @pytest.mark.parametrize("seed", SEEDS)
    def test_is_silent_where_evaluation_levels_off(self, seed):
        chance = np.random.default_rng(seed)
        curves = {
            "train/loss": (np.arange(1000), falling(1000, seed)),
            "eval/loss": (np.arange(20) * 50, 2.0 + 2 * np.exp(-np.arange(20) / 3) + chance.normal(0, 0.05, 20)),
        }

        assert examined(log(curves)).findings == ()

    @pytest.mark.parametrize("seed", SEEDS)
    def test_is_silent_on_speeds_that_vary(self, seed):
        chance = np.random.default_rng(seed)
        speed = 1000 * np.exp(0.1 * chance.standard_normal(400))
        speed[::50] /= 4  # checkpoints
        speed[0] = 3
        curves = {"tokens_per_second": (np.arange(400), speed), "step_time": (np.arange(400), 8000 / speed)}

        assert examined(log(curves)).findings == ()

    def test_is_silent_where_a_run_goes_on_from_a_checkpoint(self):
        loss = falling(1000)
        first = log({"loss": (np.arange(600), loss[:600])})
        second = log({"loss": (np.arange(500, 1000), loss[500:])}, start=5000)

        assert examined(second, first).findings == ()

    def test_is_silent_on_single_values_that_are_no_numbers(self):
        loss = falling(400)
        loss[[40, 200]] = np.nan

        assert one(loss).findings == ()

    def test_is_silent_on_a_plateau_that_is_left(self):
        loss = np.concatenate([np.full(300, 2.3), np.linspace(2.3, 0.5, 300)])

        assert one(loss + np.random.default_rng(0).normal(0, 0.02, 600)).findings == ()

    @pytest.mark.parametrize("count", [1000, 100_000])
    def test_is_silent_where_almost_all_is_learned_at_once(self, count):
        chance = np.random.default_rng(1)

        assert one(2 + 3 / (1 + np.arange(count) / 5) + chance.normal(0, 0.05, count)).findings == ()

    def test_is_silent_on_nothing(self):
        assert examined(log({})).findings == ()
        assert examined(log({"train/loss": ([], [])})).findings == ()


class TestJumps:
    @pytest.mark.parametrize("seed", SEEDS)
    def test_remarks_a_jump_that_comes_back(self, seed):
        loss = falling(seed=seed)
        loss[700:703] *= 2.8

        answer = one(loss)

        assert shown(answer) == [("loss-spike", "warning" if loss[700] > np.median(loss[:10]) else "info")]
        assert answer.findings[0].first_step == 7000

    @pytest.mark.parametrize("seed", SEEDS)
    def test_remarks_a_small_jump_of_several_points_in_little_noise(self, seed):
        loss = 3 + 0.02 * np.random.default_rng(seed).standard_normal(120)
        loss[:20] += np.linspace(5, 0, 20)
        loss[70:74] += 2.5

        answer = one(loss)

        assert shown(answer) == [("loss-spike", "info")]
        assert answer.findings[0].first_step == 700

    @pytest.mark.parametrize("seed", SEEDS)
    def test_a_single_odd_batch_is_no_more_than_a_remark(self, seed):
        loss = falling(seed=seed)
        loss[700] = 30.0

        assert shown(one(loss)) == [("loss-spike", "info")]

    @pytest.mark.parametrize("seed", SEEDS)
    def test_warns_of_a_jump_above_the_start(self, seed):
        loss = falling(seed=seed)
        loss[700:703] = 30.0

        answer = one(loss)

        assert shown(answer) == [("loss-spike", "warning")]
        finding = answer.findings[0]
        assert (finding.first_step, finding.last_step, finding.component) == (7000, 7000, "train/loss")
        assert finding.evidence[0].value == 30.0
        assert "came back within 3 points" in finding.title

    @pytest.mark.parametrize("seed", SEEDS)
    def test_warns_of_a_jump_that_does_not_come_back(self, seed):
        loss = falling(seed=seed)
        loss[700:] = 7.5 * np.exp(0.05 * np.random.default_rng(seed).standard_normal(300))

        answer = one(loss)

        assert shown(answer) == [("loss-spike", "warning")]
        assert answer.findings[0].first_step == 7000
        assert "goes up for good" in answer.findings[0].title

    @pytest.mark.parametrize("seed", SEEDS)
    def test_warns_of_a_loss_that_creeps_up(self, seed):
        loss = falling(seed=seed)
        loss[500:] += np.linspace(0, 6, 500)

        answer = one(loss)

        assert shown(answer) == [("loss-spike", "warning")]
        assert 3000 < answer.findings[0].first_step < 6500

    @pytest.mark.parametrize(("value", "what"), [(np.nan, "NaN"), (np.inf, "infinite")])
    def test_a_loss_that_stops_being_a_number_is_critical(self, value, what):
        loss = falling()
        loss[640:] = value

        answer = one(loss)

        assert shown(answer) == [("loss-spike", "critical")]
        assert answer.findings[0].title == f"train/loss is {what} from step 6400 on and stays so (360 points)"

    def test_a_loss_that_never_was_a_number_is_critical(self):
        assert shown(one(np.full(50, np.nan))) == [("loss-spike", "critical")]

    def test_a_restart_after_it_makes_it_void(self):
        loss = falling(1000)
        broken = loss.copy()
        broken[600:700] = np.nan

        answer = examined(log({"loss": (np.arange(700), broken[:700])}),
                          log({"loss": (np.arange(550, 1000), loss[550:])}, start=9000))  # fmt: skip

        assert answer.findings == ()

    def test_even_players_of_a_game_have_to_be_numbers(self):
        loss = np.full(300, 0.7)
        loss[200:] = np.nan

        answer = examined(log({"loss_G": (np.arange(300), loss), "loss_D": (np.arange(300), np.full(300, 0.7))}))

        assert shown(answer) == [("loss-spike", "critical")]


class TestPlateau:
    @pytest.mark.parametrize("seed", SEEDS)
    @pytest.mark.parametrize("spread", [0.0, 0.001, 0.02, 0.05])
    def test_warns_of_a_loss_that_stays_where_it_began(self, seed, spread):
        chance = np.random.default_rng(seed)

        answer = one(np.log(10) * (1 + spread * chance.standard_normal(800)))

        assert shown(answer) == [("loss-not-decreasing", "warning")]
        assert answer.findings[0].evidence[1].value == pytest.approx(np.log(10), rel=0.02)

    def test_waits_for_a_warm_up(self):
        rate = np.linspace(0, 1, 300)

        answer = examined(log({"loss": (np.arange(300), np.full(300, 2.3)), "lr": (np.arange(300), rate**2)}))

        assert answer.findings == ()


class TestOverfitting:
    def curves(self, seed: int, rise: float, train_end: float = 0.1):
        chance = np.random.default_rng(seed)
        x = np.arange(30)
        evaluation = 0.9 + 1.4 * np.exp(-x / 2) + np.maximum(0, x - 8) * rise / 22 + chance.normal(0, 0.02, 30)
        train = falling(3000, seed, 0.03, 2.3, train_end) * np.exp(-np.arange(3000) / 2000)
        return {
            "train_loss_step": (np.arange(3000), train),
            "val_loss": (x * 100, evaluation),
        }

    @pytest.mark.parametrize("seed", SEEDS)
    def test_warns_where_evaluation_rises_and_training_falls(self, seed):
        answer = examined(log(self.curves(seed, 0.9)))

        assert shown(answer) == [("overfitting", "warning")]
        assert answer.findings[0].component == "val_loss"
        assert 500 <= answer.findings[0].first_step <= 1200

    @pytest.mark.parametrize("seed", SEEDS)
    def test_only_remarks_a_little_of_it(self, seed):
        assert shown(examined(log(self.curves(seed, 0.25)))) == [("overfitting", "info")]

    def test_joins_the_folders_of_keras(self):
        curves = self.curves(0, 0.9)
        train = log({"epoch_loss": curves["train_loss_step"]}, "/runs/k/train")
        evaluation = log({"epoch_loss": curves["val_loss"]}, "/runs/k/validation")

        assert shown(examined(train, evaluation)) == [("overfitting", "warning")]


class TestSpeed:
    @pytest.mark.parametrize("seed", SEEDS)
    @pytest.mark.parametrize("tag", ["tokens_per_second", "train/steps_per_sec", "perf/samples/s", "throughput"])
    def test_remarks_a_run_that_becomes_slower(self, seed, tag):
        chance = np.random.default_rng(seed)
        speed = np.repeat([1000.0, 600.0], [250, 150]) * np.exp(0.05 * chance.standard_normal(400))

        answer = examined(log({tag: (np.arange(400) * 10, speed)}))

        assert shown(answer) == [("slow-code", "info")]
        finding = answer.findings[0]
        assert abs(finding.first_step - 2500) <= 20
        assert "cannot be told from this file" in finding.title
        assert finding.cost.share == pytest.approx(0.4, abs=0.03)

    def test_blames_the_data_where_their_time_is_logged(self):
        wait = np.repeat([0.02, 0.5], [200, 200])
        curves = {"train/step_time": (np.arange(400), 0.6 + wait), "train/data_time": (np.arange(400), wait)}

        answer = examined(log(curves))

        assert shown(answer) == [("slow-data-loading", "warning")]
        assert answer.findings[0].component == "train/data_time"


class TestNames:
    @pytest.mark.parametrize(
        ("tag", "kind", "evaluation", "main"),
        [
            ("Loss/train", "loss", False, True),
            ("train_loss_epoch", "loss", False, True),
            ("lm loss", "loss", False, True),
            ("loss", "loss", False, True),
            ("valLoss", "loss", True, True),
            ("eval/loss", "loss", True, True),
            ("Loss/valid", "loss", True, True),
            ("train/aux_loss", "loss", False, False),
            ("loss_scale", "other", False, False),
            ("lr-AdamW", "rate", False, True),
            ("train/learning_rate", "rate", False, True),
            ("time/total_timesteps", "other", False, False),
            ("iteration-time", "step time", False, True),
            ("train/train_samples_per_second", "throughput", False, True),
            ("perf/tps", "throughput", False, True),
            ("steps", "other", False, False),
            ("Accuracy/train", "other", False, False),
        ],
    )
    def test_are_told(self, tag, kind, evaluation, main):
        found = name(tag, "/runs/1")

        assert (found.kind, found.evaluation, found.main) == (kind, evaluation, main)

    def test_runs_of_folders(self):
        assert run_of("/runs/a/train/") == run_of("/runs/a/validation") == "/runs/a"
        assert run_of("/runs/version_0") == "/runs/version_0"


ODD = (0.0, 1.0, -1.0, np.nan, np.inf, -np.inf, 1e308, -1e308, 1e99, 1e-320)
TAGS = ("loss", "val_loss", "lr", "step_time", "tokens_per_second", "data_time")


@settings(max_examples=300, deadline=None)
@given(
    values=st.lists(st.one_of(st.sampled_from(ODD), st.floats(width=32)), max_size=150),
    steps=st.sampled_from([1, 0, -1, 7]),
    tags=st.lists(st.sampled_from(TAGS), unique=True),
    repeat=st.integers(1, 4),
)
def test_any_values_are_examined(values, steps, tags, repeat):
    values = values * repeat
    curves = {tag: (np.arange(len(values)) * steps, values[i:] + values[:i]) for i, tag in enumerate(tags)}

    answer = examined(log(curves), log(curves, start=10**6))

    assert all(len(f.title) < 400 for f in answer.findings)


def test_real_files_raise_no_warning(data):
    logs = [table for path in sorted(data("tensorboard").iterdir()) for table in Tensorboard().read(path)]

    assert [warnings(examined(one)) for one in logs] == [[], []]
    assert warnings(examined(*logs)) == []
