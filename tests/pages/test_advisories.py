"""scripts/advisories.py against a list of known defects made for the purpose."""

import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[2]

LOCK = """
[[package]]
name = "ours"
version = "0.1.0"

[[package]]
name = "parser"
version = "1.4.2"
source = "registry+https://github.com/rust-lang/crates.io-index"
"""


def judged(folder, versions, facts=""):
    crate = folder / "crates" / "parser"
    crate.mkdir(parents=True, exist_ok=True)
    text = f'```toml\n[advisory]\nid = "RUSTSEC-2026-9999"\n{facts}\n[versions]\n{versions}\n```\n\n# It reads too far\n'
    (crate / "RUSTSEC-2026-9999.md").write_text(text)
    (folder / "Cargo.lock").write_text(LOCK)
    command = [sys.executable, ROOT / "scripts" / "advisories.py", folder, folder / "Cargo.lock"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode in (0, 1), done.stderr
    return done.returncode, "RUSTSEC-2026-9999 parser 1.4.2" in done.stdout


def test_versions_are_compared_as_cargo_does(tmp_path):
    for versions, is_hit in [
        ("patched = []", True),
        ('patched = [">= 1.4.3"]', True),
        ('patched = [">= 1.4.2"]', False),
        ('patched = ["^1.4.1"]', False),
        ('patched = ["^1.5.0", ">= 2.0.0"]', True),
        ('patched = [">= 2.0.0"]\nunaffected = ["< 1.4.2"]', True),
        ('patched = [">= 2.0.0"]\nunaffected = ["< 1.5.0"]', False),
        ('patched = [">= 1.3.9, < 1.4.0", ">= 1.4.2-beta"]', False),
        ('patched = ["~1.4.0"]', False),
    ]:
        assert judged(tmp_path, versions) == (int(is_hit), is_hit), versions


def test_what_is_only_unmaintained_is_reported_and_what_was_withdrawn_is_not(tmp_path):
    assert judged(tmp_path, "patched = []", 'informational = "unmaintained"') == (0, True)
    assert judged(tmp_path, "patched = []", 'informational = "unsound"') == (1, True)
    assert judged(tmp_path, "patched = []", 'withdrawn = "2026-01-01"') == (0, False)
