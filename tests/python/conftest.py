"""The Python package: built by scripts/python, imported from the folder python/."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "tests"), str(ROOT / "tests/e2e"), str(ROOT / "tests/readers")]

from samples import samples  # noqa: E402, F401  a fixture


def pytest_configure():
    if not (ROOT / "python/konkordia/_native.abi3.so").exists():
        pytest.exit("the Python package is not built: scripts/python", returncode=3)
