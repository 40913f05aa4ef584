"""A plain client of SIMPLON, for `[adapters.simplon]`: HTTP and nothing else."""

import json
import urllib.error
import urllib.request

TABLE = '[adapters.simplon]\nlisten = "127.0.0.1:0"\n'


class Refused(Exception):
    """An answer with an error status, and its text."""

    def __init__(self, status, text):
        super().__init__(f"{status}: {text}")
        self.status, self.text = status, text


class Simplon:
    """The SIMPLON port of a service."""

    def __init__(self, service, token=None):
        asked = {"Authorization": f"Bearer {token}"} if token else {}
        with urllib.request.urlopen(urllib.request.Request(f"{service.url}/api/v1/adapters", headers=asked), timeout=20) as answer:
            [found] = [one for one in json.loads(answer.read())["adapters"] if one["name"] == "simplon"]
        self.url, self.token = found["address"], None

    def send(self, method, path, body=None, timeout=60, **headers):
        """Status, headers and body of the answer."""
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        request = urllib.request.Request(f"{self.url}/{path}", body, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=timeout) as answer:
                return answer.status, answer.headers, answer.read()
        except urllib.error.HTTPError as error:
            text = error.read().decode()
            assert error.headers["Content-Type"] == "text/plain; charset=utf-8" or method == "HEAD", error.headers
            raise Refused(error.code, text) from None

    def get(self, path, version="1.8.0"):
        subsystem, rest = path.split("/", 1)
        return json.loads(self.send("GET", f"{subsystem}/api/{version}/{rest}")[2])

    def value(self, path):
        return self.get(path)["value"]

    def put(self, path, value, version="1.8.0"):
        """The keys that have changed."""
        return self.put_body(path, json.dumps({"value": value}).encode(), version)

    def put_body(self, path, body, version="1.8.0"):
        subsystem, rest = path.split("/", 1)
        answer = self.send("PUT", f"{subsystem}/api/{version}/{rest}", body, **{"Content-Type": "application/json"})
        return json.loads(answer[2])

    def command(self, name, subsystem="detector", timeout=60):
        return json.loads(self.send("PUT", f"{subsystem}/api/1.8.0/command/{name}", b"", timeout)[2])

    def refused(self, what, *arguments, **options):
        """The refusal of a request."""
        try:
            answer = getattr(self, what)(*arguments, **options)
        except Refused as refused:
            return refused
        raise AssertionError(f"{what} {arguments} was accepted: {answer}")

    @property
    def state(self):
        return self.value("detector/status/state")
