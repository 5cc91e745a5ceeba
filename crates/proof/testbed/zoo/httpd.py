"""Serves a folder by HTTP, ranges included: httpd.py PORT FOLDER [PROTOCOL]."""

import functools
import http.server
import sys

from RangeHTTPServer import RangeRequestHandler


class Handler(RangeRequestHandler):
    protocol_version = sys.argv[3] if len(sys.argv) > 3 else "HTTP/1.0"

    def log_message(self, *args):
        pass


handler = functools.partial(Handler, directory=sys.argv[2])
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), handler).serve_forever()
