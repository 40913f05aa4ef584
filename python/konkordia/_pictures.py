"""What notebooks show."""

from __future__ import annotations

import base64
import html
from typing import Any

from numpy.typing import NDArray

from . import _native


def shown(lines: list[str], pixels: NDArray[Any] | None = None, title: str = "") -> str:
    """Lines of text, the first as code, and a picture of an image (of the first of several channels)."""
    text = f"<div><code>{html.escape(lines[0])}</code>" + "".join(f"<br>{html.escape(line)}" for line in lines[1:])
    if pixels is not None and pixels.ndim >= 2 and pixels.size:
        while pixels.ndim > 2:
            pixels = pixels[0]
        picture = base64.b64encode(_native.picture(pixels, 400)).decode()
        text += f'<br><img alt="{html.escape(title)}" src="data:image/png;base64,{picture}">'
    return text + "</div>"
