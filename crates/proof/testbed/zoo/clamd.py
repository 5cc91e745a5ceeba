"""Says of every file that it is sound, as clamd would: clamd.py SOCKET."""

import socketserver
import sys


class Handler(socketserver.StreamRequestHandler):
    def handle(self):
        line = self.rfile.readline().strip().lstrip(b"nz")
        if line == b"PING":
            self.wfile.write(b"PONG\n")
        else:
            self.wfile.write(line.partition(b" ")[2] + b": OK\n")


class Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True


Server(sys.argv[1], Handler).serve_forever()
