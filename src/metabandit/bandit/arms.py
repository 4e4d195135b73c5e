"""The arms by name: which there are, which can be chosen."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from metabandit.checking import checked_name
from metabandit.errors import InvalidInput, UnknownName

Array = np.ndarray[Any, Any]


class Arms:
    """Names, their numbers, and whether each is active; retired arms keep their number."""

    def __init__(self, names: Iterable[str]) -> None:
        self.names = _checked(names)
        self.index = {arm: a for a, arm in enumerate(self.names)}
        self.set_active(np.ones(len(self.names), bool))

    def set_active(self, active: Array) -> None:
        """Which arms can be chosen : (K,)."""
        self.active, self.all_active = active, bool(active.all())

    def __len__(self) -> int:
        return len(self.names)

    def number(self, arm: Any) -> int:
        """The number of a known arm."""
        index = self.index.get(arm) if isinstance(arm, str) else None
        if index is None:
            raise UnknownName("arm", arm, f"one of {self.names}")
        return index

    def check_new(self, arm: Any) -> None:
        """Refuse a name that is taken or is no name."""
        _checked([arm])
        if arm in self.index:
            raise InvalidInput("arm", arm, f"a name not in use; there are {self.names}")

    def add(self, arm: str) -> None:
        self.index[arm] = len(self.names)
        self.names.append(arm)
        self.set_active(np.append(self.active, True))

    @property
    def active_names(self) -> list[str]:
        return [arm for arm, active in zip(self.names, self.active, strict=True) if active]

    def retire(self, arm: str) -> None:
        if self.active_names == [arm]:
            raise InvalidInput("arm", arm, "an arm that is not the last active one")
        self.switch(arm, False)

    def switch(self, arm: str, active: bool) -> None:
        """Whether an arm can be chosen."""
        switched = self.active.copy()
        switched[self.number(arm)] = active
        self.set_active(switched)

    def named(self, eligible: Any) -> Array | None:
        """The arms that are named, retired or not : (K,); None when none had to be."""
        if eligible is None:
            return None
        flags = isinstance(eligible, np.ndarray) and eligible.dtype.kind in "biuf"
        if flags or isinstance(eligible, (str, dict)) or not isinstance(eligible, Iterable):
            raise InvalidInput("eligible", eligible, "a list of the names of arms")
        mask = np.zeros(len(self.names), bool)
        mask[[self.number(arm) for arm in eligible]] = True
        if not mask.any():
            raise InvalidInput("eligible", eligible, f"at least one of the active arms {self.active_names}")
        return mask

    def many_named(self, eligible: Any, n: int) -> Array | None:
        """The same for n decisions : (n, K), from a list of arms for each or a boolean array."""
        if eligible is None:
            return None
        shape = (n, len(self.names))
        accepted = (
            f"a list of arms for each task, such as [{self.names[:2]}, ...], or a boolean array {shape}"
        )
        if isinstance(eligible, np.ndarray) and eligible.dtype.kind in "biuf":
            if eligible.dtype != bool or eligible.shape != shape:
                raise InvalidInput(
                    "eligible", f"<{eligible.dtype} array of shape {eligible.shape}>", accepted
                )
            if not eligible.any(axis=1).all():
                raise InvalidInput("eligible", "<a row without an arm>", "at least one active arm for each")
            return eligible.copy()
        if not hasattr(eligible, "__len__") or isinstance(eligible, (str, dict)):
            raise InvalidInput("eligible", eligible, accepted)
        if any(isinstance(arms, str) for arms in eligible):
            raise InvalidInput("eligible", eligible, accepted)
        if len(eligible) != n:
            raise InvalidInput("eligible", f"<{len(eligible)} entries>", f"one for each of {n} tasks")
        every = np.ones(len(self.names), bool)
        rows = [every if arms is None else self.named(arms) for arms in eligible]
        return np.array(rows, bool).reshape(shape)

    def choosable(self, named: Array | None, n: int) -> Array | None:
        """Those of the named arms that are active : (n, K), of named (n, K); None when all are."""
        if named is None:
            return None if self.all_active else np.tile(self.active, (n, 1))
        masks = named & self.active
        if not masks.any(axis=1).all():
            row = int(np.flatnonzero(~masks.any(axis=1))[0])
            retired = [arm for arm, is_named in zip(self.names, named[row], strict=True) if is_named]
            raise InvalidInput("eligible", retired, f"at least one of the active arms {self.active_names}")
        return masks


def _checked(arms: Iterable[str]) -> list[str]:
    if isinstance(arms, str) or not isinstance(arms, Iterable):
        raise InvalidInput("arms", arms, "a list of names")
    names = list(arms)
    if not names or not all(isinstance(arm, str) for arm in names):
        raise InvalidInput("arms", names, "at least one name, each a text")
    for name in names:
        checked_name("arms", name)
    if len(set(names)) < len(names):
        twice = next(arm for arm in names if names.count(arm) > 1)
        raise InvalidInput("arms", twice, "different names")
    return names
