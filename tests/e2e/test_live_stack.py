"""Sums and maxima of the newest images over the live connection, against numpy on the pixels that HTTP gives."""

import numpy as np
from service import until
from streams import Stins, StreamService
from test_live import Client, bench, eiger, largest, meets_beam, pixels  # noqa: F401  a fixture


def test_sums_and_maxima_are_those_of_numpy(bench):
    service = eiger(bench)
    # The ring keeps fewer images than the run has.
    kept = service.request("GET", "images")["images"]
    assert kept[-1] == 19 and len(kept) >= 6
    images = {number: pixels(service, number).astype(np.int64) for number in kept}
    client = Client(service)
    for by, number, count in [("sum", "latest", 5), ("maximum", "latest", 5), ("sum", 17, 3), ("sum", kept[1], 50), ("maximum", 19, 100)]:
        client.watch(image=number, stack={"by": by, "images": count}, pixels_max=4 << 20)
        shown = 19 if number == "latest" else number
        header, values = client.frame(image=shown, stack={"by": by, "images": min(count, shown - kept[0] + 1), "first": max(kept[0], shown - count + 1)})
        together = np.array([image for other, image in images.items() if header["stack"]["first"] <= other <= shown])
        expected = together.sum(0) if by == "sum" else together.max(0)
        assert len(together) == header["stack"]["images"]
        assert (header["dtype"], header["bin"]) == ("int64", 1) and (values == expected).all()
    images = np.array(list(images.values()))
    # The largest of the sums, and not the sum of the largest.
    client.watch(stack={"by": "sum", "images": 100}, pixels_max=4096, region=[37, 11, 600, 400])
    header, values = client.frame()
    left, top, columns, rows = header["region"]
    side = header["bin"]
    assert side > 1
    close = np.abs(values / largest(images.sum(0)[top : top + rows, left : left + columns].astype(float), side) - 1)
    assert np.nanmax(close) < 2e-4
    client.watch(image=19)
    assert client.frame(image=19)[0]["stack"] is None
    for wrong in [{"by": "mean", "images": 3}, {"by": "sum", "images": 1}, {"by": "sum", "images": 101}, {"by": "sum"}]:
        other = Client(service)
        other.watch(stack=wrong)
        assert other.message("problem")["code"] == "bad_message"


def test_a_pixel_without_a_number_in_one_image_has_none_in_the_sum(tmp_path):
    service = StreamService(tmp_path)
    try:
        high = np.iinfo("u2").max
        one, two = np.full((16, 16), 40000, "u2"), np.full((16, 16), 50000, "u2")
        one[0, :4], two[0, :4] = [high, high - 1, high - 3, 7], [1, high - 1, 2, high]
        service.send(*Stins().series([one, two]))
        until(lambda: service.status()["images_committed"] == 2, "both images came")
        client = Client(service)
        client.watch(image=1, stack={"by": "sum", "images": 2})
        header, values = client.frame(image=1)
        assert header["format"] == "int32" and header["stack"]["images"] == 2
        assert np.isnan(values[0, :4]).all() and (values[1:] == 90000).all()
        client.watch(image=1, stack={"by": "maximum", "images": 2})
        header, values = client.frame(image=1)
        # One is missing and one a number; both masked; one saturated; one a number and one missing.
        assert np.array_equal(values[0, :4], [1, np.nan, np.nan, 7], equal_nan=True) and (values[1:] == 50000).all()
    finally:
        service.close()


def test_images_of_another_size_end_a_stack(tmp_path):
    service = StreamService(tmp_path)
    try:
        sender = Stins()
        service.send(*sender.series([np.full((16, 16), 3, "u2")]))
        until(lambda: service.status()["images_committed"] == 1, "the first series came")
        service.send(*sender.series([np.full((8, 24), 4, "u2")]))
        until(lambda: service.status()["run"] == 2 and service.status()["images_committed"] == 1, "the second series came")
        client = Client(service)
        client.watch(stack={"by": "sum", "images": 10})
        header, values = client.frame(run=2)
        assert (header["stack"]["images"], values.shape) == (1, (8, 24)) and (values == 4).all()
    finally:
        service.close()


def test_streams_have_the_geometry_of_the_configuration(tmp_path):
    facts = "energy_kev = 12.4\ndetector_distance_mm = 90\nbeam_center_x_px = 5.5\nbeam_center_y_px = 7.0\npixel_size_um = 75.0"
    service = StreamService(tmp_path, detector=facts)
    try:
        service.send(*Stins().series([np.ones((16, 16), "u2")]))
        until(lambda: service.status()["images_committed"] == 1, "the image came")
        client = Client(service)
        client.watch()
        meets_beam(client.frame()[0]["geometry"], (5.5, 7.0), 90)
    finally:
        service.close()
