"""Parameters with gradients that do not change."""

from dataclasses import replace

import numpy as np

from rankscope.analysis.detectors.optimizer_skips_parameters import OptimizerSkipsParameters
from rankscope.analysis.facts import Facts
from rankscope.analysis.tables import column
from rankscope.records.inventory import Group
from rankscope.records.numerics import GradientStat
from rankscope.testing import silent_wiring as made
from rankscope.testing.checks import Named, named
from rankscope.testing.trainings import PARAMETERS, Training, fingerprint


def found(facts):
    return [(named(f), f.first_step) for f in OptimizerSkipsParameters().examine(facts)]


def test_names_the_parameters_and_the_step_from_which_they_stand_still():
    assert found(made.skips(2)) == [
        (
            Named("optimizer-skips-parameters", "critical", (0, 1), True, "optimizer",
                  "AdamW: embed.weight, layers.0.weight", None, None),
            2,
        )
    ]  # fmt: skip


def test_says_so_where_nothing_changes_at_all():
    everything = tuple(p.path for p in PARAMETERS)

    assert [f.title for f in OptimizerSkipsParameters().examine(made.skips(0, everything))] == [
        "AdamW leaves all 7 of 7 parameters unchanged in spite of their gradients (embed.weight, layers.0.weight,"
        " layers.0.bias and 4 more)"
    ]


def test_is_silent_where_the_update_arrives_after_the_optimizers_step():
    def weight(rank, step, p):
        return {"gradient": 1, "update": 0.0, "changed": 0, "fingerprint": fingerprint(p.path, step)}

    assert found(Training(weight=weight).facts()) == []


def test_is_silent_where_rounding_may_take_the_update():
    parameters = tuple(replace(p, dtype="bfloat16") for p in PARAMETERS)
    facts = made.skips(2)
    for stocks in facts.tables.inventories.values():
        assert stocks[0].models[0].parameters[0].dtype == "float32"

    assert found(replaced(facts, parameters)) == []


def replaced(facts, parameters):
    """The same run with other parameters in its inventory."""
    for pid, (stock,) in facts.tables.inventories.items():
        model = replace(stock.models[0], parameters=parameters)
        facts.tables.inventories[pid] = (replace(stock, models=(model,)),)
    return facts


def test_is_silent_about_a_group_without_a_learning_rate():
    facts = made.skips(0, ("layers.0.bias", "norm.weight", "norm.bias", "head.bias"))
    for pid, (stock,) in facts.tables.inventories.items():
        groups = (stock.optimizers[0].groups[0], Group(0.0, 0.0, 4, 0))
        facts.tables.inventories[pid] = (replace(stock, optimizers=(replace(stock.optimizers[0], groups=groups),)),)

    assert found(facts) == []


def test_is_silent_about_zero_gradients_and_single_numbers():
    single = made.skips(0, ("gate",))
    zero = Training(gradient=lambda *_: {"rms": 0.0}, weight=lambda *_: {"gradient": 1, "changed": 0})

    assert [found(single), found(zero.facts())] == [[], []]


def hidden(since):
    """A wrapper takes the gradient of a parameter away before the optimizer steps, and it stands still."""
    facts = made.skips(since, ("embed.weight",))
    rows = facts.tables.rows[GradientStat.code]
    names = np.array([facts.tables.name(int(r["process"]), int(r["name"])) for r in rows])
    seen = (names == "embed.weight") & (rows["step"] >= since) & (column(rows, GradientStat, "moment") == 0)
    tables = replace(facts.tables, rows={**facts.tables.rows, GradientStat.code: rows[~seen]})
    return Facts(tables)


def test_finds_a_gradient_that_is_hidden_from_the_optimizer_but_not_one_that_is_dropped_from_the_start():
    assert [[(f.component, f.first_step) for f in OptimizerSkipsParameters().examine(hidden(s))] for s in (2, 0)] == [
        [("AdamW: embed.weight", 2)],
        [],
    ]
