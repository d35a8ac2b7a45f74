"""Finds targets that are shifted against the tokens in another way than by one place."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from rankscope.analysis import wording
from rankscope.analysis.detector import CannotExamine, Detector
from rankscope.analysis.facts import Facts
from rankscope.analysis.stacks import Place
from rankscope.analysis.tables import column
from rankscope.base.finding import Cost, Evidence, Finding
from rankscope.records.batch_contents import TokenLag

LAGS = {"before": -1, "same": 0, "next": 1, "second": 2, "third": 3}
"""Field -> where the target stands from the token."""
RIGHT = 0.9
"""Share of targets equal to the next token from which a loss is one of a language model as it should be."""
WRONG = 0.95
"""Share of targets that stand at another place, of a loss that is shifted wrongly; the rest is cut or masked."""
APART = 0.2
"""By which it exceeds the share at any other place: in periodic text several places have the same tokens."""
WORDS = {
    "second": ("shifted twice against the tokens: the model learns the token after the next one", 0.95),
    "third": ("shifted three times against the tokens: the model learns a token two places too far", 0.95),
    "same": ("not shifted against the tokens: the model may copy what it sees", 0.8),
    "before": ("shifted the wrong way: they are the tokens before", 0.8),
}
"""Field -> what is wrong, and how sure."""


@dataclass(frozen=True, slots=True)
class _Line:
    """The calls of one loss in one line."""

    function: str
    place: Place | None
    positions: tuple[int, ...]
    first: int
    last: int
    calls: int
    compared: int
    causal: bool
    shares: dict[str, float]
    """Median over the calls."""


class LabelMisalignment(Detector):
    """Targets of a language model are shifted against its input in another way than by one token.

    ## What it is
    A model that reads tokens up to a place is trained on the next one. Where the data are shifted and the model's loss
    shifts again, it is trained on the one after that; where nobody shifts, it is trained to repeat its input.

    ## What shows it
    Targets are compared with the tokens that went into the embedding: nearly all of them equal the token two places
    on (or at the same place, in a model that looks at no later token), and few the next one.

    ## What else looks like it
    Masked language models and autoencoders have targets at the same place, and look at all tokens. Heads for several
    future tokens have the next one among them. In periodic text several places fit: nothing is said.

    ## What to do
    Shift once: either in the data set, or in the model (the causal models of `transformers` shift by themselves).
    """

    name = "label-misalignment"
    needs = (TokenLag,)
    any_length = True

    def examine(self, facts: Facts) -> Iterator[Finding]:
        lines = list(_lines(facts))
        if not lines:
            raise CannotExamine("no targets that could be compared with input tokens")
        if any(line.shares["next"] >= RIGHT for line in lines):
            return  # heads for later tokens beside that for the next one
        for line in lines:
            place, share = max(line.shares.items(), key=lambda one: one[1])
            others = max(value for key, value in line.shares.items() if key != place)
            if place == "next" or share < WRONG or share - others < APART:
                continue
            if LAGS[place] <= 0 and not line.causal:
                continue
            yield self._finding(facts, line, place)

    def _finding(self, facts: Facts, line: _Line, place: str) -> Finding:
        words, confidence = WORDS[place]
        return Finding(
            cause=self.name,
            severity="critical",
            confidence=confidence,
            title=f"targets of {line.function} are {words}{wording.at(line.place)}",
            ranks=facts.numbers(line.positions),
            all_ranks=len(line.positions) == facts.size,
            phase="forward",
            component=line.function,
            location=wording.location(line.place),
            first_step=line.first,
            last_step=line.last,
            cost=Cost(None, None, None),
            evidence=(
                *(
                    Evidence(f"targets equal to the token {LAGS[key]:+d} places on", share, "share")
                    for key, share in line.shares.items()
                ),
                Evidence("targets compared", float(line.compared), "count"),
                Evidence("calls of the loss looked at", float(line.calls), "count"),
            ),
            next=(
                "shift targets once: in the data set, or in the model's loss, not in both and not in none",
                "print one row of the tokens and of the targets as they come to the loss",
            ),
        )


def _lines(facts: Facts) -> Iterator[_Line]:
    found: dict[tuple[str, Place | None], list[tuple[int, int, int, bool, dict[str, int]]]] = defaultdict(list)
    for position in range(facts.size):
        rows = facts.rows(TokenLag, position, window=False)
        rows = rows[column(rows, TokenLag, "compared") > 0]
        fields = ("function", "compared", "causal", *LAGS)
        values = {field: column(rows, TokenLag, field).tolist() for field in fields}
        names = facts.tables.names.get(facts.ranks[position].pid, {})
        for i, name in enumerate(rows["name"].tolist()):
            key = names.get(values["function"][i], ""), facts.place(position, int(name))
            shares = {field: values[field][i] for field in LAGS}
            step, compared = int(rows["step"][i]), values["compared"][i]
            found[key].append((position, step, compared, bool(values["causal"][i]), shares))
    for (function, place), calls in found.items():
        steps = [call[1] for call in calls]
        yield _Line(
            function, place, tuple(sorted({call[0] for call in calls})), min(steps), max(steps), len(calls),
            sum(call[2] for call in calls), any(call[3] for call in calls),
            {field: float(np.median([call[4][field] for call in calls])) / 255 for field in LAGS},
        )  # fmt: skip
