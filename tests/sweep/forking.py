"""A server without torch that goes wrong: `forking.py BEHAVIOUR FD`."""

from __future__ import annotations

import json
import os
import socket
import sys
import time

behaviour, listener = sys.argv[1], socket.socket(fileno=int(sys.argv[2]))
if behaviour == "broken":
    sys.exit("ImportError: no model code")
while True:
    connection, _ = listener.accept()
    data, files, _, _ = socket.recv_fds(connection, 1 << 16, 2)
    if not data:  # whoever only looked whether we are there
        continue
    asked = json.loads(data)
    os.write(files[0], f"asked for {asked['arguments']}\n".encode())
    if behaviour == "refuses":
        connection.sendall(b'{"error": "no rank can be forked: CUDA"}\n')
    if behaviour == "dies":
        connection.sendall(json.dumps({"pid": os.getpid()}).encode() + b"\n")
        sys.exit()
    if behaviour == "slow":
        time.sleep(600)
    if behaviour == "good":
        for line in (b'{"pid": 1}\n{"exit', b'_code": 3, "cpu_seconds": 0.5}\n'):
            connection.sendall(line)
