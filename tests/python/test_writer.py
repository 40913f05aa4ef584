"""Files that Python writes: every pixel as h5py reads it, sound by `konkordia check`, and honest about their end."""

import json
import os
import pickle
import signal
import subprocess
import sys
import time

import h5py
import hdf5plugin  # noqa: F401  registers the filters
import konkordia
import numpy as np
import nxmx
import pytest
from dials import dials, needs_dials
from driving import Master, program
from lanes import slow_lane

SHAPE = (37, 53)


def pictures(dtype, count=5, shape=SHAPE):
    return np.random.default_rng(7).poisson(5, (count, *shape)).astype(dtype)


def check(path, code=0):
    return program("check", path, check=code).stdout


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float32", "float64"])
@pytest.mark.parametrize("compression", ["bslz4", "bszstd", "lz4", "zstd", "gzip", "none"])
def test_every_pixel_of_every_type(tmp_path, dtype, compression):
    images = pictures(dtype)
    with konkordia.NXmxWriter(tmp_path / "run", shape=SHAPE, dtype=dtype, compression=compression, images_per_file=2) as writer:
        assert [writer.append(image) for image in images] == [0, 1, 2, 3, 4] and len(writer) == 5 and not writer.closed
    assert writer.closed and len(writer) == 5 and os.fspath(writer.path) == os.fspath(tmp_path / "run_master.h5")
    found = Master(writer.path)
    assert found.images.dtype == dtype and np.array_equal(found.images, images) and found.columns["status"].tolist() == [1] * 5
    assert sorted(path.name for path in tmp_path.glob("*.h5")) == ["run_data_000001.h5", "run_data_000002.h5", "run_data_000003.h5", "run_master.h5"]
    check(writer.path)
    assert np.array_equal(konkordia.open(writer.path)[:], images)


def test_geometry_energy_mask_and_metadata_are_in_the_file(tmp_path):
    geometry = konkordia.Geometry(SHAPE, distance_mm=151.5, beam_center_px=(20.5, 17.25), pixel_size_um=(75.0, 75.0), energy_kev=12.4, tilt_fast_deg=3.0, tilt_slow_deg=-2.0)
    mask = np.zeros(SHAPE, bool)
    mask[3, 4:7] = True
    facts = {"sample_name": "лизоцим é", "count_time_us": np.float64(1000)}
    with konkordia.NXmxWriter(tmp_path / "run", shape=SHAPE, dtype="u2", geometry=geometry, mask=mask, valid_range=(0, 60000), metadata=facts) as writer:
        writer.append(pictures("uint16")[0])
    images = konkordia.open(writer.path)
    assert np.array_equal(images.mask, mask) and images.valid_range == (0, 60000)
    again = images.geometry
    assert again.distance_mm == pytest.approx(geometry.distance_mm) and again.beam_center_px == pytest.approx(geometry.beam_center_px)
    assert again.wavelength_angstrom == pytest.approx(geometry.wavelength_angstrom)
    assert np.allclose(again.two_theta_deg(), geometry.two_theta_deg(), atol=1e-9)
    with h5py.File(writer.path) as file:
        (entry,) = nxmx.NXmx(file).entries
        assert entry.definition == "NXmx" and entry.samples[0].name == "лизоцим é"
        assert entry.instruments[0].detectors[0].saturation_value == 60000
        assert file["/entry/instrument/detector/count_time"][()] == 0.001
    check(writer.path)


def test_the_energy_of_the_measurement_may_be_given_alone(tmp_path):
    with konkordia.NXmxWriter(tmp_path / "run", shape=SHAPE, dtype="u2", energy_kev=10.0, mask=np.full(SHAPE, 2, "uint32")) as writer:
        writer.append(pictures("uint16")[0])
    with h5py.File(writer.path) as file:
        assert file["/entry/instrument/beam/incident_wavelength"][()] == pytest.approx(1.23984198)
        assert (file["/entry/instrument/detector/pixel_mask"][()] == 2).all()


