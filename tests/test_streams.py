"""Keyed random numbers: the right laws, the same on every day, and none in common between decisions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import special, stats

from metabandit import streams
from metabandit.kernels import streams as kernel
from metabandit.streams import Stream
from tests.statistics import P_LEAST

pytestmark = [
    pytest.mark.interpreted,
    pytest.mark.filterwarnings(
        "ignore:overflow encountered:RuntimeWarning"
    ),  # 64-bit words wrap around on purpose
]

MASK = (1 << 64) - 1


def split_mix(state: int) -> tuple[int, int]:
    """One step of SplitMix64 with Python's own integers."""
    state = (state + 0x9E3779B97F4A7C15) & MASK
    word = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & MASK
    return state, word ^ (word >> 31)


def test_the_twin_gives_the_published_numbers() -> None:
    """The first outputs for the seed 1234567, as every SplitMix64 gives them."""
    state, words = 1234567, []
    for _ in range(3):
        state, word = split_mix(state)
        words.append(word)
    assert words == [6457827717110365317, 3203168211198807973, 9817491932198370423]


@pytest.mark.parametrize("key", [0, 1, 1234567, 2**63, MASK])
def test_uniforms_are_split_mix(key: int) -> None:
    state, expected = key, []
    for _ in range(100):
        state, word = split_mix(state)
        expected.append(((word >> 11) + 0.5) / 2**53)
    np.testing.assert_allclose(Stream(key).random(100), expected, rtol=0.0, atol=2.0**-53)


