"""A server between a client and another one, which ends after BYTES bytes, wherever that is.

    farm_s3_proxy.py PORT TO BYTES     0: never
"""

import os
import socket
import sys
import threading

port, to, most = (int(word) for word in sys.argv[1:4])
lock, passed = threading.Lock(), 0


def count(bytes_more):
    global passed
    with lock:
        passed += bytes_more
        if most and passed > most:
            os._exit(0)


def pump(source, target):
    try:
        while part := source.recv(512):
            target.sendall(part)
            count(len(part))
        target.shutdown(socket.SHUT_WR)
    except OSError:
        pass


def serve(client):
    server = socket.create_connection(("127.0.0.1", to))
    threading.Thread(target=pump, args=(client, server), daemon=True).start()
    pump(server, client)


listener = socket.create_server(("127.0.0.1", port))
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
