"""Fetches the shards of a corpus and turns them into token numbers."""

from __future__ import annotations

import random
import time

import torch

FETCH_SECONDS = 0.3
WORDS_IN_SHARD = 40_000
VOCABULARY = 512


def fetch(shard: int) -> list[str]:
    time.sleep(FETCH_SECONDS)  # the bucket's answer
    rng = random.Random(shard)
    return ["".join(rng.choices("etaoinshrdlu", k=5)) for _ in range(WORDS_IN_SHARD)]


def tokenise(words: list[str]) -> torch.Tensor:
    numbers = []
    for word in words:
        number = 0
        for letter in word:
            number = (number * 31 + ord(letter)) % VOCABULARY
        numbers.append(number)
    return torch.tensor(numbers)


def prepare(shards: int) -> torch.Tensor:
    return torch.cat([tokenise(fetch(shard)) for shard in range(shards)])
