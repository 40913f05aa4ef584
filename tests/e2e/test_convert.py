"""Conversion of raw files that are written here from their published layouts. The result has the same bytes as a live
run, whatever the format."""

import json

import h5py
import hdf5plugin
import numpy as np
import pytest
import raw_files
from driving import INTERRUPT, LYSO, Master, lyso_raw, lyso_tables, needs_lyso, program, raw_tables, simulate


def convert(*arguments, check=0, timeout=120):
    """Runs `konkordia convert --json`; returns the report, which is the last event."""
    done = program("convert", *arguments, "--json", check=check, timeout=timeout)
    events = [json.loads(line) for line in done.stdout.splitlines()]
    return events[-1], done


def chunks(path):
    """The stored chunks (filter mask, bytes) of every image of all data files of this master, in order."""
    stem = str(path).removesuffix("_master.h5")
    found = []
    for number in range(1, 1000):
        try:
            f = h5py.File(f"{stem}_data_{number:06}.h5", "r")
        except FileNotFoundError:
            return found
        with f:
            data = f["/entry/data/data"]
            for n in range(data.shape[0]):
                found.append(data.id.read_direct_chunk((n, 0, 0)))


def lyso_options():
    return ["--calibration", LYSO, "--energy-kev", "12.4"]


def lyso_words():
    return np.stack([np.fromfile(p, "<u2").reshape(1, 512, 1024) for p in lyso_raw()])


def sum_of_ledger(report):
    images = report["images"]
    assert report["balances"], report["imbalances"]
    assert images["expected"] == sum(images[k] for k in ("complete", "partial", "lost", "discarded")), images
    return images


@pytest.mark.parametrize("kind", ["json", "hdf5", "no master"])
def test_times_are_those_that_the_master_tells(tmp_path, kind):
    """The slsReceiver writes its master when it is stopped, with the local time of its machine, so there is no start
    time and no time zone. The modification time of a file is not a time of the measurement."""
    words = raw_files.frames(4)
    path = raw_files.write_sls_hdf5(tmp_path, words) if kind == "hdf5" else raw_files.write_sls(tmp_path, words)
    more = []
    if kind == "no master":
        path.unlink()
        path, more = tmp_path / "run_d0_f0_0.raw", ["--format", "raw112"]
    for name, frames, is_estimated in [("all", "1:4", kind != "no master"), ("end", "3:", kind != "no master"), ("begin", ":2", False)]:
        convert(path, "-o", tmp_path / name, "--dtype", "raw", "--frames", frames, *more)
        with h5py.File(tmp_path / f"{name}_master.h5", "r") as f:
            found = {key: f["/entry"][key][()] for key in ("start_time", "end_time", "end_time_estimated") if key in f["/entry"]}
            assert found == ({"end_time_estimated": b"2026-11-17T10:00:00"} if is_estimated else {}), name
            assert "time_zone" not in f["/entry/instrument"]


@needs_lyso
@pytest.mark.parametrize(("interfaces", "version", "per_file"), [(1, 7.2, 3), (2, 7.2, 10000), (1, 8.0, 10000), (2, 8.0, 4)])
def test_the_same_bytes_as_from_the_network(bench, tmp_path, interfaces, version, per_file):
    tables = lyso_tables(images=10)
    tables["detector"]["interfaces"] = interfaces
    receiver = bench.receive(bench.config(streams=interfaces, **tables))
    simulate("jungfrau", "--to", bench.to, "--interfaces", interfaces, "--rate", 50, "--raw", *lyso_raw())
    code, _ = receiver.finish()
    assert code == 0
    path = raw_files.write_sls(tmp_path, lyso_words(), version=version, interfaces=interfaces, per_file=per_file)
    report, _ = convert(path, "-o", tmp_path / "offline", *lyso_options(), "--verify")
    assert sum_of_ledger(report)["complete"] == 10 and report["verified"]["images_different"] == 0
    assert report["input"]["interfaces"] == interfaces and f"version {version}" in report["input"]["kind"]
    live, offline = chunks(bench.master), chunks(tmp_path / "offline_master.h5")
    assert len(live) == 10 and live == offline
    a, b = Master(bench.master), Master(tmp_path / "offline_master.h5")
    assert (a.images == b.images).all() and (a.mask == b.mask).all()
    for column in ("frame_number", "status", "packets_received", "packet_bitmap"):
        assert (a.columns[column] == b.columns[column]).all(), column
    program("check", tmp_path / "offline_master.h5", check=0)


