"""Every receive backend, with the detector behind a wire: two network namespaces and a veth pair between them."""

import os
import subprocess

import h5py
import numpy as np
import pytest
from driving import BINARY, Master, balanced, free_ports, program, raw_tables
from network import CARD, possible, wire  # noqa: F401  a fixture
from service import Service, until, write_config

BACKENDS = ["socket", "packet", "xdp"]
# Takes rights away from the program that it starts.
WITHOUT = ["setpriv", "--bounding-set=-net_raw", "--inh-caps=-net_raw"]


@pytest.fixture
def services():
    started = []
    yield started
    for service in started:
        if service.process.poll() is None:
            service.process.kill()
            service.process.wait()


def configured(bench, backend, **tables):
    """A configuration that receives at the card."""
    # A busy machine lets the receiver and the kernel wait for long. Here is room for all images of a test; a veth pair
    # has room for 256 packets, which is why the tests send slowly.
    tables["source"] = {"receive": backend, "receive_buffer_mib": 32}
    path = bench.config(**tables)
    path.write_text(path.read_text().replace('"127.0.0.1"', f'"{CARD}"'))
    return path


def received_through(master):
    with h5py.File(master) as file:
        return file["/entry/konkordia/conversion/received_through"][()].decode()


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_run_has_the_pixels_that_were_sent(bench, wire, backend):
    raw = np.random.default_rng(5).integers(0, 1 << 14, (4, 512, 1024), dtype=np.uint16)
    raw.tofile(bench.folder / "frames.u16")
    config = configured(bench, backend, **raw_tables(images=20))
    with wire.card.entered():
        receiver = possible(backend, lambda: bench.receive(config))
    assert wire.has_program == (backend == "xdp")
    armed = receiver.events[-1]
    assert armed["receive"]["backend"] == backend
    assert backend != "xdp" or "AF_XDP on card, " in armed["receive"]["why"], armed
    wire.send(bench.port, "jungfrau", "--images", 20, "--rate", 20, "--raw", bench.folder / "frames.u16")
    code, report = receiver.finish()
    balanced(code, report)
    assert code == 0 and report["receive"] == {**armed["receive"], "refused": {}, "dropped": {}}
    images = Master(bench.master).images
    assert images.shape == (20, 512, 1024) and all(np.array_equal(image, raw[n % 4]) for n, image in enumerate(images))
    assert received_through(bench.master).startswith(f'{backend}: [source] receive = "{backend}" asks for it')
    until(lambda: not wire.has_program, "the program is gone")


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_service_receives_several_streams_run_after_run(tmp_path, wire, services, backend):
    port = free_ports(4)
    config = write_config(tmp_path, port, source={"address": CARD, "receive": backend}, run={"images": 10})
    with wire.card.entered():
        services.append(Service(config))
        for run in (1, 2):
            armed = possible(backend, lambda: services[0].command("arm"))
            assert armed["state"] == "armed" and wire.has_program == (backend == "xdp")
            wire.send(port, "eiger", "--bits", 8, "--images", 10, "--rate", 20)
            done = services[0].wait()
            assert (done["state"], done["severity"], done["images_written"]) == ("idle", "success", 10), (run, done)
            until(lambda: not wire.has_program, "the program is gone")
        assert services[0].end()[0] == 0


@pytest.mark.parametrize("backend", BACKENDS[1:])
def test_a_missing_right_is_said(bench, wire, backend):
    if subprocess.run([*WITHOUT, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("rights cannot be taken away here (setpriv)")
    config = configured(bench, backend, **raw_tables(images=5))
    with wire.card.entered():
        done = subprocess.run([*WITHOUT, BINARY, "receive", str(config)], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 6 and "CAP_NET_RAW" in done.stderr, done.stderr
    assert "sudo setcap" in done.stderr and 'receive = "socket"' in done.stderr and "panicked" not in done.stderr
    assert not wire.has_program and not bench.master.exists()


@pytest.mark.parametrize("backend", BACKENDS[1:])
def test_an_address_of_no_single_card_is_refused(bench, wire, backend):
    for address, why in [("0.0.0.0", "stands for all of them"), ("10.99.0.1", "no network card of this machine")]:
        config = configured(bench, backend, **raw_tables(images=5))
        config.write_text(config.read_text().replace(f'"{CARD}"', f'"{address}"'))
        with wire.card.entered():
            done = program("receive", config, check=6)
        assert why in done.stderr and "[source] address" in done.stderr, done.stderr


def test_a_killed_run_leaves_no_program_at_the_card(bench, wire):
    config = configured(bench, "xdp", output={"overwrite": "replace"}, **raw_tables(images=5))
    with wire.card.entered():
        receiver = possible("xdp", lambda: bench.receive(config))
    assert wire.has_program
    receiver.process.kill()
    receiver.process.wait()
    until(lambda: not wire.has_program, "the program is gone")
    with wire.card.entered():
        again = bench.receive(config)
    wire.send(bench.port, "jungfrau", "--images", 5, "--rate", 10)
    code, report = again.finish()
    assert code == 0, report
