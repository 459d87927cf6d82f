"""Where pymemcache or python-memcached, whichever is named, puts keys; see plan.py."""
import sys
from importlib.metadata import version

import memcache
from pymemcache.client.hash import HashClient

from plan import host_and_port, read


def pymemcache(servers, keys):
    client = HashClient([host_and_port(name) for name, _ in servers])
    at = {client._make_client_key(host_and_port(name)): i for i, (name, _) in enumerate(servers)}
    return [at[client.hasher.get_node(key)] for key in keys]


def python_memcached(servers, keys):
    # Nobody listens: a server is chosen as if it could be connected to.
    memcache._Host.connect = lambda host: True
    client = memcache.Client([(name, weight) for name, weight in servers])
    at = {(host.ip, host.port): i for i, host in enumerate(client.servers)}
    chosen = []
    for key in keys:
        host, _ = client._get_server(client._encode_key(key))
        chosen.append(at[(host.ip, host.port)])
    return chosen


LIBRARIES = {"pymemcache": pymemcache, "python-memcached": python_memcached}
library = sys.argv[1]
print(library, version(library))
sets, keys = read(sys.stdin)
for _, servers in sets:
    print("".join(str(digit) for digit in LIBRARIES[library](servers, keys)))
