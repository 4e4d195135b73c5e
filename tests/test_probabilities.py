"""Action probabilities are exact: against slow twins, closed forms and sampling, over easy and hard laws."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special

import metabandit as mb
from metabandit.laws import Beta, Gamma, MultivariateNormal, Normal
from metabandit.policies import action_probabilities
from metabandit.streams import keys
from tests.statistics import FAR, best_arm
from tests.twins import probabilities as twin

pytestmark = pytest.mark.filterwarnings(
    "ignore:overflow encountered:RuntimeWarning"  # 64-bit words wrap around on purpose
)
Array = np.ndarray[Any, Any]
EXACT = 1e-10  # normals, and every row's sum
CLOSE = 1e-8  # beta and gamma
ROUNDED = 1e-7  # what the twins of beta and gamma are good to, for shapes of 1e7


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(5)


def p_normal(mean: Any, sd: Any, eligible: Any = None) -> Array:
    return action_probabilities(Normal(np.asarray(mean, float), np.asarray(sd, float)), eligible)


# -- normals against twins -----------------------------------------------------------------------------------

SPREADS = {
    "equal": lambda rng, k: np.ones(k),
    "mixed": lambda rng, k: 10.0 ** rng.uniform(-1, 1, k),
    "wild": lambda rng, k: 10.0 ** rng.uniform(-8, 8, k),
    "two scales": lambda rng, k: np.where(np.arange(k) % 2, 1e-8, 1.0),
}


@pytest.mark.interpreted
@pytest.mark.parametrize("spread", SPREADS)
@pytest.mark.parametrize("k", [3, 8, 40])
def test_normals_equal_dense_panels(spread: str, k: int, rng: np.random.Generator) -> None:
    for size in (0.0, 0.3, 1.0, 3.0):
        sd = SPREADS[spread](rng, k)
        mean = size * rng.normal(size=k) * sd
        got = p_normal(mean, sd)
        np.testing.assert_allclose(got, twin.normals(mean, sd), atol=EXACT, rtol=0)
        assert abs(got.sum() - 1.0) < EXACT


@pytest.mark.parametrize("k", [3, 6, 12, 32, 200])
def test_rows_of_alike_normals_sum_to_one(k: int, rng: np.random.Generator) -> None:
    """The worst case: the largest of many arms of one sd has a law much sharper than theirs."""
    n = 6000 // k
    for spread in (0.0, 0.1, 0.3, 1.0, 3.0):
        mean = spread * (rng.normal(size=(n, k)) if spread else np.zeros((n, k)))
        for sd in (np.ones((n, k)), np.exp(0.3 * rng.normal(size=(n, k)))):
            np.testing.assert_allclose(p_normal(mean, sd).sum(axis=1), 1.0, atol=EXACT, rtol=0)


@pytest.mark.parametrize("law", [Beta, Gamma])
def test_rows_of_beta_and_gamma_laws_sum_to_one(law: Any, rng: np.random.Generator) -> None:
    for k in (3, 12, 40, 200):
        for low, high in ((-12.0, 9.0), (-1.0, 1.0), (2.0, 6.0)):
            wild = 10.0 ** rng.uniform(low, high, (2, 50, k))
            alike = 10.0 ** rng.uniform(low, high, (2, 50, 1)) * np.exp(0.01 * rng.normal(size=(2, 50, k)))
            for first, second in (wild, alike):
                total = action_probabilities(law(first, second)).sum(axis=1)
                np.testing.assert_allclose(total, 1.0, atol=CLOSE, rtol=0)


@pytest.mark.parametrize("law", [Beta, Gamma])
@pytest.mark.parametrize("k", [59, 94, 247])
def test_the_largest_of_many_arms_with_exponential_tails_is_much_sharper_than_each(law: Any, k: int) -> None:
    """Shapes near 0: the product of all F then changes K times as fast as an F, and panels must follow it."""
    shapes = 10.0 ** np.arange(-12.0, 0.0)[:, None] * np.ones(k)
    got = action_probabilities(law(shapes, np.ones_like(shapes)))
    np.testing.assert_allclose(got, 1.0 / k, atol=CLOSE, rtol=0)


def test_the_twin_itself_equals_adaptive_quadrature(rng: np.random.Generator) -> None:
    for _ in range(10):
        mean, sd = rng.normal(size=5), 10.0 ** rng.uniform(-0.7, 0.7, 5)
        np.testing.assert_allclose(twin.normals(mean, sd), twin.normals_by_quad(mean, sd), atol=1e-11, rtol=0)


def test_the_probability_of_the_choice_equals_the_table(rng: np.random.Generator) -> None:
    """One arm is integrated on its own; it has to be what all arms together give."""
    n = 400
    used, rows = keys(2, np.arange(n)), np.arange(n)
    for law in (
        Normal(rng.normal(size=(n, 6)), 10.0 ** rng.uniform(-3, 1, (n, 6))),
        Beta(10.0 ** rng.uniform(-3, 3, (n, 6)), 10.0 ** rng.uniform(-3, 3, (n, 6))),
        Gamma(10.0 ** rng.uniform(-3, 3, (n, 6)), 10.0 ** rng.uniform(-1, 1, (n, 6))),
    ):
        choice = mb.Thompson().choose(law, used)
        every, _ = mb.Thompson().probabilities(law, used)
        np.testing.assert_allclose(choice.probability, every[rows, choice.arm], atol=1e-12, rtol=0)


@pytest.mark.interpreted
def test_two_normals_have_a_closed_form() -> None:
    for gap, sd in ((0.3, [1.0, 2.0]), (-4.0, [0.5, 0.1]), (30.0, [1.0, 1.0]), (1e-9, [1e-9, 1e-10])):
        got = p_normal([gap, 0.0], sd)
        assert got[1] == pytest.approx(special.ndtr(-gap / np.hypot(*sd)), rel=1e-12)
        assert got.sum() == pytest.approx(1.0, abs=1e-15)


@pytest.mark.interpreted
def test_one_arm_and_one_eligible_arm() -> None:
    for law in (Normal(np.zeros(1), np.ones(1)), Beta(np.ones(1), np.ones(1)), Gamma(np.ones(1), np.ones(1))):
        assert action_probabilities(law).tolist() == [1.0]
    assert p_normal([0.0, 9.0, 1.0], np.ones(3), np.array([True, False, False])).tolist() == [1.0, 0.0, 0.0]


def test_a_thousand_arms(rng: np.random.Generator) -> None:
    np.testing.assert_allclose(p_normal(np.zeros(1000), np.ones(1000)), 1e-3, atol=EXACT, rtol=0)
    mean, sd = rng.normal(size=1000), rng.uniform(0.1, 2.0, 1000)
    got = p_normal(mean, sd)
    assert abs(got.sum() - 1.0) < 1e-6
    draws = np.concatenate([rng.normal(mean, sd, (1000, 1000)).argmax(axis=1) for _ in range(100)])
    counts = np.bincount(draws, minlength=1000)
    far = np.abs(counts - 1e5 * got) / np.sqrt(1e5 * got * (1 - got) + 1.0)
    assert far.max() < FAR


def test_one_arm_dominates() -> None:
    got = p_normal([100.0, 0.0, 1.0, -3.0], [1.0, 1.0, 2.0, 0.1])
    assert got[0] == pytest.approx(1.0, abs=1e-10)
    assert got[1:].max() < 1e-10


def test_ineligible_arms_are_as_if_they_were_not_there(rng: np.random.Generator) -> None:
    mean, sd = rng.normal(size=6), rng.uniform(0.2, 2.0, 6)
    eligible = np.array([True, False, True, True, False, True])
    got = p_normal(mean, sd, eligible)
    assert (got[~eligible] == 0.0).all()
    np.testing.assert_allclose(got[eligible], p_normal(mean[eligible], sd[eligible]), atol=1e-14)
    a, b = 10.0 ** rng.uniform(-1, 2, 6), 10.0 ** rng.uniform(-1, 2, 6)
    for kind in (Beta, Gamma):
        got = action_probabilities(kind(a, b), eligible)
        assert (got[~eligible] == 0.0).all()
        alone = action_probabilities(kind(a[eligible], b[eligible]))
        np.testing.assert_allclose(got[eligible], alone, atol=1e-14)


# -- point masses --------------------------------------------------------------------------------------------


@pytest.mark.interpreted
def test_point_masses() -> None:
    assert p_normal([1.0, 2.0, 2.0, 0.0], np.zeros(4)).tolist() == [0.0, 1.0, 0.0, 0.0]  # the lowest index
    assert p_normal([2.0, 2.0], np.zeros(2)).tolist() == [1.0, 0.0]
    got = p_normal([0.5, 0.5, 0.0, 0.2], [0.0, 0.0, 1.0, 2.0])
    below = special.ndtr(0.5) * special.ndtr(0.15)
    assert got[:2].tolist() == pytest.approx([below, 0.0], abs=1e-12)
    assert got.sum() == pytest.approx(1.0, abs=EXACT)
    assert p_normal([0.5, 0.0], [0.0, 1.0])[0] == pytest.approx(special.ndtr(0.5), abs=1e-14)


def test_a_point_mass_is_the_limit_of_a_narrow_law() -> None:
    mean = np.array([0.4, 0.0, 0.3, 0.1])
    limit = p_normal(mean, [0.0, 1.0, 0.5, 2.0])
    for narrow in (1e-12, 1e-15, 1e-18):
        np.testing.assert_allclose(p_normal(mean, [narrow, 1.0, 0.5, 2.0]), limit, atol=1e-9)


def test_tiny_sds_are_not_lost_in_large_means() -> None:
    """1e6 + 1e-14 z is 1e6 in floating point; the arms are equally good all the same, in draws and probabilities."""
    law = Normal(np.full((3000, 3), 1e6), np.full((3000, 3), 1e-14))
    choice = mb.Thompson().choose(law, keys(1, np.arange(3000)))
    np.testing.assert_allclose(choice.probability, 1.0 / 3.0, atol=EXACT)
    counts = np.bincount(choice.arm, minlength=3)
    assert np.abs(counts - 1000).max() < FAR * np.sqrt(3000 * 2 / 9)


# -- beta and gamma ------------------------------------------------------------------------------------------


def beta_cases() -> list[tuple[Array, Array]]:
    out, rng = [], np.random.default_rng(6)
    for k in (2, 3, 8):
        for n in (
            10.0 ** rng.uniform(-6, 7, k),
            10.0 ** rng.uniform(-2, 2, k),
            10.0 ** rng.uniform(0, 3, k),
            np.full(k, 1e7),
            np.full(k, 1e-6),
        ):
            p = np.clip(0.3 + 0.5 * rng.normal(size=k) / np.sqrt(n + 1.0), 0.02, 0.98)
            out.append((n * p, n * (1.0 - p)))
    return out


@pytest.mark.interpreted
@pytest.mark.parametrize(("a", "b"), beta_cases())
def test_betas_equal_dense_panels(a: Array, b: Array) -> None:
    got = action_probabilities(Beta(a, b))
    np.testing.assert_allclose(got, twin.betas(a, b), atol=ROUNDED, rtol=0)
    assert abs(got.sum() - 1.0) < CLOSE
    np.testing.assert_allclose(got[::-1], action_probabilities(Beta(a[::-1], b[::-1])), atol=CLOSE, rtol=0)


@pytest.mark.interpreted
@pytest.mark.parametrize("k", [2, 3, 8])
def test_gammas_equal_dense_panels(k: int, rng: np.random.Generator) -> None:
    for low, high in ((-6, 7), (-2, 2), (0, 3), (7, 7), (-6, -6)):
        shape = 10.0 ** rng.uniform(low, high, k)
        rate = shape * np.exp(rng.normal(size=k) / np.sqrt(shape + 1.0))
        got = action_probabilities(Gamma(shape, rate))
        np.testing.assert_allclose(got, twin.gammas(shape, rate), atol=ROUNDED, rtol=0)
        assert abs(got.sum() - 1.0) < CLOSE


def test_two_gammas_have_a_closed_form() -> None:
    """X1 > X2 when a beta variate of their shapes is below a bound."""
    for shapes, rates in (
        ([2.0, 3.0], [1.0, 1.5]),
        ([1e-6, 2e-6], [1.0, 1e-3]),
        ([1e7, 1e7 + 3e3], [1.0, 1.0]),
        ([1e-3, 40.0], [0.1, 1e9]),
    ):
        got = action_probabilities(Gamma(np.array(shapes), np.array(rates)))
        above = special.betainc(shapes[1], shapes[0], rates[1] / (rates[0] + rates[1]))
        assert got.tolist() == pytest.approx([above, 1.0 - above], abs=CLOSE)


def test_two_betas_of_whole_shapes_have_a_closed_form() -> None:
    for a, b in (([3, 5], [4, 2]), ([1, 1], [1, 1]), ([30, 12], [200, 90])):
        i = np.arange(a[1])
        terms = special.betaln(a[0] + i, b[0] + b[1]) - np.log(b[1] + i)
        above = np.exp(
            terms - special.betaln(1 + i, b[1]) - special.betaln(a[0], b[0])
        ).sum()  # P(second larger)
        got = action_probabilities(Beta(np.array(a, float), np.array(b, float)))
        assert got.tolist() == pytest.approx([1.0 - above, above], abs=EXACT)


def test_vanishing_shapes_have_a_limit() -> None:
    """Gammas of shape e a_k: the largest is arm k with probability a_k / sum a, as e goes to 0."""
    a = np.array([1.0, 3.0, 2.0])
    got = action_probabilities(Gamma(1e-9 * a, np.ones(3)))
    np.testing.assert_allclose(got, a / a.sum(), atol=2e-7)
    at_zero = action_probabilities(Beta(np.array([0.0, 1.0]), np.array([1.0, 1.0])))
    assert at_zero.tolist() == pytest.approx([0.0, 1.0], abs=1e-11)


@pytest.mark.interpreted
def test_the_extremes_of_floating_point() -> None:
    """Sums of one, whatever the shapes: also where laws are narrower than floating point can tell apart."""
    for a, b in (
        ([0.0, 1e-50, 1.0, 0.0], [1.0, 1.0, 1.0, 1.0]),
        ([0.0, 0.0, 1.0, 1e-50], [1.0, 1.0, 1.0, 0.0]),
        ([1e40, 1e40, 3e40], [1e40, 1e40, 1e40]),
        ([1e12, 1e11, 1.0], [1e-12, 1e-11, 1.0]),
    ):
        for kind in (Beta, Gamma):
            law = kind(np.array(a), np.array(b) + (1e-300 if kind is Gamma else 0.0))
            got = action_probabilities(law)
            assert ((got >= 0.0) & (got <= 1.0)).all()
            assert got.sum() == pytest.approx(1.0, abs=CLOSE)


def test_huge_shapes_become_normals() -> None:
    for n in (1e10, 1e14):
        p = 0.4 + np.array([0.0, 0.5, -1.0, 0.3]) * np.sqrt(0.24 / n)
        sd = np.sqrt(p * (1 - p) / n)
        got = action_probabilities(Beta(n * p, n * (1 - p)))
        np.testing.assert_allclose(got, p_normal(p, sd), atol=1e-4)


@pytest.mark.parametrize("kind", [Normal, Beta, Gamma])
def test_sampling_agrees(kind: type) -> None:
    """A million draws by numpy's own samplers, within 5 standard errors."""
    first = np.array([0.5, 1.5, 3.0, 0.7, 40.0])
    law = kind(first, np.array([1.0, 2.0, 3.5, 0.5, 30.0]))
    got = action_probabilities(law)
    counts = np.bincount(law.sample(np.random.default_rng(1), 1_000_000).argmax(axis=1), minlength=5)
    far = np.abs(counts - 1e6 * got) / np.sqrt(1e6 * got * (1 - got) + 1.0)
    assert far.max() < FAR


