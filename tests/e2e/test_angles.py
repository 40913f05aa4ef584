"""Angles and other facts of the experiment in the file: from the configuration, a command, Stream V1 and V2, STINS and
CBF headers."""

import bz2
import json
import pathlib
import subprocess
import sys

import cbor2
import h5py
import numpy as np
import nxmx
import pytest
import zmq
from dials import dials, needs_dials
from driving import DATA, free_ports, program, simulate
from service import Service, write_config
from service import free_port as free_tcp_port
from streams import Stins, bslz4, messages_of, pictures

THAUMATIN = DATA / "thaumatin"
STREAMS = DATA / "eiger-streams"
OMEGA = "/entry/sample/transformations/omega"

needs_streams = pytest.mark.skipif(not STREAMS.is_dir(), reason=f"no real streams in {STREAMS}")
needs_thaumatin = pytest.mark.skipif(not THAUMATIN.is_dir(), reason=f"no real frames in {THAUMATIN}")


def text(value):
    value = value[()] if isinstance(value, h5py.Dataset) else value
    return value.decode() if isinstance(value, bytes) else value


def angles(master, axis="omega"):
    """First angle, step and number of angles of this axis, on which the sample must depend."""
    with h5py.File(master) as file:
        assert text(file["/entry/sample/depends_on"]) == f"/entry/sample/transformations/{axis}"
        values = file[f"/entry/sample/transformations/{axis}"][()]
        ends = file[f"/entry/sample/transformations/{axis}_end"][()]
    step = np.median(ends - values)
    np.testing.assert_allclose(values, values[0] + step * np.arange(len(values)), atol=1e-9)
    return values[0], step, len(values)


def imported(folder, *files):
    """What DIALS reads: output of `dials.import`, oscillation and image range, rotation axis, origin, wavelength."""
    said = dials(folder, "dials.import", *files, "output.experiments=imported.expt")
    experiment = json.loads((folder / "imported.expt").read_text())
    assert len(experiment["scan"]) == 1, said
    scan, goniometer, panel = experiment["scan"][0], experiment["goniometer"][0], experiment["detector"][0]["panels"][0]
    oscillation = scan.get("oscillation") or scan["properties"]["oscillation"]
    return {
        "said": said,
        "scan": (*np.round(oscillation[:2], 9), *scan["image_range"]),
        "axis": goniometer["rotation_axis"],
        "origin": panel["origin"],
        "wavelength": experiment["beam"][0]["wavelength"],
    }


# Packets.

EIGER = {
    "type": "eiger",
    "bits": 16,
    "energy_kev": 12.4,
    "detector_distance_mm": 150.0,
    "beam_center_x_px": 100.5,
    "beam_center_y_px": 200.25,
}


def received(bench, *, images, loss=0.0, seed=1, **tables):
    receiver = bench.receive(bench.config(streams=4, detector=EIGER, run={"images": images}, **tables))
    simulate("eiger", "--to", bench.to, "--bits", 16, "--rate", 50, "--images", tables.pop("sent", images), "--loss", loss, "--seed", seed)
    return receiver.finish()


def test_a_run_over_udp_is_a_sweep(bench):
    code, _ = received(bench, images=12, loss=0.02, goniometer={"omega_start_deg": 90.0, "omega_increment_deg": 0.1})
    assert code in (0, 1)
    assert angles(bench.master) == (90.0, pytest.approx(0.1), 12)
    program("check", bench.master, check=0)


@needs_dials
def test_dials_takes_a_run_over_udp_for_a_sweep(bench):
    goniometer = {"omega_start_deg": 90.0, "omega_increment_deg": 0.1, "omega_vector": [0, -1, 0]}
    code, _ = received(bench, images=12, loss=0.02, goniometer=goniometer, output={"modules": "one"})
    assert code in (0, 1)
    found = imported(bench.folder, bench.master)
    assert "sweep:    1" in found["said"] and found["scan"] == (90.0, 0.1, 1, 12)
    # Between the coordinate frames of McStas and imgCIF, x and z change their sign.
    assert found["axis"] == [0, -1, 0] and found["origin"][2] == -150