def test_numbers_that_are_left_out_are_lost_images(tmp_path):
    images = pictures("int16", 3)
    with konkordia.NXmxWriter(tmp_path / "run", shape=SHAPE, dtype="int16", images_per_file=2) as writer:
        assert [writer.append(image, number) for image, number in zip(images, (1, 2, 5), strict=True)] == [1, 2, 5]
        for number in (5, 0, 10**18):
            with pytest.raises(konkordia.KonkordiaError, match=f"image {number} cannot follow"):
                writer.append(images[0], number)
        with pytest.raises(ValueError, match="counted from 0"):
            writer.append(images[0], -1)
    found = Master(writer.path)
    assert found.columns["status"].tolist() == [0, 1, 1, 0, 0, 1] and np.array_equal(found.images[[1, 2, 5]], images)


def test_an_error_in_the_block_leaves_a_sound_file_that_says_so(tmp_path):
    images = pictures("uint16")
    with pytest.raises(ZeroDivisionError), konkordia.NXmxWriter(tmp_path / "run", shape=SHAPE, dtype="u2", images=5) as writer:
        writer.append(images[0])
        writer.append(images[1])
        raise ZeroDivisionError("detector on fire é")
    assert np.array_equal(Master(writer.path).images, images[:2])
    said = check(writer.path)
    assert "ZeroDivisionError: detector on fire é" in said and "NOT every image is complete" in said, said
    assert "2 complete" in said and "3 not received" in said


def test_fewer_images_than_were_to_come_are_incomplete(tmp_path):
    with konkordia.NXmxWriter(tmp_path / "run", shape=SHAPE, dtype="u2", images=5) as writer:
        writer.append(pictures("uint16")[0])
    assert "4 not received" in check(writer.path)


def test_no_image_at_all(tmp_path):
    with konkordia.NXmxWriter(tmp_path / "run", shape=SHAPE, dtype="u2") as writer:
        pass
    assert konkordia.open(writer.path).shape == (0, *SHAPE)


WRITES = """
import sys, konkordia, numpy as np
writer = konkordia.NXmxWriter(sys.argv[1], shape=(37, 53), dtype="u2", images_per_file=4)
for n in range(1000):
    writer.append(np.full((37, 53), n, "u2"))
    print(n, flush=True)
    if n == 9:
        sys.stdin.read()
"""