# -- correlated normals --------------------------------------------------------------------------------------


def test_correlated_arms_within_their_standard_errors(rng: np.random.Generator) -> None:
    root, mean = rng.normal(size=(5, 4)) + 0.3 * np.eye(5, 4), 0.5 * rng.normal(size=5)
    exact = best_arm(mean, root @ root.T + 1e-12 * np.eye(5))
    law = MultivariateNormal(np.tile(mean, (300, 1)), np.tile(root, (300, 1, 1)))
    every, errors = mb.Thompson(draws=200).probabilities(law, keys(3, np.arange(300)))
    np.testing.assert_allclose(every.sum(axis=1), 1.0, atol=1e-12)
    z = (every - exact) / errors
    assert np.abs(z.mean(axis=0)).max() * np.sqrt(300) < FAR + 0.5  # best_arm itself is good to about 1e-4
    assert np.all((z.std(axis=0) > 0.85) & (z.std(axis=0) < 1.2))


@pytest.mark.interpreted
def test_the_error_shrinks_with_more_lines_and_vanishes_for_two_arms() -> None:
    root = np.array([[1.0, 0.3, 0.0], [0.2, 1.0, 0.1], [0.5, 0.5, 0.5]])
    law = MultivariateNormal(np.zeros((1, 3)), root[None])
    few, many = (mb.Thompson(draws=n).probabilities(law, keys(1, [5]))[1] for n in (50, 5000))
    assert (many < 0.2 * few).all()
    pair = MultivariateNormal(np.array([[0.2, 0.0]]), root[None, :2])
    every, errors = mb.Thompson(draws=10).probabilities(pair, keys(1, [5]))
    sd = np.sqrt(((root[0] - root[1]) ** 2).sum())
    assert every[0, 0] == pytest.approx(special.ndtr(0.2 / sd), abs=1e-12)
    assert errors.max() < 1e-9


