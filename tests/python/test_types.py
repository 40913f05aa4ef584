"""The types of the package are right, and its examples run."""

import doctest
import importlib
import pkgutil
import subprocess
import sys
from pathlib import Path

import konkordia
import pytest

FOLDER = Path(konkordia.__file__).resolve().parent


def checked(*arguments):
    done = subprocess.run([sys.executable, "-m", *arguments], cwd=FOLDER.parent, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr


def test_types_are_strict_and_those_of_the_compiled_part(tmp_path):
    checked("mypy", "--strict", "--cache-dir", tmp_path, "konkordia")
    checked("mypy.stubtest", "konkordia._native")


def test_a_program_of_a_user_gets_types(tmp_path):
    program = tmp_path / "program.py"
    program.write_text("import konkordia\nimages = konkordia.open('a.h5')\nreveal_type(images.shape)\nkonkordia.find_spots(images[0], maskk=3, method=4)\nkonkordia.Client().arm(image=3)\nreveal_type(konkordia.open('a.raw', raw=True).frame_number)\n")
    done = subprocess.run([sys.executable, "-m", "mypy", "--cache-dir", tmp_path / "cache", program], cwd=FOLDER.parent, capture_output=True, text=True)
    assert "tuple[int, int, int]" in done.stdout and 'Argument "method"' in done.stdout, done.stdout
    assert 'Unexpected keyword argument "image"' in done.stdout and "unsignedinteger" in done.stdout, done.stdout


MODULES = ["konkordia", *(f"konkordia.{module.name}" for module in pkgutil.iter_modules([str(FOLDER)]) if module.name != "_native")]


# Modules for control systems whose packages are not installed here; tests/peers runs these.
FOR_OTHERS = {"konkordia.bluesky": "ophyd_async", "konkordia.tango": "tango"}


@pytest.mark.parametrize("name", MODULES)
def test_examples_run(name):
    if name in FOR_OTHERS:
        pytest.importorskip(FOR_OTHERS[name])
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_everything_that_is_public_is_documented():
    for name in konkordia.__all__:
        one = getattr(konkordia, name)
        if name not in ("SPOT", "__version__"):
            assert one.__doc__, name
        for member, value in vars(one).items() if isinstance(one, type) else ():
            if not member.startswith("_") and (callable(value) or isinstance(value, property)):
                assert value.__doc__, f"{name}.{member}"
