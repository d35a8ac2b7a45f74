"""A page with the current loss, for whoever wants to look."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Board:
    def __init__(self, port: int) -> None:
        board = self
        self.text = "starting"

        class Page(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.end_headers()
                self.wfile.write(board.text.encode())

        self.server = ThreadingHTTPServer(("", port), Page)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
