"""The package for Debian and the role of Ansible, in a Debian 12 of their own (debootstrap); lintian; the quadlet."""

import os
import pathlib
import shutil
import subprocess

import pytest
from programs import BUILD, ROOT, needs

from driving import BINARY

TOOLS = ("debootstrap", "dpkg-deb", "dpkg-shlibdeps", "unshare", "chroot")
QUADLET = BUILD / "quadlet/quadlet"
needs_root = pytest.mark.skipif(
    os.geteuid() != 0 or not all(shutil.which(tool, path=f"{os.environ['PATH']}:/usr/sbin") for tool in TOOLS),
    reason=f"not root, or one of {', '.join(TOOLS)} is not there: apt-get install debootstrap dpkg-dev",
)


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    out = tmp_path_factory.mktemp("deb")
    done = subprocess.run([ROOT / "scripts/deb", out], capture_output=True, text=True, env={**os.environ, "KONKORDIA_BIN": BINARY})
    assert done.returncode == 0, done.stderr
    return pathlib.Path(done.stdout.strip())


class Debian:
    """A fresh Debian 12 in a folder. Debootstrap makes it once, each test has a copy."""

    def __init__(self, folder):
        first = BUILD / "debian-12"
        if not first.exists():
            part = first.with_name("debian-12.part")
            shutil.rmtree(part, ignore_errors=True)
            BUILD.mkdir(parents=True, exist_ok=True)
            made = subprocess.run(["debootstrap", "--variant=minbase", "--include=python3,python3-apt,systemd", "bookworm", part], capture_output=True, text=True)
            if made.returncode != 0:
                pytest.skip(f"debootstrap failed: {made.stdout.strip().splitlines()[-1:]}")
            part.rename(first)
        self.root = folder / "debian"
        subprocess.run(["cp", "-a", "--reflink=auto", first, self.root], check=True)
        shutil.copy("/etc/resolv.conf", self.root / "etc/resolv.conf")

    def run(self, script, check=0):
        """Runs a script as root in it, with processes and mounts of its own."""
        inner = f"mount -t proc proc {self.root}/proc && exec chroot {self.root} bash -euc \"$0\""
        command = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "bash", "-c", inner, script]
        environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"}
        environment |= {name: value for name, value in os.environ.items() if name.lower().endswith("_proxy")}
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)
        assert done.returncode == check, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        return done.stdout

    def install(self, package):
        shutil.copy(package, self.root / "root/konkordia.deb")
        return self.run("apt-get install -y -qq -o Dpkg::Options::=--force-confold /root/konkordia.deb")


def newer(package, folder):
    """The same package as its next version, with another example of a configuration."""
    tree = folder / "tree"
    subprocess.run(["dpkg-deb", "-R", package, tree], check=True)
    control = tree / "DEBIAN/control"
    control.write_text(control.read_text().replace("Version: ", "Version: 1:"))
    example = tree / "etc/konkordia/konkordia.toml"
    example.write_text("# a new example\n" + example.read_text())
    subprocess.run(["dpkg-deb", "--root-owner-group", "-Zgzip", "-b", tree, folder / "newer.deb"], check=True, capture_output=True)
    return folder / "newer.deb"


