#!/usr/bin/env python3
"""Draws pictures of the pages: `python3 docs/pictures.py` writes batch.svg, resume.svg and cache.svg beside it."""

from pathlib import Path
from xml.sax.saxutils import escape

WIDTH = 780
STYLE = """
  text { font-family: sans-serif; font-size: 14px; fill: #24292f; }
  .h { font-weight: bold; }
  .in, .m { text-anchor: middle; }
  .in { fill: #14181d; font-size: 13px; }
  .m, .n { font-size: 12px; fill: #57606a; }
  .back { fill: #ffffff; stroke: #d0d7de; }
  .s0 { fill: #8ecae6; } .s1 { fill: #ffd166; } .s2 { fill: #95d5b2; } .s3 { fill: #f4a6b7; }
  .box { fill: #e6ebf1; stroke: #8c959f; }
  .gap { fill: none; stroke: #8c959f; stroke-dasharray: 4 3; }
  .seen { fill: #c9d1d9; }
  .line, .read { stroke: #57606a; fill: none; }
  .read { stroke-width: 4; }
  .tip { fill: #57606a; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3; }
    .in { fill: #14181d; }
    .m, .n { fill: #9da7b1; }
    .back { fill: #0d1117; stroke: #30363d; }
    .box { fill: #c3ccd6; stroke: #9da7b1; }
    .seen { fill: #57606a; }
    .line, .read { stroke: #9da7b1; }
    .tip { fill: #9da7b1; }
  }
"""


class Picture:
    """Shapes, one a line, with a title for those who cannot see them."""

    def __init__(self, title, height):
        self.title, self.height, self.shapes = title, height, []
        size = f'width="{WIDTH - 1}" height="{height - 1}"'
        self.shapes.append(f'<rect x="0.5" y="0.5" {size} rx="8" class="back"/>')

    def text(self, x, y, words, style=""):
        style = f' class="{style}"' if style else ""
        self.shapes.append(f'<text x="{x}" y="{y}"{style}>{escape(words)}</text>')

    def box(self, x, y, width, height, style, words=""):
        self.shapes.append(f'<rect x="{x}" y="{y}" width="{width}" height="{height}" class="{style}" rx="4"/>')
        if words:
            self.text(x + width / 2, y + height / 2 + 5, words, "in")

    def line(self, x1, y1, x2, y2, style="line"):
        self.shapes.append(f'<path d="M{x1} {y1} L{x2} {y2}" class="{style}"/>')

    def arrow(self, x1, y1, x2, y2):
        """A line with a tip: to the right, to the left or downwards."""
        back = x2 - 7 if x2 > x1 else x2 + 7
        tip = f"{back} {y2 - 4} {back} {y2 + 4}" if y1 == y2 else f"{x2 - 4} {y2 - 7} {x2 + 4} {y2 - 7}"
        self.line(x1, y1, x2, y2)
        self.shapes.append(f'<polygon points="{x2} {y2} {tip}" class="tip"/>')

    def write(self, name):
        title = escape(self.title, {'"': "&quot;"})
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {self.height}" width="{WIDTH}" '
            f'height="{self.height}" role="img" aria-label="{title}">'
        )
        lines = [head, f"<title>{title}</title>", f"<style>{STYLE}</style>", *self.shapes, "</svg>"]
        (Path(__file__).parent / name).write_text("\n".join(lines) + "\n")


def batch():
    """From shards to the device, and which threads do what."""
    p = Picture("The life of a batch: shards, ranges, samples, stages, batch, device, and the threads of each", 522)
    p.text(24, 32, "The life of a batch: two of four streams, and the threads that do the work", "h")

    p.text(24, 74, "a bucket, or files")
    for stream, x in [(0, 190), (1, 470)]:
        p.box(x, 54, 120, 30, f"s{stream}", f"shard {[7, 4][stream]}")
        p.box(x + 130, 54, 120, 30, f"s{stream}", f"shard {[2, 9][stream]}")
        p.text(x, 102, f"stream {stream}: its shards of this epoch, in order", "n")

    p.text(24, 150, "network threads", "")
    p.text(24, 167, "one budget for", "n")
    p.text(24, 182, "the process", "n")
    for stream, x in [(0, 190), (1, 470)]:
        for part in range(5):
            style = f"s{stream}" if part < 3 else "gap"
            p.box(x + part * 50, 136, 44, 28, style)
        p.text(x, 184, "ranges: received, and requested ahead", "n")
        p.arrow(x + 125, 194, x + 125, 220)

    p.text(24, 240, "worker threads")
    p.text(24, 257, "any worker takes", "n")
    p.text(24, 272, "any stream; one at", "n")
    p.text(24, 287, "a time reads it", "n")
    for stream, x in [(0, 190), (1, 470)]:
        p.box(x, 224, 120, 30, "box", "parse, check")
        p.arrow(x + 120, 239, x + 130, 239)
        p.box(x + 130, 224, 120, 30, "box", "group: samples")
        p.arrow(x + 190, 254, x + 190, 268)
        p.box(x + 130, 268, 120, 30, "box", "shuffle buffer")
        p.arrow(x + 130, 283, x + 120, 283)
        p.box(x, 268, 120, 30, "box", "stages: decode …")
        p.arrow(x + 60, 298, x + 60, 338)
    p.text(260, 324, "pixels go straight into the slots", "n")

    p.text(24, 362, "collecting thread")
    p.text(24, 379, "in the order of", "n")
    p.text(24, 394, "the sequence", "n")
    for slot in range(8):
        p.box(190 + slot * 48, 344, 44, 30, f"s{slot % 4}", str(slot))
    p.text(262, 394, "a batch of 8: slot g belongs to stream g mod 4; the batch has the state after it", "n")
    p.arrow(250, 378, 250, 410)

    p.text(24, 432, "feed's thread")
    p.text(24, 449, "2 batches ahead", "n")
    p.box(190, 414, 150, 30, "box", "batch 12: in transfer")
    p.arrow(340, 429, 380, 429)
    p.box(380, 414, 150, 30, "box", "batch 11: on device")
    p.arrow(455, 448, 455, 472)

    p.text(24, 494, "your thread")
    p.box(380, 476, 150, 30, "box", "step with batch 10")
    p.text(546, 495, "saves the state of batch 10", "n")
    p.write("batch.svg")


