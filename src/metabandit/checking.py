"""Checks of what a caller gives. Each returns the value in the form the library works with, or refuses it."""

from __future__ import annotations

from typing import Any

import numpy as np

from metabandit.errors import DamagedFile, InvalidInput

Array = np.ndarray[Any, Any]


def finite(name: str, value: Any, shape: tuple[int, ...] | None = None) -> Array:
    """A float array without NaN or infinities, of the shape given."""
    try:
        array = np.asarray(value, float)
    except (TypeError, ValueError, OverflowError):
        raise InvalidInput(name, value, "numbers") from None
    if shape is not None and array.shape != shape:
        raise InvalidInput(name, f"<array of shape {array.shape}>", f"an array of shape {shape}")
    if not np.isfinite(array).all():
        bad = array[~np.isfinite(array)].flat[0]
        raise InvalidInput(name, float(bad), "finite numbers")
    return array


def covariance(name: str, value: Any) -> Array:
    """A scalar, a vector of variances, or a symmetric positive semi-definite matrix; nothing negative."""
    array = finite(name, value)
    if array.ndim > 2 or (array.ndim == 2 and array.shape[0] != array.shape[1]):
        raise InvalidInput(
            name, f"<array of shape {array.shape}>", "a number, a vector of variances or a square matrix"
        )
    if array.ndim < 2:
        if (array < 0).any():
            raise InvalidInput(name, float(array.min()), "numbers >= 0")
        return array
    if not np.allclose(array, array.T, rtol=1e-10, atol=1e-12 * max(1.0, float(np.abs(array).max()))):
        raise InvalidInput(
            name, "<a matrix that is not symmetric>", "a symmetric positive semi-definite matrix"
        )
    lowest = float(np.linalg.eigvalsh(array).min())
    if lowest < -1e-10 * max(1e-300, float(np.abs(array).max())):
        raise InvalidInput(
            name, f"<a matrix with eigenvalue {lowest:.3g}>", "a symmetric positive semi-definite matrix"
        )
    return 0.5 * (array + array.T)


def positive(name: str, value: Any) -> Array:
    """A scalar or a vector of numbers > 0."""
    array = finite(name, value)
    if array.ndim > 1:
        raise InvalidInput(name, f"<array of shape {array.shape}>", "a number or a vector of numbers > 0")
    if (array <= 0).any():
        raise InvalidInput(name, float(array.min()), "numbers > 0")
    return array


def count(name: str, value: Any, least: int = 1) -> int:
    """A whole number of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
        raise InvalidInput(name, value, f"a whole number >= {least}")
    return int(value)


def indices(name: str, value: Any, size: int, of: str) -> Array:
    """Whole numbers in 0 ... size - 1, as a flat int64 array."""
    if type(value) is int and 0 <= value < size:  # one task, decided thousands of times a second
        return np.array([value])
    if (
        type(value) is np.ndarray
        and value.shape == (1,)
        and value.dtype == np.int64
        and 0 <= int(value[0]) < size
    ):
        return value
    array = np.atleast_1d(np.asarray(value))
    if array.dtype.kind not in "iu" and array.size:
        raise InvalidInput(name, value, f"{of} numbers from 0 to {size - 1}")
    if array.ndim != 1:
        raise InvalidInput(name, f"<array of shape {array.shape}>", "a number or a vector")
    if array.size and (int(array.min()) < 0 or int(array.max()) >= size):
        bad = int(array.min()) if int(array.min()) < 0 else int(array.max())
        accepted = f"{of} numbers from 0 to {size - 1}" if size else f"nothing yet: there is no {of}"
        raise InvalidInput(name, bad, accepted)
    return array.astype(np.int64, copy=False)


def checked_name(name: str, value: str) -> str:
    """A text that can name something: not blank, and one that can be written to a file, as no lone surrogate can."""
    if not value.strip():
        raise InvalidInput(name, value, "a text that is not blank")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidInput(name, value, "a text that can be encoded as UTF-8") from None
    return value


def expect(name: str, array: Any, shape: tuple[int, ...], least: float | None = None) -> Array:
    """An array out of a file, as floats: finite, of this shape, not below `least`; else DamagedFile."""
    made = np.array(array, float) if isinstance(array, np.ndarray) and array.dtype.kind in "fiu" else None
    if made is None or made.shape != shape or not np.isfinite(made).all():
        raise DamagedFile(f"{name}: not finite numbers of shape {shape}")
    if least is not None and made.size and made.min() < least:
        raise DamagedFile(f"{name}: a number below {least}")
    return made
