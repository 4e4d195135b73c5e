"""Random numbers from a key: the same key gives the same numbers, on any day, in any order of decisions.

A stream is one uint64 in an array of length 1. Each step adds an odd constant and scrambles the result
(SplitMix64, Steele, Lea & Flood 2014); normals are the inverse distribution function of one uniform, so that a
normal always costs exactly one step. Where the uniform is further than 2^-10 from 0 and 1 it is a polynomial from a
table, whose row is the top bits of the number itself: no branch, no logarithm. Nearer, it is Wichura's algorithm
AS 241 (1988), which also makes the table.
"""

# mypy: disable-error-code="no-untyped-call"
# Long lists of arrays and of constants read better in few lines:
# fmt: off
from __future__ import annotations

import math
from typing import Any

import numpy as np

from metabandit.kernels._jit import compiled, part

Array = np.ndarray[Any, Any]

ONE = np.uint64(1)
STEP = np.uint64(0x9E3779B97F4A7C15)
MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
MIX_2 = np.uint64(0x94D049BB133111EB)
CENTRE = 0.425
TO_UNIT = 1.0 / 4503599627370496.0  # 2^-52: with 53 bits the largest uniform would round to 1


@part
def scramble(word):  # type: ignore[no-untyped-def]
    """A bijection of 64 bits whose output looks random."""
    word = (word ^ (word >> np.uint64(30))) * MIX_1
    word = (word ^ (word >> np.uint64(27))) * MIX_2
    return word ^ (word >> np.uint64(31))


@part
def unit(word):  # type: ignore[no-untyped-def]
    """A word, scrambled, as a number strictly inside (0, 1); 1 minus it is exact."""
    return (float(scramble(word) >> np.uint64(12)) + 0.5) * TO_UNIT


@part
def uniform(state):  # type: ignore[no-untyped-def]
    """The next number of the stream, strictly inside (0, 1)."""
    state[0] = state[0] + STEP
    return unit(state[0])


def central(q: float) -> float:
    """The standard normal quantile of 0.5 + q for |q| <= 0.425 (AS 241, PPND16)."""
    r = 0.180625 - q * q
    top = ((((((2.5090809287301226727e3 * r + 3.3430575583588128105e4) * r + 6.7265770927008700853e4) * r
              + 4.5921953931549871457e4) * r + 1.3731693765509461125e4) * r + 1.9715909503065514427e3) * r
           + 1.3314166789178437745e2) * r + 3.3871328727963666080e0
    low = ((((((5.2264952788528545610e3 * r + 2.8729085735721942674e4) * r + 3.9307895800092710610e4) * r
              + 2.1213794301586595867e4) * r + 5.3941960214247511077e3) * r + 6.8718700749205790830e2) * r
           + 4.2313330701600911252e1) * r + 1.0
    return q * top / low


@part
def tail(p):  # type: ignore[no-untyped-def]
    """The standard normal quantile of p <= 0.075 (AS 241, PPND16)."""
    r = math.sqrt(-math.log(p))
    if r <= 5.0:
        r -= 1.6
        top = ((((((7.74545014278341407640e-4 * r + 2.27238449892691845833e-2) * r + 2.41780725177450611770e-1) * r
                  + 1.27045825245236838258e0) * r + 3.64784832476320460504e0) * r + 5.76949722146069140550e0) * r
               + 4.63033784615654529590e0) * r + 1.42343711074968357734e0
        low = ((((((1.05075007164441684324e-9 * r + 5.47593808499534494600e-4) * r + 1.51986665636164571966e-2) * r
                  + 1.48103976427480074590e-1) * r + 6.89767334985100004550e-1) * r + 1.67638483018380384940e0) * r
               + 2.05319162663775882187e0) * r + 1.0
    else:
        r -= 5.0
        top = ((((((2.01033439929228813265e-7 * r + 2.71155556874348757815e-5) * r + 1.24266094738807843860e-3) * r
                  + 2.65321895265761230930e-2) * r + 2.96560571828504891230e-1) * r + 1.78482653991729133580e0) * r
               + 5.46378491116411436990e0) * r + 6.65790464350110377720e0
        low = ((((((2.04426310338993978564e-15 * r + 1.42151175831644588870e-7) * r + 1.84631831751005468180e-5) * r
                  + 7.86869131145613259100e-4) * r + 1.48753612908506148525e-2) * r + 1.36929880922735805310e-1) * r
               + 5.99832206555887937690e-1) * r + 1.0
    return -top / low


def taylor(p: float, width: float) -> list[float]:
    """The quantile z(p + t width) in powers of t: z'' = z z'^2 gives every coefficient from those before it."""
    q = p - 0.5
    z = [central(q) if abs(q) <= CENTRE else _interpreted(tail)(p)]
    z.append(math.sqrt(2.0 * math.pi) * math.exp(0.5 * z[0] * z[0]) * width)
    for n in range(DEGREE - 1):
        slope = [(i + 1) * z[i + 1] for i in range(n + 1)]
        square = [sum(slope[i] * slope[j - i] for i in range(j + 1)) for j in range(n + 1)]
        z.append(sum(z[i] * square[n - i] for i in range(n + 1)) / ((n + 1) * (n + 2)))
    return z