def test_sums_of_frames_turn_as_far_as_their_frames(bench):
    goniometer = {"phi_start_deg": -5.0, "phi_increment_deg": 0.1}
    receiver = bench.receive(
        bench.config(
            streams=4, detector=EIGER, run={"images": 3}, goniometer=goniometer, processing={"summation": 4}, frames={"warmup_frames": 2}
        )
    )
    simulate("eiger", "--to", bench.to, "--bits", 16, "--rate", 50, "--images", 14)
    code, _ = receiver.finish()
    assert code == 0
    assert angles(bench.master, "phi") == (-5.0, pytest.approx(0.4), 3)


def test_what_is_not_known_is_said_when_a_run_is_armed(bench):
    detector = {name: value for name, value in EIGER.items() if name != "detector_distance_mm"}
    receiver = bench.receive(bench.config(streams=4, detector=detector, run={"images": 1}))
    simulate("eiger", "--to", bench.to, "--bits", 16, "--rate", 50, "--images", 1)
    code, _ = receiver.finish()
    assert code == 0
    assert "[detector] detector_distance_mm" in receiver.errors and "0 m" in receiver.errors, receiver.errors
    assert "[output] sample_name" in receiver.errors and "energy_kev" not in receiver.errors, receiver.errors
    checked = program("check", bench.master, check=0)
    assert "detector distance not known" in checked.stdout + checked.stderr
    with h5py.File(bench.master) as file:
        assert "distance" not in file["/entry/instrument/detector"] and "translation" not in file["/entry/instrument/detector/transformations"]


@pytest.mark.parametrize("bits, depth", [(8, None), (12, None), (16, 16), (32, 32)])
def test_no_count_of_an_eiger_is_taken_for_a_special_value(bench, bits, depth):
    """With bit_depth_readout = 12 in 16-bit pixels, dxtbx would take 4095 and 4094 for special values."""
    receiver = bench.receive(bench.config(streams=4, detector={**EIGER, "bits": bits}, run={"images": 1}))
    simulate("eiger", "--to", bench.to, "--bits", bits, "--rate", 20, "--images", 1)
    receiver.finish()
    with h5py.File(bench.master) as file:
        detector = file["/entry/instrument/detector"]
        assert (int(detector["bit_depth_readout"][()]) if "bit_depth_readout" in detector else None) == depth
        assert detector["detectorSpecific/bit_depth_readout"][()] == bits


def test_a_command_comes_before_the_configuration(tmp_path):
    config = write_config(
        tmp_path,
        free_ports(4),
        detector={"type": "eiger", "bits": 8},
        goniometer={"omega_start_deg": 1.0, "omega_increment_deg": 0.5},
        run={"images": 2, "first_frame": "auto"},
    )
    service = Service(config)
    try:
        command = ["arm", "--url", service.url, "--set", "omega_start_deg=90", "--set", "omega_vector=[0, 1, 0]"]
        program(*command, "--set", "unit_cell=[79.1, 79.1, 38.2, 90, 90, 90]", "--set", "flatfield_applied=true", check=0)
        service.command("start")
        port = int(config.read_text().split("first_port = ")[1].split()[0])
        simulate("eiger", "--to", f"127.0.0.1:{port}", "--bits", 8, "--rate", 20, "--images", 2)
        done = service.wait()
        with h5py.File(done["file"]) as file:
            assert file[OMEGA][()].tolist() == [90.0, 90.5] and file[OMEGA].attrs["vector"].tolist() == [0, 1, 0]
            assert file["/entry/sample/unit_cell_abc"][()].tolist() == [79.1, 79.1, 38.2]
            assert file["/entry/instrument/detector/flatfield_applied"][()] == 1
    finally:
        service.end()


