"""What every policy can do: from the law of the mean rewards and a key, an arm and its exact probability."""

from __future__ import annotations

from typing import Any, NamedTuple, NoReturn, Protocol, runtime_checkable

import numpy as np

from metabandit.errors import InvalidInput
from metabandit.laws import Law

Array = np.ndarray[Any, Any]

EVERYTHING = np.empty((0, 0), np.bool_)  # how kernels are told that every arm is eligible
_FINE, _EMPTY = 0, 1


class Choice(NamedTuple):
    """What was chosen for n tasks, and how probable that was.

    >>> import numpy as np, metabandit as mb
    >>> from metabandit.laws import Normal
    >>> law = Normal(np.array([[0.0, 1.0]]), np.array([[1.0, 1.0]]))
    >>> choice = mb.Thompson().choose(law, np.array([7], np.uint64))
    >>> choice.arm.shape, choice.probability.shape, float(choice.standard_error[0])
    ((1,), (1,), 0.0)
    """

    arm: Array
    """(n,) int64"""
    probability: Array
    """(n,) of the arm chosen, given the law; NaN when it was not asked for"""
    standard_error: Array
    """(n,) of that probability: 0.0 where it is exact"""


@runtime_checkable
class Policy(Protocol):
    """From the law of a task's arms to an arm: a pure function of (law, key, eligibility), also in a batch.

    A policy of your own needs these four names; checks.policies.check_policy tells if it keeps the rules.
    """

    uses_draw: bool
    """True: the law given is that of r given the draw in force; False: given everything."""

    def choose(
        self, law: Law, keys: Array, eligible: Array | None = None, with_probability: bool = True
    ) -> Choice:
        """One arm for each of n tasks; law : (n, K), keys : (n,) uint64, eligible : (n, K) bool or None."""

    def probabilities(self, law: Law, keys: Array, eligible: Array | None = None) -> tuple[Array, Any]:
        """The probability of every arm : (n, K), and its standard error (n, K), or 0.0 where exact."""

    def spec(self) -> dict[str, Any]:
        """The policy as plain data (JSON); metabandit.policies.from_spec makes it again."""


def table(name: str, value: Any, shape: tuple[int, ...] | None = None) -> Array:
    """Floats of shape (n, K); one task's (K,) is a table of one row."""
    array = value if type(value) is np.ndarray and value.dtype == np.float64 else np.asarray(value, float)
    if array.ndim == 1:
        array = array[None]
    if array.ndim != 2 or (shape is not None and array.shape != shape):
        accepted = "an array of shape (n, K)" if shape is None else f"an array of shape {shape}"
        raise InvalidInput(name, f"<array of shape {array.shape}>", accepted)
    if array.shape[1] == 0:
        raise InvalidInput(name, f"<array of shape {array.shape}>", "at least one arm")
    return array if array.flags.c_contiguous else np.ascontiguousarray(array)


def keys_for(keys: Any, n: int) -> Array:
    """n keys as uint64."""
    array = np.asarray(keys)
    if array.dtype != np.uint64 or array.shape != (n,):
        if array.dtype.kind not in "iu" or array.shape != (n,):
            given = f"<{array.dtype} array of shape {array.shape}>"
            raise InvalidInput("keys", given, f"an array of shape ({n},) of whole numbers (uint64)")
        array = array.astype(np.uint64)
    return array if array.flags.c_contiguous else np.ascontiguousarray(array)


def eligible_for(eligible: Any, shape: tuple[int, ...]) -> Array:
    """The table of eligibility that kernels take."""
    if eligible is None:
        return EVERYTHING
    array = np.asarray(eligible)
    if array.ndim == 1:
        array = array[None]
    if array.dtype != np.bool_ or array.shape != shape:
        given = f"<{array.dtype} array of shape {array.shape}>"
        raise InvalidInput("eligible", given, f"a bool array of shape {shape}")
    return np.ascontiguousarray(array)


def settle(code: int, names: tuple[str, ...], values: tuple[Array, ...], accepted: tuple[str, ...]) -> None:
    """Says what a kernel refused: its code is 4 row + 1 (nothing eligible), + 2 or + 3 (its inputs), or 0."""
    if code != _FINE:
        _refuse(code, names, values, accepted)


def _refuse(
    code: int, names: tuple[str, ...], values: tuple[Array, ...], accepted: tuple[str, ...]
) -> NoReturn:
    row, wrong = divmod(code, 4)
    if wrong == _EMPTY:
        raise InvalidInput(
            "eligible", f"<no eligible arm in row {row}>", "at least one eligible arm for every task"
        )
    which = wrong - 2
    raise InvalidInput(f"law.{names[which]}", values[which][row].tolist(), accepted[which])