@pytest.mark.peer("lintian")
@needs_root
@pytest.mark.skipif(not shutil.which("lintian"), reason="lintian is not there: apt-get install lintian")
def test_lintian(package):
    """It finds no error and no warning in the package."""
    done = subprocess.run(["lintian", "--allow-root", "--fail-on", "error,warning", package], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout


@pytest.mark.peer("Debian 12")
@needs_root
def test_installed_upgraded_and_purged(package, tmp_path):
    """apt installs the package in a fresh Debian; files of a run belong to its user and are not for others; an upgrade keeps
    the configuration; a purge keeps the data."""
    debian = Debian(tmp_path)
    debian.install(package)
    assert debian.run("konkordia --version").startswith("konkordia ")
    assert debian.run("stat -c '%U:%G %a' /etc/konkordia /etc/konkordia/konkordia.toml").split("\n")[:2] == ["root:konkordia 750", "root:konkordia 640"]
    debian.run("systemd-analyze verify /lib/systemd/system/konkordia.service")
    assert debian.run("test -e /etc/systemd/system/multi-user.target.wants/konkordia.service || echo not enabled") == "not enabled\n"
    assert b"NAME" in subprocess.run(["gzip", "-dc", debian.root / "usr/share/man/man1/konkordia.1.gz"], capture_output=True, check=True).stdout

    # A run as the unit does it: user, umask, and a folder that gives its group.
    (umask,) = (line.split("=")[1] for line in (debian.root / "lib/systemd/system/konkordia.service").read_text().splitlines() if line.startswith("UMask"))
    debian.run(
        "groupadd exp1234; install -d -o konkordia -g exp1234 -m 2750 /data; cd /data; konkordia config check /etc/konkordia/konkordia.toml; "
        f"umask {umask}; setpriv --reuid konkordia --regid konkordia --init-groups konkordia demo --once --images 16"
    )
    found = debian.run("cd /data; find . -mindepth 1 -printf '%u:%g %m %p\\n'").splitlines()
    files = [line for line in found if line.endswith(".h5")]
    assert files and {line.split()[0] for line in found} == {"konkordia:exp1234"}, found
    assert {line.split()[1] for line in files} == {"640"} and not any(line.split()[1][-1] != "0" for line in found), found
    debian.run("useradd other; ! setpriv --reuid other --regid other --clear-groups ls /data")

    debian.run("sed -i 's/12.4/9.5/' /etc/konkordia/konkordia.toml")
    debian.install(newer(package, tmp_path))
    text = debian.run("cat /etc/konkordia/konkordia.toml; stat -c %a /etc/konkordia/konkordia.toml")
    assert "9.5" in text and "a new example" not in text and text.endswith("640\n")
    debian.run("apt-get purge -y -qq konkordia")
    assert len(debian.run("cd /data; find . -mindepth 1").splitlines()) == len(found)
    assert debian.run("id -un konkordia; test -e /etc/konkordia/konkordia.toml || echo gone").split() == ["konkordia", "gone"]


@pytest.mark.peer("Ansible")
@needs_root
@pytest.mark.skipif(not shutil.which("ansible-playbook"), reason="ansible-playbook is not there: apt-get install ansible")
def test_the_role_of_ansible(package, tmp_path):
    """The role makes a receiver of a fresh Debian; run again it changes nothing; a wrong configuration does not arrive."""
    debian = Debian(tmp_path)
    config = tmp_path / "daq.toml"
    config.write_text((ROOT / "deploy/konkordia.toml").read_text().replace('"/data"', '"/srv"'))
    inventory = tmp_path / "inventory"
    inventory.write_text(f"[receivers]\n{debian.root} ansible_connection=community.general.chroot konkordia_config={config}\n")

    def play(check=0):
        command = ["ansible-playbook", "-i", inventory, ROOT / "deploy/ansible/konkordia.yml"]
        command += ["-e", f"konkordia_package={package}", "-e", "konkordia_start=false", "-e", "ansible_python_interpreter=/usr/bin/python3", "-e", "konkordia_data=/srv"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, env={**os.environ, "ANSIBLE_NOCOLOR": "1", "ANSIBLE_LOCAL_TEMP": str(tmp_path / "a")})
        assert (done.returncode == 0) == (check == 0), done.stdout + done.stderr
        return done.stdout

    assert "failed=0" in play()
    assert debian.run("id -u konkordia; stat -c '%U:%G %a' /srv /etc/konkordia/konkordia.toml").split("\n")[:3] == ["64100", "konkordia:konkordia 2750", "root:konkordia 640"]
    assert "changed=0" in play()
    before = (debian.root / "etc/konkordia/konkordia.toml").read_bytes()
    config.write_text("[detector]\ntype = 'eigr'\n")
    assert "did you mean" in play(check=1)
    assert (debian.root / "etc/konkordia/konkordia.toml").read_bytes() == before


@pytest.mark.peer("Ansible")
@pytest.mark.skipif(not shutil.which("ansible-lint"), reason="ansible-lint is not there: apt-get install ansible-lint")
def test_ansible_lint():
    """It finds nothing in the role and the playbook."""
    done = subprocess.run(["ansible-lint", "--offline", "konkordia.yml"], cwd=ROOT / "deploy/ansible", capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.peer("Podman quadlet")
@needs(QUADLET, "Podman's generator")
def test_the_quadlet(tmp_path):
    """Podman's own generator makes a service of it."""
    shutil.copy(ROOT / "deploy/quadlet/konkordia.container", tmp_path)
    done = subprocess.run([QUADLET, "-dryrun"], capture_output=True, text=True, env={**os.environ, "QUADLET_UNIT_DIRS": str(tmp_path)})
    assert done.returncode == 0 and "---konkordia.service---" in done.stdout, done.stderr
    (start,) = (line for line in done.stdout.splitlines() if line.startswith("ExecStart="))
    assert start.endswith("localhost/konkordia:latest serve -c /etc/konkordia/konkordia.toml")
    for part in ("--sdnotify=container", "--read-only", "--user 64100:64100", "--network host", "--pull never", "--cap-drop all", "--stop-timeout=120"):
        assert part in start, start