@pytest.mark.parametrize(
    ("frames", "summation", "increment"), [({"keep_every": 3}, 1, 1.5), ({"keep_every": 2}, 2, 2.0), ({"dark_every": 3}, 1, None)]
)
def test_consumers_get_angles_from_image_to_image(tmp_path, frames, summation, increment):
    """Stream V2 has one increment, and none where angles are not equally spaced. The file always has every angle."""
    address = f"tcp://127.0.0.1:{free_tcp_port()}"
    tables = {"frames": frames, "processing": {"summation": summation}, "goniometer": {"omega_start_deg": 10.0, "omega_increment_deg": 0.5}}
    extra = f'[[stream]]\nname = "live"\nprotocol = "stream2"\naddress = "{address}"\n'
    config = write_config(tmp_path, free_ports(4), detector={"type": "eiger", "bits": 8}, run={"images": 3}, extra=extra, **tables)
    service, context = Service(config), zmq.Context()
    try:
        taker = context.socket(zmq.PULL)
        taker.rcvtimeo = 10_000
        taker.connect(address)
        service.consumers_connect()
        service.command("start")
        port = int(config.read_text().split("first_port = ")[1].split()[0])
        simulate("eiger", "--to", f"127.0.0.1:{port}", "--bits", 8, "--rate", 20, "--images", 14)
        start = cbor2.loads(taker.recv())
        assert start["type"] == "start"
        omega = start.get("goniometer", {}).get("omega")
        assert omega == (None if increment is None else {"start": 10.0, "increment": increment})
        with h5py.File(service.wait()["file"]) as file:
            assert increment is None or np.allclose(np.diff(file[OMEGA][()]), increment)
            assert increment is not None or file[OMEGA][()].tolist() == [10.0, 10.5, 11.5]
    finally:
        context.destroy(linger=0)
        service.end()


# Streams.


def v1_series(images, **config):
    """Messages of Stream V1 with `header_detail` basic, as DECTRIS sends them."""
    said = {
        "beam_center_x": 10.5, "beam_center_y": 5.5, "bit_depth_image": 16, "bit_depth_readout": 16, "count_time": 0.09, "frame_time": 0.1,
        "detector_distance": 0.2, "photon_energy": 12400.0, "sensor_material": "Si", "sensor_thickness": 0.00045, "x_pixel_size": 75e-6,
        "y_pixel_size": 75e-6, "nimages": len(images), "ntrigger": 1, "data_collection_date": "2026-11-21T12:00:00.000+01:00",
        "flatfield_correction_applied": True, "countrate_correction_applied": False, "threshold_energy": 6200.0,
        "x_pixels_in_detector": images[0].shape[1], "y_pixels_in_detector": images[0].shape[0],
        **{f"{axis}_{what}": 0.0 for axis in ("chi", "kappa", "omega", "phi", "two_theta") for what in ("start", "increment")},
        **config,
    }  # fmt: skip
    yield [json.dumps({"header_detail": "basic", "htype": "dheader-1.0", "series": 7}).encode(), json.dumps(said).encode()]
    for n, image in enumerate(images):
        packed = bslz4(image)
        about = {"encoding": "bs16-lz4<", "htype": "dimage_d-1.0", "shape": image.shape[::-1], "size": len(packed), "type": "uint16"}
        times = {"htype": "dconfig-1.0", "real_time": 90_000_000, "start_time": n * 100_000_000, "stop_time": n * 100_000_000 + 90_000_000}
        first = {"frame": n, "hash": "", "htype": "dimage-1.0", "series": 7}
        yield [json.dumps(first).encode(), json.dumps(about).encode(), packed, json.dumps(times).encode()]
    yield [json.dumps({"htype": "dseries_end-1.0", "series": 7}).encode()]


