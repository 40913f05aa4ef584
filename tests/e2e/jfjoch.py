"""Talks to the jfjoch port of a service over plain HTTP, with the bodies that clients of the broker send."""

import json
import urllib.error
import urllib.request

from driving import free_ports

# What the generated client sends without being asked.
USUAL = {
    "images_per_trigger": 1, "ntrigger": 1, "file_prefix": "", "sample_name": "", "compression": "bslz4",
    "data_reduction_factor_serialmx": 1.0, "write_nxmx_hdf5_master": True, "poni_rot1_rad": 0.0, "poni_rot2_rad": 0.0,
    "poni_rot3_rad": 0.0, "spot_finding": True, "max_spot_count": 250, "async_start": False,
}  # fmt: skip
GEOMETRY = {"beam_x_pxl": 512.5, "beam_y_pxl": 256, "detector_distance_mm": 75.5, "incident_energy_keV": 12.4}


def settings(**more):
    return USUAL | GEOMETRY | more


def table(role="operate", port=None):
    """The table of the configuration, and the port in it."""
    port = port or free_ports()
    return port, f'[adapters.jfjoch]\nlisten = "127.0.0.1:{port}"\nrole = "{role}"\n'


class Refused(Exception):
    """An answer that is no success."""

    def __init__(self, status, kind, body):
        super().__init__(f"{status} {kind}: {body}")
        self.status, self.kind, self.body = status, kind, body
        self.text = json.loads(body)["msg"] if "json" in kind else body.decode()


class Broker:
    """The port."""

    def __init__(self, port, **headers):
        self.url, self.headers = f"http://127.0.0.1:{port}", headers

    def ask(self, method, path, body=None, **headers):
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"} | self.headers | headers
        request = urllib.request.Request(self.url + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                content, kind = answer.read(), answer.headers["Content-Type"] or ""
        except urllib.error.HTTPError as error:
            raise Refused(error.code, error.headers["Content-Type"] or "", error.read()) from None
        return json.loads(content) if "json" in kind else content

    def get(self, path):
        return self.ask("GET", path)

    def post(self, path, body=None, **headers):
        return self.ask("POST", path, body, **headers)

    def refused(self, method, path, body=None, **headers):
        try:
            answer = self.ask(method, path, body, **headers)
        except Refused as refused:
            return refused
        raise AssertionError(f"{method} {path} was not refused: {answer}")

    @property
    def state(self):
        return self.get("/status")["state"]
