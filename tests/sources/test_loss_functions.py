"""What goes into losses and embeddings, from real calls."""

import inspect

import pytest
import torch
import torch.nn.functional as F

from rankscope.base.guard import Errors
from rankscope.records.batch_contents import (
    GROWN,
    LOG_PROBABILITIES,
    ONE_FOR_MANY,
    PLAIN,
    PROBABILITIES,
    SAME,
)


def trained(loss, steps=1):
    """A program whose steps each call `loss`, a function of the model's output."""

    def train():
        torch.manual_seed(0)
        model = torch.nn.Linear(4, 3)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
        for _ in range(steps):
            loss(model(torch.randn(6, 4))).backward()
            optimizer.step()

    return train


LABELS = torch.tensor([0, 1, 2, 0, 1, 2])


@pytest.mark.parametrize(
    ("loss", "rows", "after"),
    [
        (lambda out: F.cross_entropy(out, LABELS), PLAIN, 0),
        (lambda out: torch.nn.CrossEntropyLoss()(out.softmax(1), LABELS), PROBABILITIES, 1),
        (lambda out: F.cross_entropy(input=out.log_softmax(1), target=LABELS), LOG_PROBABILITIES, 0),
        (lambda out: F.nll_loss(out.softmax(1).log_softmax(1), LABELS), LOG_PROBABILITIES, 1),
        (lambda out: F.nll_loss(out.log_softmax(1).reshape(2, 3, 3).reshape(6, 3), LABELS), LOG_PROBABILITIES, 0),
        (lambda out: F.kl_div(out.softmax(1), out.detach().softmax(1), reduction="batchmean"), PROBABILITIES, 1),
        (lambda out: F.binary_cross_entropy_with_logits(out.sigmoid()[:, 0], LABELS / 2), PROBABILITIES, 1),
        (lambda out: F.binary_cross_entropy_with_logits(out, out.detach().sigmoid()), PLAIN, 0),
        (lambda out: F.cross_entropy(out.T[None], torch.zeros(1, 6, dtype=torch.int64)), PLAIN, 0),
    ],
)
def test_tells_probabilities_from_logits(watched, loss, rows, after):
    (seen,) = watched(trained(loss)).of("loss_call")

    assert (seen.rows, seen.after_softmax, seen.known, seen.grad, seen.broadcast) == (rows, after, 1, 1, SAME)
    assert "test_loss_functions.py" in seen.name


@pytest.mark.parametrize(
    ("loss", "broadcast", "shape"),
    [
        (lambda out: F.mse_loss(out[:, :1], LABELS.float()), GROWN, "[6, 1] against [6]"),
        (lambda out: ((out[:, :1] - LABELS.float()) ** 2).mean(), GROWN, "[6, 1] against [6]"),
        (lambda out: (LABELS.float()[:, None] - out[:, 0]).abs().mean(), GROWN, "[6] against [6, 1]"),
        (lambda out: F.l1_loss(out[:1], torch.zeros(5, 3)), ONE_FOR_MANY, "[1, 3] against [5, 3]"),
        (lambda out: F.huber_loss(out, torch.zeros(6, 3)), SAME, "[6, 3] against [6, 3]"),
        (lambda out: F.smooth_l1_loss(out, torch.zeros(1, 3)), SAME, "[6, 3] against [1, 3]"),
        (lambda out: F.mse_loss(out[:, None], out.detach()[None]), SAME, "[6, 1, 3] against [1, 6, 3]"),
    ],
)
@pytest.mark.filterwarnings("ignore:Using a target size")
def test_tells_what_is_expanded(watched, loss, broadcast, shape):
    (seen,) = watched(trained(loss)).of("loss_call")

    assert (seen.broadcast, seen.shape) == (broadcast, shape)


@pytest.mark.parametrize(
    "loss",
    [
        lambda out: ((out[:, :1] - LABELS.float()[:, None]) ** 2).mean(),
        lambda out: (out[:, None] - out[None]).square().mean(),
        lambda out: (out[:, 0].unsqueeze(1) - LABELS.float()).square().mean(),
        lambda out: (out[:, :1] - out[:, 0]).square().mean(),
        lambda out: (out - LABELS.float()[:, None]).square().mean(),
    ],
)
def test_says_nothing_of_losses_of_the_programs_own_that_are_as_they_should(watched, loss):
    assert watched(trained(loss)).of("loss_call") == []


def test_looks_on_sampled_steps_only(watched):
    seen = watched(trained(lambda out: F.cross_entropy(out, LABELS), steps=10)).of("loss_call")

    assert [s.step for s in seen] == [0, 1, 2, 3, 4, 8]


def test_an_index_beyond_its_table_is_noted_with_table_and_place(watched):
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = torch.nn.Embedding(10, 4)

        def forward(self, ids):
            return self.embed(ids)

    def train():
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
        for step in range(6):
            ids = torch.zeros(4, 5, dtype=torch.int64)
            if step == 5:
                ids[2, 3] = 10
                ids[3, 0] = -1
                with pytest.raises(IndexError):
                    model(ids)
            else:
                model(ids).sum().backward()
                optimizer.step()

    (seen,) = watched(train).of("index_failure")

    assert (seen.step, seen.function, seen.table, seen.value, seen.size, seen.wrong, seen.sample) == (
        5, "embedding", "Net.embed.weight", 10, 10, 2, 2
    )  # fmt: skip


