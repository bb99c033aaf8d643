"""Writes the files of this folder with pyarrow 26.0.1: `python3 write.py`. The tests expect their content."""

import os
import pyarrow as pa
import pyarrow.parquet as pq

HERE = os.path.dirname(os.path.abspath(__file__))


def texts(shard, rows):
    return pa.table(
        {
            "id": pa.array([f"{shard}-{row:04}" for row in range(rows)]),
            "text": pa.array([f"text {row} of shard {shard}" for row in range(rows)]),
            "length": pa.array(range(rows), pa.int32()),
        }
    )


def kinds():
    """A table with one column of each type, with nulls in most columns."""
    rows = range(40)
    some = lambda row, value: None if row % 5 == 3 else value
    column = lambda make, type: pa.array([some(row, make(row)) for row in rows], type)
    image = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    return pa.table(
        {
            "key": pa.array([f"k{row}" for row in rows]),
            "text": column(lambda row: f"text {row % 7}", pa.string()),
            "blob": column(lambda row: bytes([row, 255]) * (row % 4), pa.binary()),
            "uuid": column(lambda row: bytes([row] * 16), pa.binary(16)),
            "flag": column(lambda row: row % 3 == 0, pa.bool_()),
            "i8": column(lambda row: row - 20, pa.int8()),
            "u32": column(lambda row: 2**32 - 1 - row, pa.uint32()),
            "i64": column(lambda row: row - 2**40, pa.int64()),
            "f32": column(lambda row: row / 4, pa.float32()),
            "f64": column(lambda row: -row / 8, pa.float64()),
            "day": column(lambda row: row, pa.date32()),
            "image": pa.array(
                [some(row, {"bytes": bytes([row]), "path": f"{row}.png" if row % 2 else None}) for row in rows],
                image,
            ),
            "tokens": column(lambda row: list(range(row % 6)), pa.list_(pa.uint16())),
            "scores": column(lambda row: [row / 2] * (row % 3), pa.list_(pa.float32())),
        }
    )


def write(name, table, **options):
    pq.write_table(table, os.path.join(HERE, name), **options)


for shard in range(3):
    write(f"texts-{shard}.parquet", texts(shard, 150 + 50 * shard), row_group_size=64, compression="snappy")
write("kinds-plain.parquet", kinds(), row_group_size=16, compression="none", use_dictionary=False)
write("kinds-dictionary.parquet", kinds(), row_group_size=16, compression="zstd", write_page_checksum=True)
write(
    "kinds-delta.parquet",
    kinds(),
    row_group_size=16,
    compression="gzip",
    use_dictionary=False,
    data_page_version="2.0",
    write_page_checksum=True,
    data_page_size=64,
    column_encoding={
        "text": "DELTA_BYTE_ARRAY",
        "blob": "DELTA_LENGTH_BYTE_ARRAY",
        "i64": "DELTA_BINARY_PACKED",
        "f32": "BYTE_STREAM_SPLIT",
    },
)
write("kinds-lz4.parquet", kinds(), row_group_size=16, compression="lz4", data_page_version="2.0")
nested = pa.table({"text": ["a", "b"], "words": [["a"], ["b", "c"]], "map": pa.array([[("a", 1)], []], pa.map_(pa.string(), pa.int32()))})
write("nested.parquet", nested, compression="none")
write("brotli.parquet", pa.table({"text": ["a", "b"]}), compression="brotli")
write("empty.parquet", texts(0, 0))
gap = texts(0, 5)
with pq.ParquetWriter(os.path.join(HERE, "gap.parquet"), gap.schema, compression="none") as writer:
    for part in (gap, gap.slice(0, 0), gap):
        writer.write_table(part)
lists = pa.array([[1], [2, 3], [4, None], [5], [None]], pa.list_(pa.int32()))
write("nulls.parquet", pa.table({"tokens": lists, "text": ["a", "b", "c", "d", "e"]}), compression="none")