def v2_series(images, user_data=None, **start):
    """Messages of Stream V2."""

    def message(kind, **said):
        return [b"\xd9\xd9\xf7" + cbor2.dumps({"type": kind, "series_id": 8, "series_unique_id": "01TEST", **said})]

    rows, columns = images[0].shape
    said = {
        "arm_date": cbor2.CBORTag(0, "2026-11-21T12:00:00+01:00"), "beam_center_x": 10.5, "beam_center_y": 5.5, "channels": ["threshold_1"],
        "count_time": 0.09, "frame_time": 0.1, "detector_translation": [0.0, 0.0, 0.2], "image_dtype": "uint16", "image_size_x": columns,
        "image_size_y": rows, "incident_energy": 12400.0, "number_of_images": len(images), "pixel_size_x": 75e-6, "pixel_size_y": 75e-6,
        "sensor_material": "Si", "sensor_thickness": 0.00045, "threshold_energy": {"threshold_1": 6200.0, "threshold_2": 10000.0},
        "flatfield_enabled": True, "countrate_correction_enabled": True, **start,
    }  # fmt: skip
    if user_data is not None:
        said["user_data"] = user_data
    yield message("start", **said)
    for n, image in enumerate(images):
        typed = cbor2.CBORTag(69, cbor2.CBORTag(56500, ["bslz4", 2, bslz4(image)]))
        yield message(
            "image",
            image_id=n,
            real_time=[9, 100],
            series_date=cbor2.CBORTag(0, "2026-11-21T12:00:05+01:00"),
            start_time=[n, 10],
            stop_time=[n * 10 + 9, 100],
            data={"threshold_1": cbor2.CBORTag(40, [[rows, columns], typed])},
        )
    yield message("end")


def sent(serve, protocol, messages, severity="success", **options):
    service = serve(protocol, **options)
    service.send(*messages)
    return service.taken(1, severity)["file"]


def test_a_series_of_stream_1_is_a_sweep(serve):
    messages = list(v1_series(pictures(6), omega_start=10.0, omega_increment=0.25, chi_start=5.0))
    del messages[4]  # an image that is lost has its angle too
    master = sent(serve, "stream1", messages, "warning", source="wait_ms = 200")
    with h5py.File(master) as file:
        assert text(file["/entry/sample/depends_on"]) == "/entry/sample/transformations/chi"
        np.testing.assert_allclose(file[OMEGA][()], 10 + 0.25 * np.arange(6))
        np.testing.assert_allclose(file["/entry/sample/transformations/chi"][()], [5.0] * 6)
        assert "phi" not in file["/entry/sample/transformations"]
        detector = file["/entry/instrument/detector"]
        assert (detector["flatfield_applied"][()], detector["countrate_correction_applied"][()]) == (1, 0)
        assert detector["threshold_energy"][()] == 6200 and text(detector["threshold_energy"].attrs["units"]) == "eV"
        start = detector["start_time"]
        np.testing.assert_allclose(start[()], [0, 0.1, 0.2, np.nan, 0.4, 0.5])
        assert text(start.attrs["start"]) == text(file["/entry/start_time"]) == "2026-11-21T12:00:00.000+01:00"
        assert text(file["/entry/instrument/time_zone"]) == "+01:00"


@needs_dials
@pytest.mark.parametrize("protocol", ["stream1", "stream2"])
def test_dials_takes_a_series_of_a_dectris_detector_for_a_sweep(serve, tmp_path, protocol):
    if protocol == "stream1":
        messages = v1_series(pictures(6), omega_start=10.0, omega_increment=0.25)
    else:
        messages = v2_series(pictures(6), goniometer={"omega": {"start": 10.0, "increment": 0.25}})
    found = imported(tmp_path, sent(serve, protocol, messages))
    assert "sweep:    1" in found["said"] and found["scan"] == (10.0, 0.25, 1, 6)
    assert found["axis"] == [1, 0, 0] and found["origin"] == pytest.approx([-10.5 * 0.075, 5.5 * 0.075, -200])


