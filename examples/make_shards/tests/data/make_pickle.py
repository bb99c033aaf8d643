"""Writes python2.pickle: a batch of three images, pickled as Python 2 and its numpy do with protocol 2.

Python 3 cannot write byte strings as Python 2 did, so this script writes the operations one by one, in the order in
which the files of CIFAR-10 have them.
"""

import pathlib
import pickle
import struct


def short(text):
    return b"U" + bytes([len(text)]) + text


data = bytes(i * 7 % 256 for i in range(3 * 3072))
labels = [6, 9, 300]
parts = [b"\x80\x02}q\x01("]
parts += [short(b"batch_label"), b"q\x02", short(b"training batch 1 of 5"), b"q\x03"]
parts += [short(b"labels"), b"q\x04]q\x05(K\x06K\tM\x2c\x01e"]
parts += [short(b"data"), b"q\x06cnumpy.core.multiarray\n_reconstruct\nq\x07cnumpy\nndarray\nq\x08K\x00\x85"]
parts += [short(b"b"), b"\x87Rq\t(K\x01K\x03M\x00\x0c\x86cnumpy\ndtype\nq\n", short(b"u1"), b"K\x00K\x01\x87Rq\x0b"]
parts += [b"(K\x03", short(b"|"), b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89"]
parts += [b"T", struct.pack("<I", len(data)), data, b"tb"]
parts += [short(b"filenames"), b"q\x0c]q\r("]
for number, name in enumerate([b"leptodactylus_pentadactylus_s_000004.png", b"camion_s_000148.png", b"truck.png"]):
    parts += [short(name), b"q", bytes([14 + number])]
parts += [b"eu."]
text = b"".join(parts)

try:
    loaded = pickle.loads(text, encoding="bytes")
    assert loaded[b"labels"] == labels and loaded[b"data"].shape == (3, 3072)
except ModuleNotFoundError:
    print("python2.pickle is not checked, which needs numpy")
pathlib.Path(__file__).with_name("python2.pickle").write_bytes(text)
