"""Sends images of a file as a STINS stream once more, for a consumer downstream that has lost some of them.

usage: send_again.py MASTER ADDRESS [NUMBERS]     for example send_again.py run01_master.h5 "tcp://*:9998" 3,17-19

The images keep their numbers in the series. Without NUMBERS all images of the file are sent. It waits for a receiver,
and ends when the receiver has taken everything (docs/downstream.md).
"""

import sys

import konkordia


def numbers_of(text):
    """3,17-19 as [3, 17, 18, 19]."""
    found = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


def main(master, address, text=None):
    images = konkordia.open(master)
    numbers = range(len(images)) if text is None else numbers_of(text)
    if outside := [number for number in numbers if number >= len(images)]:
        sys.exit(f"{master} has the images 0 to {len(images) - 1}, and not {outside}")
    with konkordia.Streamer(address, shape=images.shape[1:], dtype=images.dtype, linger_s=60) as out:
        print(f"listening at {out.url}", flush=True)
        out.series(len(numbers), metadata={"again": list(numbers)})
        for number in numbers:
            out.send(images[number], number)
        out.end()
    print(f"{out.sent} images sent, {out.dropped} dropped", flush=True)
    sys.exit(1 if out.dropped else 0)


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    main(*sys.argv[1:])
