"""The servers of a MooseFS: moosefs.py PORT FOLDER. Clients connect to PORT; the file FOLDER/serves says that they can.

The master keeps a chunk locked for two minutes (LOCKTIMEOUT in its chunks.c) if the client that wrote it dies. No setting
changes that, so its clock runs faster: the lock lasts two seconds here. It measures its connections by another clock."""

import ctypes
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time

MASTER = """WORKING_USER = root
WORKING_GROUP = root
DATA_PATH = {folder}/master
EXPORTS_FILENAME = {folder}/exports
TOPOLOGY_FILENAME = /dev/null
MATOML_LISTEN_HOST = 127.0.0.1
MATOML_LISTEN_PORT = {metaloggers}
MATOCS_LISTEN_HOST = {address}
MATOCS_LISTEN_PORT = {chunkservers}
MATOCL_LISTEN_HOST = 127.0.0.1
MATOCL_LISTEN_PORT = {clients}
NICE_LEVEL = 0
DISABLE_OOM_KILLER = 0
"""
CHUNKSERVER = """WORKING_USER = root
WORKING_GROUP = root
DATA_PATH = {folder}/chunkserver
HDD_CONF_FILENAME = {folder}/disks
HDD_LEAVE_SPACE_DEFAULT = 64MiB
MASTER_HOST = {address}
MASTER_PORT = {chunkservers}
MASTER_RECONNECTION_DELAY = 1
CSSERV_LISTEN_HOST = {address}
CSSERV_LISTEN_PORT = {data}
NICE_LEVEL = 0
DISABLE_OOM_KILLER = 0
"""


LIBRARY = "/usr/$LIB/faketime/libfaketimeMT.so.1"
FASTER = {"LD_PRELOAD": LIBRARY, "FAKETIME": "+0 x60", "DONT_FAKE_MONOTONIC": "1"}


def address():
    """One of this machine: a chunk server refuses to have its master at a loopback address. Nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("198.51.100.1", 9))
        return probe.getsockname()[0]


def free_ports(count):
    held = [socket.create_server(("", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return ports


def start(program, config, log, variables=None):
    """A server that ends with this process."""
    end = ctypes.CDLL(None).prctl
    return subprocess.Popen(
        [program, "-c", str(config), "-f", "start"],
        stdout=log,
        stderr=log,
        env=os.environ | (variables or {}),
        preexec_fn=lambda: end(1, signal.SIGKILL),
    )


def main():
    clients, folder = int(sys.argv[1]), pathlib.Path(sys.argv[2])
    metaloggers, chunkservers, data = free_ports(3)
    fields = {
        "address": address(),
        "folder": folder,
        "clients": clients,
        "metaloggers": metaloggers,
        "chunkservers": chunkservers,
        "data": data,
    }
    for name in ("master", "chunkserver", "disk"):
        (folder / name).mkdir()
    empty = pathlib.Path("/var/lib/mfs/metadata.mfs.empty").read_bytes()
    (folder / "master/metadata.mfs").write_bytes(empty)
    (folder / "exports").write_text("* / rw,alldirs,maproot=0:0\n")
    (folder / "disks").write_text(f"{folder}/disk\n")
    (folder / "master.cfg").write_text(MASTER.format(**fields))
    (folder / "chunkserver.cfg").write_text(CHUNKSERVER.format(**fields))
    with (folder / "master.log").open("w") as log:
        master = start("mfsmaster", folder / "master.cfg", log, FASTER)
    with (folder / "chunkserver.log").open("w") as log:
        chunkserver = start("mfschunkserver", folder / "chunkserver.cfg", log)
    while "connected to Master" not in (folder / "chunkserver.log").read_text():
        if master.poll() is not None or chunkserver.poll() is not None:
            print((folder / "master.log").read_text(), (folder / "chunkserver.log").read_text())
            sys.exit("a server has ended")
        time.sleep(0.05)
    # The master hears of the space a little later.
    while "chunkserver register end" not in (folder / "master.log").read_text():
        time.sleep(0.05)
    time.sleep(1)
    (folder / "serves").touch()
    chunkserver.wait()


main()
