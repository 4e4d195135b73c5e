"""The contract of a policy, as one suite to run over every policy, including one's own.

`check_policy` runs all of it; a test suite runs POLICY_CHECKS one by one, so that each failure has a name.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from metabandit.errors import InvalidInput
from metabandit.laws import Beta, Gamma, Law, MultivariateNormal, Normal
from metabandit.policies import Policy, from_spec
from metabandit.streams import keys

Array = np.ndarray[Any, Any]

N_KEYS = 20_000
FAR = 5.0  # standard errors: a policy that keeps the rules stays below, one that does not is far above


def example_laws() -> list[Law]:
    """One law of every kind, for three tasks and four arms, ties and a point mass among them."""
    mean = np.array([[0.0, 0.3, 1.0, 0.2], [1.0, 1.0, 0.0, 1.0], [5.0, 0.0, 5.1, 5.0]])
    sd = np.array([[1.0, 0.1, 0.2, 2.0], [1.0, 1.0, 1.0, 1.0], [0.0, 3.0, 0.5, 1e-9]])
    a = np.array([[1.0, 2.0, 3.0, 40.0], [0.01, 0.02, 2.0, 0.5], [5.0, 5.0, 5.0, 5.0]])
    root = np.array([[[1.0, 0.2], [0.5, -0.5], [0.0, 0.4], [1.0, 1.0]]] * 3)
    return [Normal(mean, sd), Beta(a, a[:, ::-1].copy()), Gamma(a, 2.0 * a), MultivariateNormal(mean, root)]


def check_policy(policy: Policy, laws: Sequence[Law] | None = None) -> None:
    """Raise AssertionError where the policy breaks the contract.

    policy : the policy; laws : batches of laws that it accepts, by default one of every kind.

    >>> import metabandit as mb
    >>> from metabandit.checks.policies import check_policy
    >>> check_policy(mb.UpperBound(level=0.9))
    """
    for check in POLICY_CHECKS:
        for law in example_laws() if laws is None else laws:
            check(policy, law)


def check_shapes(policy: Policy, law: Law) -> None:
    """A choice has three vectors; probabilities are a table whose rows are distributions."""
    n, k = law.mean.shape
    assert policy.uses_draw in (True, False), f"uses_draw is {policy.uses_draw!r}"
    choice = policy.choose(law, _keys(n))
    assert choice.arm.shape == (n,), f"arms of shape {choice.arm.shape}, not {(n,)}"
    assert choice.arm.dtype == np.int64, f"arms of type {choice.arm.dtype}"
    assert ((choice.arm >= 0) & (choice.arm < k)).all(), "an arm that is not there"
    for name in ("probability", "standard_error"):
        values = getattr(choice, name)
        assert values.shape == (n,), f"{name} of shape {values.shape}, not {(n,)}"
        assert ((values >= 0.0) & (values <= 1.0)).all(), f"{name} outside 0 ... 1"
    every, errors = policy.probabilities(law, _keys(n))
    assert every.shape == (n, k), f"probabilities of shape {every.shape}, not {(n, k)}"
    assert np.broadcast_to(errors, (n, k)).min() >= 0.0, "a negative standard error"
    assert ((every >= 0.0) & (every <= 1.0)).all(), "a probability outside 0 ... 1"
    assert np.abs(every.sum(axis=1) - 1.0).max() < 1e-6, "probabilities that do not sum to one"


def check_purity(policy: Policy, law: Law) -> None:
    """A choice is a function of the law and the key: twice the same, and nothing that was given is changed."""
    used = _keys(len(law.mean))
    before, keys_before = copy.deepcopy(law), used.copy()
    first, second = policy.choose(law, used), policy.choose(law, used)
    _same(first, second, "the same choice, made twice, differs")
    quick = policy.choose(law, used, with_probability=False)
    assert (quick.arm == first.arm).all(), "another arm when the probability is not asked for"
    assert np.isnan(quick.probability).all(), "a probability that was not asked for has to be NaN"
    every, again = (policy.probabilities(law, used)[0] for _ in range(2))
    assert (every == again).all(), "the same probabilities, asked for twice, differ"
    for field in fields(law):
        same = (getattr(law, field.name) == getattr(before, field.name)).all()
        assert same, f"law.{field.name} was changed"
    assert (used == keys_before).all(), "the keys were changed"


def check_batches(policy: Policy, law: Law) -> None:
    """A task decided alone is decided as in a batch, to the last bit."""
    n, k = law.mean.shape
    used, eligible = _keys(4 * n), np.ones((4 * n, k), bool)
    eligible[np.arange(4 * n), np.arange(4 * n) % k] = False
    batch = _rows(law, np.arange(4 * n) % n)
    together = policy.choose(batch, used, eligible)
    table = policy.probabilities(batch, used, eligible)[0]
    for j in range(4 * n):
        rows = slice(j, j + 1)
        alone = policy.choose(_rows(batch, rows), used[rows], eligible[rows])
        _same(alone, type(together)(*(x[rows] for x in together)), f"task {j} alone differs from the batch")
        row = policy.probabilities(_rows(batch, rows), used[rows], eligible[rows])[0]
        assert (row == table[rows]).all(), f"probabilities of task {j} alone differ from the batch"


def check_eligibility(policy: Policy, law: Law) -> None:
    """Only eligible arms are chosen, others have probability 0, and there has to be one."""
    n, k = law.mean.shape
    for pair in ([0, 1], [0, k - 1], [k - 2, k - 1]):
        eligible = np.zeros((n, k), bool)
        eligible[:, pair] = True
        arms = policy.choose(law, _keys(n), eligible).arm
        assert np.isin(arms, pair).all(), "an arm that is not eligible"
    eligible = np.ones((n, k), bool)
    eligible[:, 1] = False
    every, _ = policy.probabilities(law, _keys(n), eligible)
    assert (every[:, 1] == 0.0).all(), "a probability of an arm that is not eligible"
    assert np.abs(every.sum(axis=1) - 1.0).max() < 1e-6, "probabilities that do not sum to one"
    nobody, wide = np.zeros((n, k), bool), np.ones((n, k + 1), bool)
    for ask in (policy.choose, policy.probabilities):
        _refuses(ask, (law, _keys(n), nobody), "no eligible arm")
        _refuses(ask, (law, _keys(n + 1)), "another number of keys than tasks")
        _refuses(ask, (law, _keys(n), wide), "eligibility of another shape")


def check_agreement(policy: Policy, law: Law) -> None:
    """The probability reported with a choice is that of `probabilities`."""
    used = _keys(len(law.mean))
    choice = policy.choose(law, used)
    every, errors = policy.probabilities(law, used)
    rows = np.arange(len(used))
    slack = 1e-9 + FAR * (np.broadcast_to(errors, every.shape)[rows, choice.arm] + choice.standard_error)
    gap = np.abs(every[rows, choice.arm] - choice.probability)
    assert (gap <= slack).all(), f"choose and probabilities differ by {gap.max():.3g}"
    assert (choice.probability > 0.0).all(), "what was chosen had probability 0"


def check_frequencies(policy: Policy, law: Law) -> None:
    """Over many keys, arms are chosen as often as their probabilities say."""
    for i in range(len(law.mean)):
        used = _keys(N_KEYS)
        chosen = policy.choose(_rows(law, np.full(N_KEYS, i)), used, with_probability=False).arm
        every, errors = policy.probabilities(_rows(law, np.full(100, i)), used[:100])
        claimed = every.mean(axis=0)
        variance = claimed * (1.0 - claimed) / N_KEYS
        if np.any(errors) or every.std(axis=0).any():  # probabilities that themselves depend on the key
            variance = variance + every.var(axis=0, ddof=1) / 100
        found = np.bincount(chosen, minlength=len(claimed)) / N_KEYS
        far = np.abs(found - claimed) / np.sqrt(variance + 0.1 / N_KEYS**2)
        message = f"task {i}: chosen {found.round(4)}, probabilities {claimed.round(4)}"
        assert (far < FAR).all(), message


def check_spec(policy: Policy, law: Law) -> None:
    """The spec survives JSON, and policies.from_spec makes the same policy of it, where it knows its name."""
    spec = json.loads(json.dumps(policy.spec()))
    assert spec == policy.spec(), "a spec that JSON changes"
    try:
        made = from_spec(spec)
    except InvalidInput:
        return  # a policy of one's own
    used = _keys(len(law.mean))
    assert made.spec() == spec, "from_spec makes a policy of another spec"
    _same(made.choose(law, used), policy.choose(law, used), "from_spec makes another policy")


POLICY_CHECKS: tuple[Callable[[Policy, Law], None], ...] = (
    check_shapes,
    check_purity,
    check_batches,
    check_eligibility,
    check_agreement,
    check_frequencies,
    check_spec,
)


def _keys(n: int) -> Array:
    return keys(11, np.arange(n))


def _rows(law: Law, rows: Any) -> Law:
    """The same kind of law for some of its tasks, or for some of them many times."""
    return type(law)(*(np.ascontiguousarray(getattr(law, field.name)[rows]) for field in fields(law)))


def _same(one: Any, other: Any, message: str) -> None:
    for name in ("arm", "probability", "standard_error"):
        assert (getattr(one, name) == getattr(other, name)).all(), f"{message} ({name})"


def _refuses(ask: Callable[..., Any], arguments: tuple[Any, ...], what: str) -> None:
    try:
        ask(*arguments)
    except InvalidInput:
        return
    raise AssertionError(f"{what} has to be refused with InvalidInput")
