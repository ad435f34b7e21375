"""A web server on this machine that keeps what it was sent."""

import threading
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

#: Status, headers and text; the text that does not end is ENDLESS.
Answer = tuple[int, dict[str, str], str]
ENDLESS = "endless"


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.server.got.append((self.path, headers, body))
        status, more, text = self.server.answer(len(self.server.got), self.path)
        self.send_response(status)
        for name, value in more.items():
            self.send_header(name, value)
        self.end_headers()
        with suppress(OSError):
            while text == ENDLESS:
                self.wfile.write(b"." * 4096)
            self.wfile.write(text.encode())

    do_POST = do_GET

    def log_message(self, *_):
        pass


class Server(ThreadingHTTPServer):
    """``answer`` gets the number of the request and its path; ``got`` are path, headers and body of each."""

    daemon_threads = True

    def __init__(self, answer):
        self.answer, self.got = answer, []
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}"


@contextmanager
def served(
    answer=lambda *_: (200, {}, "ok"),
):
    """Serve meanwhile."""
    with Server(answer) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield server
        server.shutdown()
