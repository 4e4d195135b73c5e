"""Policies keep their contract, their frequencies are their probabilities, and planted bugs are found."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import metabandit as mb
from metabandit import policies, streams
from metabandit.checks.policies import POLICY_CHECKS, check_frequencies, check_policy, example_laws
from metabandit.errors import InvalidInput
from metabandit.laws import Beta, Gamma, Law, MultivariateNormal, Normal
from metabandit.policies import Choice
from metabandit.streams import Stream, keys, substreams
from tests.statistics import P_LEAST, frequencies
from tests.twins import probabilities as twin

pytestmark = pytest.mark.filterwarnings(
    "ignore:overflow encountered:RuntimeWarning"  # 64-bit words wrap around on purpose
)
Array = np.ndarray[Any, Any]

POLICIES: dict[str, Any] = {
    "thompson": mb.Thompson(),
    "tempered": mb.Thompson(scale=0.5, draws=200),
    "wide": mb.Thompson(scale=2.0, draws=200),
    "greedy": mb.Greedy(),
    "upper bound": mb.UpperBound(level=0.9),
    "random": mb.Random(),
    "floored": mb.Floored(mb.Thompson(draws=100), floor=0.05),
    "floor and ceiling": mb.Floored(mb.Greedy(), floor=0.1, ceiling=0.6),
    "floored twice": mb.Floored(mb.Floored(mb.Thompson(draws=50), ceiling=0.8), floor=0.02),
}
NAMES = [type(law).__name__ for law in example_laws()]


@pytest.mark.parametrize("check", POLICY_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("law", example_laws(), ids=NAMES)
@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
def test_contract(policy: Any, law: Law, check: Any) -> None:
    check(policy, law)


# -- frequencies, and that the tests of them can fail ----------------------------------------------------------

N = 200_000
SAMPLED: dict[str, Law] = {
    "normal": Normal(np.array([[0.0, 0.3, 1.0, 0.2]]), np.array([[1.0, 0.1, 0.2, 2.0]])),
    "beta": Beta(np.array([[0.001, 0.3, 5.0, 1e3]]), np.array([[0.001, 0.1, 0.2, 50.0]])),
    "tiny beta": Beta(np.array([[1e-6, 2e-6, 1e-6]]), np.array([[1e-6, 1e-6, 3e-6]])),
    "gamma": Gamma(np.array([[0.001, 0.3, 5.0, 1e3]]), np.array([[0.001, 0.1, 3.0, 550.0]])),
    "tiny gamma": Gamma(np.array([[1e-6, 3e-6, 2e-6]]), np.array([[0.001, 0.1, 3.0]])),
}


def many(law: Law, n: int) -> Law:
    names = ("mean", "root") if isinstance(law, MultivariateNormal) else law.__slots__
    parts = (getattr(law, name) for name in names)
    return type(law)(*(np.ascontiguousarray(np.broadcast_to(x, (n, *x.shape[1:]))) for x in parts))


def fit_of(policy: Any, law: Law) -> float:
    """p-value of the choices of N keys against the probabilities of one."""
    used = keys(3, np.arange(N))
    arms = policy.choose(many(law, N), used, with_probability=False).arm
    claimed = mb.Thompson(scale=getattr(policy, "scale", 1.0)).probabilities(law, used[:1])[0][0]
    return frequencies(np.bincount(arms, minlength=len(claimed)), claimed)


@pytest.mark.parametrize("scale", [1.0, 0.5])
@pytest.mark.parametrize("name", SAMPLED)
def test_frequencies_are_the_probabilities(name: str, scale: float) -> None:
    assert fit_of(mb.Thompson(scale=scale), SAMPLED[name]) > P_LEAST


def test_frequencies_of_correlated_arms() -> None:
    law = MultivariateNormal(np.array([[0.0, 0.2, 0.1]]), np.array([[[1.0, 0.0], [0.9, 0.5], [-0.3, 1.0]]]))
    arms = mb.Thompson().choose(many(law, N), keys(3, np.arange(N)), with_probability=False).arm
    claimed = mb.Thompson(draws=300_000).probabilities(law, keys(1, [0]))[0][0]
    assert (
        frequencies(np.bincount(arms, minlength=3), claimed) > P_LEAST / 10
    )  # claimed has an error of its own


class VarianceForSd(mb.Thompson):
    """Planted: the variance where the standard deviation belongs."""

    def choose(self, law: Any, *rest: Any, **options: Any) -> Choice:
        return super().choose(Normal(law.mean, law.sd**2), *rest, **options)


class OneNormalForAll(mb.Thompson):
    """Planted: every arm is drawn with the same normal number."""

    def choose(self, law: Any, keys: Any, *rest: Any, **options: Any) -> Choice:
        z = streams.normals(substreams(keys, streams.ARMS), 1)
        return super().choose(Normal(law.mean + law.sd * z, 0.0 * law.sd), keys, *rest, **options)


class SpentNumbers(mb.Thompson):
    """Planted: decisions that follow each other share their random numbers."""

    def choose(self, law: Any, keys: Any, *rest: Any, **options: Any) -> Choice:
        return super().choose(law, np.full_like(keys, keys[0]), *rest, **options)


class StaleProbability(mb.Thompson):
    """Planted: probabilities of another scale than the choices."""

    def probabilities(self, law: Any, *rest: Any) -> Any:
        return mb.Thompson(scale=1.1).probabilities(law, *rest)


@pytest.mark.parametrize("planted", [VarianceForSd, OneNormalForAll, SpentNumbers])
def test_planted_bugs_are_found(planted: type) -> None:
    law = SAMPLED["normal"]
    assert fit_of(planted(), law) < 1e-9
    with pytest.raises(AssertionError):
        check_frequencies(planted(), law)


def test_the_contract_finds_probabilities_that_are_not_those_of_the_choices() -> None:
    with pytest.raises(AssertionError):
        check_policy(StaleProbability(), example_laws()[:1])


class FloorWithoutDraw(mb.Floored):
    """Planted: floors change the probability that is reported, not the choice."""

    def choose(self, law: Any, keys: Any, eligible: Any = None, with_probability: bool = True) -> Choice:
        return self.policy.choose(law, keys, eligible, with_probability)


def test_the_contract_finds_floors_that_are_only_reported() -> None:
    with pytest.raises(AssertionError):
        check_policy(FloorWithoutDraw(mb.Thompson(), floor=0.2), example_laws()[:1])


# -- the same alone and in a batch -------------------------------------------------------------------------------


def big_laws(n: int, k: int) -> list[Law]:
    rng = np.random.default_rng(8)
    a, b = 10.0 ** rng.uniform(-3, 3, (2, n, k))
    sd = 10.0 ** rng.uniform(-3, 1, (n, k))
    return [Normal(rng.normal(size=(n, k)), sd), Beta(a, b), Gamma(a, b)]


@pytest.mark.parametrize("kind", range(3), ids=["normal", "beta", "gamma"])
def test_a_task_alone_is_decided_as_among_a_hundred_thousand(kind: int) -> None:
    n = 100_000
    law = big_laws(n, 5)[kind]
    used = keys(2, np.arange(n))
    policy = mb.Thompson()
    whole = policy.choose(law, used)
    first, second = (getattr(law, name) for name in law.__slots__)
    for j in range(0, n, 499):
        alone = policy.choose(type(law)(first[j], second[j]), used[j : j + 1])
        assert (alone.arm[0], alone.probability[0]) == (whole.arm[j], whole.probability[j])


@pytest.mark.interpreted
def test_thompson_takes_the_largest_of_the_normals_of_its_stream() -> None:
    """What anyone can compute again: the k-th arm has the k-th normal of the stream ARMS of the key."""
    law = big_laws(50, 4)[0]
    used = keys(2, np.arange(50))
    z = np.array([Stream(int(key)).standard_normal(4) for key in substreams(used, streams.ARMS)])
    chosen = mb.Thompson(scale=1.5).choose(law, used, with_probability=False)
    assert chosen.arm.tolist() == (law.mean + 1.5 * law.sd * z).argmax(axis=1).tolist()


@pytest.mark.interpreted
def test_eligibility_does_not_change_the_numbers_of_other_arms() -> None:
    law = big_laws(50, 4)[0]
    used, eligible = keys(2, np.arange(50)), np.ones((50, 4), bool)
    free = mb.Thompson().choose(law, used).arm
    eligible[np.arange(50), (free + 1) % 4] = False
    assert mb.Thompson().choose(law, used, eligible).arm.tolist() == free.tolist()


# -- tempering, ties, bounds -------------------------------------------------------------------------------------


def test_tempering_is_a_law_of_other_parameters() -> None:
    rng = np.random.default_rng(1)
    first, second = rng.uniform(0.5, 5.0, (2, 20, 4))
    used = keys(1, np.arange(20))
    same = {
        Normal: (Normal(first, second), Normal(first, 2.0 * second)),
        Beta: (Beta(first, second), Beta(first / 4.0, second / 4.0)),
        Gamma: (Gamma(first, second), Gamma(first / 4.0, second / 4.0)),
    }
    for law, tempered in same.values():
        one, other = mb.Thompson(scale=2.0).choose(law, used), mb.Thompson().choose(tempered, used)
        assert (one.arm == other.arm).all()
        np.testing.assert_allclose(one.probability, other.probability, atol=1e-12)
    np.testing.assert_allclose(Gamma(first / 4.0, second / 4.0).sd, 2.0 * Gamma(first, second).sd)


def test_ties_are_broken_uniformly() -> None:
    n = 20_000
    law = many(Normal(np.array([[1.0, 0.0, 1.0, 1.0]]), np.ones((1, 4))), n)
    for policy in (mb.Greedy(), mb.UpperBound()):
        choice = policy.choose(law, keys(4, np.arange(n)))
        assert (choice.probability == 1.0 / 3.0).all()
        assert frequencies(np.bincount(choice.arm, minlength=4)[[0, 2, 3]], np.full(3, 1 / 3)) > P_LEAST
        assert (choice.arm != 1).all()


def test_upper_bounds() -> None:
    law = Normal(np.array([[1.0, 0.5, -0.1]]), np.array([[0.1, 0.6, 1.0]]))
    chosen = {
        level: int(mb.UpperBound(level).choose(law, keys(0, [0])).arm[0]) for level in (0.5, 0.95, 0.99999)
    }
    assert chosen == {0.5: 0, 0.95: 2, 0.99999: 2}
    assert mb.UpperBound(0.9).choose(law, keys(0, [0])).arm.tolist() == [1]


# -- floors ------------------------------------------------------------------------------------------------------


@given(
    p=st.lists(st.floats(0.0, 1.0), min_size=2, max_size=8),
    low=st.floats(0.0, 1.0),
    high=st.floats(0.0, 1.0),
)
def test_floors_are_kept_by_the_smallest_change(p: list[float], low: float, high: float) -> None:
    k = len(p)
    every = np.array(p) + 1e-3
    every /= every.sum()
    floor, ceiling = low / k, 1.0 / k + high * (1.0 - 1.0 / k)
    law = Normal(np.zeros((1, k)), np.ones((1, k)))
    got = mb.Floored(Fixed(every), floor, ceiling).probabilities(law, keys(0, [0]))
    q = got[0][0]
    assert q.sum() == pytest.approx(1.0, abs=1e-12)
    assert (q >= floor - 1e-15).all()
    assert (q <= ceiling + 1e-15).all()
    np.testing.assert_allclose(q, twin.project(every, floor, ceiling), atol=1e-9)
    assert (np.diff(q[np.argsort(every)]) >= -1e-15).all()  # the order of the arms stays


class Fixed:
    """A policy of given probabilities."""

    uses_draw = False

    def __init__(self, every: Array) -> None:
        self.every = every

    def probabilities(self, law: Law, keys: Any, eligible: Any = None) -> tuple[Array, float]:
        return np.tile(self.every, (len(keys), 1)), 0.0

    def choose(self, law: Law, keys: Any, eligible: Any = None, with_probability: bool = True) -> Choice:
        raise NotImplementedError

    def spec(self) -> dict[str, Any]:
        return {"policy": "fixed"}


def test_no_floor_leaves_exact_probabilities_alone() -> None:
    law = big_laws(200, 5)[0]
    used = keys(1, np.arange(200))
    plain, _ = mb.Thompson().probabilities(law, used)
    floored, error = mb.Floored(mb.Thompson()).probabilities(law, used)
    np.testing.assert_allclose(floored, plain, atol=1e-10)
    assert error == 0.0


def test_floors_count_eligible_arms() -> None:
    law, used = Normal(np.zeros((1, 4)), np.ones((1, 4))), keys(0, [0])
    two = np.array([[True, False, True, False]])
    assert mb.Floored(mb.Greedy(), 0.4).probabilities(law, used, two)[0].tolist() == [[0.5, 0.0, 0.5, 0.0]]
    with pytest.raises(InvalidInput, match=r"floor: got 0\.4; accepted: a number <= 1 / 4"):
        mb.Floored(mb.Greedy(), 0.4).choose(law, used)
    with pytest.raises(InvalidInput, match=r"ceiling: got 0\.3; accepted: a number >= 1 / 2"):
        mb.Floored(mb.Greedy(), ceiling=0.3).choose(law, used, two)


def test_floors_that_arms_cannot_have_are_known_beforehand() -> None:
    for policy in (mb.Floored(mb.Greedy(), 0.4), mb.Floored(mb.Floored(mb.Greedy(), 0.4), 0.1)):
        policy.check_arms(2)
        with pytest.raises(InvalidInput, match=r"floor: got 0\.4; .* 1 / 3, with 3 eligible arms$"):
            policy.check_arms(3)
    with pytest.raises(InvalidInput, match=r"ceiling: got 0\.9; .* 1 / 1, with 1 eligible arm$"):
        mb.Floored(mb.Greedy(), ceiling=0.9).check_arms(1)
    mb.Floored(mb.Greedy(), 1 / 3, 1 / 3).check_arms(3)


@pytest.mark.parametrize("given", [0.05, None, mb.Thompson, "thompson"])
def test_only_a_policy_has_floors(given: Any) -> None:
    with pytest.raises(InvalidInput, match=r"policy: got .*; accepted: a policy such as Thompson\(\)"):
        mb.Floored(given)


@pytest.mark.parametrize(
    "numbers", [(1.0, 2.0), (1.0, -1.1), (-1.0, 0.5), (1.0, np.nan), ("a", 0.0), ([1.0, 2.0], 0.5)]
)
def test_compound_symmetric_numbers_that_are_refused(numbers: Any) -> None:
    with pytest.raises(InvalidInput, match=r"variance|correlation"):
        mb.CompoundSymmetric(*numbers)
    mb.CompoundSymmetric(0.0, -1.0)


def test_floors_make_the_probability_of_correlated_arms_exact() -> None:
    """The arm is drawn from the estimate itself: inverse weights of the reported probability are unbiased."""
    n = 40_000
    law = many(MultivariateNormal(np.array([[0.0, 0.5]]), np.array([[[1.0, 0.0], [0.5, 1.0]]])), n)
    choice = mb.Floored(mb.Thompson(draws=3)).choose(law, keys(6, np.arange(n)))
    assert (choice.standard_error == 0.0).all()
    for a in range(2):
        weights = (choice.arm == a) / choice.probability
        assert abs(weights.mean() - 1.0) < 5.0 * weights.std() / np.sqrt(n)


# -- specs and refusals ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
def test_specs(policy: Any) -> None:
    spec = json.loads(json.dumps(policies.spec(policy)))
    made = policies.from_spec(spec)
    assert type(made) is type(policy)
    assert repr(made) == repr(policy)
    assert isinstance(made, policies.Policy)
    assert made.uses_draw == policy.uses_draw


@pytest.mark.parametrize(
    "spec", [{}, {"policy": "best"}, {"policy": "greedy", "level": 1}, {"policy": "floored"}, "greedy", None]
)
def test_specs_that_are_refused(spec: Any) -> None:
    with pytest.raises(InvalidInput, match="spec"):
        policies.from_spec(spec)


ONE, KEY = np.ones((1, 2)), np.array([7], np.uint64)
REFUSED: dict[str, Any] = {
    "scale": lambda: mb.Thompson(scale=0.0),
    "draws": lambda: mb.Thompson(draws=1),
    "level": lambda: mb.UpperBound(1.0),
    "floor": lambda: mb.Floored(mb.Greedy(), -0.1),
    "ceiling": lambda: mb.Floored(mb.Greedy(), 0.5, 0.4),
    "law.mean": lambda: mb.Thompson().choose(Normal(np.array([[0.0, np.inf]]), ONE), KEY),
    "law.sd": lambda: mb.Thompson().choose(Normal(ONE, -ONE), KEY),
    "law.a": lambda: mb.Thompson().choose(Beta(-ONE, ONE), KEY),
    "law.b": lambda: mb.Thompson().probabilities(Beta(ONE, np.nan * ONE), KEY),
    "law.shape": lambda: mb.Thompson().choose(Gamma(-ONE, ONE), KEY),
    "law.rate": lambda: mb.Thompson().choose(Gamma(ONE, 0.0 * ONE), KEY),
    "law.root": lambda: mb.Thompson().choose(MultivariateNormal(ONE, np.ones((1, 3, 2))), KEY),
    "law:": lambda: mb.Thompson().choose("normal", KEY),  # type: ignore[arg-type]
    "mean and sd": lambda: mb.Greedy().choose(Normal(np.nan * ONE, ONE), KEY),
    "keys": lambda: mb.Thompson().choose(Normal(ONE, ONE), np.array([0.5])),
    "eligible": lambda: mb.Thompson().choose(Normal(ONE, ONE), KEY, np.array([[0, 1]])),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_name_the_argument(name: str) -> None:
    with pytest.raises(InvalidInput, match=name):
        REFUSED[name]()


@pytest.mark.interpreted
def test_an_ineligible_arm_may_have_any_law() -> None:
    law = Normal(np.array([[0.0, np.nan, 1.0]]), np.array([[1.0, np.nan, 1.0]]))
    eligible = np.array([[True, False, True]])
    for policy in (mb.Thompson(), mb.Greedy(), mb.UpperBound(), mb.Floored(mb.Thompson(), 0.1)):
        assert policy.choose(law, KEY, eligible).arm[0] != 1


@pytest.mark.interpreted
def test_small_contracts() -> None:
    """What the run without compilation can afford of the contract."""
    for law in example_laws():
        for policy in (mb.Thompson(draws=20), mb.Greedy(), mb.Floored(mb.Thompson(draws=20), 0.1, 0.8)):
            for check in POLICY_CHECKS:
                if check is not check_frequencies:
                    check(policy, law)


@pytest.mark.skipif("NUMBA_DISABLE_JIT" in os.environ, reason="this is the run without compilation")
def test_with_compilation_off() -> None:
    tests = Path(__file__).resolve().parent
    chosen = [str(tests / "test_policies.py"), str(tests / "test_probabilities.py")]
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-m",
        "interpreted and not slow",
        "-p",
        "no:xdist",
        *chosen,
    ]
    env = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    run = subprocess.run(command, env=env, cwd=tests.parent, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout[-3000:]
