"""Writes sound files into a folder, each with the samples that libsndfile reads from it: `audio.py FOLDER SEED COUNT`.

Next to each file is `NAME.npy`, float32[channels, frames]. If the name of that file also has a rate, the sound was
resampled to that rate by the formula that torchaudio documents for `resample`. `tests/data/audio` was written with
seed 1 and count 1. Prints the names of the files.
"""

import json
import math
import sys
from pathlib import Path

import numpy as np
import soundfile

OUT, SEED, COUNT = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
OUT.mkdir(parents=True, exist_ok=True)
RNG = np.random.default_rng(SEED)
KINDS = {
    "wav": ["PCM_U8", "PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE", "ULAW", "ALAW"],
    "flac": ["PCM_S8", "PCM_16", "PCM_24"],
    "ogg": ["VORBIS"],
    "mp3": ["MPEG_LAYER_III"],
}
RATES = [8000, 16000, 22050, 44100, 48000]
names = []


def sound(rate, frames, channels):
    """Tones and a little noise, from -1 to 1."""
    at = np.arange(frames)[:, None] / rate
    tones = sum(np.sin(2 * np.pi * RNG.uniform(100, rate / 5, channels) * at + RNG.uniform(0, 6)) for _ in range(3))
    return (tones / 4 + RNG.normal(0, 0.02, (frames, channels))).clip(-0.99, 0.99)


def resampled(samples, before, after):
    common = math.gcd(before, after)
    before, after = before // common, after // common
    base = min(before, after) * 0.99
    width = math.ceil(6 * before / base)
    t = np.arange(0, -after, -1)[:, None] / after + np.arange(-width, width + before)[None] / before
    t = (t * base).clip(-6, 6)
    kernel = np.sinc(t) * np.cos(t * np.pi / 6 / 2) ** 2 * base / before
    padded = np.pad(samples.astype(np.float64), ((0, 0), (width, width + before)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, kernel.shape[1], axis=1)[:, ::before]
    out = (windows @ kernel.T).reshape(len(samples), -1)
    return out[:, : math.ceil(after * samples.shape[1] / before)].astype(np.float32)


for number in range(COUNT):
    for extension, subtypes in KINDS.items():
        for subtype in subtypes:
            rate, channels = int(RNG.choice(RATES)), int(RNG.integers(1, 3))
            frames = int(RNG.integers(100, 300)) * (1 if extension in ["wav", "flac"] else 20)
            name = f"{number}-{subtype.lower()}.{extension}"
            soundfile.write(OUT / name, sound(rate, frames, channels), rate, subtype=subtype)
            samples, found = soundfile.read(OUT / name, dtype="float32", always_2d=True)
            assert found == rate
            np.save(OUT / f"{name}.npy", samples.T)
            names.append(name)
            if subtype in ["FLOAT", "PCM_24"]:
                to = int(RNG.choice([other for other in RATES if other != rate]))
                np.save(OUT / f"{name}.{to}.npy", resampled(samples.T, rate, to))
print(json.dumps(names))
