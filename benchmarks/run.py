"""Every benchmark, one after the other; the tables are printed and kept in docs/performance.md.

python -m benchmarks.run              all of them
python -m benchmarks.run start named  only these; the other sections of the page stay
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).parent.parent / "docs" / "performance.md"

PARTS = {
    "thompson_step": (
        "The compiled Thompson step beside C",
        "Draw the coefficients, draw K = 8 arms, take the best, learn its reward; the same algorithm by hand in C, "
        "compiled in the same run with `gcc -O3 -march=native -ffast-math`.",
    ),
    "beta_logistic": (
        "Exact draws of the beta-logistic model",
        "Refreshed draws from a warm start, and ms an effective draw beside a general sampler on the same density.",
    ),
    "named": ("The named level", "`MultiTaskBandit`, everything included: names, ids, log, probability."),
    "peers": (
        "Beside the peers",
        "The same tasks and noise for each; regret stands next to time, because speed alone is no merit. The posterior "
        "error is the largest distance from the exact posterior mean given the data that side has seen.",
    ),
    "published": (
        "Beside the published approach",
        "The posterior of Section 4.2 of the paper in plain NumPy, from all interactions anew for every decision "
        "(Woodbury's identity; and the dense n x n form), on the same data: the same posterior, and what n costs.",
    ),
    "laboratory": (
        "The laboratory",
        "A simulation of MTTS in the compiled loop beside the C twin on the same world: the player and the loop, and "
        "everything, with the world, the order and the judge. Studies from the call to the report, once compiled.",
    ),
    "service": (
        "The decision service",
        "By HTTP on loopback: one worker, SQLite, every answer on the disk before it is sent (WAL, synchronous FULL). "
        "The load comes from a process beside it; each connection sends its next request when it has its answer.",
    ),
    "start": ("Starting", "Importing is lazy; kernels are compiled once and cached."),
}


def output_of(part: str) -> str:
    """What one benchmark prints, in an interpreter of its own with one thread."""
    threads = {f"{library}_NUM_THREADS": "1" for library in ("OMP", "OPENBLAS", "MKL")}
    command = [sys.executable, "-m", f"benchmarks.{part}"]
    done = subprocess.run(
        command, env={**os.environ, **threads}, stdout=subprocess.PIPE, check=True, text=True
    )
    return done.stdout.strip()


def processor() -> str:
    """What the processor calls itself."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def kept_sections() -> dict[str, str]:
    """The sections of the page as it is, by their titles."""
    text = PAGE.read_text() if PAGE.exists() else ""
    return {part.partition("\n")[0]: part.rstrip("\n") for part in text.split("\n## ")[1:]}


def main() -> int:
    asked = sys.argv[1:]
    unknown = [part for part in asked if part not in PARTS]
    if unknown:
        print(f"benchmark: got {unknown[0]!r}; accepted: {', '.join(PARTS)}", file=sys.stderr)
        return 2
    where = f"{processor()}, {os.cpu_count()} cores, CPython {platform.python_version()}, {platform.system()}"
    noise = "Machines are noisy: the ratios within a table mean more than its times."
    sections = kept_sections()
    for part in asked or PARTS:
        title, text = PARTS[part]
        print(f"\n## {title}\n", flush=True)
        tables = output_of(part)
        print(tables, flush=True)
        sections[title] = f"{title}\n\n{text} `python -m benchmarks.{part}`\n\n{tables}"
        titles = [title for title, _ in PARTS.values() if title in sections]
        page = [f"# Performance\n\nPrinted by `make bench` on: {where}. {noise}"]
        PAGE.write_text("\n\n## ".join(page + [sections[title] for title in titles]) + "\n")
    print(f"\nkept in {PAGE}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
