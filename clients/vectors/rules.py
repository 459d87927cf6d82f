"""Where memcached's proxy and xmemcached put keys, whichever is named: neither is asked. The rules are written anew here from
their source, above the xxHash library; see plan.py."""
import bisect
import hashlib
import sys

import xxhash

from plan import host_and_port, read

SOURCES = {"memcached": "memcached 1.6.45", "xmemcached": "xmemcached 2.4.8"}
POINTS = 160


def jump(servers, key):
    """Lamping's and Veach's jump hash, by the key's XXH3."""
    state, at, after = xxhash.xxh3_64_intdigest(key), -1, 0
    while after < len(servers):
        at = after
        state = (state * 2862933555777941757 + 1) % 2**64
        after = int((at + 1) * (2.0**31 / ((state >> 33) + 1)))
    return at


def behind(points, value):
    """The server of the first point at or behind a value."""
    return points[bisect.bisect_left(points, (value, -1)) % len(points)][1]


def proxy_ring(servers):
    points = []
    for at, (name, _) in enumerate(servers):
        host, port = host_and_port(name)
        for n in range(POINTS):
            points.append((xxhash.xxh3_64_intdigest(f"{host}:{port}-{n}".encode()) % 2**32, at))
    points.sort()
    return lambda key: behind(points, xxhash.xxh3_64_intdigest(key) % 2**32)


def words(text):
    """The MD5 of a text, as four numbers."""
    digest = hashlib.md5(text).digest()
    return [int.from_bytes(digest[at : at + 4], "little") for at in range(0, 16, 4)]


def xmemcached_ring(servers):
    points = []
    for at, (name, weight) in enumerate(servers):
        # What Java shows of an address: its host's name, which it may not have, a slash, and the address.
        shown = name if "/" in name else "/" + name
        for n in range(POINTS * weight // 4):
            points += [(word, at) for word in words(f"{shown}-{n}".encode())]
    points.sort()
    return lambda key: behind(points, words(key)[0])


RULES = {
    "jump-xxh3": lambda servers: lambda key: jump(servers, key),
    "proxy-ring": proxy_ring,
    "xmemcached-ketama": xmemcached_ring,
}


print("rules.py, from the source of", SOURCES[sys.argv[1]])
sets, keys = read(sys.stdin)
for preset, servers in sets:
    pick = RULES[preset](servers)
    print("".join(str(pick(key.encode())) for key in keys))
