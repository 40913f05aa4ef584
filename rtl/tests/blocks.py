"""The blocks of rtl/ and the files of each."""

from __future__ import annotations

import pathlib

RTL = pathlib.Path(__file__).resolve().parents[1]
# Each block with the files that it needs besides its own.
BLOCKS: dict[str, tuple[str, ...]] = {
    "udp_front": ("packet_buffer",),
    "place": ("small_fifo",),
    "receiver": ("packet_buffer", "small_fifo", "udp_front", "place"),
    "pixel_pipeline": ("small_fifo", "pixel_lane", "pixel_sum_lane"),
    "pedestal_track": (),
    "bitshuffle": (),
    "roce_insert": ("small_fifo", "icrc"),
    "loss_detector": ("small_fifo",),
    "four_receivers": ("packet_buffer", "small_fifo", "udp_front", "place", "receiver", "by_turns"),
    "card": ("packet_buffer", "small_fifo", "udp_front", "place", "receiver", "pixel_lane", "pixel_sum_lane", "pixel_pipeline", "bitshuffle", "frame_out"),
}
# Parts of blocks without tests of their own, of which the resources are asked.
PARTS: dict[str, tuple[str, ...]] = {"frame_out": ("small_fifo",), "by_turns": ()}


def sources(block: str, folder: pathlib.Path = RTL / "src") -> list[pathlib.Path]:
    """The files of a block, or of a part."""
    return [folder / f"{name}.sv" for name in (*(BLOCKS | PARTS)[block], block)]