def state_before(word: int) -> int:
    """The state whose next output is `word`: every step of the generator can be undone."""

    def unshift(value: int, by: int) -> int:
        out = value
        for _ in range(64 // by + 1):
            out = value ^ (out >> by)
        return out

    word = unshift(word, 31) * pow(0x94D049BB133111EB, -1, 1 << 64) & MASK
    word = unshift(word, 27) * pow(0xBF58476D1CE4E5B9, -1, 1 << 64) & MASK
    return (unshift(word, 30) - 0x9E3779B97F4A7C15) & MASK


@pytest.mark.parametrize("word", [0, 1, MASK])
def test_a_uniform_is_strictly_inside_its_interval(word: int) -> None:
    key = state_before(word)
    assert split_mix(key)[1] == word
    assert 0.0 < Stream(key).random() < 1.0
    assert np.isfinite(Stream(key).standard_normal())


def test_quantiles() -> None:
    tails = [10.0 ** -np.arange(1.0, 17.0), 1.0 - 2.0 ** -np.arange(2.0, 53.0)]
    p = np.concatenate([np.linspace(1e-6, 1 - 1e-6, 2001), *tails])
    got = np.array([kernel.quantile(x) for x in p])
    np.testing.assert_allclose(got, special.ndtri(p), rtol=2e-14, atol=1e-15)


def test_laws() -> None:
    n = 4000
    assert stats.kstest(Stream(1).random(n), "uniform").pvalue > P_LEAST
    assert stats.kstest(Stream(2).standard_normal(n), "norm").pvalue > P_LEAST
    assert (
        stats.kstest(1.02 * Stream(2).standard_normal(40 * n), "norm").pvalue < P_LEAST
    )  # the test can fail


@pytest.mark.parametrize("shape", [0.05, 0.5, 1.0, 1.5, 30.0])
def test_gamma_law(shape: float) -> None:
    draws = Stream(3).standard_gamma(np.full(4000, shape))
    assert stats.kstest(draws, stats.gamma(shape).cdf).pvalue > P_LEAST
    assert stats.kstest(draws, stats.gamma(shape * 1.3 + 0.02).cdf).pvalue < P_LEAST  # the test can fail


def test_shapes_are_those_of_a_generator() -> None:
    for made in (Stream(4), np.random.default_rng(4)):
        assert isinstance(made.standard_normal(), float)
        assert isinstance(made.random(), float)
        assert isinstance(made.standard_gamma(2.0), float)
        assert made.standard_normal((2, 3)).shape == made.random((2, 3)).shape == (2, 3)
        assert made.standard_gamma(np.ones((2, 3))).shape == (2, 3)
        assert made.standard_gamma(np.ones(3), (2, 3)).shape == (2, 3)
        assert made.standard_normal(0).shape == (0,)


def test_a_normal_costs_one_step_so_that_batches_are_slices() -> None:
    whole, parts = Stream(5).standard_normal(7), Stream(5)
    pieces = [parts.standard_normal(3), [parts.standard_normal()], parts.standard_normal(3)]
    assert np.concatenate(pieces).tolist() == whole.tolist()
    keys = streams.keys(9, np.arange(4))
    assert streams.normals(keys, 3).tolist() == [Stream(int(key)).standard_normal(3).tolist() for key in keys]


@pytest.mark.parametrize("word", [0, 1 << 40, 1 << 54, (1 << 54) - 4096, 1 << 62, MASK >> 1, 1 << 63, MASK])
def test_many_normals_are_the_same_as_one_by_one_in_the_tails_too(word: int) -> None:
    key = state_before(word)
    made = streams.normals(np.array([key], np.uint64), 3)[0]
    assert made.tolist() == [Stream(key).standard_normal(), *Stream(key).standard_normal(3)[1:].tolist()]
    np.testing.assert_allclose(
        made[0], special.ndtri((float(word >> 12) + 0.5) / 2.0**52), rtol=1e-13, atol=1e-16
    )


def test_the_table_of_quantiles_has_no_seams() -> None:
    """At every edge of an interval, on both sides of it, and in its middle."""
    edges = [2.0**octave * (1.0 + part / 16) for octave in range(-12, -1) for part in range(16)]
    p = np.array([*edges, *np.nextafter(edges, 0.0), *(1.03125 * np.array(edges))])
    p = np.concatenate([p, 1.0 - p])
    got = np.array([kernel.quantile(x) for x in p])
    np.testing.assert_allclose(got, special.ndtri(p), rtol=2e-15, atol=3e-16)
    assert kernel.quantile(0.5) == 0.0


def test_keys_do_not_collide_and_do_not_depend_on_the_batch() -> None:
    keys = streams.keys(5, np.arange(10, 20_000))
    purposes = (streams.DRAW, streams.ARMS, streams.SPREAD)
    made = np.concatenate([keys, *(streams.substreams(keys, purpose) for purpose in purposes)])
    assert len(np.unique(made)) == len(made)
    assert streams.keys(5, [77])[0] == keys[67]


def test_keys_of_different_seeds_do_not_collide() -> None:
    made = np.concatenate([streams.keys(seed, np.arange(200)) for seed in range(100)])
    assert len(np.unique(made)) == len(made)


def test_neighbouring_decisions_are_independent() -> None:
    keys = streams.keys(3, np.arange(4000))
    first = streams.normals(streams.substreams(keys, streams.DRAW), 2)
    second = streams.normals(streams.substreams(keys, streams.ARMS), 2)
    columns = np.column_stack([first, second, np.roll(first, 1, axis=0)])
    correlations = np.corrcoef(columns.T)[np.triu_indices(6, 1)]
    assert np.abs(correlations).max() < 4.5 / np.sqrt(4000)
    for column in first.T:
        assert stats.kstest(column, "norm").pvalue > P_LEAST


def test_names_have_numbers() -> None:
    assert streams.number_of(17) == 17
    numbers = [streams.number_of(name) for name in ("17", "18", "", "ä")]
    assert len(set(numbers)) == 4
    assert all(2**63 <= number < 2**64 for number in numbers)  # never the number of a small int
    assert numbers[0] == 13005073621571156256  # the same in every process, whatever PYTHONHASHSEED is


def test_random_numbers_of_one_key_never_change() -> None:
    """Logged decisions are replayed years later: these numbers are a promise."""
    key = int(streams.keys(7, [streams.number_of("decision-1")])[0])
    assert key == 11943862387894687210
    got: list[Any] = [*Stream(key).standard_normal(2), *Stream(key).standard_gamma([0.5, 3.0])]
    promised = [-0.052363134425249855, -0.8546748690114014, 0.10687985937761513, 0.8908769060903576]
    np.testing.assert_allclose(got, promised, rtol=1e-13)  # the last digit is the system's logarithm