@needs_lyso
@pytest.mark.parametrize("seed", [3, 4])
def test_the_same_bytes_under_losses(bench, tmp_path, seed):
    """The raw files that are converted lack the packets that the live run lost, and are padded as by the receiver."""
    tables = lyso_tables(images=20, stall_timeout_s=2)
    tables["detector"]["interfaces"] = 2
    receiver = bench.receive(bench.config(streams=2, **tables))
    faults = ["--loss", 0.02, "--reorder", 0.02, "--duplicate", 0.01, "--seed", seed]
    simulate("jungfrau", "--to", bench.to, "--interfaces", 2, "--rate", 60, "--images", 20, *faults, "--raw", *lyso_raw())
    receiver.finish()
    live = Master(bench.master)
    words = np.concatenate([lyso_words()] * 2)
    arrived = np.stack([live.arrived(n, 64) for n in range(20)])
    lost = {(n, port): np.flatnonzero(~arrived[n, port]) for n in range(20) for port in range(2)}
    assert sum(map(len, lost.values())) > 20
    path = raw_files.write_sls(tmp_path, words, interfaces=2, per_file=7, lost=lost)
    report, _ = convert(path, "-o", tmp_path / "offline", *lyso_options(), "--verify", check=1)
    assert report["verified"] | {"seconds": 0} == {
        "images": 20, "images_different": 0, "pixels_different": 0, "first_different": None, "tolerance": 0.0, "seconds": 0,
    }  # fmt: skip
    assert chunks(bench.master) == chunks(tmp_path / "offline_master.h5")
    offline = Master(tmp_path / "offline_master.h5")
    assert (offline.columns["packet_bitmap"] == live.columns["packet_bitmap"]).all()


@pytest.fixture(scope="module")
def words():
    return raw_files.frames(6, modules=2)


def whole(words):
    return words.reshape(len(words), -1, 1024)


def converted(tmp_path, inputs, *options, check=0):
    report, done = convert(*inputs, "-o", tmp_path / "out", "--dtype", "raw", *options, check=check)
    return Master(tmp_path / "out_master.h5"), report, done


@pytest.mark.parametrize("form", ["sls72", "sls80", "two interfaces", "old names", "raw112", "raw48", "raw48 two", "raw16", "u16"])
def test_every_format_gives_the_words(tmp_path, words, form):
    inputs = []
    interfaces = 2 if "two" in form else 1
    if form.startswith("raw") or form == "u16":
        for port in range(2 * interfaces if form != "u16" else 1):
            path = tmp_path / f"a_d{port}_f0_0.raw" if form == "raw16" else tmp_path / f"a{port}.bin"
            skip = {"raw112": 112, "raw48": 48, "raw48 two": 48, "raw16": 16, "u16": 0}[form]
            parts = []
            for n, frame in enumerate(words):
                record = raw_files.record(frame, port, n + 1, interfaces)
                head = (n + 1).to_bytes(8, "little") + bytes(8) if skip == 16 else record[:skip]
                parts.append(head + (frame.tobytes() if skip == 0 else record[112:]))
            path.write_bytes(b"".join(parts))
            inputs.append(path)
    else:
        version = 8.0 if form == "sls80" else 7.2
        pad = "012" if form == "old names" else ""
        inputs.append(raw_files.write_sls(tmp_path, words, version=version, interfaces=interfaces, per_file=4, pad=pad))
    options = ["--modules", 2] if form == "u16" else []
    master, report, _ = converted(tmp_path, inputs, *options, "--verify")
    assert (master.images == whole(words)).all()
    assert list(master.columns["frame_number"]) == [1, 2, 3, 4, 5, 6]
    assert report["input"]["modules"] == 2 and report["verified"]["images_different"] == 0


