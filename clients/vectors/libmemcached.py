"""Where libmemcached puts keys: reads sets of servers and keys, writes a line of digits for each set.

The library itself is asked (memcached_generate_hash), through ctypes: no header, no compiler.
"""
import ctypes
import sys

from plan import host_and_port, read

library = ctypes.CDLL("libmemcached.so.11")
library.memcached_create.restype = ctypes.c_void_p
library.memcached_lib_version.restype = ctypes.c_char_p
library.memcached_generate_hash.restype = ctypes.c_uint32

# Behaviors, hashes and distributions, as libmemcached numbers them.
HASH, KETAMA, DISTRIBUTION, KETAMA_WEIGHTED = 2, 3, 9, 16
MD5, CRC, FNV1A_64, MURMUR, JENKINS, MURMUR3 = 1, 2, 4, 8, 9, 10
KETAMA_SPY = 4
# The order counts: a ring is built with the hash that is set when it is chosen.
PRESETS = {
    "ketama": [(KETAMA_WEIGHTED, 1)],
    "libmemcached-spy": [(KETAMA_WEIGHTED, 1), (DISTRIBUTION, KETAMA_SPY)],
    "libmemcached-consistent": [(KETAMA, 1)],
    "libmemcached-consistent-md5": [(HASH, MD5), (KETAMA, 1)],
    "libmemcached-consistent-md5-late": [(KETAMA, 1), (HASH, MD5)],
    "modula-oaat": [],
    "modula-md5": [(HASH, MD5)],
    "modula-crc15": [(HASH, CRC)],
    "modula-fnv1a_64": [(HASH, FNV1A_64)],
    "modula-murmur": [(HASH, MURMUR)],
    "modula-murmur3": [(HASH, MURMUR3)],
    "modula-jenkins": [(HASH, JENKINS)],
    "twemproxy-fnv1a_64": [(KETAMA_WEIGHTED, 1), (HASH, FNV1A_64)],
}


def placed(preset, servers, keys):
    handle = ctypes.c_void_p(library.memcached_create(None))
    for name, weight in servers:
        if name.startswith("/"):
            failed = library.memcached_server_add_unix_socket_with_weight(handle, name.encode(), weight)
        else:
            host, port = host_and_port(name)
            failed = library.memcached_server_add_with_weight(handle, host.encode(), port, weight)
        assert not failed, (name, failed)
    for behavior, value in PRESETS[preset]:
        failed = library.memcached_behavior_set(handle, behavior, ctypes.c_uint64(value))
        assert not failed, (preset, behavior, failed)
    digits = []
    for key in keys:
        text = key.encode()
        digits.append(str(library.memcached_generate_hash(handle, text, ctypes.c_size_t(len(text)))))
    library.memcached_free(handle)
    return "".join(digits)


print("libmemcached", library.memcached_lib_version().decode())
sets, keys = read(sys.stdin)
for preset, servers in sets:
    print(placed(preset, servers, keys))
