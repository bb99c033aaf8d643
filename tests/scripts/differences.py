"""Writes unusual shards into a folder, and prints what webdataset reads from each: {name: outcome, ...}.

The name of a file is that of its row in tests/suite/differences.rs. An outcome lists the samples with their
fields, or the decoded field `x` of a single sample; then the error that ends the reading, if there is one.
"""

import bz2
import gzip
import io
import json
import lzma
import os
import struct
import sys
import tarfile
import warnings
import zipfile
import zlib

import numpy as np
import webdataset as wds
from PIL import Image

warnings.simplefilter("ignore")

END = bytes(1024)


def member(name, content=b"1", kind=tarfile.REGTYPE, format=tarfile.USTAR_FORMAT, pax=None, link="", size=None):
    info = tarfile.TarInfo("name")
    info.name, info.type, info.linkname = name, kind, link
    info.size = len(content) if size is None else size
    info.pax_headers = pax or {}
    return info.tobuf(format, "utf-8", "surrogateescape") + content + bytes(-len(content) % 512)


def archive(*members):
    return b"".join(members) + END


def pax_header(kind, records):
    """A pax header by itself, with raw records."""
    return member("pax", records, kind)


def record(key, value):
    body = b" " + key + b"=" + value + b"\n"
    length = len(body) + len(str(len(body)))
    length += len(str(length)) != len(str(len(body)))
    return str(length).encode() + body


def named(name):
    """A member whose name may be any bytes."""
    block = bytearray(member("x" * len(name))[:512])
    block[: len(name)] = name
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block) + b"1" + bytes(511)


def broken(shard, at):
    """The archive with one byte of a header changed."""
    return shard[:at] + bytes([shard[at] ^ 1]) + shard[at + 1 :]


def field(extension, content):
    return archive(member(f"k.{extension}", content))