def resume():
    """What a restore reads of one stream."""
    p = Picture("What a restore reads of one stream, with an index and without one", 372)
    p.text(24, 32, "One stream at the moment of the stop: 30 samples of three shards, shuffle buffer of 6", "h")
    left, step = 150, 20
    buffered = {7, 12, 15, 16, 18, 19}
    shards = [(0, 10), (10, 20), (20, 30)]
    for number, (begin, end) in enumerate(shards):
        p.text(left + (begin + end) * step / 2, 62, f"shard {'ABC'[number]}", "m")
        p.line(left + begin * step, 68, left + end * step - 4, 68)
    p.text(24, 91, "samples")
    for sample in range(30):
        style = "s1" if sample in buffered else "seen" if sample < 20 else "gap"
        p.box(left + sample * step, 76, step - 4, 20, style)
    cursor = left + 20 * step - 2
    p.line(cursor, 72, cursor, 322)
    p.text(cursor + 6, 116, "the stop: sample 20 is next", "n")

    p.box(24, 130, 16, 16, "seen")
    p.text(48, 143, "consumed: the trainer has it", "n")
    p.box(24, 152, 16, 16, "s1")
    p.text(48, 165, "in the shuffle buffer: lost with the process", "n")
    p.box(24, 174, 16, 16, "gap")
    p.text(48, 187, "not read yet", "n")

    def reads(y, label, note, spans):
        p.text(24, y + 5, label)
        p.text(left, y + 28, note, "n")
        for begin, end in spans:
            p.line(left + begin * step, y, left + end * step - 4, y, "read")
        p.arrow(left + 20 * step, y, left + 30 * step - 4, y)

    by_bytes = [(7, 8), (12, 13), (15, 17), (18, 20)]
    reads(222, "with an index", "the buffered samples, by their bytes; near ones in one request", by_bytes)
    reads(276, "without one", "their shards, from the beginning to the last buffered sample", [(0, 8), (10, 20)])
    p.text(24, 340, "The seed says which samples were in the buffer: the restore repeats the random draws with", "n")
    p.text(24, 356, "numbers in place of samples. Then the stream continues at sample 20, in the original order.", "n")
    p.write("resume.svg")


def cache():
    """Which blocks of a shard come from the disk, and which from the bucket."""
    p = Picture("How a cache hits: blocks of a shard from the disk or from the bucket", 420)
    p.text(24, 32, "A reader needs the bytes of blocks 2 to 6; blocks 0 to 3 and 6 are in the cache", "h")
    left, step = 190, 46
    p.text(24, 75, "shard in the bucket")
    for block in range(10):
        p.box(left + block * step, 56, step - 6, 28, "box", str(block))
    p.text(left, 102, "blocks of 1 MiB, of one version of the object", "n")

    p.text(24, 143, "1  which version?")
    p.text(left, 143, "A request of one byte asks the bucket. An index knows it already, and no request is made.", "n")

    p.text(24, 189, "2  look up")
    for block in range(10):
        is_wanted, is_cached = 2 <= block <= 6, block in (0, 1, 2, 3, 6)
        p.box(left + block * step, 170, step - 6, 28, ("s2" if is_cached else "s1") if is_wanted else "gap")
        if is_wanted:
            p.text(left + block * step + 20, 189, "hit" if is_cached else "miss", "in")
    p.text(left, 216, "file name: a hash of endpoint, URL, version and block", "n")

    p.text(24, 262, "3  hits")
    p.box(left, 244, 150, 28, "s2", "files on the disk")
    p.arrow(left + 150, 258, left + 240, 258)
    p.text(left + 160, 250, "CRC-32C", "n")
    p.box(left + 240, 244, 120, 28, "box", "reader")
    p.text(left + 372, 262, "damaged: removed, fetched again", "n")

    p.text(24, 322, "4  misses")
    p.box(left, 304, 150, 28, "s1", "one range: 4, 5")
    p.arrow(left + 150, 318, left + 240, 318)
    p.box(left + 240, 304, 120, 28, "box", "reader")
    p.text(left + 372, 322, "at once, as the bytes arrive", "n")
    p.arrow(left + 75, 332, left + 75, 356)
    p.box(left, 356, 150, 28, "s2", "files on the disk")
    p.text(left + 164, 374, "written in the background, renamed when complete", "n")
    p.text(24, 404, "A full cache removes the blocks that were read least recently.", "n")
    p.write("cache.svg")


if __name__ == "__main__":
    batch()
    resume()
    cache()