def _interpreted(function: Any) -> Any:
    return getattr(function, "py_func", function)


def _table() -> Array:
    """A row of coefficients for each 16th of an octave, LEAST to 1/2, and one for 1/2 itself, whose quantile is 0."""
    starts = [2.0**octave * (1.0 + part / PARTS) for octave in range(-OCTAVES - 1, -1) for part in range(PARTS)]
    widths = [2.0**octave / PARTS for octave in range(-OCTAVES - 1, -1) for _ in range(PARTS)]
    rows = [taylor(start + 0.5 * width, width) for start, width in zip(starts, widths, strict=True)]
    return np.array([*rows, [0.0] * (DEGREE + 1)])


OCTAVES, PARTS, DEGREE = 9, 16, 9  # what is left out of the polynomials is below 1e-17
LEAST = 2.0 ** (-OCTAVES - 1)
TABLE = _table()
TOP = np.int64(52 - 4)  # the bits of a double below its exponent and the four that say which 16th of an octave
REST = np.int64((1 << 48) - 1)
OF_ONE = np.int64(1023 << 52)  # the exponent bits of numbers from 1 to 2
FIRST = np.int64(np.float64(LEAST).view(np.int64) >> TOP)


@part
def inner(p):  # type: ignore[no-untyped-def]
    """The standard normal quantile of p from LEAST to 0.5; below, some number. Loops over it vectorise."""
    bits = np.float64(p).view(np.int64)
    row = TABLE[max((bits >> TOP) - FIRST, np.int64(0))]
    t = (np.int64(bits & REST | OF_ONE).view(np.float64) - 1.0) * PARTS - 0.5
    square = t * t
    low = (row[0] + row[1] * t) + (row[2] + row[3] * t) * square
    high = ((row[4] + row[5] * t) + (row[6] + row[7] * t) * square) + (row[8] + row[9] * t) * (square * square)
    return low + high * (square * square)


@part
def quantile(p):  # type: ignore[no-untyped-def]
    """The standard normal quantile: to 1e-16 and a few units in the last place."""
    less = min(p, 1.0 - p)
    z = inner(less) if less >= LEAST else tail(less)
    return z if p < 0.5 else -z


@part
def normal(state):  # type: ignore[no-untyped-def]
    """A standard normal: one step of the stream."""
    return quantile(uniform(state))


@compiled
def gamma(state, shape):  # type: ignore[no-untyped-def]
    """A gamma variate with scale 1, any shape > 0 (Marsaglia & Tsang 2000; below 1 by the power trick)."""
    boost = 1.0
    a = shape
    if a < 1.0:
        boost = math.exp(math.log(uniform(state)) / a)
        a += 1.0
    d = a - 1.0 / 3.0
    c = 1.0 / math.sqrt(9.0 * d)
    while True:
        z = normal(state)
        v = 1.0 + c * z
        if v <= 0.0:
            continue
        v = v * v * v
        if math.log(uniform(state)) < 0.5 * z * z + d - d * v + d * math.log(v):
            return d * v * boost


@part
def keys_of(seed, numbers, out):  # type: ignore[no-untyped-def]
    """The key of every decision number under a seed: out[j] = key(seed, numbers[j])."""
    root = scramble(seed + STEP)
    for j in range(numbers.shape[0]):
        out[j] = scramble(root + (numbers[j] + ONE) * STEP)  # not symmetric in seed and number


@part
def substreams(keys, purpose, out):  # type: ignore[no-untyped-def]
    """Independent streams from the same keys, one for each purpose."""
    for j in range(keys.shape[0]):
        out[j] = scramble(keys[j] ^ scramble(purpose * MIX_1 + STEP))


@part
def normals_from(start, out):  # type: ignore[no-untyped-def]
    """out becomes the first standard normals of the stream `start`: what normal() gives, several at a time."""
    nearest = 0.5
    for k in range(out.shape[0]):
        p = unit(start + np.uint64(k + 1) * STEP)
        less = min(p, 1.0 - p)
        nearest = min(nearest, less)
        z = inner(less)
        out[k] = z if p < 0.5 else -z
    if nearest < LEAST:
        for k in range(out.shape[0]):
            p = unit(start + np.uint64(k + 1) * STEP)
            if min(p, 1.0 - p) < LEAST:
                out[k] = quantile(p)


@part
def fill_normals(keys, out):  # type: ignore[no-untyped-def]
    """Row j of out becomes the first standard normals of the stream keys[j]."""
    for j in range(out.shape[0]):
        normals_from(keys[j], out[j])


@compiled
def more_normals(state, out):  # type: ignore[no-untyped-def]
    for k in range(out.shape[0]):
        out[k] = normal(state)


@compiled
def more_uniforms(state, out):  # type: ignore[no-untyped-def]
    for k in range(out.shape[0]):
        out[k] = uniform(state)


@compiled
def more_gammas(state, shape, out):  # type: ignore[no-untyped-def]
    for k in range(out.shape[0]):
        out[k] = gamma(state, shape[k])
