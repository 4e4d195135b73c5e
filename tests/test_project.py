"""The project as a whole: what imports what, what importing costs, where kernels are cached."""

from __future__ import annotations

import ast
import doctest
import importlib
import inspect
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import metabandit
from metabandit.errors import MissingExtra

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "metabandit"

# -- imports go one way --------------------------------------------------------------------------------------

# Kernels are arrays in, arrays out, and know nobody; so even random numbers may stand on them.
GROUND = {"errors", "checking", "types", "kernels", "streams", "laws"}
ALLOWED: dict[str, set[str]] = {
    "errors": set(),
    "kernels": set(),
    "types": {"errors"},
    "checking": {"errors"},
    "streams": {"errors", "kernels"},
    "laws": {"errors", "streams"},
    "learning": GROUND,
    "features": GROUND,
    "models": GROUND | {"learning", "features"},
    "policies": GROUND | {"learning", "features", "models"},
    "checks": GROUND | {"learning", "features", "models", "policies"},
}
ALLOWED["bandit"] = ALLOWED["checks"]
TOP = {
    "__main__",
    "cli",
    "client",
    "demo",
    "lab",
    "service",
    "scale",
}  # these may import each other and everything below
for top in TOP:
    ALLOWED[top] = ALLOWED["bandit"] | {"bandit", "checks", ""} | TOP

SOURCES = sorted(PACKAGE.rglob("*.py"))


def name_of(path: Path) -> str:
    """a.b.c of a file inside the package, without the package's own name."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(path: Path) -> Iterator[tuple[int, str]]:
    """Every module of this package that a file imports, anywhere in it, without the package's own name."""
    for node in ast.walk(ast.parse(path.read_text())):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        for name in names:
            first, *rest = name.split(".")
            if first == "metabandit" and rest != ["__version__"]:
                yield node.lineno, ".".join(rest)


def room_of(module: str) -> str:
    """The room; "" for the package itself with its public names."""
    first = module.split(".")[0]
    return first if (PACKAGE / first).is_dir() or (PACKAGE / f"{first}.py").exists() else ""


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_imports_go_one_way(path: Path) -> None:
    room = room_of(name_of(path))
    if room == "":
        return  # the package itself names everything, lazily
    assert room in ALLOWED, f"room {room!r}: add it to the table above"
    for line, module in imported(path):
        target = room_of(module)
        assert target == room or target in ALLOWED[room], f"{path}:{line}: {room} imports {module}"


def test_environments_never_import_policies() -> None:
    """An environment that knew the policy could favour it."""
    for path in SOURCES:
        if name_of(path).startswith("lab.") and "environment" in name_of(path):
            assert "policies" not in {room_of(module) for _, module in imported(path)}, path


def test_the_table_has_no_way_around() -> None:
    """Below the top rooms the table is a strict order, so no cycle can pass."""
    seen: set[str] = set()
    while remaining := {room for room in ALLOWED if room not in seen | TOP}:
        free = {room for room in remaining if ALLOWED[room] <= seen}
        assert free, f"a cycle among {remaining}"
        seen |= free


# -- documentation is executed -------------------------------------------------------------------------------


def module_of(path: Path) -> ModuleType:
    try:
        return importlib.import_module(".".join(filter(None, ["metabandit", name_of(path)])))
    except MissingExtra as missing:
        pytest.skip(str(missing))