def test_uncorrelated_arms_agree_with_quadrature() -> None:
    sd, mean = np.array([1.0, 0.5, 2.0, 1.0]), np.array([0.0, 0.5, -0.5, 0.1])
    law = MultivariateNormal(mean[None], np.diag(sd)[None])
    every, errors = mb.Thompson(draws=20_000).probabilities(law, keys(1, [9]))
    assert (np.abs(every[0] - p_normal(mean, sd)) / errors[0]).max() < FAR


def test_arms_that_move_together_leave_the_best_mean() -> None:
    law = MultivariateNormal(np.array([[0.0, 1.0, 0.5]]), np.ones((1, 3, 1)))
    every, errors = mb.Thompson().probabilities(law, keys(1, [0]))
    assert every.tolist() == [[0.0, 1.0, 0.0]]
    assert errors.max() == 0.0


@pytest.mark.interpreted
def test_shares_of_a_line_equal_a_fine_grid(rng: np.random.Generator) -> None:
    from metabandit.kernels import correlated

    for k in (2, 5, 9):
        value, slope = rng.normal(size=k), rng.normal(size=k)
        slope[1] = slope[0]  # parallel lines
        out = np.empty(k)
        correlated.shares(value, slope, np.ones(k, bool), out)
        np.testing.assert_allclose(out, twin.shares(value, slope), atol=5e-5)


