"""What TensorBoard event files say: losses that jump, rise, stand still or are no numbers; runs that become slower."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from rankscope.analysis.imported.examiner import Answer, Digest, Examiner
from rankscope.analysis.imported.scalars.curves import Curve, joined
from rankscope.analysis.imported.scalars.digest import Loss, ScalarDigest, digest
from rankscope.analysis.imported.scalars.losses import FEWEST, Jump, NotFinite, flat, rise
from rankscope.analysis.imported.scalars.names import run_of
from rankscope.analysis.imported.scalars.overfit import overfit
from rankscope.analysis.imported.scalars.speed import Drop
from rankscope.base.finding import Cost, Evidence, Finding, Severity
from rankscope.records.imported.scalar_log import ScalarLog
from rankscope.records.imported.table import Table

SPIKE_NEXT: Final = (
    "look at the batch of this step, at the gradient norm and the learning rate",
    "clip gradients; go on from a checkpoint before it and leave the batch out",
)
SYMPTOM: Final = "an event file shows the symptom only: run the job under `rankscope run` for the cause"


@dataclass(frozen=True, slots=True)
class _Run:
    """All files of one run."""

    name: str
    files: list[ScalarDigest]

    def losses(self, evaluation: bool) -> dict[str, list[Loss]]:
        """By tag, in order of time; a loss of the whole model where there is one, else the only one."""
        found: dict[str, list[Loss]] = defaultdict(list)
        for file in self.files:
            for loss in file.losses:
                if loss.name.evaluation == evaluation and len(loss.curve.values):
                    found[loss.tag].append(loss)
        main = {tag: parts for tag, parts in found.items() if parts[0].name.main}
        return main or (found if len(found) == 1 else {})

    @property
    def rate(self) -> Curve | None:
        parts = [file.rate for file in self.files if file.rate is not None and len(file.rate.steps)]
        return joined(parts) if parts else None

    @property
    def why_not(self) -> str | None:
        return next((file.why_not for file in self.files if file.why_not is not None), None)

    @property
    def ranks(self) -> tuple[int, ...]:
        return tuple(sorted({file.rank for file in self.files if file.rank is not None}))


class ScalarLogs(Examiner):
    reads = ScalarLog

    def digest(self, table: Table) -> Digest:
        assert isinstance(table, ScalarLog)
        return digest(table)

    def examine(self, digests: Sequence[Digest], world_size: int | None) -> Answer:
        by_run: dict[str, list[ScalarDigest]] = defaultdict(list)
        for d in digests:
            if isinstance(d, ScalarDigest):
                by_run[run_of(d.run)].append(d)
        runs = [_Run(name, sorted(files, key=lambda f: (f.first_ns, f.file))) for name, files in sorted(by_run.items())]
        several = len(runs) > 1
        findings = [finding for run in runs for finding in _findings(run, several)]
        findings.sort(key=lambda f: (("critical", "warning", "info").index(f.severity), -f.confidence))
        not_examined = [one for run in runs for one in _not_examined(run)]
        return Answer(
            findings=tuple(findings),
            examined=any(run.why_not is None and run.losses(False) for run in runs),
            not_examined=tuple(dict.fromkeys(not_examined)),
        )


def _findings(run: _Run, several: bool) -> Iterator[Finding]:
    where = f" (run {run.name.rsplit('/', 1)[-1]})" if several else ""
    broken = _not_finite(run)
    if broken is not None:
        yield _no_number(run, *broken, where)
    if run.why_not is None:
        yield from _of_training(run, where, broken is not None)
    for file in run.files:
        slow = max(file.drops, key=lambda d: (d.of_data is not None, d.ratio), default=None)
        if slow is not None:
            yield _slower(run, slow, where)
            break


def _of_training(run: _Run, where: str, broken: bool) -> Iterator[Finding]:
    train = sorted(run.losses(False).values(), key=lambda parts: -sum(p.points for p in parts))
    if not train:
        return
    parts = train[0]
    curve, rate = joined([p.curve for p in parts]), run.rate
    gone = rise(curve, rate)
    spikes = [jump for part in parts for jump in part.jumps]
    if gone is not None and not broken:
        step = next((j.step for j in spikes if not j.back), gone.step)
        yield _symptom(
            run, "loss-spike", "warning", 0.85, curve.tag, step, int(curve.steps[-1]),
            f"{curve.tag} goes up for good: {gone.lowest:.4g} around step {gone.step}, "
            f"{gone.end:.4g} at the end{where}",
            (
                Evidence(f"lowest level of {curve.tag}", gone.lowest, ""),
                Evidence("level of the last tenth", gone.end, ""),
                Evidence("level of the first tenth", gone.early, ""),
                Evidence("noise from point to point", gone.noise, ""),
            ),
            ("go on from a checkpoint before the rise, with a lower learning rate or clipped gradients", SYMPTOM),
        )  # fmt: skip
    elif spikes:
        yield _spikes(run, curve.tag, spikes, int(curve.steps[-1]), where)
    still = flat(curve, rate, parts[0].start) if gone is None and not broken else None
    if still is not None:
        yield _symptom(
            run, "loss-not-decreasing", "warning", 0.7, curve.tag, int(curve.steps[0]), still.last_step,
            f"{curve.tag} stays where it began: {still.first:.4g} at first, {still.end:.4g} over the last third of "
            f"{int(curve.steps[-1] - curve.steps[0]):,} steps{where}",
            (
                Evidence("level of the first points", still.first, ""),
                Evidence("median of the last third", still.end, ""),
                Evidence("noise from point to point", still.noise, ""),
            ),
            ("train on one batch until it is known by heart: if that fails, labels, loss or model are wrong", SYMPTOM),
        )  # fmt: skip
    for other in run.losses(True).values():
        found = overfit(joined([p.curve for p in other]), curve)
        if found is not None:
            yield _symptom(
                run, "overfitting", "warning" if found.clear else "info", 0.8, found.tag, found.best_step,
                found.last_step,
                f"{found.tag} is best at step {found.best_step} ({found.lowest:.4g}) and {found.end:.4g} at the end, "
                f"while {found.train_tag} falls from {found.train_at_best:.4g} to {found.train_at_end:.4g}{where}",
                (
                    Evidence(f"lowest level of {found.tag}", found.lowest, ""),
                    Evidence(f"level of {found.tag} at the end", found.end, ""),
                    Evidence("its noise from point to point", found.noise, ""),
                    Evidence(f"{found.train_tag} at the best evaluation", found.train_at_best, ""),
                    Evidence(f"{found.train_tag} at the end", found.train_at_end, ""),
                ),
                ("keep the checkpoint of the best evaluation and stop early",
                 "more data or augmentation, weight decay, dropout, a smaller model"),
            )  # fmt: skip
            return


def _not_finite(run: _Run) -> tuple[str, NotFinite] | None:
    """(tag, where) of the loss that was the first to stop being a number, and did not come back in a later file."""
    found = []
    for i, file in enumerate(run.files):
        for loss in file.losses:
            after = [other for later in run.files[i + 1 :] for other in later.losses]
            later = any(other.tag == loss.tag and len(other.curve.values) for other in after)
            if loss.not_finite is not None and not later:
                found.append((loss.tag, loss.not_finite))
    return min(found, key=lambda one: one[1].step, default=None)


def _no_number(run: _Run, tag: str, bad: NotFinite, where: str) -> Finding:
    from_start = bad.last_finite is None
    return _symptom(
        run, "loss-spike", "critical", 0.95, tag, bad.step, None,
        f"{tag} is {bad.what} from step {bad.step} on{', its first,' if from_start else ''} and stays so ({bad.count} "
        f"points){where}",
        (
            Evidence(f"points of {tag} that are no numbers, up to the last one", bad.count, "count"),
            *((Evidence("last value before", bad.last_finite, ""),) if bad.last_finite is not None else ()),
        ),
        ("go on from a checkpoint before this step; nothing after it is worth keeping",
         "run it again under `rankscope run`: it names the batch or the operation that gives the first such value"),
    )  # fmt: skip


def _spikes(run: _Run, tag: str, spikes: list[Jump], last_step: int, where: str) -> Finding:
    stays = [s for s in spikes if not s.back]
    worst = stays[0] if stays else max(spikes, key=lambda s: s.value / s.level)
    severe = bool(stays) or any(s.severe or s.lasted >= BAD_STRETCH for s in spikes)
    more = f" (and {len(spikes) - 1} more times)" if len(spikes) > 1 else ""
    after = f"came back within {worst.lasted} points" if worst.back else "did not come back"
    severity: Severity = "warning" if severe else "info"
    return _symptom(
        run, "loss-spike", severity, 0.8, tag, spikes[0].step, last_step if stays else spikes[-1].step,
        f"{tag} jumps from {worst.level:.4g} to {worst.value:.4g} at step {worst.step}{more} and {after}{where}",
        (
            Evidence("loss at the spike", worst.value, ""),
            Evidence("median of the points before", worst.level, ""),
            Evidence("standard deviation of the loss around it", worst.noise, ""),
            Evidence("spikes", len(spikes), "count"),
        ),
        (*SPIKE_NEXT, SYMPTOM),
    )  # fmt: skip


BAD_STRETCH: Final = 20
"""Points for which a jump that came back is still more than a remark."""


def _slower(run: _Run, slow: Drop, where: str) -> Finding:
    by_data = slow.of_data is not None
    reason = f"; {slow.of_data} takes most of it" if by_data else "; what takes the time cannot be told from this file"
    return Finding(
        cause="slow-data-loading" if by_data else "slow-code",
        severity="warning" if by_data else "info",
        confidence=0.7 if by_data else 0.3,
        title=f"{slow.tag} goes from {slow.before:.4g} to {slow.after:.4g} at step {slow.step}: {slow.ratio:.1f} times "
        f"slower from there on{reason}{where}",
        ranks=run.ranks,
        all_ranks=not run.ranks,
        phase="data" if by_data else None,
        component=slow.of_data or slow.tag,
        location=None,
        first_step=slow.step,
        last_step=None,
        cost=Cost(None, 1 - 1 / slow.ratio, None),
        evidence=(
            Evidence(f"{slow.tag} before step {slow.step}", slow.before, ""),
            Evidence(f"{slow.tag} after it", slow.after, ""),
            Evidence("slower", slow.ratio, "x"),
            Evidence("noise around the two levels", slow.noise, ""),
        ),
        next=(
            "look at what changed at this step: data, lengths, evaluation, a neighbour on the machine, a slow rank",
            "take a profile of a slow step on all ranks, or run the job under `rankscope run`",
        ),
    )


def _symptom(  # noqa: PLR0917  the few fields in which the symptoms differ, in the order of Finding's
    run: _Run, cause: str, severity: Severity, confidence: float, tag: str, first: int, last: int | None, title: str,
    evidence: tuple[Evidence, ...], what_next: tuple[str, ...],
) -> Finding:  # fmt: skip
    return Finding(
        cause=cause,
        severity=severity,
        confidence=confidence,
        title=title,
        ranks=run.ranks,
        all_ranks=True,
        phase=None,
        component=tag,
        location=None,
        first_step=first,
        last_step=last,
        cost=Cost(None, None, None),
        evidence=evidence,
        next=what_next,
    )


def _not_examined(run: _Run) -> Iterator[tuple[str, str, str]]:
    name = run.name.rsplit("/", 1)[-1]
    if run.why_not is not None:
        yield "loss-not-decreasing", "a loss that should fall", f"{name}: {run.why_not}"
        return
    train = run.losses(False)
    if not train:
        yield "loss-spike", "a loss of the training (a tag such as train/loss)", f"{name}: has none that stands for it"
    elif max(sum(p.points for p in parts) for parts in train.values()) < FEWEST:
        yield "loss-spike", f"{FEWEST} points of a loss", f"{name}: has fewer"
    if train and not run.losses(True):
        yield "overfitting", "an evaluation loss (a tag such as val/loss)", f"{name}: has none"
    damaged = sum(file.damaged for file in run.files)
    if damaged:
        yield "loss-spike", "undamaged records", f"{name}: {damaged} records have a wrong check sum and were left out"
