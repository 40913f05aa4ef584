"""The scripts that run and count the tests."""

import pathlib
import re
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
CARGO = """
running 3 tests
test a ... ok
test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 1 filtered out; finished in 0.01s
test result: ok. 20 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.10s
"""
PYTEST = "SKIPPED [2] tests/readers/test_dials.py:9: slow lane: KONKORDIA_SLOW=1\n7 passed, 2 skipped in 3.21s\n"


def total(tmp_path, log, skipped="", status=0):
    (tmp_path / "log").write_text(log)
    (tmp_path / "skipped").write_text(skipped)
    return subprocess.run(
        ["scripts/test-sum", tmp_path / "log", tmp_path / "skipped", str(status)], cwd=ROOT, capture_output=True, text=True
    )


def test_rust_tests_that_skip_are_counted_as_skipped_with_their_reason(tmp_path):
    lines = "skipped: konkordia-wire captures::one: no real data in /x\nskipped: konkordia-sinks disk: mounting: not permitted\n"
    done = total(tmp_path, CARGO + PYTEST, lines + lines)
    assert done.returncode == 0 and done.stdout.splitlines()[-1] == "28 passed, 0 failed, 4 skipped", done
    assert "no real data in /x" in done.stdout and "slow lane" in done.stdout
    assert done.stdout.count("konkordia-sinks disk") == 1


@pytest.mark.parametrize(
    ("log", "status", "last"),
    [
        (CARGO + PYTEST, 0, "30 passed, 0 failed, 2 skipped"),
        (CARGO + "4 failed, 7 passed, 1 error in 3.21s\n", 1, "30 passed, 5 failed, 0 skipped"),
        (CARGO, 1, "23 passed, 1 failed, 0 skipped"),
        ("", 0, "0 passed, 1 failed, 0 skipped"),
    ],
)
def test_the_sum(tmp_path, log, status, last):
    done = total(tmp_path, log, status=status)
    assert done.stdout.splitlines()[-1] == last
    assert done.returncode == (0 if " 0 failed" in last else 1)


def test_what_failed_is_named_at_the_end(tmp_path):
    rust = "test of_rust::a ... FAILED\ntest of_rust::b ... ok\ntest result: FAILED. 1 passed; 1 failed; 0 ignored\n"
    python = "FAILED tests/e2e/test_x.py::test_y - AssertionError\n1 failed, 3 passed in 3.21s\n"
    lines = total(tmp_path, python + rust + "much more\n" * 50, status=1).stdout.splitlines()
    assert lines == ["FAILED (Rust) of_rust::a", "FAILED tests/e2e/test_x.py::test_y - AssertionError", "4 passed, 2 failed, 0 skipped"]


def test_help_prepares_nothing(tmp_path):
    done = subprocess.run([sys.executable, "scripts/peers", "--help"], cwd=ROOT, capture_output=True, text=True, env={"PATH": "", "KONKORDIA_PEERS": str(tmp_path)})
    assert done.returncode == 0 and "scripts/peers --of NAMES" in done.stdout and not done.stderr and not list(tmp_path.iterdir())


def test_instructions_are_not_counted_without_valgrind(tmp_path):
    done = subprocess.run([sys.executable, "scripts/instructions"], cwd=ROOT, capture_output=True, text=True, env={"PATH": str(tmp_path)})
    assert done.returncode == 77 and "apt-get install valgrind" in done.stderr, done


def test_no_rust_test_skips_in_silence():
    """Every test that looks for real data uses tests/skip.rs, which counts the skipped ones."""
    found = []
    for path in [*ROOT.glob("crates/**/*.rs"), *ROOT.glob("tests/**/*.rs")]:
        if "target" in path.parts or path == ROOT / "tests/skip.rs":
            continue
        for number, line in enumerate(path.read_text().splitlines(), 1):
            code = line.split("//")[0] if line.lstrip().startswith("//") else line
            if "shared/data" in code or re.search(r'println!\("[^"]*skipped[:,]', code):
                found.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()}")
    assert found == [], "use tests/skip.rs"


def test_continuous_integration_is_make_test():
    text = (ROOT / ".ci/run").read_text()
    assert re.search(r"^exec make test\b", text, re.M)


@pytest.mark.parametrize(("cargo", "last"), [("exit 0", "2 of 2 runs passed"), ("echo no such target >&2; exit 1", "1 of 2 runs passed")])
def test_a_run_beside_a_compiler_that_never_compiled_counts_as_failed(tmp_path, cargo, last):
    scripts, programs = tmp_path / "scripts", tmp_path / "bin"
    for folder in (scripts, programs, tmp_path / "tmp"):
        folder.mkdir()
    shutil.copy(ROOT / "scripts/test-repeat", scripts)
    (scripts / "rust-path").write_text("")
    for path, body in ((scripts / "test", "sleep 1; echo 1 passed, 0 failed, 0 skipped"), (programs / "cargo", cargo)):
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)
    environment = {"PATH": f"{programs}:/usr/bin:/bin", "TMPDIR": str(tmp_path / "tmp")}
    done = subprocess.run(["scripts/test-repeat", "2"], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines()[-1] == last and done.returncode == int(last.startswith("1")), done
    assert not list(tmp_path.glob("tmp/*/beside"))
    left = [path.read_text() for path in tmp_path.glob("tmp/*/run-2.log.compiler")]
    assert all("no such target" in text for text in left) and len(left) == done.returncode