def test_what_stream_2_brings_stands_where_nxmx_has_it(serve):
    user = {
        "sample_name": "lyso1", "source_name": "Swiss Light Source", "source_name_short": "SLS", "instrument_name": "X06SA",
        "instrument_name_short": "PXIII", "total_flux": 1.5e12, "attenuator_transmission": 0.25, "omega_rotation_axis": [0.0, -1.0, 0.0],
    }  # fmt: skip
    goniometer = {"omega": {"start": 0.0, "increment": 0.5}, "phi": {"start": 0.0, "increment": 0.0}, "two_theta": {"start": 12.0, "increment": 0.0}}
    master = sent(serve, "stream2", v2_series(pictures(4), json.dumps(user), goniometer=goniometer))
    with h5py.File(master) as file:
        entry = file["/entry"]
        assert text(entry["sample/name"]) == "lyso1" and text(entry["source/name"]) == "Swiss Light Source"
        assert text(entry["source/name"].attrs["short_name"]) == "SLS" and text(entry["instrument/name"].attrs["short_name"]) == "PXIII"
        assert text(entry["instrument/name"]) == "X06SA" and entry["instrument/beam/total_flux"][()] == 1.5e12
        assert entry["instrument/attenuator/attenuator_transmission"][()] == 0.25
        assert file[OMEGA][()].tolist() == [0, 0.5, 1, 1.5] and file[OMEGA].attrs["vector"].tolist() == [0, -1, 0]
        detector = entry["instrument/detector"]
        assert detector["transformations/two_theta"][()].tolist() == [12]
        assert (detector["flatfield_applied"][()], detector["countrate_correction_applied"][()]) == (1, 1)
        # With one channel its threshold is that of the detector. The thresholds of other channels are not stored here.
        assert detector["threshold_energy"][()] == 6200
        np.testing.assert_allclose(detector["start_time"][()], [0, 0.1, 0.2, 0.3])
        assert text(detector["start_time"].attrs["start"]) == "2026-11-21T12:00:05+01:00"
    program("check", master, check=0)
    # nxvalidate lies beside this Python; it need not be on PATH.
    valid = subprocess.run([pathlib.Path(sys.executable).with_name("nxvalidate"), "-e", master], capture_output=True, text=True)
    assert "Total number of errors: 0" in valid.stdout, valid.stdout + valid.stderr


@needs_streams
def test_a_captured_header_that_says_nothing_of_angles_makes_stills(serve):
    """The detector sends zeros for axes that were not set."""
    messages = messages_of(STREAMS / "eiger-1m-stream-v1.zmsg")
    master = sent(serve, "stream1", messages, run="images = 9")
    with h5py.File(master) as file:
        assert text(file["/entry/sample/depends_on"]) == "."
        assert text(file["/entry/start_time"]) == "2024-09-30T12:14:53.853+02:00"


@needs_streams
def test_a_captured_stream_2_names_sample_and_beam(serve):
    """The user_data of this capture are JSON as Jungfraujoch writes it."""
    messages = messages_of(STREAMS / "eiger-1m-stream-v2.zmsg")
    master = sent(serve, "stream2", messages, run="images = 10")
    with h5py.File(master) as file:
        entry = file["/entry"]
        assert text(entry["sample/name"]) == "lyso" and text(entry["instrument/name"]) == "X06SA"
        assert entry["instrument/beam/total_flux"][()] == 123
        assert entry["instrument/attenuator/attenuator_transmission"][()] == pytest.approx(0.345)


def test_stins_in_the_words_of_stream_1(serve):
    said = {"omega_start": 3.0, "omega_increment": 0.1, "photon_energy": 12400.0, "sample_name": "ferritin", "x_pixel_size": 75e-6, "y_pixel_size": 75e-6}
    master = sent(serve, "stins", Stins().series(pictures(5), metadata=said))
    assert angles(master) == (3.0, pytest.approx(0.1), 5)
    with h5py.File(master) as file:
        assert text(file["/entry/sample/name"]) == "ferritin"
        assert file["/entry/instrument/beam/incident_energy"][()] == 12400


