"""Writes random tables as Parquet files, and their rows as text: `python3 write_random.py DIRECTORY FILES`."""

import os
import random
import struct
import sys

import pyarrow as pa
import pyarrow.parquet as pq

assert pa.__version__ == "26.0.1", pa.__version__
directory, files = sys.argv[1], int(sys.argv[2])

INTEGERS = {
    pa.int8(): "int8", pa.uint8(): "uint8", pa.int16(): "int16", pa.uint16(): "uint16",
    pa.int32(): "int32", pa.uint32(): "uint32", pa.int64(): "int64", pa.uint64(): "uint64",
}
FLOATS = {pa.float16(): ("float16", "<e"), pa.float32(): ("float32", "<f"), pa.float64(): ("float64", "<d")}
BYTES = [pa.string(), pa.binary(), pa.large_string(), pa.binary(5)]


def number(draw, kind):
    if kind == pa.bool_():
        return draw.random() < 0.5
    if kind in FLOATS:
        return struct.unpack(FLOATS[kind][1], struct.pack(FLOATS[kind][1], draw.uniform(-1000, 1000)))[0]
    bits, signed = kind.bit_width, "u" not in INTEGERS[kind]
    top = 2 ** (bits - 1) - 1 if signed else 2**bits - 1
    return draw.choice([0, top, draw.randint(0, min(top, 1000))]) * (draw.choice([1, -1]) if signed else 1)


def content(draw, kind):
    letters = "abé\n\"\\"
    if kind == pa.binary(5):
        return bytes(draw.randrange(256) for _ in range(5))
    if kind == pa.binary():
        return bytes(draw.randrange(256) for _ in range(draw.randrange(30)))
    return "".join(draw.choice(letters) for _ in range(draw.randrange(20)))


def packed(kind, value):
    if kind == pa.bool_():
        return bytes([value])
    if kind in FLOATS:
        return struct.pack(FLOATS[kind][1], value)
    return value.to_bytes(kind.bit_width // 8, "little", signed="u" not in INTEGERS[kind])


def dtype(kind):
    return "bool" if kind == pa.bool_() else FLOATS[kind][0] if kind in FLOATS else INTEGERS[kind]


def escaped(data):
    """Escapes bytes as Rust's `escape_ascii` does."""
    special = {9: "\\t", 10: "\\n", 13: "\\r", 34: '\\"', 39: "\\'", 92: "\\\\"}
    return "".join(special.get(b) or (chr(b) if 32 <= b < 127 else f"\\x{b:02x}") for b in data)


def shown(kind, value):
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        data = b"".join(packed(kind.value_type, item) for item in value)
        return f"{dtype(kind.value_type)}[{len(value)}] [{', '.join(map(str, data))}]"
    if kind in FLOATS or kind == pa.uint64():
        return f"{dtype(kind)}[] [{', '.join(map(str, packed(kind, value)))}]"
    if kind in BYTES:
        return f'b"{escaped(value.encode() if isinstance(value, str) else value)}"'
    return str(int(value))


for file in range(files):
    draw = random.Random(file)
    rows = draw.choice([1, 7, 100, 1500, 4000])
    numbers = [pa.bool_(), *INTEGERS, *FLOATS]
    columns = {}
    for at in range(draw.randint(1, 5)):
        kind = draw.choice(draw.choice([numbers, BYTES, [None]]))
        nulls = draw.choice([0, 0.1, 0.9, 1])
        is_list = kind is None
        if is_list:
            kind = draw.choice([pa.list_, pa.large_list])(draw.choice(numbers))
        few = draw.random() < 0.4
        make = lambda: (
            [number(draw, kind.value_type) for _ in range(draw.randrange(6))]
            if is_list
            else content(draw, kind) if kind in BYTES else number(draw, kind)
        )
        some = [make() for _ in range(5)]
        values = [None if draw.random() < nulls else draw.choice(some) if few else make() for _ in range(rows)]
        columns[f"c{at}"] = (kind, values, nulls)
    schema = pa.schema([pa.field(n, k, nullable=nulls > 0 or draw.random() < 0.5) for n, (k, _, nulls) in columns.items()])
    table = pa.table([pa.array(v, k) for k, v, _ in columns.values()], schema=schema)
    options = dict(
        compression=draw.choice(["none", "snappy", "gzip", "zstd", "lz4"]),
        row_group_size=draw.choice([1 + rows // 3, 1000, 100_000]),
        data_page_size=draw.choice([100, 1000, 1 << 20]),
        data_page_version=draw.choice(["1.0", "2.0"]),
        write_page_checksum=draw.random() < 0.5,
        write_page_index=draw.random() < 0.3,
        write_statistics=draw.random() < 0.7,
        use_dictionary=draw.random() < 0.5,
        write_batch_size=draw.choice([1, 50, 1024]),
    )
    if not options["use_dictionary"] and draw.random() < 0.7:
        encodings = {}
        for name, (kind, _, _) in columns.items():
            if kind in BYTES:
                fixed = kind == pa.binary(5)
                choices = ["PLAIN", "DELTA_BYTE_ARRAY"] + ([] if fixed else ["DELTA_LENGTH_BYTE_ARRAY"])
                encodings[name] = draw.choice(choices)
            elif kind in INTEGERS:
                encodings[name] = draw.choice(["PLAIN", "DELTA_BINARY_PACKED", "BYTE_STREAM_SPLIT"])
            elif kind in FLOATS:
                encodings[name] = draw.choice(["PLAIN", "BYTE_STREAM_SPLIT"])
        options["column_encoding"] = encodings
    path = os.path.join(directory, str(file))
    pq.write_table(table, path + ".parquet", **options)
    read = pq.read_table(path + ".parquet")
    with open(path + ".txt", "w") as text:
        print(file, str(schema).replace("\n", ", "), options, file=text)
        cells = {name: read.column(name).to_pylist() for name in columns}
        for row in range(rows):
            fields = (
                f"{name}={shown(kind, cells[name][row])}"
                for name, (kind, _, _) in columns.items()
                if cells[name][row] is not None
            )
            print(f"{row:09} {' '.join(fields)}", file=text)
