"""Serves ClickHouse's HTTP protocol over chdb, so that the real client can be tested where no server is to be had.

`python clickhouse_shim.py FOLDER` prints its port. After `GET /lose-next-answer` the next query is run and its
connection closed without an answer.
"""

from __future__ import annotations

import re
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

from chdb import session

INSERT = re.compile(rb"\s*INSERT\s+INTO\s+(?P<table>[^\n(]+?)\s+FORMAT\s+(?P<format>\w+)[ \t]*\n", re.I)
FORMAT = re.compile(r"\s+FORMAT\s+(?P<format>\w+)\s*$", re.I)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    engine: session.Session
    lock = threading.Lock()
    answers_to_lose = 0

    def do_GET(self) -> None:
        if self.path == "/lose-next-answer":
            Handler.answers_to_lose = 1
        self.answer(200, b"Ok.\n")

    def do_POST(self) -> None:
        asked = {key: values[0] for key, values in parse_qs(urlsplit(self.path).query).items()}
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        params = {key[6:]: value for key, value in asked.items() if key.startswith("param_")}
        try:
            with self.lock:
                self.engine.query(f"USE {asked.get('database', 'default')}")
                answer = self.run(asked.get("query", ""), body, params)
            if Handler.answers_to_lose:
                Handler.answers_to_lose -= 1
                self.close_connection = True
            else:
                self.answer(200, answer)
        except RuntimeError as error:
            self.answer(500, str(error).encode(), {"X-ClickHouse-Exception-Code": "1"})

    def run(self, query: str, body: bytes, params: dict[str, str]) -> bytes:
        insert = INSERT.match(query.encode() + b"\n" + body if query else body)
        if insert:
            inserter = self.engine.send_insert("INSERT INTO " + insert["table"].decode(), insert["format"].decode())
            inserter.append(insert.string[insert.end() :])
            inserter.finish()
            return b""
        sql = query or body.decode()
        form = FORMAT.search(sql)
        result = self.engine.query(FORMAT.sub("", sql), form["format"] if form else "TabSeparated", params=params)
        return bytes(result.bytes())

    def answer(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"X-ClickHouse-Summary": "{}", "X-ClickHouse-Timezone": "UTC", **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None: ...


if __name__ == "__main__":
    Handler.engine = session.Session(sys.argv[1] + "?max_threads=1")
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print(server.server_port, flush=True)
    server.serve_forever()
