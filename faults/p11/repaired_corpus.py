"""Documents of very different length, and the order in which ranks take batches of them."""

from __future__ import annotations

import torch

VOCABULARY = 256


class Corpus:
    """`batches` batches of `size` documents; each is padded to its longest document."""

    def __init__(self, batches: int, size: int) -> None:
        generator = torch.Generator().manual_seed(21)
        tail = torch.rand(batches, size, generator=generator).pow(-0.55)
        self.lengths = (28 * tail).clamp(16, 320).long()
        self.generator = generator

    def batch(self, number: int) -> torch.Tensor:
        """Token ids [size, longest], 0 is padding."""
        lengths = self.lengths[number]
        tokens = torch.randint(1, VOCABULARY, (len(lengths), int(lengths.max())), generator=self.generator)
        position = torch.arange(tokens.shape[1])
        return tokens.masked_fill(position[None] >= lengths[:, None], 0)

    def order(self, rank: int, world: int) -> list[int]:
        """The batch numbers of a rank, one a step; in a step all ranks take batches of about the same length."""
        by_length = torch.argsort(self.lengths.max(1).values).view(-1, world)
        steps = torch.randperm(len(by_length), generator=torch.Generator().manual_seed(22))
        return by_length[steps, rank].tolist()
