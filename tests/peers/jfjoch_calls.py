"""Makes calls of the generated client of the Jungfraujoch broker. Run in the environment of the peers:
jfjoch_calls.py URL [TOKEN]

Each line of standard input is a call, {"call": "start_post", "with": {...}}; each gets a line on standard output:
{"answer": ...}, or {"error": its class, "status": ..., "body": ..., "data": ...}.
"""

import base64
import json
import sys

import jfjoch_client
from jfjoch_client.exceptions import ApiException

MODELS = {"dataset_settings": jfjoch_client.DatasetSettings, "detector_settings": jfjoch_client.DetectorSettings}


def plain(value):
    """An answer of the client as JSON."""
    if hasattr(value, "to_dict"):
        return value.to_dict()
    if isinstance(value, (bytes, bytearray)):
        return {"base64": base64.b64encode(value).decode()}
    return value


configuration = jfjoch_client.Configuration(host=sys.argv[1], access_token=sys.argv[2] if len(sys.argv) > 2 else None)
with jfjoch_client.ApiClient(configuration) as client:
    if len(sys.argv) > 2:
        client.set_default_header("Authorization", f"Bearer {sys.argv[2]}")
    api = jfjoch_client.DefaultApi(client)
    for line in sys.stdin:
        asked = json.loads(line)
        values = {name: MODELS[name].from_dict(value) if name in MODELS else value for name, value in asked.get("with", {}).items()}
        try:
            answer = {"answer": plain(getattr(api, asked["call"])(**values))}
        except ApiException as error:
            answer = {"error": type(error).__name__, "status": error.status, "body": error.body, "data": plain(error.data)}
        print(json.dumps(answer), flush=True)
