"""Where twemproxy puts keys: the proxy runs before servers that say which they are; see plan.py."""
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time

from plan import read

PRESETS = {
    "ketama": ("md5", "ketama"),
    "twemproxy-fnv1a_64": ("fnv1a_64", "ketama"),
    "twemproxy-modula-crc15": ("crc32", "modula"),
}
PROXY = "/usr/sbin/nutcracker"


def serve(listener, digit):
    def one(connection):
        for line in connection.makefile("rb"):
            key = line.split()[1]
            connection.sendall(b"VALUE %s 0 1\r\n%d\r\nEND\r\n" % (key, digit))

    while True:
        threading.Thread(target=one, args=(listener.accept()[0],), daemon=True).start()


def placed(preset, servers, keys, home):
    hash_name, distribution = PRESETS[preset]
    ours = os.path.join(home, "proxy")
    text = f"pool:\n  listen: {ours}\n  hash: {hash_name}\n  distribution: {distribution}\n  servers:\n"
    for digit, (name, weight) in enumerate(servers):
        listener = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=serve, args=(listener, digit), daemon=True).start()
        # Without a name of its own a server is known by its address, without memcached's own port.
        name = name.removesuffix(":11211")
        text += f"   - 127.0.0.1:{listener.getsockname()[1]}:{weight} {name}\n"
    with open(os.path.join(home, "conf"), "w") as file:
        file.write(text)
    statistics = socket.create_server(("127.0.0.1", 0))
    port = statistics.getsockname()[1]
    statistics.close()
    proxy = subprocess.Popen(
        [PROXY, "-c", os.path.join(home, "conf"), "-a", "127.0.0.1", "-s", str(port), "-o", os.path.join(home, "log")]
    )
    try:
        while True:
            try:
                connection = socket.socket(socket.AF_UNIX)
                connection.connect(ours)
                break
            except OSError:
                assert proxy.poll() is None, text
                time.sleep(0.02)
        lines = connection.makefile("rb")
        digits = []
        for key in keys:
            connection.sendall(b"get %s\r\n" % key.encode())
            head, digit, end = lines.readline(), lines.readline(), lines.readline()
            assert head.startswith(b"VALUE") and end == b"END\r\n", (key, head, digit, end)
            digits.append(digit.decode().strip())
    finally:
        proxy.terminate()
        proxy.wait()
        if os.path.exists(ours):
            os.remove(ours)
    return "".join(digits)


said = subprocess.run([PROXY, "--version"], capture_output=True, text=True)
print("twemproxy", (said.stdout + said.stderr).split("nutcracker-")[1].split()[0])
sets, keys = read(sys.stdin)
with tempfile.TemporaryDirectory() as home:
    for preset, servers in sets:
        print(placed(preset, servers, keys, home))