def run_examples(examples: list[doctest.DocTest]) -> None:
    report: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    for example in examples:
        runner.run(example, out=report.append)
    assert runner.failures == 0, "".join(report)


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_examples_in_docstrings(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if ">>>" not in path.read_text() or path.name == "__main__.py":
        return
    monkeypatch.chdir(tmp_path)
    run_examples(doctest.DocTestFinder().find(module_of(path)))


@pytest.mark.parametrize("name", metabandit.__all__)
def test_public_names_have_a_runnable_example(name: str) -> None:
    """Of a room that is itself a public name, its page or one of its own names shows the use."""
    value = getattr(metabandit, name)
    assert inspect.getdoc(value), f"{name} has no docstring"
    own = value.__doc__ or ""
    if isinstance(value, ModuleType):
        own += "".join(
            inspect.getdoc(member) or "" for _, member in inspect.getmembers(value, inspect.isroutine)
        )
        own += "".join(
            inspect.getdoc(member) or "" for _, member in inspect.getmembers(value, inspect.isclass)
        )
    assert ">>>" in own, f"{name} has no example"


def test_public_names_are_sorted_and_complete() -> None:
    names = list(metabandit.__all__)
    assert names == sorted(names, key=str.lower)
    assert len(names) == len(set(names))
    assert set(names) <= set(dir(metabandit))
    with pytest.raises(AttributeError):
        metabandit.no_such_name  # noqa: B018


PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```(python|pycon)\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_examples_on_pages(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks run in order, in one namespace; those with prompts have to print what they show."""
    monkeypatch.chdir(tmp_path)
    text, namespace = page.read_text(), {"__name__": "__main__"}
    for found in BLOCK.finditer(text):
        code, line = found.group(2), text[: found.start()].count("\n") + 1
        if ">>>" in code:
            example = doctest.DocTestParser().get_doctest(code, namespace, str(page), str(page), line)
            runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
            report: list[str] = []
            runner.run(example, out=report.append, clear_globs=False)
            assert runner.failures == 0, "".join(report)
            namespace = example.globs
        else:
            exec(compile("\n" * line + code, str(page), "exec"), namespace)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text()):
        if "://" not in target and not target.startswith("mailto:"):
            assert (page.parent / target).exists(), f"{page}: {target}"


# -- importing -----------------------------------------------------------------------------------------------

HEAVY = ("numba", "scipy", "pandas", "matplotlib", "sklearn", "formulaic", "narwhals")


def python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A fresh interpreter; its environment is this one's, changed."""
    env = {name: value for name, value in {**os.environ, **environment}.items() if value}
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env)


def test_importing_is_light() -> None:
    out = python(f"import sys, metabandit; print(*(name for name in {HEAVY} if name in sys.modules))").stdout
    assert out.split() == []


def test_looking_at_the_public_names_of_light_rooms_is_light() -> None:
    """A model can be described, and an error caught, before anything heavy is imported."""
    use = "import sys, metabandit as mb; mb.LinearMixedModel(0.0, 1.0, 1.0, 1.0); mb.InvalidInput"
    assert python(f"{use}; print(*(set({HEAVY}) & set(sys.modules)))").stdout.split() == []


# -- compiling -----------------------------------------------------------------------------------------------

NOTICE = "metabandit: compiling (once; cached for the next start)\n"
COMPILE = """
import time
from metabandit.kernels import _jit
_jit.PATIENCE = 0.0
from metabandit.streams import Stream, keys
Stream(1).standard_normal(2), keys(1, [2])
"""


def test_the_notice_of_compiling_is_said_once_and_not_when_cached(tmp_path: Path) -> None:
    first = python(COMPILE, NUMBA_CACHE_DIR=str(tmp_path))
    assert first.stderr == NOTICE
    assert python(COMPILE, NUMBA_CACHE_DIR=str(tmp_path)).stderr == ""


def test_quick_compiling_is_silent(tmp_path: Path) -> None:
    patient = COMPILE.replace("PATIENCE = 0.0", "PATIENCE = 600.0")
    assert python(patient, NUMBA_CACHE_DIR=str(tmp_path)).stderr == ""


NOWHERE = """
import os, tempfile
from pathlib import Path

make = os.makedirs

def only_there(path, *arguments, **named):
    if not str(path).startswith(tempfile.gettempdir()):
        raise PermissionError("read-only")
    make(path, *arguments, **named)

os.makedirs = only_there
from metabandit.streams import Stream
print(Stream(1).random() == Stream(1).random())
places = list(Path(tempfile.gettempdir()).glob("metabandit-*"))
print(len(places), all(place.stat().st_mode & 0o077 == 0 for place in places))
print(any(places[0].rglob("*.nbi")))
"""


def test_kernels_work_where_no_cache_folder_can_be_written(tmp_path: Path) -> None:
    """Neither the package's folder nor the user's: one private temporary folder serves all kernels, every time."""
    for _ in range(2):
        out = python(NOWHERE, NUMBA_CACHE_DIR="", TMPDIR=str(tmp_path)).stdout
        assert out.split() == ["True", "1", "True", "True"]


THREADS = """
import importlib, os, sys, threading
from pathlib import Path
import numba

sys.setswitchinterval(1e-5)
names = ["streams", "linear", "choice", "play", "beta", "quadrature", "panels", "correlated"]
jobs = [threading.Thread(target=importlib.import_module, args=[f"metabandit.kernels.{name}"]) for name in names]
for job in jobs:
    job.start()
for job in jobs:
    job.join()
from metabandit.streams import Stream
Stream(1).random()
place = Path(os.environ["NUMBA_CACHE_DIR"])
print(numba.config.CACHE_DIR == str(place), len(list(place.iterdir())), len(list(place.glob("kernels-*/*/*.nbi"))) > 0)
"""


def test_kernels_imported_by_many_threads_share_one_cache(tmp_path: Path) -> None:
    """And the setting that is one for all of numba is afterwards what it was."""
    out = python(THREADS, NUMBA_CACHE_DIR=str(tmp_path)).stdout
    assert out.split() == ["True", "1", "True"]


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="folders have no owner here")
@pytest.mark.parametrize("trap", ["open", "link"])
def test_a_cache_that_others_could_write_is_not_used(trap: str, tmp_path: Path) -> None:
    """Compiled code is run as it is: a folder put there under the expected name stays empty."""
    place, elsewhere = tmp_path / f"metabandit-{os.geteuid()}", tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    if trap == "link":
        place.symlink_to(elsewhere)
    else:
        place.mkdir()
        place.chmod(0o777)
    made = python(NOWHERE.split("places =")[0], NUMBA_CACHE_DIR="", TMPDIR=str(tmp_path))
    assert made.stdout.split() == ["True"]
    assert list(place.iterdir()) == list(elsewhere.iterdir()) == []
    assert len(list(tmp_path.glob("metabandit-*"))) == 2


@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() == 0, reason="nothing is read-only for this user"
)
def test_a_read_only_package_works(tmp_path: Path) -> None:
    shutil.copytree(PACKAGE, tmp_path / "site" / "metabandit", ignore=shutil.ignore_patterns("__pycache__"))
    home = tmp_path / "home"
    home.mkdir()
    folders = [path for path in (tmp_path / "site").rglob("*") if path.is_dir()] + [home]
    for folder in folders:
        folder.chmod(0o555)
    try:
        code = "from metabandit import streams; streams.Stream(1).random(); print(streams.__file__)"
        place = {"PYTHONPATH": str(tmp_path / "site"), "HOME": str(home), "XDG_CACHE_HOME": ""}
        assert str(tmp_path) in python(code, NUMBA_CACHE_DIR="", **place).stdout
    finally:
        for folder in folders:
            folder.chmod(0o755)


def test_the_kernel_cache_of_the_tests_follows_the_kernels() -> None:
    """numba would keep a caller's machine code when only its callee's file changed."""
    from tests.conftest import CACHE

    assert os.environ["NUMBA_CACHE_DIR"] == CACHE
    kernel: Any = importlib.import_module("metabandit.kernels.streams")
    if "NUMBA_DISABLE_JIT" not in os.environ:
        assert str(kernel.quantile._cache.cache_path).startswith(CACHE)
