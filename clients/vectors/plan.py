"""What the programs are asked: lines "key K", then "set PRESET" with its "server WEIGHT NAME" each."""


def read(lines):
    sets, keys = [], []
    for line in lines:
        word, _, rest = line.rstrip("\n").partition(" ")
        if word == "key":
            keys.append(rest)
        elif word == "set":
            sets.append((rest, []))
        else:
            weight, _, name = rest.partition(" ")
            sets[-1][1].append((name, int(weight)))
    return sets, keys


def host_and_port(name):
    host, _, port = name.rpartition(":")
    return host.strip("[]"), int(port)
