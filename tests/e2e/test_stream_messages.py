"""Messages that our encoders build, read by other people's decoders. They are the seeds of the fuzz targets; a test of
crates/wire compares them with what is built now."""

import hashlib
import json
import pathlib
import struct

import cbor2
import numpy as np
import pytest

SEEDS = pathlib.Path(__file__).parents[2] / "fuzz" / "seeds"
PACKED = struct.pack(">QII", 32, 32, 11) + bytes([0x1F, 0, 1, 0, 7, 0x50]) + bytes(5)
WORDS = np.arange(1, 7, dtype="<u4")


def parts_of(form, name):
    """The parts of the only message of a capture."""
    bytes_ = (SEEDS / form / name).read_bytes()
    (count,), at, parts = struct.unpack_from("<I", bytes_), 4, []
    for _ in range(count):
        (length,) = struct.unpack_from("<I", bytes_, at)
        parts.append(bytes_[at + 4 : at + 4 + length])
        at += 4 + length
    assert at == len(bytes_)
    return parts


def stream2(name):
    (part,) = parts_of("dectris_v2", name)
    assert part.startswith(b"\xd9\xd9\xf7")
    # Skips the tag, inside which cbor2 would return immutable maps.
    message = cbor2.loads(part[3:])
    assert isinstance(message, dict) and next(iter(message)) == "type"
    return message


def array(value, tag):
    """Shape and undecoded content of an array (tag 40) of type `tag`."""
    assert value.tag == 40
    shape, typed = value.value
    assert typed.tag == tag
    return tuple(shape), typed.value


def test_a_start_reads_the_same_elsewhere():
    start = stream2("start")
    assert start["type"] == "start" and start["series_id"] == 7
    assert start["arm_date"].isoformat() == "2024-03-07T14:43:31.193000+01:00"
    assert start["count_time"] == 0.9999999 and start["beam_center_x"] == 1.5 and isinstance(start["frame_time"], float)
    assert start["detector_translation"] == [0.0, -0.5, 1.25]
    assert start["goniometer"] == {"omega": {"increment": 0.1, "start": -90.0}}
    assert start["threshold_energy"] == {"threshold_1": 4000.0, "threshold_2": 8000.0}
    assert start["image_dtype"] == "uint32" and start["saturation_value"] == 2**32 - 1
    assert start["user_data"] == "{}" and start["pixel_mask_enabled"] is False
    table = start["countrate_correction_lookup_table"]
    assert (table.tag, table.value) == (70, WORDS.tobytes())
    assert array(start["flatfield"]["threshold_1"], 85) == ((2, 3), WORDS.tobytes())
    assert array(start["pixel_mask"]["threshold_2"], 70) == ((2, 3), WORDS.tobytes())


def test_images_read_the_same_elsewhere():
    image = stream2("image_three")
    assert (image["type"], image["image_id"], image["start_time"]) == ("image", 1, [0, 50_000_000])
    assert list(image["data"]) == ["threshold_1", "threshold_2", "difference"]
    shape, packed = array(image["data"]["threshold_1"], 69)
    assert (shape, packed.tag, list(packed.value)) == ((2, 8), 56500, ["bslz4", 2, PACKED])
    shape, packed = array(image["data"]["threshold_2"], 69)
    assert (shape, packed.tag, list(packed.value)) == ((2, 8), 56500, ["lz4", 0, PACKED])
    assert array(image["data"]["difference"], 70) == ((2, 3), WORDS.tobytes())
    assert list(stream2("image_one")["data"]) == ["threshold_1"]
    assert stream2("end") == {"type": "end", "series_id": 7, "series_unique_id": "01HRCJF83SA63WH8M000000000"}


@pytest.mark.parametrize("name", ["image_bslz4", "image_lz4", "image_raw"])
def test_an_image_of_stream_v1_hashes_its_second_part(name):
    first, described, data, times, *appendix = parts_of("dectris_v1", name)
    assert json.loads(first)["hash"] == hashlib.md5(described).hexdigest()
    described = json.loads(described)
    assert described["size"] == len(data) and described["shape"] in ([8, 2], [3, 2])
    assert json.loads(times)["stop_time"] == 4_844_213_800_980
    assert appendix == ([b"appendix"] if name == "image_bslz4" else [])


def test_stins_is_what_numpy_reads():
    first, data = parts_of("stins", "image_raw")
    first = json.loads(first)
    # The keys that the models of STINS require, with their types.
    assert (first["htype"], first["msg_number"], first["frame"], first["compression"]) == ("image", 4, 0, "none")
    pixels = np.frombuffer(data, first["type"]).reshape(first["shape"])
    assert pixels.shape == (2, 3) and np.array_equal(pixels.view("<u4").ravel(), WORDS)
    first, *pieces = parts_of("stins", "image_three")
    first = json.loads(first)
    assert (first["shape"], first["chunks"], pieces) == ([3, 2, 8], [1, 2, 8], [PACKED] * 3)
    header, metadata = parts_of("stins", "header_metadata")
    assert json.loads(header)["filename"] == "" and json.loads(metadata)["sample"] == {"name": "lysozyme"}
    (end,) = parts_of("stins", "end")
    assert json.loads(end) == {"htype": "series_end", "msg_number": 9}


def test_the_receivers_json_says_the_size_of_its_pixels():
    header, data = parts_of("sls_json", "image_12_bits")
    header = json.loads(header)
    columns, rows = header["shape"]
    assert columns * rows * header["bitmode"] // 8 == header["size"] == len(data)
    assert (header["jsonversion"], header["data"], header["flipRows"], header["rx_roi"]) == (5, 1, 1, [0, 3, 0, 1])
    (end,) = parts_of("sls_json", "end")
    assert json.loads(end)["data"] == 0
