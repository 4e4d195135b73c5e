"""Factors of a formula that are computed from numbers, by a small language of its own.

A formula may come out of a saved file, so nothing is evaluated as Python: an expression is read once into
functions, and what is not in the lists below is refused.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from metabandit.errors import InvalidInput
from metabandit.features.reading import LIMIT, Array, Means

Read = Callable[[dict[int, Array]], Any]

OPERATORS: dict[type, Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: np.true_divide,
    ast.FloorDiv: np.floor_divide,
    ast.Mod: np.mod,
    ast.Pow: np.power,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
FUNCTIONS = [
    "abs",
    "absolute",
    "arcsinh",
    "arctan",
    "ceil",
    "cbrt",
    "clip",
    "cos",
    "cosh",
    "exp",
    "exp2",
    "expm1",
    "fabs",
    "floor",
    "log",
    "log10",
    "log1p",
    "log2",
    "maximum",
    "minimum",
    "power",
    "rint",
    "sign",
    "sin",
    "sinh",
    "sqrt",
    "square",
    "tan",
    "tanh",
    "where",
]
STATEFUL = ["bs", "cc", "cr", "cs", "center", "poly", "scale", "standardize"]
ALLOWED = (
    f"numbers, + - * / // % **, comparisons, I(...), the functions {', '.join(FUNCTIONS)}; with sample= also "
)
ALLOWED += ", ".join(STATEFUL)


class Computed:
    """One expression. Where a number it needs is missing it is its own running mean.

    text : as it stands in the formula; source : from a name to the place of its numbers; fit : whether
    functions that learn from a sample, such as center(), may stand in it.
    """

    def __init__(self, text: str, tree: ast.expr, source: Callable[[str], int], fit: bool) -> None:
        self.text, self.fit = text, fit
        self.sources: list[int] = []
        self.suffixes = [""]
        self.state: dict[str, dict[str, Any]] = {}
        self.means = Means(1)
        self._source = source
        self._read = self._reader(tree)

    # -- reading the expression ------------------------------------------------------------------------------

    def _refuse(self, node: ast.AST, accepted: str = ALLOWED) -> InvalidInput:
        return InvalidInput("formula", f"<{ast.unparse(node)!r} in {self.text!r}>", accepted)

    def _reader(self, node: ast.expr) -> Read:
        if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
            value = float(node.value)
            return lambda numbers: value
        if isinstance(node, ast.Name):
            place = self._source(node.id)
            if place not in self.sources:
                self.sources.append(place)
            return lambda numbers: numbers[place]
        if isinstance(node, ast.UnaryOp) and type(node.op) in OPERATORS:
            return self._applied(OPERATORS[type(node.op)], [node.operand])
        if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
            return self._applied(OPERATORS[type(node.op)], [node.left, node.right])
        if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in OPERATORS:
            return self._applied(OPERATORS[type(node.ops[0])], [node.left, node.comparators[0]])
        if isinstance(node, ast.Call):
            return self._call(node)
        raise self._refuse(node)

    def _applied(self, function: Callable[..., Any], arguments: list[ast.expr]) -> Read:
        reads = [self._reader(argument) for argument in arguments]
        return lambda numbers: function(*[read(numbers) for read in reads])

    def _call(self, node: ast.Call) -> Read:
        name = ast.unparse(node.func).removeprefix("np.").removeprefix("numpy.")
        if name in STATEFUL and isinstance(node.func, ast.Name) and node.args:
            return self._stateful(name, node)
        if name == "I" and len(node.args) == 1 and not node.keywords:
            return self._reader(node.args[0])
        if name not in FUNCTIONS or node.keywords:
            raise self._refuse(node)
        function: Callable[..., Any] = getattr(np, name)
        return self._applied(function, node.args)

    def _stateful(self, name: str, node: ast.Call) -> Read:
        if not self.fit:
            raise self._refuse(
                node, "it with sample=, a data frame to learn it from; or a formula without it"
            )
        from formulaic.transforms import TRANSFORMS

        try:
            further = [ast.literal_eval(argument) for argument in node.args[1:]]
            options = {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in node.keywords}
        except ValueError:
            raise self._refuse(node, "plain numbers, lists and text after the first argument") from None
        if name == "bs":  # a decision cannot be refused because a task lies outside of the sample
            options.setdefault("extrapolation", "clip")
        read, key, transform = self._reader(node.args[0]), ast.unparse(node), TRANSFORMS[name]

        def apply(numbers: dict[int, Array]) -> Any:
            return transform(read(numbers), *further, _state=self.state.setdefault(key, {}), **options)

        return apply

    # -- values ----------------------------------------------------------------------------------------------

    def learn(self, numbers: dict[int, Array], n: int) -> None:
        """Learn from a sample, once: what its functions need, and how many columns there are."""
        complete = self._complete(numbers, n)
        if not complete.any():
            raise InvalidInput(
                "sample", f"<no row that has everything for {self.text}>", "at least one such row"
            )
        columns = self._columns({s: numbers[s][complete] for s in self.sources}, int(complete.sum()))
        self.suffixes = [f"[{key}]" for key in columns] if len(columns) > 1 else [""]
        self.means = Means(len(columns))

    def evaluate(self, numbers: dict[int, Array], n: int) -> Array:
        """(n, m), the running mean where a number is missing."""
        complete = self._complete(numbers, n)
        out = np.full((n, len(self.suffixes)), np.nan)
        if complete.any():
            columns = self._columns({s: numbers[s][complete] for s in self.sources}, int(complete.sum()))
            out[complete] = self._checked(np.column_stack(list(columns.values())))
        return self.means.fill(out)

    def evaluate_one(self, numbers: dict[int, Array]) -> Array:
        """(m,) of one record that has every number : (1,). Learns nothing."""
        columns = self._columns(numbers, 1).values()
        return self._checked(np.array([column[0] for column in columns]))

    def _checked(self, values: Array) -> Array:
        small = np.abs(values) <= LIMIT
        if not small.all():
            accepted = "values for which it is a number between -1e100 and 1e100"
            given = f"<values for which {self.text} is {float(values[~small].flat[0])}>"
            raise InvalidInput("metadata", given, accepted)
        return values

    def _complete(self, numbers: dict[int, Array], n: int) -> Array:
        complete = np.ones(n, bool)
        for s in self.sources:
            complete &= ~np.isnan(numbers[s])
        return complete

    def _columns(self, numbers: dict[int, Array], n: int) -> dict[Any, Array]:
        try:
            with np.errstate(all="ignore"):
                value = self._read(numbers)
            if isinstance(value, dict):
                return {key: np.asarray(part, float) for key, part in value.items()}
            value = np.asarray(value, float)
        except InvalidInput:
            raise
        except (TypeError, ValueError, KeyError, IndexError) as error:
            raise InvalidInput(
                "formula", self.text, f"an expression that can be computed ({error})"
            ) from None
        if value.ndim == 2:
            return {j + 1: value[:, j] for j in range(value.shape[1])}
        return {"": np.broadcast_to(value, (n,))}

    def spec(self) -> dict[str, Any]:
        return {"suffixes": list(self.suffixes), "state": packed(self.state), "means": self.means.spec()}

    def restore(self, spec: dict[str, Any]) -> None:
        self.suffixes, self.state = list(spec["suffixes"]), unpacked(spec["state"])
        self.means.restore(spec["means"])


def packed(value: Any) -> Any:
    """What a transform has learned as plain data: dicts with any keys, arrays, numbers."""
    if isinstance(value, dict):
        return {"dict": [[packed(key), packed(part)] for key, part in value.items()]}
    if isinstance(value, np.ndarray):
        return {"array": value.tolist()}
    if isinstance(value, (list, tuple)):
        return [packed(part) for part in value]
    return value.item() if isinstance(value, np.generic) else value


def unpacked(value: Any) -> Any:
    if isinstance(value, dict):
        if "array" in value:
            return np.array(value["array"])
        return {unpacked(key): unpacked(part) for key, part in value["dict"]}
    return [unpacked(part) for part in value] if isinstance(value, list) else value