def npy(descr, content, shape="(1,)"):
    header = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}".encode()
    header += b" " * (-(len(header) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + content


def object_array():
    out = io.BytesIO()
    np.save(out, np.array([{}], dtype=object), allow_pickle=True)
    return out.getvalue()


def npz(*names):
    """An npz of arrays with these names: the first holds 1, the second 2, and so on."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for number, name in enumerate(names, 1):
            archive.writestr(f"{name}.npy", npy("'|u1'", bytes([number])))
    return out.getvalue()


def renamed(archive, name, other):
    """The npz with one member renamed in its directory only."""
    at = archive.rindex(name)
    return archive[:at] + other + archive[at + len(name) :]


def cut_jpeg():
    """A JPEG with the first half of its image data, and an end marker."""
    out = io.BytesIO()
    Image.effect_noise((32, 32), 100).save(out, "jpeg")
    file = out.getvalue()
    data = file.index(b"\xff\xda") + 10
    return file[: (data + len(file)) // 2] + b"\xff\xd9"


def png16(number):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    data = zlib.compress(b"\0" + struct.pack(">H", number))
    head = struct.pack(">IIBBBBB", 1, 1, 16, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


two = member("a.txt"), member("a.cls"), member("b.txt"), member("b.cls")
sound = archive(*two)
one, other = gzip.compress(sound[:700], mtime=0), gzip.compress(sound[700:], mtime=0)
text = gzip.compress(b"text", mtime=0)

SHARDS = {
    # Damage, and shards that look damaged.
    "cut_at_a_member.tar": sound[:3072],
    "cut_in_a_header.tar": sound[:3172],
    "bad_checksum.tar": broken(sound, 2048),
    "no_end.tar": sound[:4096],
    "half_an_end.tar": sound[:4608],
    "no_bytes.tar": b"",
    "zeros.tar": bytes(10240),
    "two_archives.tar": sound + archive(member("c.txt")),
    "bytes_after_the_end.tar": sound + b"garbage" * 100,
    "cut.tar.gz": gzip.compress(sound, mtime=0)[:-12],
    "two_members.tar.gz": one + other,
    "two_members_of_two_samples.tar.gz": gzip.compress(sound[:2048], mtime=0) + gzip.compress(sound[2048:], mtime=0),
    "zeros_after.tar.gz": gzip.compress(sound, mtime=0) + bytes(512),
    # Members.
    "scattered.tar": archive(member("a.txt"), member("b.txt"), member("a.cls"), member("c.txt")),
    "duplicate.tar": archive(member("a.txt"), member("a.TXT", b"2"), member("b.txt")),
    "hard_link.tar": archive(member("a.txt"), member("a.cls", b"", tarfile.LNKTYPE, link="a.txt"), member("b.txt")),
    "symbolic_link.tar": archive(member("a.txt"), member("a.cls", b"", tarfile.SYMTYPE, link="a.txt"), member("b.txt")),
    "hidden.tar": archive(member("d/a.txt"), member("d/._a.txt")),
    "sparse.tar": archive(
        pax_header(
            tarfile.XHDTYPE,
            record(b"GNU.sparse.size", b"4")
            + record(b"GNU.sparse.numblocks", b"1")
            + record(b"GNU.sparse.offset", b"2")
            + record(b"GNU.sparse.numbytes", b"1"),
        ),
        member("a.txt"),
    ),
    "key_field.tar": archive(member("a.__key__"), member("a.txt"), member("b.txt")),
    "url_field.tar": archive(member("a.txt"), member("a.__url__"), member("b.txt")),
    "bad_field.tar": archive(member("a.__bad__"), member("a.txt"), member("b.txt")),
    "not_utf8.tar": archive(named(b"a\xff.txt"), member("b.txt")),
    "pax_path_with_a_slash.tar": archive(
        pax_header(tarfile.XHDTYPE, record(b"path", b"a.txt/")), member("x.cls"), member("b.txt")
    ),
    "two_pax_headers.tar": archive(
        pax_header(tarfile.XHDTYPE, record(b"comment", b"1")),
        pax_header(tarfile.XHDTYPE, record(b"comment", b"2")),
        member("a.txt"),
    ),
    "global_header_alone.tar": archive(pax_header(tarfile.XGLTYPE, record(b"comment", b"1"))),
    "multi_volume.tar": archive(member("a.txt", kind=b"M"), member("b.txt")),
    # Compression.
    "gzip_named.tar": gzip.compress(sound, mtime=0),
    "bzip2.tar.bz2": bz2.compress(sound),
    "xz.tar.xz": lzma.compress(sound),
}

FIELDS = {
    "json_null": ("json", b"null"),
    "json_nan": ("json", b"[NaN]"),
    "json_1e400": ("json", b"[1e400]"),
    "json_lone_surrogate": ("json", b'["\\ud800"]'),
    "json_depth_200": ("json", b"[" * 200 + b"]" * 200),
    "json_utf16": ("json", "[1]".encode("utf-16")),
    "json_beyond_64_bits": ("json", b"[18446744073709551617]"),
    "cls_beyond_64_bits": ("cls", b"9223372036854775808"),
    "class": ("class", b"7"),
    "gz_members": ("txt.gz", text + text),
    "gz_padding": ("txt.gz", text + bytes(4)),
    "gz_of_an_unknown_field": ("abc.gz", text),
    "npy_without_byte_order": ("npy", npy("'f4'", struct.pack("<f", 1))),
    "npy_native_byte_order": ("npy", npy("'=f4'", struct.pack("<f", 1))),
    "npy_complex": ("npy", npy("'<c8'", struct.pack("<ff", 1, 2))),
    "npy_text": ("npy", npy("'<U1'", "a".encode("utf-32-le"))),
    "npy_records": ("npy", npy("[('a', '<i2')]", b"\1\0")),
    "npy_objects": ("npy", object_array()),
    "npz_twice": ("npz", npz("a", "a")),
    "npz_renamed": ("npz", renamed(npz("a", "b"), b"b.npy", b"c.npy")),
    "pickle": ("pkl", b"\x80\x04K\x07."),
    "msgpack": ("mp", b"\x07"),
    "pgm_maxval_100": ("pgm", b"P5 2 1 100\n\x64\x32"),
    "pgm_maxval_1000": ("pgm", b"P5 1 1 1000\n\x01\xf4"),
    "pgm_maxval_65535": ("pgm", b"P5 1 1 65535\n\x80\x00"),
    "pgm_of_no_width": ("pgm", b"P5 0 1 255\n"),
    "png_16_bits_grey": ("png", png16(0x8000)),
    "jpg_cut": ("jpg", cut_jpeg()),
}


def shown(value):
    if isinstance(value, bytes):
        return f"bytes {value.hex()}"
    if isinstance(value, str):
        return f"text {value}"
    if isinstance(value, int):
        return f"int {value}"
    if isinstance(value, dict):
        return " ".join(["arrays"] + [f"{name}={value[name].tobytes().hex()}" for name in sorted(value)])
    if isinstance(value, np.ndarray) and value.nbytes > 64:
        return f"pixels {value.shape}"
    if isinstance(value, np.ndarray) and value.dtype == np.uint8:
        return f"pixels {value.tobytes().hex()}"
    if isinstance(value, np.ndarray):
        return f"array {value.dtype} {value.tobytes().hex()}"
    text = json.dumps(value, separators=(",", ":"))
    return "json " + (text if len(text) < 100 else text[:20] + "…")


def outcome(stages, show):
    found = []
    try:
        for sample in wds.DataPipeline(*stages):
            found.append(show(sample))
    except Exception as error:
        found.append(type(error).__name__)
    return "; ".join(found)


def names(sample):
    key = sample["__key__"].encode("utf-8", "surrogateescape").decode("latin-1")
    return f"{key}: {' '.join(name for name in sample if not name.startswith('__'))}"


folder, found = sys.argv[1], {}
for name, content in SHARDS.items():
    path = os.path.join(folder, name)
    open(path, "wb").write(content)
    found[name] = outcome([wds.SimpleShardList([path]), wds.tarfile_to_samples()], names)
for name, (extension, content) in FIELDS.items():
    path = os.path.join(folder, f"{name}.tar")
    open(path, "wb").write(field(extension, content))
    stages = [wds.SimpleShardList([path]), wds.tarfile_to_samples(), wds.decode("l8")]
    found[f"{name}.tar"] = outcome(stages, lambda sample: shown(sample[extension]))
json.dump(found, sys.stdout)