def test_a_stream_that_says_nothing_gets_what_the_configuration_says(serve):
    extra = "[goniometer]\nomega_start_deg = 7.0\nomega_increment_deg = 0.5\n[experiment]\nsample_temperature_k = 100.0\n[transform]\nsum_frames = 2\n"
    master = sent(serve, "stins", Stins().series(pictures(6)), extra=extra)
    assert angles(master) == (7.0, pytest.approx(1.0), 3), "two frames make an image"
    with h5py.File(master) as file:
        assert file["/entry/sample/temperature"][()] == 100
        absent = ["source/name", "sample/name", "instrument/beam/incident_wavelength", "instrument/detector/sensor_material"]
        assert [name for name in absent if name in file["/entry"]] == []


# Images that are cut, turned and binned.

# Transformation; rows and columns of the sender's image that become one pixel; the same transformation by numpy.
MOVED = {
    "cut": ("crop = [3, 5, 12, 20]", (4, 5, 11, 12), lambda a: a[3:15, 5:25]),
    "turned": ("rotate_deg = 90", (4, 5, 11, 12), lambda a: np.rot90(a, -1)),
    "flipped": ("flip_columns = true", (4, 5, 11, 12), lambda a: a[:, ::-1]),
    "binned": ("bin = [2, 4]", (6, 8, 12, 16), lambda a: a.reshape(12, 2, 10, 4).sum((1, 3))),
    "all": (
        "crop = [3, 5, 12, 20]\nflip_rows = true\nrotate_deg = 90\nbin = [2, 4]",
        (3, 7, 11, 13),
        lambda a: np.rot90(a[3:15, 5:25][::-1], -1).reshape(10, 2, 3, 4).sum((1, 3)),
    ),
}


def with_marker(part):
    image = np.zeros((24, 40), np.uint16)
    image[part[0] : part[1], part[2] : part[3]] = 7
    return image


def marker(image):
    """Middle of the only pixel that is not 0, in pixels."""
    ((row, column),) = np.argwhere(image)
    return row + 0.5, column + 0.5


def laboratory(master, row, column):
    """The position of a point of the image, in m in the McStas frame, as nxmx reads it from the file."""
    with h5py.File(master) as file:
        (entry,) = nxmx.NXmx(file).entries
        (module,) = entry.instruments[0].detectors[0].modules
        place = nxmx.get_cumulative_transformation(nxmx.get_dependency_chain(module.fast_pixel_direction)[1:])[0]
        axes = ((module.fast_pixel_direction, column), (module.slow_pixel_direction, row))
        at = sum(np.asarray(axis.vector) * axis[()].to("m").magnitude * pixels for axis, pixels in axes)
    return place[:3, :3] @ at + place[:3, 3] / 1000


@pytest.fixture
def moved(serve):
    """Sends a series with the marker through a transformation. Returns the file, the start message that a consumer of
    Stream V2 gets, and the stored image."""
    context = zmq.Context()

    def send(protocol, name, series, more="", **said):
        transform, part, by_numpy = MOVED[name]
        address = f"tcp://127.0.0.1:{free_tcp_port()}"
        extra = f'[transform]\n{transform}\n{more}\n[[stream]]\nname = "live"\nprotocol = "stream2"\naddress = "{address}"\n'
        service = serve(protocol, extra=extra)
        taker = context.socket(zmq.PULL)
        taker.rcvtimeo = 10_000
        taker.connect(address)
        service.consumers_connect()
        image = with_marker(part)
        service.send(*series([image] * 3, **said))
        master, start = service.taken(1)["file"], cbor2.loads(taker.recv())
        with h5py.File(master) as file:
            stored = file["/entry/data/images"][1]
        assert np.array_equal(stored, by_numpy(image))
        assert (start["type"], start["image_size_y"], start["image_size_x"]) == ("start", *stored.shape)
        return master, start, stored

    yield send
    context.destroy(linger=0)


