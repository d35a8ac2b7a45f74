"""What the autograd graph of a loss shows without a look at any value: what gave its input, and how shapes met."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from rankscope.records.batch_contents import GROWN, ONE_FOR_MANY, SAME

Shape = tuple[int, ...]

PASSED_ON: Final = (
    "View", "UnsafeView", "Reshape", "ReshapeAlias", "Permute", "Transpose", "T", "Squeeze", "Unsqueeze", "Slice",
    "Select", "Index", "IndexSelect", "Clone", "ToCopy", "Alias", "AsStrided", "Expand", "Narrow",
)  # fmt: skip
"""Nodes whose values are those of their input, or some of them."""
REDUCTIONS: Final = ("Mean", "Sum", "Div", "Mul", "Pow", "Abs", "Add", "ToCopy", "Sqrt", "Square", "NanMean")
"""What lies between the difference of prediction and target and the number that backward is called on."""
MEANT: Final = ("Unsqueeze", "View", "Reshape", "UnsafeView", "Expand")
"""Nodes that give a prediction a shape to be broadcast in."""
HOPS: Final = 8
MOST_NODES: Final = 400


def kind(node: Any) -> str:
    """`Softmax` of a `SoftmaxBackward0`."""
    return str(type(node).__name__).rstrip("0123456789").removesuffix("Backward")


def probabilities_given(tensor: Any) -> bool:
    """Whether a softmax or a sigmoid gave a tensor, or a softmax gave what its log-softmax was taken of."""
    node = _producer(tensor.grad_fn)
    name = kind(node)
    if name == "LogSoftmax":
        return kind(_producer(_parent(node))) == "Softmax"
    return name in ("Softmax", "Sigmoid")


def _producer(node: Any) -> Any:
    """The node that made the values, behind those that only pass them on."""
    for _ in range(HOPS):
        if kind(node) not in PASSED_ON:
            break
        node = _parent(node)
    return node


def _parent(node: Any) -> Any:
    """The first input of a node that has a gradient."""
    return next((one for one, _ in getattr(node, "next_functions", ()) if one is not None), None)


def causal_attention(tensor: Any) -> bool:
    """Whether some attention that a tensor comes from was told to look at no later token."""
    return any(getattr(node, "_saved_is_causal", False) is True for node in _nodes(tensor.grad_fn))


def _nodes(first: Any) -> Iterator[Any]:
    waiting = [first]
    seen: set[Any] = set()
    while waiting and len(seen) < MOST_NODES:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        yield node
        waiting += [one for one, _ in getattr(node, "next_functions", ())]


def broadcast_of(prediction: Shape, target: Shape, *, computed: bool) -> int:
    """How two shapes meet in an element-wise loss. `computed`: the prediction came out of a computation.

    Shapes with as many dimensions may be meant to meet; [N, 1] and [N] have the same numbers, and give N x N pairs.
    """
    if prediction == target:
        return SAME
    numel, other = _numel(prediction), _numel(target)
    together = _together(prediction, target)
    if together is None:
        return SAME  # it will raise
    if len(prediction) != len(target) and numel == other and together > numel:
        return GROWN
    one = bool(prediction) and prediction[0] == 1
    if computed and one and other > 1 and other > numel:
        same_rank = len(prediction) == len(target) and prediction[1:] == target[1:]
        if same_rank or (numel == 1 and len(target) == 1):
            return ONE_FOR_MANY
    return SAME


def _numel(shape: Shape) -> int:
    product = 1
    for size in shape:
        product *= size
    return product


def _together(a: Shape, b: Shape) -> int | None:
    """Elements of both expanded to each other; None where that is not possible."""
    product = 1
    for i in range(1, max(len(a), len(b)) + 1):
        x, y = (a[-i] if i <= len(a) else 1), (b[-i] if i <= len(b) else 1)
        if x != y and 1 not in (x, y):
            return None
        product *= max(x, y)
    return product


def grown_difference(root: Any) -> tuple[Shape, Shape] | None:
    """(shape of the prediction, shape of its difference to the target) where a loss of the program's own took the
    difference of [N, 1] and [N], one of them without gradient; None where the graph shows no such thing."""
    node = root.grad_fn
    for _ in range(HOPS):
        if node is None or kind(node) not in REDUCTIONS:
            break
        node = _parent(node)
    inputs = getattr(node, "next_functions", ())
    # Pairs that are meant (a metric's, of embeddings) have gradients on both sides.
    if kind(node) not in ("Sub", "Rsub") or len(inputs) != 2 or sum(one is None for one, _ in inputs) != 1:
        return None
    out = _shape(node, 0)
    maker, place = next((one, i) for one, i in inputs if one is not None)
    made = _shape(maker, place)
    if out is None or made is None or len(out) != 2 or out[0] != out[1] or out[0] < 2:
        return None
    if kind(maker) in MEANT:
        return None
    return (made, out) if made in {(out[0],), (out[0], 1)} else None


def _shape(node: Any, place: int) -> Shape | None:
    """Shape of an output of a node."""
    known = getattr(node, "_input_metadata", None)
    return tuple(known[place].shape) if known is not None and place < len(known) else None
