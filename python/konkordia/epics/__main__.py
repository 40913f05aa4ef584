"""The command `konkordia-epics`."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import threading
from functools import partial

from .. import Client

LOOPBACK = "127.0.0.1"


def arguments() -> argparse.ArgumentParser:
    """What the command takes."""
    parser = argparse.ArgumentParser(prog="konkordia-epics")
    parser.description = "Serves a detector of a running Konkordia service over PV Access, with the names of areaDetector."
    parser.add_argument("--prefix", required=True, metavar="P", help="beginning of all names, for example BL:KONK:")
    parser.add_argument("--record", default="cam1:", metavar="R", help="what follows in the names of settings and states")
    parser.add_argument("--image", default="Pva1:Image", help="what follows in the name of the image")
    url = "address of the service; else KONKORDIA_URL, else http://127.0.0.1:8090. The token is in KONKORDIA_TOKEN"
    parser.add_argument("--url", default=None, help=url)
    detector = "its name, where the service has several; else KONKORDIA_DETECTOR"
    parser.add_argument("--detector", default=os.environ.get("KONKORDIA_DETECTOR"), help=detector)
    parser.add_argument("--ca", default=None, help="certificate that signed that of the service")
    parser.add_argument("--channel", default=None, help="of images with several channels, the one to serve; else the first")
    interface = f"address to listen on, more than once for several; else EPICS_PVAS_INTF_ADDR_LIST, else {LOOPBACK}"
    parser.add_argument("--interface", action="append", metavar="ADDRESS", help=interface)
    return parser


def conf_of(interfaces: list[str] | None) -> dict[str, str]:
    """Whoever reaches the server can do what its token may: without a word from the user it is for this host only."""
    if interfaces:
        return {"EPICS_PVAS_INTF_ADDR_LIST": " ".join(interfaces)}
    return {} if os.environ.get("EPICS_PVAS_INTF_ADDR_LIST") else {"EPICS_PVAS_INTF_ADDR_LIST": LOOPBACK}


def main() -> int:
    given = arguments().parse_args()
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(levelname)s %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    try:
        from ._server import Server
    except ImportError as error:
        print(f"konkordia-epics: {error}\n  hint: pip install 'konkordia[epics]'", file=sys.stderr)
        return 3
    ends = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ends.set())
    make_client = partial(Client, given.url, detector=given.detector, ca=given.ca)
    conf = conf_of(given.interface)
    with Server(make_client, given.prefix, record=given.record, image=given.image, channel=given.channel, conf=conf) as server:
        print(f"listens on {server.conf['EPICS_PVAS_INTF_ADDR_LIST']}: {server.image_name}", flush=True)
        while not ends.wait(3600):
            pass
    return 0


if __name__ == "__main__":
    sys.exit(main())