@pytest.mark.parametrize("interfaces", [1, 2])
def test_hdf5_of_the_receiver(tmp_path, words, interfaces):
    lost = {(1, 0): [3, 17], (2, interfaces): [0]}
    path = raw_files.write_sls_hdf5(tmp_path, words, interfaces=interfaces, lost=lost)
    master, report, _ = converted(tmp_path, [path], "--verify", check=1)
    expected = whole(words).copy()
    for (frame, port), packets in lost.items():
        for packet in packets:
            row = port * 512 // interfaces + packet * 4
            expected[frame, row : row + 4] = 0xFFFF
            assert not master.arrived(frame, 128 // interfaces)[port, packet]
    assert (master.images == expected).all()
    assert sum_of_ledger(report)["partial"] == 2 and report["images"]["packets_missing"] == 3
    assert list(master.columns["timestamp"]) == [1000 * n for n in range(1, 7)]


@pytest.mark.parametrize("storage", [{}, hdf5plugin.Bitshuffle(), hdf5plugin.Bitshuffle(cname="zstd"), {"compression": "gzip"}],
                         ids=["contiguous", "bslz4", "bszstd", "gzip"])  # fmt: skip
def test_hdf5_of_swissfel(tmp_path, words, storage):
    good = [1, 1, 0, 1, 1, 1]
    path = raw_files.write_swissfel(tmp_path / "run.h5", words, good=good, **storage)
    master, report, done = converted(tmp_path, [path], "--verify", check=1)
    expected = whole(words).copy()
    expected[2] = 0xFFFF
    assert (master.images == expected).all()
    assert sum_of_ledger(report)["lost"] == 1 and "1 frames are not good" in done.stderr
    assert list(master.columns["bunch_id"][[0, 5]]) == [10**10, 10**10 + 5]
    assert (master.columns["detector_info"][[0, 1]] == 0x100).all()


def test_files_of_swissfel_without_usable_numbers_follow_each_other(tmp_path, words):
    """Bad frames keep their place too. No frame of the second file may get the number of one of the first."""
    none = [0] * 3
    paths = [
        raw_files.write_swissfel(tmp_path / f"{n}.h5", words[3 * n : 3 * n + 3], good=good, frame_index=none)
        for n, good in enumerate([[1, 0, 1], [1, 1, 1]])
    ]
    master, report, done = converted(tmp_path, paths, check=1)
    expected = whole(words).copy()
    expected[1] = 0xFFFF
    assert (master.images == expected).all() and "repeat an earlier" not in done.stderr
    assert sum_of_ledger(report)["lost"] == 1


def test_modules_beside_each_other_lie_as_aare_reads_them(tmp_path):
    """Compares with aare, an independent reader, for both versions and for one and two interfaces."""
    aare = pytest.importorskip("aare", reason="aare has no wheel for this Python")
    words = raw_files.frames(3, modules=4, seed=5)
    for version, interfaces, ports_x in [(7.2, 1, 1), (7.2, 2, 1), (8.0, 1, 1), (7.2, 1, 2)]:
        folder = tmp_path / f"{version}-{interfaces}-{ports_x}"
        folder.mkdir()
        path = raw_files.write_sls(folder, words, version=version, interfaces=interfaces, per_file=2, ports_x=ports_x)
        master, _, _ = converted(folder, [path])
        with aare.RawFile(path) as f:
            headers, images = f.read()
        assert images.shape == master.images.shape, (version, interfaces, ports_x)
        assert (images == master.images).all(), (version, interfaces, ports_x)
        assert list(headers["frameNumber"].reshape(3, -1)[:, 0]) == list(master.columns["frame_number"])


def side_by_side(counts, places):
    """The counts (frames, ports, 256, 512) as images, each port at the row and column of its header."""
    rows, columns = (max(p[axis] for p in places) + 1 for axis in (0, 1))
    image = np.zeros((len(counts), rows * 256, columns * 512), counts.dtype)
    for port, (row, column) in enumerate(places):
        image[:, row * 256 : row * 256 + 256, column * 512 : column * 512 + 512] = counts[:, port]
    return image


@pytest.mark.parametrize("form", ["raw", "hdf5"])
@pytest.mark.parametrize("bits", [4, 8, 12, 16, 32])
def test_eiger_ports_lie_where_their_headers_say(tmp_path, bits, form):
    """Two modules side by side. Left and right ports of their lower halves are exchanged, as in the hardware."""
    counts = np.random.default_rng(bits).integers(0, min(2**bits - 1, 200), (3, 8, 256, 512))
    places = raw_files.eiger_ports(1, 2)
    lost = {(1, 2): [0], (2, 7): [4 * bits - 1]}
    write = raw_files.write_eiger if form == "raw" else raw_files.write_eiger_hdf5
    report, done = convert(write(tmp_path, counts, bits, places, lost=lost), "-o", tmp_path / "out", "--verify", check=1)
    master = Master(tmp_path / "out_master.h5")
    expected = counts.reshape(3, 8, -1).copy()
    missing = np.iinfo(master.images.dtype).max
    for (frame, port), packets in lost.items():
        for packet in packets:
            expected[frame, port, packet * 32768 // bits : -(-(packet + 1) * 32768 // bits)] = missing
    assert master.images.shape == (3, 512, 2048)
    assert (master.images == side_by_side(expected.reshape(counts.shape), places)).all()
    assert sum_of_ledger(report)["partial"] == 2 and report["verified"]["images_different"] == 0
    assert "placed side by side as their headers say" in done.stderr and "give its geometry" in done.stderr


@pytest.mark.parametrize("form", ["raw", "hdf5"])
@pytest.mark.parametrize("bits", [12, 32])
def test_eiger_over_one_gigabit_from_files(tmp_path, bits, form):
    counts = np.random.default_rng(bits).integers(0, 4000, (2, 4, 256, 512))
    write = raw_files.write_eiger if form == "raw" else raw_files.write_eiger_hdf5
    path = write(tmp_path, counts, bits, raw_files.eiger_ports(1, 1), ten_giga=False, lost={(0, 1): [7]})
    report, _ = convert(path, "-o", tmp_path / "out", check=1)
    expected = counts.reshape(2, 4, -1).copy()
    master = Master(tmp_path / "out_master.h5")
    expected[0, 1, 7 * 8192 // bits : -(-8 * 8192 // bits)] = np.iinfo(master.images.dtype).max
    assert (master.images == side_by_side(expected.reshape(counts.shape), raw_files.eiger_ports(1, 1))).all()


@pytest.mark.parametrize("form", ["raw", "hdf5"])
def test_an_eiger_with_its_geometry(tmp_path, form):
    """The same file with the preset geometry: gaps between the chips, the upper half flipped."""
    counts = np.random.default_rng(1).integers(0, 200, (2, 4, 256, 512))
    places = raw_files.eiger_ports(1, 1)
    write = raw_files.write_eiger if form == "raw" else raw_files.write_eiger_hdf5
    path = write(tmp_path, counts, 16, places)
    _, done = convert(path, "-o", tmp_path / "out", "--geometry", "eiger-500k")
    image = Master(tmp_path / "out_master.h5").images[1]
    by_place = dict(zip(places, counts[1], strict=True))
    assert image.shape == (514, 1030) and "side by side" not in done.stderr
    assert (image[:256, :256] == by_place[0, 0][::-1, :256]).all() and (image[258:, 258:514] == by_place[1, 0][:, 256:]).all()
    assert (image[258:, 516:772] == by_place[1, 1][:, :256]).all() and (image[256:258] == 65534).all()


def test_eiger_ports_without_rows_and_columns_lie_by_their_numbers(tmp_path):
    counts = np.random.default_rng(2).integers(0, 200, (2, 8, 256, 512))
    path = raw_files.write_eiger(tmp_path, counts, 16, [(0, 0)] * 8)
    text = json.loads(path.read_text()) | {"Geometry": {"x": 4, "y": 2}}
    path.write_text(json.dumps(text))
    _, done = convert(path, "-o", tmp_path / "out")
    by_number = [(0, 0), (0, 1), (1, 0), (1, 1), (0, 2), (0, 3), (1, 2), (1, 3)]
    assert (Master(tmp_path / "out_master.h5").images == side_by_side(counts, by_number)).all()
    assert "ports are placed by their numbers" in done.stderr


@pytest.mark.parametrize(("ports", "bits"), [((2, 2), 16), ((4, 2), 32)])
def test_eiger_ports_lie_as_aare_reads_them(tmp_path, ports, bits):
    aare = pytest.importorskip("aare", reason="aare has no wheel for this Python")
    counts = np.random.default_rng(4).integers(0, 200, (2, ports[0] * ports[1], 256, 512))
    # aare counts ports down each column first, and flips the upper half modules. Without a geometry Konkordia does not.
    places = [(k % ports[1], k // ports[1]) for k in range(ports[0] * ports[1])]
    path = raw_files.write_eiger(tmp_path, counts, bits, places)
    convert(path, "-o", tmp_path / "out")
    with aare.RawFile(path) as f:
        _, images = f.read()
    found = Master(tmp_path / "out_master.h5").images
    found[:, :256] = found[:, 255::-1]
    assert images.shape == found.shape and (images == found).all()


@pytest.mark.parametrize("unused", [0, 2**64 - 1])
@pytest.mark.parametrize("interfaces", [1, 2])
def test_what_a_receiver_never_used_is_no_loss(tmp_path, words, interfaces, unused):
    """The data sets have room for 20 frames, of which 6 came."""
    path = raw_files.write_sls_hdf5(tmp_path, words, interfaces=interfaces, made_for=20, unused=unused)
    master, report, done = converted(tmp_path, [path], "--verify")
    assert (master.images == whole(words)).all() and sum_of_ledger(report)["complete"] == 6
    assert "its data set has room for 20 frames, 6 were written" in done.stderr


def test_frames_that_the_master_counts_and_nobody_wrote_are_missing(tmp_path, words):
    path = raw_files.write_sls_hdf5(tmp_path, words[:4], made_for=20)
    with h5py.File(path, "r+") as f:
        f["/entry/instrument/detector/Frames in File"][()] = 6
    _, _, done = converted(tmp_path, [path], check=1)
    assert "the master counts 6 frames, the files hold 4" in done.stderr


def test_how_several_modules_were_placed_is_said(tmp_path, words):
    path = raw_files.write_sls(tmp_path, words)
    _, report, done = converted(tmp_path, [path])
    said = "the 2 modules were placed one below the other, without gaps"
    assert said in done.stderr and "--geometry jungfrau-1m" in done.stderr
    # The note is not the headline of a complete conversion.
    assert any(said in note for note in report["notes"]) and report["headline"] is None and report["advice"] == []
    with h5py.File(tmp_path / "out_master.h5", "r") as f:
        assert said in f["/entry/konkordia/conversion/placement"][()].decode()
    convert(path, "-o", tmp_path / "placed", "--dtype", "raw", "--geometry", "jungfrau-1m")
    placed = Master(tmp_path / "placed_master.h5").images
    assert placed.shape == (6, 1064, 1030) and (placed[:, 551:1063, 3:1027] == words[:, 1]).all()
    assert "does not fit this detector" in program("convert", path, "-o", tmp_path / "x", "--dtype", "raw", "--geometry", "jungfrau-4m", check=3).stderr


def test_raw_frames_that_were_kept_know_their_geometry(bench, tmp_path):
    """Converted without any geometry option they give the image of the run."""
    tables = raw_tables(2, 2, images=3)
    tables["detector"] |= {"geometry": "jungfrau-1m", "double_pixels": "mask", "beam_center_x_px": 500.5}
    receiver = bench.receive(bench.config(streams=4, output={"keep_raw": True}, **tables))
    simulate("jungfrau", "--to", bench.to, "--modules", 2, "--interfaces", 2, "--images", 3, "--rate", 20)
    assert receiver.finish()[0] == 0
    _, done = convert(tmp_path / "run_raw_master_0.json", "-o", tmp_path / "again", "--dtype", "raw")
    assert chunks(tmp_path / "again_master.h5") == chunks(bench.master) and "placed one below" not in done.stderr
    with h5py.File(tmp_path / "again_master.h5", "r") as f:
        assert f["/entry/instrument/detector/beam_center_x"][()] == 500.5
    # Options of the user come first.
    convert(tmp_path / "run_raw_master_0.json", "-o", tmp_path / "other", "--dtype", "raw", "--set", "detector.geometry=stacked")
    assert Master(tmp_path / "other_master.h5").images.shape == (3, 1024, 1024)


# A half module that is mounted upside down: its left port has the higher column in the headers.
TURNED = [(0, 0), (0, 1), (1, 1), (1, 0)]
PLACED = [{"row": 0, "column": 0}, {"row": 0, "column": 512}, {"row": 256, "column": 512}, {"row": 256, "column": 0}]


@pytest.mark.parametrize("tiles", [PLACED, None])
def test_kept_frames_of_an_eiger_keep_the_order_of_their_ports(bench, tmp_path, tiles):
    """The tiles are in the order of the run's ports, whatever rows and columns the headers have."""
    from test_modes import eiger_packets, send

    counts = np.random.default_rng(3).integers(0, 60000, (3, 4, 256, 512), dtype=np.int64)
    detector = {"type": "eiger", "bits": 16, "energy_kev": 12.4, "strict": False} | ({"tile": tiles} if tiles else {})
    config = bench.config(streams=4, detector=detector, run={"images": 3}, output={"keep_raw": True})
    receiver = bench.receive(config)
    send(bench.port, eiger_packets(counts, 16, 4096, places=TURNED))
    assert receiver.finish()[0] == 0
    convert(tmp_path / "run_raw_master_0.json", "-o", tmp_path / "later")
    assert chunks(tmp_path / "later_master.h5") == chunks(bench.master)
    if tiles:
        image = Master(bench.master).images[0]
        assert (image[256:, 512:] == counts[0, 2]).all() and (image[256:, :512] == counts[0, 3]).all()
        # The same for files of the slsReceiver, with the configuration of a live run.
        for name, write in (("binary", raw_files.write_eiger), ("hdf5", raw_files.write_eiger_hdf5)):
            path = write(tmp_path, counts, 16, TURNED, name=name)
            convert(path, "-o", tmp_path / f"{name}_later", "--config", config)
            assert chunks(tmp_path / f"{name}_later_master.h5") == chunks(bench.master), name


def test_some_frames_only_and_options_of_the_configuration(tmp_path, words):
    path = raw_files.write_sls(tmp_path, words, numbers=[10, 11, 12, 13, 14, 15])
    master, report, _ = converted(tmp_path, [path], "--frames", "11:13", "--set", "output.layout=virtual", "--compression", "bszstd",
                                  "--images-per-file", 2, "--set", "output.sample_name=lyso")  # fmt: skip
    assert list(master.columns["frame_number"]) == [11, 12, 13] and (master.images == whole(words)[1:4]).all()
    summary = json.loads(program("inspect", tmp_path / "out_master.h5", "--json", check=0).stdout)
    assert summary["compression"] == "bszstd" and len(report["data_files"]) == 2
    done = program("convert", path, "-o", tmp_path / "out", "--dtype", "raw", check=6)
    assert "overwrite" in done.stderr
    program("convert", path, "-o", tmp_path / "out_master.h5", "--dtype", "raw", "--overwrite", "--quiet", check=0)
    assert len(Master(tmp_path / "out_master.h5").images) == 6


@needs_lyso
def test_a_configuration_of_a_receiver_serves_files_too(bench, tmp_path):
    config = bench.config(**lyso_tables(images=3, first_frame="auto"))
    path = raw_files.write_sls(tmp_path, lyso_words())
    report, _ = convert(path, "-o", tmp_path / "offline", "--config", config)
    assert sum_of_ledger(report)["complete"] == 10, "the input says how many images there are"
    other = bench.config(**{**lyso_tables(), "detector": {"type": "jungfrau", "modules": 2, "energy_kev": 12.4}})
    done = program("convert", path, "-o", tmp_path / "x", "--config", other, check=3)
    assert "for another detector" in done.stderr and "modules is 2" in done.stderr


@pytest.mark.alone
def test_progress_report_and_memory_are_printed(tmp_path, words):
    path = raw_files.write_sls(tmp_path, words)
    done = program("convert", path, "-o", tmp_path / "out", "--dtype", "raw", check=0)
    assert "6 expected, 6 complete" in done.stdout and "ledger    balances" in done.stdout
    assert "latency" not in done.stdout, "how long frames of files take says nothing"
    assert "slsReceiver acquisition, version 7.2" in done.stderr and "memory" in done.stderr
    quiet = program("convert", path, "-o", tmp_path / "quiet", "--dtype", "raw", "--geometry", "jungfrau-1m", "--set", "output.xds=false", "--quiet", check=0)
    assert quiet.stderr == ""


def test_single_data_files_and_what_is_refused(tmp_path, words):
    """Parts in any order, one of them begun twice; then the master. A dry run writes nothing."""
    path = raw_files.write_sls(tmp_path, words, per_file=3)
    options = ["--dtype", "raw", "--images-per-file", 3, "--quiet"]
    count = -(-len(words) // 3)
    program("convert", path, "-o", tmp_path / "x", *options, "--dry-run", check=0)
    assert not list(tmp_path.glob("x*"))
    for files in (f"{count}:", "1:1", f"1:{count - 1}"):
        program("convert", path, "-o", tmp_path / "part", *options, "--data-files", files, check=0)
        assert not (tmp_path / "part_master.h5").exists()
    done = program("convert", path, "-o", tmp_path / "part", *options, "--resume", check=0)
    assert f"{len(words)} complete" in done.stdout
    program("convert", path, "-o", tmp_path / "whole", *options, check=0)
    program("check", tmp_path / "part_master.h5", check=0)
    assert chunks(tmp_path / "part_master.h5") == chunks(tmp_path / "whole_master.h5")
    a, b = Master(tmp_path / "part_master.h5"), Master(tmp_path / "whole_master.h5")
    assert all((a.columns[name] == b.columns[name]).all() for name in b.columns)
    for more, code, words_of_it in [
        (["--data-files", f"{count + 1}:{count + 1}"], 2, f"make {count} data files"),
        (["--data-files", "0:0"], 2, "numbered from 1"),
        (["--data-files", "1:1", "--resume"], 2, "cannot be used with"),
        (["--data-files", "1:1", "--set", "frames.keep_every=2"], 3, "cannot be shared"),
    ]:
        done = program("convert", path, "-o", tmp_path / "no", *options, *more, check=code)
        assert words_of_it in done.stderr, done.stderr
    assert not list(tmp_path.glob("no*"))
