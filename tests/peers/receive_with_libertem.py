"""Receives one series of Stream V1 with libertem-dectris: receive_with_libertem.py URI FILE.npy. Prints "listening"
when it is ready."""

import sys
import tempfile

import libertem_dectris
import numpy as np

uri, path = sys.argv[1:]
with tempfile.TemporaryDirectory() as folder:
    connection = libertem_dectris.DectrisConnection(uri, 4, f"{folder}/socket", num_slots=200, bytes_per_frame=1 << 20, huge=False)
    connection.start_passive(timeout=20)
    print("listening", flush=True)
    config = connection.wait_for_arm(60)
    assert config is not None, "no start came"
    if isinstance(config, tuple):  # the configuration together with the number of the series
        config = next(part for part in config if hasattr(part, "get_num_frames"))
    client = libertem_dectris.CamClient(connection.get_socket_path())
    images = []
    while sum(map(len, images)) < config.get_num_frames():
        stack = connection.get_next_stack(4)
        if stack is None:
            continue
        stack_shape = stack.get_shape()
        out = np.zeros((len(stack), *stack_shape), stack.get_dtype_string())
        client.decode_range_into_buffer(stack, out, 0, len(stack))
        client.done(stack)
        # The message gives the shape as [fast, slow].
        images.append(out.reshape(len(out), *stack_shape[::-1]))
    np.save(path, np.concatenate(images))
    connection.close()
