"""Settings: where they come from, which goes first, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from metabandit.errors import InvalidInput
from metabandit.service.settings import Settings, gathered

TEXTS: dict[str, tuple[str, Any]] = {
    # as the environment has it, and what it means
    "host": ("::1", "::1"),
    "port": ("9000", 9000),
    "store": ("postgresql://me@db/b", "postgresql://me@db/b"),
    "workers": ("4", 4),
    "require_key": ("true", True),
    "rate": ("2.5", 2.5),
    "body_limit": ("4096", 4096),
    "hosts": ("a.example,b.example", ["a.example", "b.example"]),
}


def file(folder: Path, text: str) -> str:
    path = folder / "settings.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def toml(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else repr(value)


def test_every_setting_can_be_given_in_every_way(tmp_path: Path) -> None:
    assert set(TEXTS) == set(Settings.__struct_fields__)
    wanted = Settings(**{name: value for name, (_, value) in TEXTS.items()})
    assert all(getattr(wanted, name) != getattr(Settings(), name) for name in TEXTS)
    environ = {f"METABANDIT_{name.upper()}": text for name, (text, _) in TEXTS.items()}
    written = file(tmp_path, "\n".join(f"{name} = {toml(value)}" for name, (_, value) in TEXTS.items()))
    assert gathered({}, environ, None) == wanted
    assert gathered({}, {}, written) == wanted
    assert gathered({}, {"METABANDIT_CONFIG": written}, None) == wanted
    assert gathered({name: value for name, (_, value) in TEXTS.items()}, {}, None) == wanted
    assert gathered(dict.fromkeys(TEXTS), {}, None) == Settings()


def test_flags_go_before_the_environment_before_the_file_before_what_is_default(tmp_path: Path) -> None:
    written = file(tmp_path, 'port = 1\nrate = 1\nhost = "127.0.0.9"\nrequire_key = true')
    environ = {"METABANDIT_PORT": "2", "METABANDIT_RATE": "2", "METABANDIT_REQUIRE_KEY": "false"}
    found = gathered({"port": 3, "rate": None}, environ, written)
    assert (found.port, found.rate, found.host, found.require_key) == (3, 2.0, "127.0.0.9", False)
    assert found.body_limit == Settings().body_limit
    other = tmp_path / "other.toml"
    other.write_text("port = 7")
    assert gathered({}, {"METABANDIT_CONFIG": str(other)}, written).port == 1  # a flag too


@pytest.mark.parametrize(
    ("flags", "environ", "text", "said"),
    [
        ({"port": 65536}, {}, "", "port: got 65536; accepted: a whole number <= 65535"),
        ({"port": -1}, {}, "", "port: got -1; accepted: a whole number >= 0"),
        ({"rate": float("nan")}, {}, "", "rate: got nan; accepted: a number"),
        ({"rate": float("inf")}, {}, "", "rate: got inf; accepted: a number"),
        ({"rate": -1.0}, {}, "", "rate: got -1.0; accepted: a number >= 0"),
        ({"body_limit": 10}, {}, "", "body_limit: got 10; accepted: a whole number >= 1024"),
        ({"workers": 0}, {}, "", "workers: got 0; accepted: a whole number >= 1"),
        ({"workers": 2}, {}, "", "workers: got 2; accepted: 1 with SQLite; several share --store postgresql"),
        ({}, {"METABANDIT_PORT": "eighty"}, "", "METABANDIT_PORT: got 'eighty'; accepted: a whole number"),
        ({}, {"METABANDIT_PORT": ""}, "", "METABANDIT_PORT: got ''; accepted: a whole number"),
        (
            {},
            {"METABANDIT_REQUIRE_KEY": "maybe"},
            "",
            "METABANDIT_REQUIRE_KEY: got 'maybe'; accepted: true or",
        ),
        ({}, {"METABANDIT_WORKERS": "3"}, "", "workers: got 3; accepted: 1 with SQLite"),
        ({}, {}, "prot = 1", "config: got 'prot'; accepted: host, port, store"),
        ({}, {}, "port = '1'", "settings.toml: port: got '1'; accepted: a whole number"),
        ({"port": 1}, {}, "port = '1'", "settings.toml: port: got '1'; accepted: a whole number"),
        ({}, {}, "hosts = [3]", "settings.toml: hosts: got [3]; accepted: a text"),
        ({}, {}, "port = 1 2", "accepted: a TOML file (Expected newline"),
        (
            {},
            {"METABANDIT_CONFIG": "/nowhere.toml"},
            "",
            "config: got '/nowhere.toml'; accepted: a TOML file that",
        ),
    ],
)
def test_what_is_wrong_is_said_of_where_it_is(
    tmp_path: Path, flags: dict[str, Any], environ: dict[str, str], text: str, said: str
) -> None:
    with pytest.raises(InvalidInput) as caught:
        gathered(flags, environ, file(tmp_path, text) if text else None)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "settings.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidInput, match="a TOML file"):
        gathered({}, {}, str(tmp_path / "settings.toml"))
    with pytest.raises(InvalidInput, match="a TOML file that can be read"):
        gathered({}, {}, str(tmp_path))


@pytest.mark.parametrize(
    ("host", "loopback"),
    [("127.0.0.1", True), ("127.1.2.3", True), ("::1", True), ("localhost", True), ("0.0.0.0", False),
     ("::", False), ("10.0.0.1", False), ("db.example", False), ("", False), ("::ffff:127.0.0.1", False),
     ("2130706433", False)],
)  # fmt: skip
def test_loopback(host: str, loopback: bool) -> None:
    assert Settings(host=host).loopback is loopback
