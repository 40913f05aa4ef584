"""A reverse proxy that puts a service below a path, as a beamline's web server does."""

import contextlib
import re
import socket
import threading
import urllib.parse


class Proxy:
    """Takes `/beamline/...` to `/...` of the service. The rest, also of WebSockets, is copied as it is: each connection
    carries one request, or one WebSocket."""

    def __init__(self, url, path="/beamline"):
        self.path = path.encode()
        service = urllib.parse.urlsplit(url)
        self.service = service.hostname, service.port
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}{path}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=self._serve, args=(self.listener.accept()[0],), daemon=True).start()

    def _serve(self, client):
        with contextlib.suppress(OSError), client:
            head = b""
            while b"\r\n\r\n" not in head:
                head += client.recv(65536) or b"\r\n\r\n"
            method, target, rest = head.split(b" ", 2)
            if not target.startswith(self.path + b"/"):
                client.sendall(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
                return
            if b"websocket" not in rest.lower():
                rest = re.sub(rb"(?i)\r\nconnection:[^\r]*", b"\r\nConnection: close", rest, count=1)
            with socket.create_connection(self.service) as service:
                service.sendall(b" ".join([method, target[len(self.path) :], rest]))
                back = threading.Thread(target=copy, args=(service, client), daemon=True)
                back.start()
                copy(client, service)
                back.join()

    def close(self):
        self.listener.close()


def copy(source, target):
    with contextlib.suppress(OSError):
        while part := source.recv(65536):
            target.sendall(part)
        target.shutdown(socket.SHUT_WR)