# -- properties ----------------------------------------------------------------------------------------------

arm = st.tuples(st.floats(-5, 5), st.floats(-4, 2))
arms = st.lists(arm, min_size=2, max_size=9)
KINDS: dict[str, Any] = {
    "normal": lambda m, s: Normal(m, 10.0**s),
    "beta": lambda m, s: Beta(10.0**s * special.expit(m), 10.0**s * special.expit(-m)),
    "gamma": lambda m, s: Gamma(10.0**s, 10.0**s * np.exp(-m)),
}


@pytest.mark.parametrize("kind", KINDS)
@given(arms=arms, order=st.randoms(use_true_random=False))
def test_they_sum_to_one_and_follow_a_permutation(kind: str, arms: Any, order: Any) -> None:
    m, s = np.array(arms).T
    got = action_probabilities(KINDS[kind](m, s))
    assert (got >= 0.0).all()
    assert got.sum() == pytest.approx(1.0, abs=CLOSE)
    turn = np.array(order.sample(range(len(m)), len(m)))
    np.testing.assert_allclose(action_probabilities(KINDS[kind](m[turn], s[turn])), got[turn], atol=CLOSE)


@pytest.mark.parametrize("kind", KINDS)
@given(arms=arms, shift=st.floats(0.0, 3.0))
def test_a_better_arm_is_more_probable_and_the_others_less(kind: str, arms: Any, shift: float) -> None:
    m, s = np.array(arms).T
    before = action_probabilities(KINDS[kind](m, s))
    m[0] += shift
    after = action_probabilities(KINDS[kind](m, s))
    if kind != "beta":  # a higher mean of fixed a + b also makes a beta law narrower or wider
        assert after[0] >= before[0] - CLOSE
        assert (after[1:] <= before[1:] + CLOSE).all()
    assert after.sum() == pytest.approx(1.0, abs=CLOSE)


@given(arms=arms, scale=st.floats(-30, 30), shift=st.floats(-1e3, 1e3))
def test_units_do_not_matter(arms: Any, scale: float, shift: float) -> None:
    m, s = np.array(arms).T
    m, s = np.round(m, 3), np.round(s, 3)
    unit = 10.0**scale
    np.testing.assert_allclose(p_normal(m * unit, 10.0**s * unit), p_normal(m, 10.0**s), atol=1e-8)
    np.testing.assert_allclose(p_normal(m + np.round(shift), 10.0**s), p_normal(m, 10.0**s), atol=1e-8)