@pytest.mark.parametrize("name", MOVED)
def test_beam_and_pixels_stay_where_they_are_when_images_are_cut_turned_and_binned(moved, name):
    """The sender's numbers refer to its own image; those in the file and for consumers refer to the image they get."""
    master, start, stored = moved("stream1", name, v1_series)
    first, end, left, right = MOVED[name][1]
    # The sender's image is upright: its fast axis is -x, its slow axis -y.
    wanted = [(10.5 - (left + right) / 2) * 75e-6, (5.5 - (first + end) / 2) * 75e-6, 0.2]
    np.testing.assert_allclose(laboratory(master, *marker(stored)), wanted, atol=1e-12)
    with h5py.File(master) as file:
        detector = file["/entry/instrument/detector"]
        for consumer, own in (("beam_center_x", "beam_center_x"), ("beam_center_y", "beam_center_y"), ("pixel_size_x", "x_pixel_size"), ("pixel_size_y", "y_pixel_size")):
            assert start[consumer] == pytest.approx(detector[own][()]), own
        beam = detector["beam_center_y"][()], detector["beam_center_x"][()]
        np.testing.assert_allclose(laboratory(master, *beam), [0, 0, 0.2], atol=1e-12)
        said = text(file["/entry/konkordia/conversion/transform_sender_said"])
        assert "beam centre 10.5 (x), 5.5 (y)" in said and "image size 40 (x), 24 (y)" in said
    if name == "all":
        # Cut: x 5.5, y 2.5 in 20 x 12; flipped: y 9.5; turned: x 2.5, y 5.5 in 12 x 20; then binned by 4 (x) and 2 (y).
        assert (start["beam_center_x"], start["beam_center_y"]) == (2.5 / 4, 5.5 / 2)
        assert (start["pixel_size_x"], start["pixel_size_y"]) == (pytest.approx(4 * 75e-6), pytest.approx(2 * 75e-6))


@pytest.mark.parametrize("name", ["cut", "turned", "binned"])
def test_the_mask_of_the_sender_moves_with_its_images(moved, name):
    mask = (with_marker(MOVED[name][1]) > 0).astype("<u4")
    tables = {"threshold_1": cbor2.CBORTag(40, [[24, 40], cbor2.CBORTag(70, mask.tobytes())])}
    master, start, stored = moved("stream2", name, v2_series, pixel_mask=tables)
    with h5py.File(master) as file:
        found = file["/entry/instrument/detector/pixel_mask"][()]
        notes = file["/entry/konkordia/conversion"]
        if name == "binned":
            assert not found.any() and "binned" in text(notes["transform_pixel_mask_0"]) and not start.get("pixel_mask")
            return
        assert np.array_equal(found > 0, stored > 0) and "transform_pixel_mask_0" not in notes
    shape, typed = start["pixel_mask"]["threshold_1"].value
    assert np.array_equal(np.frombuffer(typed.value, "<u4").reshape(shape) > 0, stored > 0)


def test_a_turn_may_set_the_images_of_a_mounted_detector_upright(moved):
    master, _, stored = moved("stream1", "turned", v1_series, more="upright = true")
    with h5py.File(master) as file:
        detector = file["/entry/instrument/detector"]
        assert detector["module/fast_pixel_direction"].attrs["vector"].tolist() == [-1, 0, 0]
        # x is 5.5 from the right of 24 columns, y is 10.5.
        x, y = detector["beam_center_x"][()], detector["beam_center_y"][()]
        assert (x, y) == (18.5, 10.5)
    row, column = marker(stored)
    np.testing.assert_allclose(laboratory(master, row, column), [(x - column) * 75e-6, (y - row) * 75e-6, 0.2], atol=1e-12)


