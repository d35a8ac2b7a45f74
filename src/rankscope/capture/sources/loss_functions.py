"""What goes into loss functions and embedding tables: on sampled steps, and where such a call raises."""

from __future__ import annotations

from collections import deque
from functools import wraps
from threading import get_ident
from time import monotonic_ns
from typing import TYPE_CHECKING, Any, Final

from rankscope.base.guard import swallow
from rankscope.capture.inventory import clean
from rankscope.capture.loss_graph import broadcast_of, causal_attention, grown_difference, probabilities_given
from rankscope.capture.patches import Patches
from rankscope.capture.sampling import Schedule
from rankscope.capture.source import Source
from rankscope.capture.tensors.causality import is_causal
from rankscope.capture.tensors.loss_values import INDEXED, LOSSES, argument, classes_of, out_of_range, rows_kind
from rankscope.capture.tensors.tensor_samples import observable
from rankscope.capture.tensors.tensor_values import few, plain, values_of
from rankscope.capture.tensors.token_lags import Tokens, lags_of, tokens_of
from rankscope.records.batch_contents import GROWN, UNKNOWN, IndexFailure, LossCall, TokenLag
from rankscope.records.numerics import Sampling
from rankscope.records.record import two_floats

if TYPE_CHECKING:
    from rankscope.capture.agent import Agent

MOST_CALLS: Final = 8
"""Of loss functions in one sampled step that are looked at."""
MOST_FAILURES: Final = 20
"""Calls that raised of one process: a program may catch them and go on."""
KEPT_TOKENS: Final = 4
DEFAULT_IGNORED: Final = -100
"""torch's `ignore_index` where none is given."""
OWN_LOSS: Final = "a loss of the program's own"


