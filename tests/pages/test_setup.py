"""`scripts/setup` on a machine without Rust. Stand-ins replace curl and the installer that it fetches."""

import os
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
INSTALLER = """#!/bin/sh
echo "$@" >"$HOME/installer-was-asked"
mkdir -p "$CARGO_HOME/bin"
for program in cargo rustc; do
    printf '#!/bin/sh\\necho "%s 1.99.0 (a stand-in)"\\n' $program >"$CARGO_HOME/bin/$program"
    chmod +x "$CARGO_HOME/bin/$program"
done
"""


def machine(tmp_path, curl):
    """A machine with this curl and an empty home. Its PATH has neither Rust nor a package installer, which the test
    must not run."""
    programs, home = tmp_path / "bin", tmp_path / "home"
    programs.mkdir()
    home.mkdir()
    for folder in ("/usr/bin", "/bin", "/usr/local/bin"):
        for program in os.listdir(folder):
            if program not in ("cargo", "rustc", "rustup", "curl", "apt-get", "sudo") and not (programs / program).exists():
                (programs / program).symlink_to(os.path.join(folder, program))
    (programs / "curl").write_text(curl)
    (programs / "curl").chmod(0o755)
    environment = {"PATH": str(programs), "HOME": str(home), "CARGO_HOME": str(home / "cargo"), "LC_ALL": "C"}

    def run(*command):
        return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=60)

    return run, home


def test_setup_installs_rust_where_there_is_none_and_says_so_first(tmp_path):
    (tmp_path / "installer.sh").write_text(INSTALLER)
    # Like curl, writes what it fetches to the file named after -o.
    curl = f'#!/bin/sh\necho "$@" >>"$HOME/fetched"\nwhile [ "$1" != -o ]; do shift; done\ncp "{tmp_path}/installer.sh" "$2"\n'
    run, home = machine(tmp_path, curl)
    assert run("sh", "-c", "command -v cargo || command -v rustc").returncode != 0
    done = run("scripts/setup", "build")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "installing Rust with its official installer (https://sh.rustup.rs)" in done.stdout
    assert "https://sh.rustup.rs" in (home / "fetched").read_text() and "--proto =https" in (home / "fetched").read_text()
    assert "-y --no-modify-path" in (home / "installer-was-asked").read_text()
    # The other scripts find cargo although PATH is unchanged, and the next call has nothing to do.
    found = run("bash", "-c", ". scripts/rust-path && cargo --version")
    assert found.stdout == "cargo 1.99.0 (a stand-in)\n", found
    (home / "fetched").unlink()
    again = run("scripts/setup", "build")
    assert (again.returncode, again.stdout) == (0, "") and not (home / "fetched").exists(), again


def test_without_a_network_setup_says_what_to_do(tmp_path):
    run, home = machine(tmp_path, '#!/bin/sh\necho "curl: (6) Could not resolve host: sh.rustup.rs" >&2\nexit 6\n')
    done = run("scripts/setup", "build")
    assert done.returncode == 1
    assert "could not be fetched from https://sh.rustup.rs" in done.stderr and "Could not resolve host" in done.stderr
    assert "Without a network, install Rust" in done.stderr
    assert not (home / "cargo").exists()


def test_an_installer_that_fails_is_reported(tmp_path):
    (tmp_path / "installer.sh").write_text("#!/bin/sh\necho 'no space left' >&2\nexit 3\n")
    curl = f'#!/bin/sh\nwhile [ "$1" != -o ]; do shift; done\ncp "{tmp_path}/installer.sh" "$2"\n'
    run, _ = machine(tmp_path, curl)
    done = run("scripts/setup", "build")
    assert done.returncode == 1 and "the installer of Rust failed" in done.stderr and "no space left" in done.stderr, done
