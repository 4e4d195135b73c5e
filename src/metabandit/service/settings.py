"""How a service is set up: flags first, then environment variables, then a TOML file, then what is default."""

from __future__ import annotations

import ipaddress
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from metabandit.errors import InvalidInput
from metabandit.service.decoding import wanted

PREFIX = "METABANDIT_"
LOCAL_NAMES = ("localhost", "127.0.0.1", "::1")


class Settings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that `metabandit serve` can be told; the docstrings are its help.

    >>> from metabandit.service.settings import Settings
    >>> Settings(store="x.db").port
    8080
    """

    host: str = "127.0.0.1"
    """Where to listen. Anything but loopback needs API keys."""
    port: Annotated[int, Meta(ge=0, le=65535)] = 8080
    """The port; 0: any that is free."""
    store: str = "./metabandit.db"
    """An SQLite file, or postgresql://user:password@host/database."""
    workers: Annotated[int, Meta(ge=1, le=64)] = 1
    """Processes; more than one needs PostgreSQL."""
    require_key: bool = False
    """Ask for API keys on loopback too, and before there are any."""
    rate: Annotated[float, Meta(ge=0, le=1e9)] = 1000.0
    """Requests a second an API key may send to a worker, twice as many at once; 0: no limit."""
    body_limit: Annotated[int, Meta(ge=1024)] = 16 * 1024 * 1024
    """Bytes of a request at most."""
    hosts: list[str] = []
    """Names by which clients on loopback may call the service beside localhost."""

    @property
    def loopback(self) -> bool:
        """Whether only this machine can reach the service."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def several(self) -> bool:
        """Whether the store can be shared by processes."""
        return self.store.startswith(("postgresql://", "postgres://"))

    def check(self) -> None:
        """Refuse what does not fit together."""
        if self.workers > 1 and not self.several:
            raise InvalidInput(
                "workers", self.workers, "1 with SQLite; several share --store postgresql://..."
            )


def gathered(flags: Mapping[str, Any], environ: Mapping[str, str], file: str | None) -> Settings:
    """Settings from flags (None: not given), METABANDIT_<NAME>, and the TOML file."""
    file = file or environ.get(PREFIX + "CONFIG")
    found: dict[str, Any] = _of_file(Path(file)) if file else {}
    for name in Settings.__struct_fields__:
        text = environ.get(PREFIX + name.upper())
        if text is not None:
            found[name] = _of_text(name, text, f"{PREFIX}{name.upper()}")
    found |= {name: value for name, value in flags.items() if value is not None}
    settings = _converted(found, "")
    settings.check()
    return settings


def _of_file(path: Path) -> dict[str, Any]:
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidInput("config", str(path), f"a TOML file that can be read ({error.strerror})") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidInput("config", str(path), f"a TOML file ({error})") from None
    for name in found:
        if name not in Settings.__struct_fields__:
            accepted = f"{', '.join(Settings.__struct_fields__)} in {path}"
            raise InvalidInput("config", name, accepted)
    _converted(found, f"{path}: ")
    return found


def _of_text(name: str, text: str, variable: str) -> Any:
    kind = Settings.__annotations__[name]
    value: Any = text.split(",") if "list" in kind else text
    try:
        return getattr(msgspec.convert({name: value}, Settings, strict=False), name)
    except msgspec.ValidationError as error:
        raise InvalidInput(variable, text, wanted(name, _said(error))) from None


def _converted(found: dict[str, Any], where: str) -> Settings:
    """where : what is wrong with a file is said of the file."""
    try:
        return msgspec.convert(found, Settings)
    except msgspec.ValidationError as error:
        name = str(error).rpartition("`$.")[2].rstrip("`").partition("[")[0]
        raise InvalidInput(where + name, found.get(name), wanted(name, _said(error))) from None


def _said(error: msgspec.ValidationError) -> str:
    return str(error).partition(" - at ")[0]
