"""A web site on loopback that answers well or badly."""

import hashlib
import http.server
import threading
from dataclasses import replace

from data_files import TINY_MNIST

FILES = (
    "train-images-idx3-ubyte.gz",
    "train-labels-idx1-ubyte.gz",
    "t10k-images-idx3-ubyte.gz",
    "t10k-labels-idx1-ubyte.gz",
)


class Site:
    """A web site on loopback. ``answer[name]`` is a list of ways to answer, used in turn."""

    def __init__(self, folder):
        self.files = {path.name: path.read_bytes() for path in folder.iterdir()}
        self.answer, self.requests, self.gate = {}, [], threading.Event()
        self.gate.set()
        site = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                name = self.path.rsplit("/", 1)[-1]
                start = int(self.headers.get("Range", "bytes=0-")[6:-1])
                site.requests.append((name, start))
                site.gate.wait(30)
                ways = site.answer.get(name, [])
                way = ways.pop(0) if ways else "whole"
                site.send(self, name, start, way)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}/"

    def send(self, handler, name, start, way):
        data = self.files[name]
        if start > len(data):
            return handler.send_error(416)
        if way == "500":
            return handler.send_error(500)
        if way == "404":
            return handler.send_error(404)
        if way == "page":
            handler.send_response(200)
            handler.send_header("Content-Type", "text/html; charset=utf-8")
            handler.end_headers()
            return handler.wfile.write(b"<html>log in first</html>")
        body = data if way == "no ranges" else data[start:]
        ranged = start and way != "no ranges"
        handler.send_response(206 if ranged else 200)
        if ranged:
            first = start + 1 if way == "wrong piece" else start
            handler.send_header("Content-Range", f"bytes {first}-{len(data) - 1}/{len(data)}")
        handler.send_header("Content-Type", "application/octet-stream")
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        if way == "cut":
            handler.wfile.write(body[: len(body) // 2])
            return handler.connection.close()
        return handler.wfile.write(body)

    def spec(self, **changes):
        digests = {name: hashlib.sha256(self.files[name]).hexdigest() for name in FILES}
        remotes = {self.url + name: digest for name, digest in digests.items()}
        return replace(TINY_MNIST, npm=None, remotes=remotes, **changes)
