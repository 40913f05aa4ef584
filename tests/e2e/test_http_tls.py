"""TLS with certificates made by openssl, as people make them, and with the commands of konkordia as clients."""

import json
import os
import subprocess

import pytest
from driving import program
from test_http import Service


def openssl(folder, *arguments):
    subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)


def usual(folder, name, *extra):
    """A self-signed certificate, made by the usual openssl command."""
    openssl(
        folder, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "30", "-keyout", f"{name}.key", "-out", f"{name}.crt",
        "-subj", "/CN=localhost", *extra,
    )
    return folder / f"{name}.crt"


@pytest.fixture
def serve(tmp_path):
    services = []

    def start(name):
        files = f'tls_certificate = "{tmp_path / name}.crt"\ntls_key = "{tmp_path / name}.key"'
        services.append(Service(tmp_path, files, name=f"{name}.toml"))
        return services[-1].url

    yield start
    for service in services:
        service.kill()


def status(url, *arguments, **environment):
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("KONKORDIA_", "SSL_CERT"))}
    return program("status", "--url", url, "--json", *arguments, env={**kept, **environment}, timeout=60)


def is_answered(done):
    assert done.returncode == 0, done.stderr
    [detector] = json.loads(done.stdout)
    return detector["state"] == "idle"


@pytest.mark.parametrize("names", [None, "subjectAltName=DNS:localhost,IP:127.0.0.1"])
def test_the_certificate_of_the_usual_line_is_taken(tmp_path, serve, names):
    certificate = usual(tmp_path, "own", *(["-addext", names] if names else []))
    url = serve("own")
    assert is_answered(status(url, "--ca", certificate))
    assert is_answered(status(url.replace("127.0.0.1", "localhost"), "--ca", certificate))


def test_another_certificate_or_name_is_refused(tmp_path, serve):
    usual(tmp_path, "own", "-addext", "subjectAltName=DNS:localhost")
    other = usual(tmp_path, "other", "-addext", "subjectAltName=DNS:localhost")
    url = serve("own")
    for arguments in [["--ca", other], ["--ca", tmp_path / "own.crt"], []]:
        # Signed by another key; for localhost and not for this address; not trusted by the system.
        refused = status(url, *arguments)
        assert refused.returncode == 4 and "cannot make a secure connection to" in refused.stdout, refused
        assert "--ca FILE" in refused.stdout
    assert is_answered(status(url.replace("127.0.0.1", "localhost"), "--ca", tmp_path / "own.crt"))


def test_without_ca_those_count_that_the_system_trusts(tmp_path, serve):
    usual(tmp_path, "root")
    (tmp_path / "names").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\nbasicConstraints=CA:FALSE\n")
    openssl(tmp_path, "req", "-newkey", "rsa:2048", "-nodes", "-keyout", "leaf.key", "-out", "leaf.csr", "-subj", "/CN=daq")
    openssl(
        tmp_path, "x509", "-req", "-in", "leaf.csr", "-CA", "root.crt", "-CAkey", "root.key", "-CAcreateserial", "-days", "30",
        "-extfile", "names", "-out", "leaf.crt",
    )
    url = serve("leaf")
    assert is_answered(status(url, "--ca", tmp_path / "root.crt"))
    # The environment can name the certificates that the system trusts, as with OpenSSL.
    assert is_answered(status(url, SSL_CERT_FILE=str(tmp_path / "root.crt")))
    (tmp_path / "none").mkdir()
    refused = status(url, SSL_CERT_FILE=str(tmp_path / "nothing.pem"), SSL_CERT_DIR=str(tmp_path / "none"))
    assert refused.returncode in (2, 4) and "--ca FILE" in refused.stdout, refused
