"""Modes of the detectors, with packets made from the published tables: partial readout, EIGER over 1 GbE, the gaps
between chips."""

import json

import numpy as np
import pytest
import raw_files
from driving import EIGER, MASKED, MISSING, Master, PacedSocket, balanced, needs_eiger, program, raw_tables, simulate
from raw_files import packet_header
from test_convert import chunks, convert

COUNT = 3


def send(port, datagrams):
    """Sends each (stream, bytes) in order to port + stream."""
    with PacedSocket() as out:
        for stream, datagram in datagrams:
            out.sendto(datagram, ("127.0.0.1", port + stream))


def jungfrau_packets(words, rows, interfaces, first_module=0):
    """The packets of a JUNGFRAU that reads `rows` rows: n = rows / 4 of the 128 packets of a module, from 64 - n / 2 to
    64 + n / 2 - 1. With two interfaces the packets below 64 go to the first port, the others to the second, which
    numbers them from 0 again."""
    n = rows * 64 // 256
    for frame, modules in enumerate(words, 1):
        for module, image in enumerate(modules):
            payloads = np.frombuffer(image.tobytes(), "u1").reshape(128, 8192)
            for i in range(64 - n // 2, 64 + n // 2):
                stream, packet = (module * interfaces + i // 64, i % 64) if interfaces == 2 else (module, i)
                row = module * interfaces + (i // 64 if interfaces == 2 else 0)
                yield stream, packet_header(frame, packet, row=row, module=first_module + module) + payloads[i].tobytes()


@pytest.mark.parametrize("interfaces", [1, 2])
@pytest.mark.parametrize(("rows", "modules"), [(8, 1), (64, 2), (256, 1), (504, 2)])
def test_a_jungfrau_that_reads_part_of_its_rows(bench, rows, modules, interfaces):
    words = raw_files.frames(COUNT, modules=modules, seed=rows)
    tables = raw_tables(modules, interfaces, images=COUNT)
    tables["detector"]["rows"] = rows
    receiver = bench.receive(bench.config(streams=modules * interfaces, **tables))
    send(bench.port, jungfrau_packets(words, rows, interfaces))
    code, report = receiver.finish()
    balanced(code, report)
    assert code == 0 and report["images"]["complete"] == COUNT
    master = Master(bench.master)
    read = words[:, :, 256 - rows // 2 : 256 + rows // 2]
    assert master.images.shape == (COUNT, modules * rows, 1024) and (master.images == read.reshape(COUNT, -1, 1024)).all()
    program("check", bench.master, check=0)


@pytest.mark.parametrize("interfaces", [1, 2])
def test_packets_of_other_rows_are_not_taken(bench, interfaces):
    """The detector reads more rows than configured. No packet of it may be taken for one of the configured readout."""
    words = raw_files.frames(COUNT, seed=4)
    # No image begins, so the start timeout ends the run.
    tables = raw_tables(1, interfaces, images=COUNT, start_timeout_s=5)
    tables["detector"]["rows"] = 64
    receiver = bench.receive(bench.config(streams=interfaces, **tables))
    send(bench.port, jungfrau_packets(words, 128, interfaces))
    code, report = receiver.finish()
    balanced(code, report)
    assert code == 7 and report["total"]["malformed_packet_number"] == 32 * COUNT and report["images"]["complete"] == 0


@pytest.mark.parametrize("interfaces", [1, 2])
def test_the_simulator_reads_part_of_the_rows_and_files_give_the_same(bench, tmp_path, interfaces):
    """With losses and kept raw frames too. The photons are those of the same rows of a full readout."""
    gains = tmp_path / "gains"
    program("simulate", "jungfrau", "--to", "127.0.0.1:1", "--modules", 2, "--write-calibration", gains, check=0)
    planes = [str(gains / f"pedestal_g{g}.f32") for g in range(3)]
    calibration = {"kind": "files", "pedestal": planes, "gain": str(gains / "gain_adu_per_kev.f32")}
    images = []
    for rows, loss in [(512, 0), (128, 0), (128, 0.03)]:
        detector = {"type": "jungfrau", "modules": 2, "interfaces": interfaces, "energy_kev": 12.4, "double_pixels": "mask", "rows": rows}
        output = {"prefix": f"run{rows}{loss}", "keep_raw": True}
        run = {"images": 5, "stall_timeout_s": 2}
        config = bench.config(streams=2 * interfaces, detector=detector, calibration=calibration, output=output, run=run)
        receiver = bench.receive(config)
        send_options = ["--modules", 2, "--interfaces", interfaces, "--images", 5, "--rate", 20, "--rows", rows, "--loss", loss]
        sent = simulate("jungfrau", "--to", bench.to, *send_options)
        code, report = receiver.finish()
        balanced(code, report)
        assert code == (1 if loss else 0) and sent["packets_expected"] == 5 * 2 * rows // 4
        images.append(Master(tmp_path / f"run{rows}{loss}_master.h5"))
        raw = tmp_path / f"run{rows}{loss}_raw_master_0.json"
        assert json.loads(raw.read_text())["Number of rows"] == rows
        convert(raw, "-o", tmp_path / f"again{rows}{loss}", "--calibration", gains, check=code)
        assert chunks(tmp_path / f"again{rows}{loss}_master.h5") == chunks(tmp_path / f"run{rows}{loss}_master.h5")
    whole, part, lossy = images
    # With the gaps between chips, a module has two more rows, at its middle.
    whole_modules = whole.images.reshape(5, 2, 514, 1030)[:, :, 192:322]
    assert part.images.shape == (5, 260, 1030) and (part.images.reshape(5, 2, 130, 1030) == whole_modules).all()
    assert (part.mask.reshape(2, 130, 1030) == whole.mask.reshape(2, 514, 1030)[:, 192:322]).all()
    assert (lossy.images == MISSING["int16"]).any() and ((lossy.images == part.images) | (lossy.images == MISSING["int16"])).all()


def test_the_receiver_keeps_whole_ports_of_part_of_the_rows(bench, tmp_path):
    """The kept raw frames are those of the slsReceiver: whole ports, with 0xFF where nothing was read."""
    aare = pytest.importorskip("aare", reason="aare has no wheel for this Python")
    words = raw_files.frames(COUNT, seed=11)
    tables = raw_tables(1, 1, images=COUNT) | {"output": {"keep_raw": True}}
    tables["detector"]["rows"] = 96
    receiver = bench.receive(bench.config(**tables))
    send(bench.port, jungfrau_packets(words, 96, 1))
    assert receiver.finish()[0] == 0
    with aare.RawFile(tmp_path / "run_raw_master_0.json") as f:
        headers, images = f.read()
    expected = np.full((COUNT, 512, 1024), 0xFFFF, np.uint16)
    expected[:, 208:304] = words[:, 0, 208:304]
    assert (images == expected).all() and list(headers["frameNumber"].ravel()) == [1, 2, 3]
    caught = np.ascontiguousarray(headers["packetMask"].reshape(COUNT, -1)).view("u1")
    assert np.unpackbits(caught, axis=1, bitorder="little").sum(1).tolist() == [24] * COUNT


def test_rows_of_a_file_of_the_receiver(tmp_path):
    """The master says that part of the rows was read. If packets of other rows came, the master is not believed."""
    words = raw_files.frames(COUNT, modules=2, seed=12)
    outside = [p for p in range(128) if not 48 <= p < 80]
    path = raw_files.write_sls(tmp_path, words, lost={(n, port): outside for n in range(COUNT) for port in range(2)})
    path.write_text(path.read_text().replace('"Number of rows": 512', '"Number of rows": 128'))
    report, _ = convert(path, "-o", tmp_path / "out", "--dtype", "raw")
    master = Master(tmp_path / "out_master.h5")
    assert report["images"]["complete"] == COUNT and (master.images == words[:, :, 192:320].reshape(COUNT, -1, 1024)).all()
    path.write_text(path.read_text().replace('"Number of rows": 128', '"Number of rows": 64'))
    report, done = convert(path, "-o", tmp_path / "more", "--dtype", "raw", check=1)
    assert "packets of other rows came: all rows are used" in done.stderr and report["images"]["partial"] == COUNT
    assert (Master(tmp_path / "more_master.h5").images.reshape(COUNT, 2, 512, 1024)[:, :, 192:320] == words[:, :, 192:320]).all()


def test_common_mode_of_the_rows_that_are_read(bench, tmp_path):
    """The planes are constant, so the offset of a chip's column (or row) is the mean of its words that are read."""
    rng = np.random.default_rng(5)
    words = rng.integers(2950, 3050, (1, 1, 512, 1024), dtype=np.uint16)
    for name, value in [("p0", 3000), ("p1", 15000), ("p2", 15000), ("rms", 50)]:
        np.full((512, 1024), value, "<f4").tofile(tmp_path / name)
    np.concatenate([np.full((512, 1024), v, "<f4") for v in (40, -1.4, -0.11)]).tofile(tmp_path / "gain")
    calibration = {"kind": "files", "pedestal": [str(tmp_path / f"p{g}") for g in range(3)], "gain": str(tmp_path / "gain")}
    calibration["pedestal_rms"] = str(tmp_path / "rms")
    for interfaces, mode in [(1, "column"), (2, "column"), (1, "row")]:
        detector = {"type": "jungfrau", "interfaces": interfaces, "energy_kev": 10.0, "rows": 96}
        tables = {"detector": detector, "calibration": calibration, "run": {"images": 1}}
        tables["processing"] = {"dtype": "float32", "common_mode": mode}
        receiver = bench.receive(bench.config(streams=interfaces, output={"prefix": f"{mode}{interfaces}"}, **tables))
        send(bench.port, jungfrau_packets(words, 96, interfaces))
        assert receiver.finish()[0] == 0
        dark = words[0, 0, 208:304].astype(float) - 3000
        chips = dark.reshape(2, 48, 4, 256)
        offset = chips.mean(axis=1 if mode == "column" else 3, keepdims=True)
        expected = ((chips - offset) / 400).reshape(96, 1024)
        found = Master(tmp_path / f"{mode}{interfaces}_master.h5").images[0]
        assert np.allclose(found, expected, atol=1e-5), mode


@pytest.mark.parametrize(
    ("keys", "part"),
    [
        ({"type": "jungfrau", "rows": 100}, "a JUNGFRAU cannot read 100 rows"),
        ({"type": "jungfrau", "rows": 12, "interfaces": 2}, "give a multiple of 8 from 8 to 512"),
        ({"type": "eiger", "bits": 12, "rows": 100}, "give a multiple of 16 from 16 to 256"),
        ({"type": "eiger", "bits": 16, "rows": 512}, "cannot send 512 rows of each half module"),
        ({"type": "jungfrau", "ten_giga": False}, "a JUNGFRAU always sends packets of 8192 bytes"),
    ],
)
def test_rows_that_cannot_be_read_are_refused(bench, keys, part):
    config = bench.config(detector={"energy_kev": 12.4} | keys, processing={"dtype": "raw"} if keys["type"] == "jungfrau" else {})
    assert part in program("config", "check", config, check=3).stderr


def test_pedestals_need_all_rows(bench):
    tables = raw_tables()
    tables["detector"]["rows"] = 64
    done = program("pedestal", bench.config(**tables), "-o", bench.folder / "cal.h5", "--frames", 10, check=3)
    assert "dark frames of partial readout make no calibration" in done.stderr


def eiger_packets(counts, bits, payload, lost=(), places=((0, 0), (0, 1), (1, 0), (1, 1))):
    """The packets of frames of four ports, (frames, 4, rows, 512), without the lost ones (frame, port, packet)."""
    for frame, ports in enumerate(counts):
        data = [raw_files.eiger_bytes(port, bits) for port in ports]
        for packet in range(len(data[0]) // payload):
            for port in range(4):
                if (frame, port, packet) not in lost:
                    head = packet_header(frame + 1, packet, kind=1, row=places[port][0], column=places[port][1])
                    yield port, head + data[port][packet * payload : (packet + 1) * payload]


@pytest.mark.parametrize("ten_giga", [False, True])
@pytest.mark.parametrize("rows", [256, 64])
@pytest.mark.parametrize("bits", [4, 8, 12, 16, 32])
def test_every_depth_over_both_networks(bench, bits, rows, ten_giga):
    payload = 4096 if ten_giga else 1024
    rng = np.random.default_rng(bits)
    # Below the special values of 16 and 32 bits.
    counts = rng.integers(0, min(2**bits, 60000 if bits == 16 else 2**31 - 1000), (COUNT, 4, rows, 512), dtype=np.int64)
    packets = rows * 64 * bits // payload
    lost = {(1, 2, packets - 1), (1, 3, 1), (2, 0, packets // 2)}
    detector = {"type": "eiger", "bits": bits, "energy_kev": 12.4, "ten_giga": ten_giga, "rows": rows}
    run = {"images": COUNT, "stall_timeout_s": 2}
    receiver = bench.receive(bench.config(streams=4, detector=detector, run=run, output={"keep_raw": True}))
    send(bench.port, eiger_packets(counts, bits, payload, lost))
    code, report = receiver.finish()
    balanced(code, report)
    assert code == 1 and report["packets_per_image"] == 4 * packets
    assert report["images"]["complete"] == 1 and report["images"]["packets_missing"] == 3
    master = Master(bench.master)
    expected = counts.reshape(COUNT, 4 * rows * 512).copy()
    # A pixel is missing if any packet with a part of it is missing.
    for frame, port, packet in lost:
        first, last = packet * payload * 8 // bits, -(-(packet + 1) * payload * 8 // bits)
        expected[frame, port * rows * 512 + first : port * rows * 512 + last] = MISSING[str(master.images.dtype)]
    assert (master.images.reshape(COUNT, -1) == expected).all()
    program("check", bench.master, check=0)
    raw = json.loads((bench.folder / "run_raw_master_0.json").read_text())
    assert (raw["Ten Giga"], raw["Number of rows"]) == (int(ten_giga), rows)
    convert(bench.folder / "run_raw_master_0.json", "-o", bench.folder / "again", check=1)
    assert chunks(bench.folder / "again_master.h5") == chunks(bench.master)


def test_the_simulator_sends_over_one_gigabit(bench):
    detector = {"type": "eiger", "bits": 16, "energy_kev": 12.4, "ten_giga": False, "rows": 128}
    receiver = bench.receive(bench.config(streams=4, detector=detector, run={"images": 4}))
    sent = simulate("eiger", "--to", bench.to, "--bits", 16, "--rate", 20, "--images", 4, "--ten-giga", "false", "--rows", 128)
    code, report = receiver.finish()
    balanced(code, report)
    assert code == 0 and sent["packets_sent"] == 4 * 4 * 128 and report["total"]["received_bytes"] == 4 * 4 * 128 * 1072


def opened(ports, gap):
    """Four ports (256, 512) as the image of a module: gaps of 2 pixels between chips, the upper half flipped so that
    its row 0 lies at the middle."""
    image = np.full((514, 1030), gap, ports.dtype)
    for port, data in enumerate(ports):
        half, side = port // 2, port % 2
        rows = 255 - np.arange(256) if half == 0 else 258 + np.arange(256)
        columns = side * 516 + np.arange(512) + 2 * (np.arange(512) // 256)
        image[np.ix_(rows, columns)] = data
    return image


@pytest.mark.parametrize("double_pixels", [None, "gap", "mask", "split", "keep"])
def test_the_gaps_between_the_chips_of_an_eiger_are_open(bench, double_pixels):
    counts = np.random.default_rng(3).integers(0, 1000, (COUNT, 4, 256, 512), dtype=np.int64)
    detector = {"type": "eiger", "bits": 16, "energy_kev": 12.4, "geometry": "eiger-500k"}
    detector |= {"double_pixels": double_pixels} if double_pixels else {}
    receiver = bench.receive(bench.config(streams=4, detector=detector, run={"images": COUNT}))
    send(bench.port, eiger_packets(counts, 16, 4096))
    assert receiver.finish()[0] == 0
    master = Master(bench.master)
    masked = MASKED["uint16"]
    assert master.images.shape == (COUNT, 514, 1030)
    gaps = opened(np.zeros((4, 256, 512), int), 1).astype(bool)
    for n in range(COUNT):
        image, expected = master.images[n].astype(int), opened(counts[n], masked)
        if double_pixels in (None, "gap"):
            assert (image == expected).all() and (master.mask == gaps).all()
        elif double_pixels == "keep":
            assert (image[:256, 1:513] == counts[n, 0, ::-1]).all() and (image[258:, 517:1029] == counts[n, 3]).all()
        elif double_pixels == "mask":
            edge = gaps | np.roll(gaps, 1, 0) | np.roll(gaps, -1, 0) | np.roll(gaps, 1, 1) | np.roll(gaps, -1, 1)
            edge |= np.roll(np.roll(gaps, 1, 0), 1, 1)
            assert (master.mask[gaps] == 258).all() and (image[~edge] == expected[~edge]).all() and (image[gaps] == masked).all()
        else:
            # The sum is unchanged, and both halves of a double pixel are equal to within one count.
            assert image.sum() == counts[n].sum() and (master.mask == 0).all()
            wide = image[:100, 255:257]
            assert (wide.sum(1) == expected[:100, 255]).all() and (abs(wide[:, 0] - wide[:, 1]) <= 1).all()
            corner = image[255:257, 255:257]
            assert corner.sum() == expected[255, 255] and np.ptp(corner) <= 1
    program("check", bench.master, check=0)


@needs_eiger
def test_the_captured_module_in_the_preset(bench):
    ports = []
    for port in range(50020, 50024):
        record = np.fromfile(EIGER / f"{port}.dat", np.dtype([("length", "<u8"), ("header", "V48"), ("pixels", "<u4", 1024)]))
        ports.append(record["pixels"].reshape(5, 256, 512))
    detector = {"type": "eiger", "bits": 32, "geometry": "eiger-500k", "energy_kev": 12.4}
    receiver = bench.receive(bench.config(streams=4, detector=detector, run={"images": 5, "first_frame": "auto"}))
    simulate("eiger", "--to", bench.to, "--rate", 10, "--raw", *[EIGER / f"{port}.dat" for port in range(50020, 50024)])
    assert receiver.finish()[0] == 0
    master = Master(bench.master)
    for n in range(5):
        assert (master.images[n] == opened(np.stack([p[n] for p in ports]), MASKED["uint32"])).all()
