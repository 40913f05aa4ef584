"""Checks Cargo.lock against a clone of the RustSec list of advisories, where cargo-deny is not available.

python3 scripts/advisories.py CLONE Cargo.lock: prints a line for each advisory about a crate in Cargo.lock. Exits with
1 if one of them is a defect (not only "unmaintained" or a "notice").
"""

import pathlib
import re
import subprocess
import sys
import tomllib


def version(text):
    """A key that sorts versions as Cargo does: a pre-release comes before its release."""
    text = text.split("+")[0]
    numbers = (text.split("-")[0].split(".") + ["0", "0"])[:3]
    return (*map(int, numbers), "-" not in text)


def is_in(text, requirement):
    """Whether a version fulfils a requirement such as ">=1.2.3, <2" or "^0.3"."""
    found = version(text)
    for part in requirement.split(","):
        operator, wanted = re.match(r"\s*(>=|<=|>|<|=|\^|~)?\s*(\S+)", part).groups()
        bound = version(wanted)
        if operator in (None, "^"):
            first = next((n for n in range(3) if bound[n]), 2)
            fulfils = found >= bound and found[: first + 1] == bound[: first + 1]
        elif operator == "~":
            fulfils = found >= bound and found[:2] == bound[:2]
        else:
            fulfils = {">=": found >= bound, "<=": found <= bound, ">": found > bound, "<": found < bound, "=": found == bound}[operator]
        if not fulfils:
            return False
    return True


def texts(clone):
    """(path, text) of all advisories; the clone may have no work tree."""
    crates = clone / "crates"
    if crates.is_dir():
        yield from ((str(path.relative_to(clone)), path.read_text()) for path in sorted(crates.glob("*/*.md")))
        return
    git = ["git", "--git-dir", str(clone)]
    names = subprocess.run([*git, "ls-tree", "-r", "--name-only", "HEAD", "crates/"], check=True, capture_output=True, text=True).stdout.split()
    for name in names:
        yield name, subprocess.run([*git, "show", f"HEAD:{name}"], check=True, capture_output=True, text=True).stdout


def advisories(clone, lock):
    """(is a defect, line) for every advisory about a crate of the lock file."""
    have = {}
    for package in tomllib.loads(lock)["package"]:
        if "source" in package:
            have.setdefault(package["name"], []).append(package["version"])
    for path, text in texts(clone):
        crate = path.split("/")[1]
        if crate not in have:
            continue
        facts = tomllib.loads(re.search(r"```toml\n(.*?)```", text, re.DOTALL).group(1))
        advisory, versions = facts["advisory"], facts.get("versions", {})
        if advisory.get("withdrawn"):
            continue
        safe = versions.get("patched", []) + versions.get("unaffected", [])
        for found in have[crate]:
            if not any(is_in(found, requirement) for requirement in safe):
                kind, title = advisory.get("informational", "defect"), re.search(r"^# (.*)", text, re.MULTILINE).group(1)
                yield kind not in ("unmaintained", "notice"), f"{advisory['id']} {crate} {found} ({kind}): {title}"


def main(clone, lock):
    """Prints what was found; returns the exit code."""
    found = list(advisories(pathlib.Path(clone), pathlib.Path(lock).read_text()))
    for is_defect, line in found:
        print(f"advisories: {'DEFECT ' if is_defect else ''}{line}")
    print(f"advisories: {sum(is_defect for is_defect, _ in found)} known defects among the crates of {lock}")
    return int(any(is_defect for is_defect, _ in found))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
