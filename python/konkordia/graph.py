"""Calls a function of a user for the images of a stage of a graph (docs/graph.md).

The program starts it: ``python -c THIS module:name MEMORY_MIB``. Images come at the standard input and go to the standard
output; what the function prints goes to the standard error. The function gets an array, its number, and as a third
argument, if it takes one, the results of the image by name. It returns an array of two dimensions, the array and a dict of
numbers that become results of the image, or None if the image is not wanted.
"""

import importlib
import inspect
import json
import os
import struct
import sys
import traceback
from collections.abc import Callable
from typing import Any, BinaryIO

#: Type of the pixels, rows, columns, bytes of the pixels, bytes of the text, numbers of the results.
HEAD = struct.Struct("<16sQQQQQ")
CODES = {"uint64": "Q", "int64": "q", "float64": "d"}


def _read(stream: BinaryIO, count: int) -> bytes:
    data = stream.read(count)
    if len(data) < count:
        sys.exit(0)
    return data


def _answer(stream: BinaryIO, kind: bytes, data: bytes = b"") -> None:
    stream.write(kind + struct.pack("<Q", len(data)))
    stream.write(data)
    stream.flush()


def _takes_results(function: Callable[..., Any]) -> bool:
    """Whether the function can be called with three arguments."""
    try:
        inspect.signature(function).bind(None, None, None)
    except (TypeError, ValueError):
        return False
    return True


def _results(data: bytes, pixels: int, text: int) -> dict[str, Any]:
    """The results of an image: a number each, or a tuple of them."""
    at = HEAD.size + pixels
    known = json.loads(data[at : at + text] or b"{}").get("results", [])
    at, results = at + text, {}
    for name, kind, count in known:
        numbers = struct.unpack_from(f"<{count}{CODES[kind]}", data, at)
        results[name] = numbers[0] if count == 1 else numbers
        at += 8 * count
    return results


def _call(function: Callable[..., Any], number: int, data: bytes, *, takes_results: bool) -> tuple[bytes, bytes]:
    """Calls the function with the image in these bytes; the answer is a letter and bytes."""
    import numpy as np

    kind, rows, columns, pixels, text, _ = HEAD.unpack_from(data)
    dtype = np.dtype(kind.decode().strip()).newbyteorder("<")
    image = np.frombuffer(data, dtype, count=rows * columns, offset=HEAD.size).reshape(rows, columns)
    made = function(image, number, _results(data, pixels, text)) if takes_results else function(image, number)
    if made is None:
        return b"N", b""
    made, own = made if isinstance(made, tuple) else (made, {})
    made = np.asarray(made)
    if made.ndim != 2 or made.dtype.kind not in "iuf" or made.dtype.itemsize > 8 or made.dtype == np.float16:
        raise TypeError(f"it returned {made.dtype} of shape {made.shape}, and not an image of numbers")
    bytes_of_pixels = np.ascontiguousarray(made, made.dtype.newbyteorder("<")).tobytes()
    about = json.dumps({"results": [[name, "float64", 1] for name in own]}).encode() if own else b""
    head = HEAD.pack(made.dtype.name.ljust(16).encode(), *made.shape, len(bytes_of_pixels), len(about), len(own))
    return b"I", head + bytes_of_pixels + about + struct.pack(f"<{len(own)}d", *own.values())


def main() -> None:
    """Answers until the input ends."""
    where, memory_mib = sys.argv[1], int(sys.argv[2])
    images, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    if memory_mib:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (memory_mib << 20, memory_mib << 20))
    function, takes_results, why = None, False, ""
    try:
        sys.path.insert(0, os.getcwd())
        module, name = where.split(":")
        function = getattr(importlib.import_module(module), name)
        takes_results = _takes_results(function)
    except BaseException as error:
        why = f"{where} cannot be loaded: {type(error).__name__}: {error}"
    while True:
        number, length = struct.unpack("<QQ", _read(images, 16))
        data = _read(images, length)
        if function is None:
            _answer(answers, b"F", why.encode())
            continue
        try:
            kind, made = _call(function, number, data, takes_results=takes_results)
        except MemoryError:
            _answer(answers, b"F", f"MemoryError: {where} needs more than {memory_mib} MiB".encode())
            # What leaked is given back only by the end of the process.
            os._exit(1)
        except Exception as error:
            traceback.print_exc()
            _answer(answers, b"F", f"{type(error).__name__}: {error}".encode())
        else:
            _answer(answers, kind, made)


if __name__ == "__main__":
    main()