def test_what_was_written_is_recovered_after_a_kill(tmp_path):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen([sys.executable, "-c", WRITES, tmp_path / "run"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
    while process.stdout.readline().strip() != "9":
        pass
    time.sleep(0.1)
    process.send_signal(signal.SIGKILL)
    process.wait()
    program("repair", tmp_path / "run_master.h5")
    found = Master(tmp_path / "run_master.h5")
    assert found.images[:, 0, 0].tolist() == list(range(10)), found.columns["status"]


def test_a_fork_leaves_the_files_alone(tmp_path):
    writer = konkordia.NXmxWriter(tmp_path / "run", shape=SHAPE, dtype="u2")
    writer.append(pictures("uint16")[0])
    child = os.fork()
    if child == 0:
        code = 1
        try:
            writer.append(pictures("uint16")[1])
        except konkordia.KonkordiaError as error:
            code = 0 if "another process" in str(error) and error.hint else 2
        del writer
        os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    writer.append(pictures("uint16")[1])
    writer.close()
    writer.close()
    assert np.array_equal(Master(writer.path).images, pictures("uint16")[:2])
    check(writer.path)


def test_a_writer_that_nobody_closes_says_so(tmp_path):
    writer = konkordia.NXmxWriter(tmp_path / "run", shape=SHAPE, dtype="u2")
    writer.append(pictures("uint16")[0])
    path = writer.path
    del writer
    said = check(path)
    assert "was not closed" in said and "NOT every image is complete" in said


def test_what_cannot_be_written(tmp_path):
    ask = {"shape": SHAPE, "dtype": "u2"}

    def refused(kind, match, path=tmp_path / "run", **options):
        with pytest.raises(kind, match=match) as error:
            konkordia.NXmxWriter(path, **{**ask, **options})
        return error.value

    refused(ValueError, "too large", shape=(10**9, 10**9))
    refused(ValueError, "empty", shape=(0, 5))
    refused(ValueError, "codec", compression="jpeg")
    refused(ValueError, "no level", compression="zstd", compression_level=99)
    refused(TypeError, "float16", dtype="float16")
    refused(ValueError, "mask", mask=np.zeros((3, 3), bool))
    refused(ValueError, "geometry", geometry=konkordia.Geometry((5, 5), distance_mm=1.0, beam_center_px=(1, 1), pixel_size_um=75.0))
    refused(konkordia.KonkordiaError, "unknown key 'nonsense'", metadata={"nonsense": 1})
    refused(ValueError, "JSON", metadata={"energy_kev": float("nan")})
    refused(konkordia.KonkordiaError, "energy", metadata={"energy_kev": -3})
    refused(konkordia.KonkordiaError, "names no file", path=tmp_path)
    assert refused(konkordia.KonkordiaError, "nowhere", path=tmp_path / "nowhere" / "run").hint
    refused(konkordia.KonkordiaError, "images per file", images_per_file=0)
    with konkordia.NXmxWriter(tmp_path / "run", **ask) as writer:
        image = pictures("uint16")[0]
        for wrong in (image.astype("int16"), image[:5], image[:, ::-1], image.T, np.zeros((37, 106), "u2")[:, ::2]):
            with pytest.raises(ValueError, match="images of these files|one after the other"):
                writer.append(wrong)
        with pytest.raises(TypeError, match="numpy array"):
            writer.append([1, 2])
        with pytest.raises(TypeError):
            pickle.dumps(writer)
        writer.append(image)
    with pytest.raises(konkordia.KonkordiaError, match="closed"):
        writer.append(image)
    assert refused(konkordia.KonkordiaError, "run").hint
    with konkordia.NXmxWriter(tmp_path / "run_master.h5", overwrite=True, **ask) as again:
        again.append(image)
    assert again.path == writer.path and "closed" in repr(again)


@pytest.mark.parametrize("name", ["лизоцим-é-日本", "a b'c", "x" * 190])
def test_files_of_any_name(tmp_path, name):
    with konkordia.NXmxWriter(tmp_path / name, shape=SHAPE, dtype="u2") as writer:
        writer.append(pictures("uint16")[0])
    assert np.array_equal(konkordia.open(tmp_path / f"{name}_master.h5")[0], pictures("uint16")[0])
    check(writer.path)


def test_a_geometry_that_no_file_can_hold(tmp_path):
    config = json.dumps({"pixel1": 75e-6, "pixel2": 75e-6, "max_shape": list(SHAPE), "orientation": 3})
    lines = {"Distance": 0.1, "Poni1": 0.001, "Poni2": 0.001, "Rot1": 0.0, "Rot2": 0.0, "Rot3": 0.7, "Wavelength": 1e-10}
    (tmp_path / "it.poni").write_text(f"poni_version: 2\nDetector: Detector\nDetector_config: {config}\n" + "".join(f"{k}: {v}\n" for k, v in lines.items()))
    with pytest.raises(ValueError, match="turned in the plane"):
        konkordia.NXmxWriter(tmp_path / "run", shape=SHAPE, dtype="u2", geometry=konkordia.Geometry.from_poni(tmp_path / "it.poni", SHAPE))


def test_absurd_shapes_are_refused_and_do_not_end_the_process():
    for shape in ((10**9, 10**9), (2**40, 2**30), (0, 7)):
        with pytest.raises(ValueError, match="too large"):
            konkordia.Geometry(shape, distance_mm=1.0, beam_center_px=(1.0, 1.0), pixel_size_um=75.0)
        with pytest.raises(ValueError, match="too large"):
            konkordia.Analyser({"spots": {"method": "dispersion"}}, shape)


@slow_lane
@needs_dials
def test_dials_opens_the_file_and_finds_its_spots(tmp_path):
    shape = (512, 1024)
    images = np.random.default_rng(3).poisson(1, (2, *shape)).astype("uint16")
    for row, column in [(100, 200), (300, 500), (400, 900)]:
        images[:, row : row + 3, column : column + 3] += 500
    geometry = konkordia.Geometry(shape, distance_mm=100.0, beam_center_px=(512.0, 256.0), pixel_size_um=75.0, energy_kev=12.4)
    facts = {"sensor_material": "Si", "sensor_thickness_um": 320.0}
    with konkordia.NXmxWriter(tmp_path / "run", shape=shape, dtype="u2", geometry=geometry, metadata=facts) as writer:
        for image in images:
            writer.append(image)
    imported = dials(tmp_path, "dials.import", writer.path)
    assert "FormatNXmx" in imported and "num images: 2" in imported
    assert len(konkordia.open(writer.path).find_spots(0)) == 3
    assert "reflections" in dials(tmp_path, "dials.find_spots", "imported.expt", "nproc=1")
