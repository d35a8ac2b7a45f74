"""What a logged scalar is, from its tag and the folder of its run."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

_WORDS: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_LOSS: Final = _words("loss losses nll crossentropy")
"""Perplexities are no losses here: their logarithm is, and its noise is another one."""
_EVALUATION: Final = _words("val valid validation eval evaluation test dev heldout holdout")
_TRAINING: Final = _words("train training trn")
_FILLERS: Final = _words(
    "cross entropy ce lm mlm total avg average mean running smoothed global step steps epoch batch iter iteration "
    "iterations per every vs samples tokens main reduced model current 0 1 by"
)
"""Words beside which a loss is the one that the whole model is trained on."""
_GAMES: Final = _words(
    "reward rewards return returns episode episodes rollout policy actor critic advantage advantages rlhf ppo dpo grpo "
    "rew td qf vf pg sac dqn a2c"
)
_PLAYERS: Final = _words("gan generator discriminator disc adversarial adv netg netd dloss gloss wasserstein")
_PAIRS: Final = (("loss_g", "loss_d"), ("g_loss", "d_loss"), ("loss_gen", "loss_disc"))
_NOT_LOSSES: Final = _words("scale scaler weight weights coef coefficient lr rate count grad norm time dropout")
_RATE: Final = re.compile(r"(^|[/_ ])(lr|learning_?rate)([/_ -]|$|\d)", re.IGNORECASE)
_PER_SECOND: Final = re.compile(
    r"(per|/|_p)[ _]?(s|sec|second)s?($|[/_ ])|^(.*[/_ ])?(fps|throughput|tps|tflops|mfu|hfu)($|[/_ ])|it/s",
    re.IGNORECASE,
)
_STEP_TIME: Final = re.compile(
    r"(step|iter|iteration|batch)[-_ /]?(time|duration|latency)"
    r"|(time|sec|seconds|ms)[-_ /]?per[-_ /]?(step|iter|iteration|batch)"
    r"|^(.*/)?(step|iteration)_(ms|s|sec)$",
    re.IGNORECASE,
)
_DATA_TIME: Final = re.compile(
    r"(data|load|loader|dataloader|fetch)[a-z]*[-_ /]?(time|wait|ms|sec)|time[-_ /]data", re.IGNORECASE
)
_TOTALS: Final = re.compile(r"total|elapsed|cumul|max|peak|count", re.IGNORECASE)

LOSS, RATE, THROUGHPUT, STEP_TIME, DATA_TIME, OTHER = "loss", "rate", "throughput", "step time", "data time", "other"


@dataclass(frozen=True, slots=True)
class Name:
    kind: str
    evaluation: bool
    """Of data that the model is not trained on."""
    main: bool
    """The loss that the whole model is trained on, rather than a part of it."""


def name(tag: str, run: str) -> Name:
    """What stands behind a tag."""
    words = [word.lower() for word in _WORDS.findall(tag)]
    folder = {word.lower() for word in _WORDS.findall(run.rsplit("/", 1)[-1])}
    known = set(words)
    evaluation = bool(known & _EVALUATION) or (bool(folder & _EVALUATION) and not known & _TRAINING)
    if known & _LOSS and not known & _NOT_LOSSES:
        rest = known - _FILLERS - _EVALUATION - _TRAINING - _LOSS
        return Name(LOSS, evaluation, not rest)
    if _RATE.search(tag):
        return Name(RATE, False, True)
    if evaluation or _TOTALS.search(tag):
        return Name(OTHER, evaluation, False)
    for pattern, kind in ((_DATA_TIME, DATA_TIME), (_STEP_TIME, STEP_TIME), (_PER_SECOND, THROUGHPUT)):
        if pattern.search(tag):
            return Name(kind, False, True)
    return Name(OTHER, evaluation, False)


def not_made_to_fall(tags: tuple[str, ...]) -> str | None:
    """Why the losses of such a run need not fall even if all is well; None where they should."""
    words = {word.lower() for tag in tags for word in _WORDS.findall(tag)}
    if words & _GAMES:
        return f"{min(words & _GAMES)!r} among its tags: the model makes its own data, and its losses need not fall"
    letters = {(tag.lower().replace("/", "_").strip("_")) for tag in tags}
    pair = any(a in letters and b in letters for a, b in _PAIRS)
    if words & _PLAYERS or pair:
        return "two models are trained against each other: neither loss need fall"
    return None


def run_of(folder: str) -> str:
    """The run that a folder belongs to: `train` and `validation` beside each other are one."""
    parent, _, own = folder.rstrip("/").rpartition("/")
    words = {word.lower() for word in _WORDS.findall(own)}
    return parent if parent and words & (_EVALUATION | _TRAINING) else folder.rstrip("/")
