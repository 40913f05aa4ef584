"""`konkordia.joined` gives what `konkordia join` sends, and survives what else comes."""

import json
import subprocess

import konkordia
import numpy as np
import pytest
import zmq
from driving import BINARY, free_ports
from streams import Stins, pictures

WAIT_S = 30


def test_images_and_numbers_come_trigger_by_trigger(tmp_path):
    left, right, device, out = (f"tcp://127.0.0.1:{free_ports()}" for _ in range(4))
    lines = [f'timeout_ms = 1000\n[output]\naddress = "{out}"']
    for name, where in (("left", left), ("right", right)):
        lines.append(f'[[stream]]\nname = "{name}"\naddress = "{where}"\nprotocol = "stins"\nbind = true')
    lines.append(f'[[scalar]]\nname = "encoder"\naddress = "{device}"')
    (tmp_path / "join.toml").write_text("\n".join(lines))
    process = subprocess.Popen([BINARY, "join", tmp_path / "join.toml"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    context = zmq.Context()
    try:
        assert "joining left, right, encoder" in process.stderr.readline()
        events = konkordia.joined(out, timeout_s=WAIT_S)
        senders = {}
        for where in (left, right, device):
            senders[where] = context.socket(zmq.PUSH)
            senders[where].connect(where)
        images = {where: pictures(6, dtype=dtype, seed=seed) for where, dtype, seed in ((left, "uint16", 1), (right, "int32", 2))}
        for where, own in images.items():
            stins = Stins()
            senders[where].send_multipart(stins.start())
            for n, image in enumerate(own):
                if (where, n) != (right, 4):
                    senders[where].send_multipart(stins.image(n, image))
            senders[where].send_multipart(stins.end())
        for n in range(6):
            senders[device].send_json({"source": "encoder", "trigger": n, "values": {"angle_deg": n / 2}})
        found = {event.trigger: event for event in events}
        assert sorted(found) == list(range(6)) and (events.received, events.lost, events.refused) == (6, 0, 0)
        for n, event in found.items():
            assert event.is_complete == (n != 4) and event.absent == (["right"] if n == 4 else [])
            assert event.scalars == {"encoder": {"angle_deg": n / 2}}
            assert np.array_equal(event.images["left"].image, images[left][n]) and event.images["left"].number == n
            assert n == 4 or np.array_equal(event.images["right"].image, images[right][n])
        assert events.account["sources"]["right"]["absent"] == 1 and events.account["numbers"]["complete"] == 5
        assert repr(found[4]) == "<konkordia.Joined, trigger 4: left, encoder; absent: right>"
        events.close()
        assert list(events) == []
    finally:
        process.kill()
        process.communicate()
        context.destroy(linger=0)


def head(row, **more):
    return json.dumps({"htype": "joined", "row": row, "trigger": row, "complete": True, "absent": [], "images": {}, "scalars": {}, **more}).encode()


def test_what_is_no_joined_message_is_said_and_left_out():
    context = zmq.Context()
    socket = context.socket(zmq.PUSH)
    socket.linger = 0
    url = f"tcp://127.0.0.1:{socket.bind_to_random_port('tcp://127.0.0.1')}"
    bad = [
        [b"rubbish"],
        [b"[]"],
        [b'{"htype": "image"}'],
        [head(1, images={"a": {"protocol": "stins", "first_part": 1, "parts": 2, "number": 0, "series": 0}})],
        [head(1, images={"a": {"protocol": "none", "first_part": 1, "parts": 1, "number": 0, "series": 0}}), b"x"],
        [head(1, images={"a": {"first_part": 1}})],
    ]
    try:
        with konkordia.joined(url, timeout_s=WAIT_S) as events:
            socket.send_multipart([head(0)])
            for message in bad:
                socket.send_multipart(message)
            # Two rows are missing.
            socket.send_multipart([head(3)])
            socket.send_multipart([b'{"htype": "joined_end", "account": {"numbers": {}}}'])
            assert next(iter(events)).row == 0
            for _ in bad:
                with pytest.raises(konkordia.KonkordiaError, match="is no joined one"):
                    next(iter(events))
            (last,) = list(events)
            assert (last.row, last.lost, events.lost, events.refused, events.account) == (3, 2, 2, len(bad), {"numbers": {}})
        with konkordia.joined(url, timeout_s=0.1) as events, pytest.raises(TimeoutError, match="no joined message"):
            next(iter(events))
    finally:
        context.destroy(linger=0)
    with pytest.raises(ValueError, match="cannot connect"):
        konkordia.joined("nowhere")
    with pytest.raises(ValueError, match="push"):
        konkordia.joined(url, socket="pull")
