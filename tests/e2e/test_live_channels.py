"""Images with several channels: the one that is named is analysed while they are measured."""

import cbor2
import pytest
from driving import program
from streams import messages_of
from test_analyse import recipe
from test_image_metadata import columns_of
from test_live_analysis import of_file, same_bits
from test_streams import STREAMS, decoded_v2, needs_streams, three_channel_start, v2


@needs_streams
@pytest.mark.parametrize("channel", [None, "threshold_2", "threshold_9"])
def test_the_channel_that_is_asked_for_is_analysed(tmp_path, serve, channel):
    messages = messages_of(STREAMS / "eiger2-500k-3channel-stream-v2.zmsg")[:4]
    images = [v2(message) for message in messages[:3]]
    start = dict(cbor2.loads(three_channel_start(images[0], 3)[0]))
    # It masks every pixel.
    del start["pixel_mask"]
    by = recipe(tmp_path, region=[{"name": "part", "shape": "box", "corners_px": [10, 20, 209, 119]}])
    line = f'channel = "{channel}"\n' if channel else ""
    service = serve("stream2", extra=f'[analysis]\nrecipe = "{by}"\nqueue_images = 64\n{line}', folder=tmp_path)
    service.send([cbor2.dumps(start)], *messages)
    file = service.file(1).path
    columns = columns_of(file)
    if channel == "threshold_9":
        assert not columns["is_analysed"].any() and not columns["region_pixels"].any()
        service.until_logged(lambda line: "WARN" in line and 'it has no channel "threshold_9"' in line and '"threshold_2"' in line)
        refused = program("analyse", file, "--recipe", by, "--channel", channel, check=2).stderr
        assert 'has no channel "threshold_9"' in refused and "threshold_1, threshold_2, difference" in refused
        refused = program("repack", file, "-o", tmp_path / "copy", "--compression", "spots", check=2).stderr
        assert "images with several channels have no spots to keep" in refused
        return
    again = of_file(tmp_path, file, by, "again.h5", *(["--channel", channel] if channel else []))
    assert all(same_bits(columns[name], column) for name, column in again.items()) and "region_sum" in again
    said = program("analyse", file, "--recipe", by, *(["--channel", channel] if channel else []), check=0).stdout
    assert ("its images have 3 channels (threshold_1, threshold_2, difference); the first is analysed" in said) == (channel is None)
    for n, image in enumerate(images):
        part = decoded_v2(image)[channel or "threshold_1"][20:120, 10:210]
        good = part[part < 65535]
        assert columns["is_analysed"][n] == 1 and columns["region_pixels"][n] == good.size
        assert columns["region_sum"][n] == good.sum(dtype=float)