class LossFunctions(Source):
    """Stand-ins for loss functions and `embedding` in `torch.nn.functional`, which torch's modules call too.

    Compiled code never sees them: while dynamo traces, the original is called at once; `torch.jit.script` is given it.
    """

    name = "loss-functions"
    emits = (LossCall, TokenLag, IndexFailure)
    stage = "numerics"

    def install(self, agent: Agent) -> None:
        from torch.nn import functional

        self._agent = agent
        self._patches = Patches()
        self._failures = 0
        self._causal: dict[int, bool] = {}
        """By model, and by line: whether no later token is looked at."""
        self._causal_sites: dict[int, bool] = {}
        self._schedule = Schedule(agent.config.budget / 2)  # two sources look at contents
        self._begin(-1)
        self._looked_at = (0, 0)
        self._usual_ns = 0.0
        for name in LOSSES:
            original = getattr(functional, name, None)
            if original is not None:
                self._patches.replace(functional, name, self._watched(name, original, self._loss))
        self._patches.replace(
            functional, "embedding", self._watched("embedding", functional.embedding, self._embedding)
        )
        agent.on_forward.append(self._forward)
        agent.before_backward.append(self._before_backward)

    def remove(self) -> None:
        self._patches.undo()
        self._agent.on_forward.remove(self._forward)
        self._agent.before_backward.remove(self._before_backward)

    def _begin(self, step: int) -> None:
        self._step = step
        self._calls = self._cost_ns = 0
        self._tokens: deque[Tokens] = deque(maxlen=KEPT_TOKENS)

    def _watched(self, name: str, original: Any, look: Any) -> Any:
        import torch

        agent, raised = self._agent, self._raised
        is_dynamo_compiling = torch.compiler.is_dynamo_compiling

        @wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            # The first test is a constant for dynamo, which therefore never sees what follows.
            if is_dynamo_compiling():
                return original(*args, **kwargs)
            if agent.sampled:
                look(name, args, kwargs)
            try:
                return original(*args, **kwargs)
            except (IndexError, ValueError, RuntimeError) as error:
                raised(name, args, kwargs, isinstance(error, IndexError))
                raise

        # What torch.jit.script compiles, also where another source has a stand-in of its own below ours.
        torchs = getattr(original, "__prepare_scriptable__", lambda: original)
        call.__prepare_scriptable__ = torchs  # type: ignore[attr-defined]
        return call

    # -- how much ----------------------------------------------------------------------------------------------

    def _looking(self) -> bool:
        agent = self._agent
        if agent.thread != get_ident() or agent.ended or agent.ring is None or not observable():
            return False
        if agent.step != self._step:
            self._next_step()
        return self._schedule.sampled(agent.step)

    def _next_step(self) -> None:
        """Another step than at the look before: write what the looks of that one took, and space them by it."""
        agent, cost = self._agent, self._cost_ns
        if cost:
            agent.put(monotonic_ns() - cost, cost, Sampling.code, 0, max(0, self._step), self._calls, 0, 0)
            step, at = self._looked_at
            self._looked_at = agent.step, agent.last_step_end
            if at and agent.step > step:
                usual = max(1.0, (agent.last_step_end - at) / (agent.step - step))
                self._usual_ns = min(self._usual_ns or usual, usual)
                self._schedule.account(cost, self._usual_ns)
        self._begin(agent.step)

    # -- tokens ------------------------------------------------------------------------------------------------

    def _embedding(self, name: str, args: Any, kwargs: Any) -> None:
        self._keep_tokens((argument(args, kwargs, 0, "input"),))

    def _forward(self, module: Any, model: int, args: Any, kwargs: Any, output: Any) -> None:
        self._keep_tokens((*args, *kwargs.values()))

    def _keep_tokens(self, values: Any) -> None:
        try:
            for value in values:
                tensor = plain(value) if self._looking() else None
                found = tokens_of(tensor) if tensor is not None else None
                if found is not None:
                    self._tokens.append(found)
        except Exception as error:  # noqa: BLE001
            swallow("looking at tokens", error)

    # -- losses ------------------------------------------------------------------------------------------------

    def _loss(self, function: str, args: Any, kwargs: Any) -> None:
        if not self._looking() or self._calls >= MOST_CALLS:
            return
        begin = monotonic_ns()
        try:
            self._calls += 1
            self._write(function, args, kwargs, begin)
        except Exception as error:  # noqa: BLE001
            swallow("looking at a loss", error)
        self._cost_ns += monotonic_ns() - begin

    def _write(self, function: str, args: Any, kwargs: Any, at: int) -> None:
        import torch

        agent, expected = self._agent, LOSSES[function]
        prediction = argument(args, kwargs, 0, expected.prediction)
        target = argument(args, kwargs, 1, expected.target)
        if type(prediction) is not torch.Tensor or type(target) is not torch.Tensor:
            return
        shapes = tuple(prediction.shape), tuple(target.shape)
        given = prediction.grad_fn is not None
        met = broadcast_of(*shapes, computed=given) if expected.pairs else 0
        here, there = plain(prediction), plain(target)
        sizes = two_floats(float("nan"), float("nan"))
        inputs = targets = sizes
        rows = UNKNOWN
        if here is not None and there is not None:
            one, other = values_of(here), values_of(there)
            inputs, targets = two_floats(one.least, one.most), two_floats(other.least, other.most)
            rows = rows_kind(function, here)
        classes = min(classes_of(prediction), (1 << 20) - 1) if expected.classes else 0
        indices = function in INDEXED and not target.is_floating_point()
        after = given and probabilities_given(prediction)
        site, called = agent.site(), agent.name(function)
        flags = (
            called | agent.name(f"{list(shapes[0])} against {list(shapes[1])}") << 16 | classes << 32 | rows << 52
            | bool(prediction.requires_grad) << 54 | after << 55 | indices << 56
            | (here is not None and there is not None) << 57 | met << 58
        )  # fmt: skip
        agent.put(at, 0, LossCall.code, site, agent.step, inputs, targets, flags)
        if indices and there is not None:
            self._write_lags(site, called, prediction, there, _ignored(function, args, kwargs))

    def _write_lags(self, site: int, function: int, prediction: Any, target: Any, ignored: int) -> None:
        agent = self._agent
        lags = lags_of(target, ignored, self._tokens)
        some = few(target)
        share = 1 - int((some != ignored).sum()) / some.numel()
        causal = False
        if lags.compared:
            if site not in self._causal_sites:
                self._causal_sites[site] = causal_attention(prediction) or self._some_causal_model()
            causal = self._causal_sites[site]
        packed = 0
        for place, one in enumerate(lags.shares):
            # Down: 255 stands for all.
            packed |= int(one * 255) << 8 * place
        words = lags.compared | round(share * 255) << 32
        agent.put(monotonic_ns(), 0, TokenLag.code, site, agent.step, packed, words, function | causal << 16)

    def _some_causal_model(self) -> bool:
        for root in self._agent.roots:
            model = root.model()
            if model is not None and root.name_id not in self._causal:
                self._causal[root.name_id] = is_causal(model)
        return any(self._causal.values())

    def _before_backward(self, root: Any, site: int) -> None:
        """A loss of the program's own, of which only the graph tells."""
        import torch

        agent = self._agent
        if not agent.sampled or not self._looking():
            return
        if type(root) is not torch.Tensor or root.grad_fn is None:
            return
        begin = monotonic_ns()
        found = grown_difference(root)
        if found is not None:
            prediction, out = found
            other = (out[0],) if len(prediction) > 1 else (out[0], 1)
            shape = agent.name(f"{list(prediction)} against {list(other)}")
            nan = two_floats(float("nan"), float("nan"))
            flags = agent.name(OWN_LOSS) | shape << 16 | 1 << 54 | GROWN << 58
            agent.put(begin, 0, LossCall.code, site, agent.step, nan, nan, flags)
        self._cost_ns += monotonic_ns() - begin

    # -- what raises -------------------------------------------------------------------------------------------

    def _raised(self, function: str, args: Any, kwargs: Any, index: bool) -> None:
        agent = self._agent
        if self._failures >= MOST_FAILURES or agent.ended or agent.ring is None or agent.thread != get_ident():
            return
        try:
            if observable() and (self._write_index(function, args, kwargs) if index else
                               self._write_shapes(function, args, kwargs)):  # fmt: skip
                self._failures += 1
        except Exception as error:  # noqa: BLE001
            swallow("looking at a call that raised", error)

    def _write_shapes(self, function: str, args: Any, kwargs: Any) -> bool:
        """The shapes of a loss that raised."""
        import torch

        expected = LOSSES.get(function)
        if expected is None:
            return False
        prediction = argument(args, kwargs, 0, expected.prediction)
        target = argument(args, kwargs, 1, expected.target)
        if not isinstance(prediction, torch.Tensor) or not isinstance(target, torch.Tensor):
            return False
        agent = self._agent
        shape = agent.name(f"{list(prediction.shape)} against {list(target.shape)}")
        nan = two_floats(float("nan"), float("nan"))
        flags = agent.name(function) | shape << 16 | bool(prediction.requires_grad) << 54 | 1 << 60
        agent.put(monotonic_ns(), 0, LossCall.code, agent.site(), agent.step, nan, nan, flags)
        return True

    def _write_index(self, function: str, args: Any, kwargs: Any) -> bool:
        """The index that is beyond a table or the classes."""
        agent = self._agent
        ignored = None
        table = 0
        if function == "embedding":
            indices, weight = argument(args, kwargs, 0, "input"), argument(args, kwargs, 1, "weight")
            size, table = int(weight.shape[0]), self._table(weight)
        elif function in INDEXED:
            indices = argument(args, kwargs, 1, "target")
            size = classes_of(argument(args, kwargs, 0, "input"))
            ignored = _ignored(function, args, kwargs)
        else:
            return False
        indices = plain(indices)
        found = out_of_range(indices, size, ignored) if indices is not None else None
        if found is None:
            return False
        counts = found.size | min(found.wrong, (1 << 23) - 1) << 40
        flags = agent.name(function) | table << 16 | min(found.sample, (1 << 24) - 1) << 32
        agent.put(monotonic_ns(), 0, IndexFailure.code, agent.site(), agent.step, found.value, counts, flags)
        return True

    def _table(self, weight: Any) -> int:
        """Name id of the parameter that is looked up."""
        for root in self._agent.roots:
            model = root.model()
            for path, parameter in model.named_parameters() if model is not None else ():
                if parameter is weight:
                    return self._agent.name(f"{root.name}.{clean(path)}")
        return 0


def _ignored(function: str, args: Any, kwargs: Any) -> int:
    """The label that a loss ignores."""
    given = argument(args, kwargs, LOSSES[function].ignore_place, "ignore_index")
    return given if isinstance(given, int) else DEFAULT_IGNORED
