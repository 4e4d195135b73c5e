"""The command: what it says, what it needs, how it refuses."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import metabandit as mb
from metabandit import demo
from metabandit.cli import main

EXTRAS = ("formulaic", "pandas", "sklearn", "arviz", "matplotlib")


def test_the_demonstration_needs_no_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    for package in EXTRAS:
        monkeypatch.setitem(sys.modules, package, None)
    done = CliRunner().invoke(main, ["demo", "--users", "20", "--rounds", "2"], catch_exceptions=False)
    assert done.exit_code == 0
    for words in ("metabandit, with metadata", "a newcomer", "what moved the prior most"):
        assert words in done.output


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (mb.MissingExtra("formulas", "metadata", "formulaic"), "pip install 'metabandit[metadata]'"),
        (mb.InvalidInput("users", -1, "two\nlines"), "users: got -1; accepted: two lines"),
    ],
)
def test_what_is_refused_is_one_line_and_exit_status_2(
    monkeypatch: pytest.MonkeyPatch, error: Exception, words: str
) -> None:
    def refuse(*_: object) -> None:
        raise error

    monkeypatch.setattr(demo, "main", refuse)
    done = CliRunner().invoke(main, ["demo"])
    assert done.exit_code == 2
    assert done.stdout == ""
    assert len(done.stderr.strip().splitlines()) == 1
    assert words in done.stderr


def test_the_package_can_be_run() -> None:
    command = [sys.executable, "-m", "metabandit", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["metabandit,", "version", mb.__version__]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nope"], "nope"),
        (["study", "run"], "NAME"),
        (["study", "run", "figure-2-gausian"], "figure-2-gaussian"),
        (["study", "run", "figure-2-gaussian", "--seeds", "0"], "--seeds"),
        (["study", "run", "figure-2-gaussian", "--jobs", "x"], "--jobs"),
        (["study", "run", "figure-2-gaussian", "--variant", "x"], "--variant"),
        (["study", "run", "refresh", "--variant", "published"], "variant"),
        (["study", "run", "figure-2-gaussian", "--seeds", "1", "--out", "/proc/nowhere"], "/proc/nowhere"),
    ],
)
def test_bad_input_is_one_line_and_exit_status_2(arguments: list[str], words: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "metabandit", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert words in done.stderr
    assert list(tmp_path.iterdir()) == []