@needs_dials
def test_dials_finds_a_cut_turned_and_binned_image_where_it_was(moved, tmp_path):
    master, _, stored = moved("stream1", "all", v1_series, omega_start=10.0, omega_increment=0.5)
    found = imported(tmp_path, master)
    panel = json.loads((tmp_path / "imported.expt").read_text())["detector"][0]["panels"][0]
    row, column = marker(stored)
    (width, height), fast, slow = panel["pixel_size"], np.array(panel["fast_axis"]), np.array(panel["slow_axis"])
    place = np.array(found["origin"]) + fast * width * column + slow * height * row
    # In mm in the frame of imgCIF: x points to the right, looking along the beam; z points against the beam.
    np.testing.assert_allclose(place, [(12.0 - 10.5) * 0.075, (5.5 - 5.0) * 0.075, -200], atol=1e-9)
    np.testing.assert_allclose(found["axis"], [1, 0, 0])


# Files of a detector.


def cbf_series(folder, count, start=10.0, increment=1.0):
    """A real PILATUS frame with the headers of a sweep. Only the angle lines and the names differ from the original."""
    original = bz2.decompress((THAUMATIN / "thau_3_2_0001.cbf.bz2").read_bytes())
    for n in range(count):
        angle, turn = f"{start + n * increment:.4f} deg.", f"{increment:.4f} deg."
        content = original.replace(b"Start_angle 89.9997 deg.", f"Start_angle {angle}".encode())
        content = content.replace(b"Angle_increment 0.0000 deg.", f"Angle_increment {turn}".encode())
        content = content.replace(b"# Omega 89.9997 deg.", f"# Omega {angle}".encode())
        content = content.replace(b"# Omega_increment 0.0000 deg.", f"# Omega_increment {turn}".encode())
        assert content.count(angle.encode()) == 2 and content.count(turn.encode()) >= 2
        hidden = folder / f".{n}.tmp"
        hidden.write_bytes(content)
        hidden.rename(folder / f"thau_{n + 1:04}.cbf")


def taken_from_a_folder(serve, tmp_path, count, **options):
    """The master of a series of `count` CBF files that the service reads from a folder."""
    (tmp_path / "in").mkdir()
    (tmp_path / "out").mkdir()
    source = f'folder = "{tmp_path}/in"\nsettle_ms = 100\npoll_ms = 50'
    service = serve("directory", source=source, output_folder=tmp_path / "out", run=f"stall_timeout_s = 5\nimages = {count}", **options)
    cbf_series(tmp_path / "in", count)
    return service.taken(1, timeout=90)["file"]


@needs_thaumatin
def test_a_folder_of_cbf_files_is_the_sweep_that_their_headers_say(serve, tmp_path):
    master = taken_from_a_folder(serve, tmp_path, 3)
    assert angles(master) == (10.0, pytest.approx(1.0), 3)
    with h5py.File(master) as file:
        # The time of the exposure, not of the reception. The header has no time zone.
        assert text(file["/entry/start_time"]).startswith("2019-09-11T13:20:28.989") and "end_time" not in file["/entry"]
        assert text(file["/entry/end_time_estimated"]) == "2019-09-11T13:20:29.049"
        assert file["/entry/instrument/attenuator/attenuator_transmission"][()] == 0.2547
        assert text(file["/entry/instrument/detector/gain_setting"]) == "auto"


@needs_thaumatin
@needs_dials
def test_dials_sees_the_sweep_of_the_original_files(serve, tmp_path):
    """10 frames of 1 degree. The reference is what DIALS reads from the CBF files themselves. DIALS knows from the
    serial number of the detector that the goniometer of I24 is vertical, which no header says. In our file the axis
    comes from the configuration, and the angles from the headers."""
    master = taken_from_a_folder(serve, tmp_path, 10, extra="[goniometer]\nomega_vector = [0, 1, 0]\nomega_start_deg = 33.0")
    original = imported(tmp_path, *sorted((tmp_path / "in").glob("*.cbf")))
    assert original["scan"] == (10.0, 1.0, 1, 10)
    ours = imported(tmp_path, master)
    assert "sweep:    1" in ours["said"]
    assert (ours["scan"], ours["axis"]) == (original["scan"], original["axis"])
    assert ours["origin"] == pytest.approx(original["origin"], abs=1e-9)
    assert ours["wavelength"] == pytest.approx(original["wavelength"], abs=1e-9)