def test_a_label_beyond_the_classes_is_noted_but_not_one_that_is_ignored(watched):
    labels = torch.tensor([0, -100, 1, 3, 2, -1])

    def train():
        torch.nn.Linear(1, 1)(torch.ones(1, 1))
        with pytest.raises(IndexError):
            F.cross_entropy(torch.zeros(6, 3), labels)
        with pytest.raises(IndexError):
            F.nll_loss(torch.zeros(6, 4), labels)
        F.cross_entropy(torch.zeros(6, 4), labels.clamp(min=-1), None, None, -1)

    seen = watched(train).of("index_failure")

    assert [(s.function, s.value, s.size, s.wrong, s.sample) for s in seen] == [
        ("cross_entropy", 3, 3, 2, 3), ("nll_loss", -1, 4, 1, 5),
    ]  # fmt: skip


def test_shapes_of_a_loss_that_raises_are_noted(watched):
    def train():
        torch.nn.Linear(1, 1)(torch.ones(1, 1))
        with pytest.raises(ValueError, match="batch_size"):
            F.cross_entropy(torch.zeros(1, 3), LABELS)

    (seen,) = [s for s in watched(train).of("loss_call") if s.raised]

    assert (seen.function, seen.shape, seen.raised) == ("cross_entropy", "[1, 3] against [6]", 1)


class Reader(torch.nn.Module):
    """Reads tokens, one logit for each of them."""

    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(50, 8)
        self.rnn = torch.nn.GRU(8, 8, batch_first=True)
        self.head = torch.nn.Linear(8, 50)

    def forward(self, ids):
        return self.head(self.rnn(self.embed(ids))[0])


def lag(watched, targets):
    def train():
        torch.manual_seed(0)
        model = Reader()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
        text = torch.randint(0, 50, (4, 24))
        logits = model(text[:, :20])
        targets(logits, text).backward()
        optimizer.step()

    (seen,) = watched(train).of("token_lag")
    shares = [seen.before, seen.same, seen.next, seen.second, seen.third]
    assert sorted(shares)[-2] < 40 or max(shares) < 40
    return shares.index(255) - 1 if 255 in shares else None, seen.compared > 0, seen.causal


@pytest.mark.parametrize(
    ("targets", "expected"),
    [
        (lambda out, text: F.cross_entropy(out.transpose(1, 2), text[:, 1:21]), (1, True, 1)),
        (lambda out, text: F.cross_entropy(out.reshape(-1, 50), text[:, 2:22].reshape(-1)), (2, True, 1)),
        (lambda out, text: F.cross_entropy(out[:, :-1].reshape(-1, 50), text[:, 2:21].reshape(-1)), (2, True, 1)),
        (lambda out, text: F.cross_entropy(out.reshape(-1, 50), text[:, :20].reshape(-1)), (0, True, 1)),
        (lambda out, text: F.cross_entropy(out[:, 0], text[:, 0]), (None, False, 0)),
    ],
)
def test_tells_where_targets_stand_in_the_tokens(watched, targets, expected):
    assert lag(watched, targets) == expected


def test_targets_that_are_ignored_do_not_count(watched):
    def targets(out, text):
        labels = text[:, 1:21].clone()
        labels[:, ::2] = -100
        return F.cross_entropy(out.reshape(-1, 50), labels.reshape(-1))

    assert lag(watched, targets) == (1, True, 1)


def test_causal_attention_is_seen_in_the_graph():
    from rankscope.capture.loss_graph import causal_attention

    q = torch.randn(1, 2, 5, 8, requires_grad=True)
    causal = F.scaled_dot_product_attention(q, q, q, is_causal=True).sum(-1)
    full = F.scaled_dot_product_attention(q, q, q).sum(-1)

    assert (causal_attention(causal), causal_attention(full)) == (True, False)


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_the_functions_are_put_back_and_can_be_scripted_traced_and_mapped(watched):
    before = F.cross_entropy, F.embedding

    def train():
        model = torch.nn.Sequential(torch.nn.Embedding(5, 3), torch.nn.Linear(3, 3))
        scripted = torch.jit.script(model)
        ids = torch.tensor([1, 2])
        assert torch.equal(scripted(ids), model(ids))
        assert inspect.signature(F.cross_entropy) == inspect.signature(before[0])
        traced = torch.fx.symbolic_trace(model)
        assert torch.equal(traced(ids), model(ids))
        assert torch.equal(
            torch.func.vmap(lambda x: F.mse_loss(x, torch.zeros(3)))(torch.ones(2, 3)), torch.ones(2)
        )

    watched(train)

    assert (F.cross_entropy, F.embedding) == before


def test_compiled_losses_are_compiled_once_whether_a_step_is_sampled_or_not(watched):
    def train():
        model = torch.nn.Linear(4, 3)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
        graphs = []

        def backend(graph, inputs):
            graphs.append(graph)
            return graph.forward

        loss = torch.compile(lambda x: F.cross_entropy(model(x), LABELS), backend=backend)
        for _ in range(6):
            loss(torch.ones(6, 4)).backward()
            optimizer.step()
        assert len(graphs) == 1

    assert [row.swallowed for row in watched(train).of("goodbye")] == [Errors.count]
