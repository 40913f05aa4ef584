"""Many connections without a token: idle ones, incomplete requests, floods of requests. They neither block the
cancelling of a run nor fill the disk."""

import json
import time

import pytest
from attacks import HALF_SENDERS, IDLE_CONNECTIONS, connect_from, half_requests_from
from driving import program
from test_http import Service


def tokens_and_service(folder, extra=""):
    tokens = folder / "tokens"
    operator = program("token", "create", "olga", "--role", "operate", "--file", tokens, check=0).stdout.strip()
    return {"Authorization": f"Bearer {operator}"}, Service(folder, f'tokens = "{tokens}"\n{extra}')


def test_idle_connections_and_half_requests_do_not_keep_a_cancel_out(tmp_path, record_property):
    operator, service = tokens_and_service(tmp_path)
    crowd = []
    try:
        assert service.ask("/api/v1/start", "POST", {"images": 1000}, **operator)[0] == 200
        crowd += [connect_from(service, "127.0.0.1") for _ in range(IDLE_CONNECTIONS)]
        crowd += half_requests_from(service, HALF_SENDERS, each=60)
        status, _, body = service.ask("/api/v1/status", **operator)
        assert status == 200 and json.loads(body)["state"] == "armed", body
        began = time.monotonic()
        status, _, body = service.ask("/api/v1/cancel", "POST", **operator)
        record_property("cancel_s", time.monotonic() - began)
        assert status == 200 and json.loads(body)["state"] == "idle", body
    finally:
        for half in crowd:
            half.close()
        service.kill()


def test_requests_without_a_token_do_not_fill_the_audit_log(tmp_path):
    audit = tmp_path / "audit.jsonl"
    operator, service = tokens_and_service(tmp_path, f'audit_log = "{audit}"')
    try:
        path = b"/api/v1/" + b"a" * 8000
        for _ in range(20):
            with connect_from(service, "127.0.0.1") as flood:
                request = b"POST " + path + b" HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"
                flood.sendall(request * 25)
                answers = b""
                while answers.count(b"HTTP/1.1 4") < 25:
                    answers += flood.recv(65536) or pytest.fail(f"it closes after {answers[-300:]}")
        assert service.ask("/api/v1/cancel", "POST", **operator)[0] == 200
        lines = [json.loads(line) for line in audit.read_text().splitlines()]
        strangers = [line for line in lines if line["who"] == "(no token)"]
        assert 0 < len(strangers) < 300 and audit.stat().st_size < 300_000, (len(strangers), audit.stat().st_size)
        assert all(len(line["path"]) < 300 for line in lines)
        assert any("8008 bytes" in line["path"] for line in strangers), strangers[0]
        # Requests with a token are always recorded.
        assert lines[-1]["who"] == "olga", lines[-1]
        # Requests that were not recorded are counted in the next line that may be written.
        end = time.monotonic() + 60
        while sum(line.get("unrecorded", 0) for line in lines) + sum(line["who"] == "(no token)" for line in lines) < 501:
            assert time.monotonic() < end, lines[-1]
            service.ask("/api/v1/cancel", "POST")
            time.sleep(0.3)
            lines = [json.loads(line) for line in audit.read_text().splitlines()]
    finally:
        service.kill()


def test_answers_are_for_our_own_pages_only(tmp_path):
    service = Service(tmp_path)
    try:
        for path in ["/", "/healthz", "/api/v1/images"]:
            assert service.ask(path)[1]["Cross-Origin-Resource-Policy"] == "same-origin"
    finally:
        service.kill()
