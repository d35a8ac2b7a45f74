"""A judge model's answers to generated texts, one line each."""

from __future__ import annotations

import random


class Judge:
    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)

    def answer(self, text: list[int]) -> str:
        if self.rng.random() < 0.0005:
            return "I cannot rate this text."
        return f"score: {len(set(text)) / len(text):.3f}"


def read_score(answer: str) -> float:
    label, _, value = answer.partition(":")
    if label != "score":
        raise ValueError(f"no score in {answer!r}")
    return float(value)
