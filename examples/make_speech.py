"""Speak ten words in 64 voices of espeak-ng: a folder of recordings for examples/speech.py.

    apt-get install espeak-ng
    python examples/make_speech.py speech

The folder has the layout of Google's Speech Commands: WORD/VOICE_nohash_TAKE.wav, one second each,
16 kHz, mono, and two lists of the recordings for validation and for testing. Speed, pitch, accent,
place and noise differ from take to take. No voice is in two parts. Of espeak-ng's variants we left
out robots, whispers and near copies of others.
"""

import shutil
import subprocess
import sys
from itertools import product
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.io import wavfile
from scipy.signal import resample_poly

WORDS = "yes no up down left right on off stop go"
VOICES = {
    "training": "Alex Alicia Andy AnxiousAndy Gene Jacky Lee Marco Mario Michael Mike Nguyen Storm "
    "Tweaky adam anika aunty benjamin boris david edward f1 f2 f4 grandpa gustave iven kaukovalta "
    "klatt4 m1 m2 m4 m7 m8 max miguel norbert pedro rob",
    "validation": "Andrea Hugo RicishayMax2 antonio f3 m3 paul sandro steph travis",
    "testing": "Annie Denis belinda ed f5 grandma john linda m5 marcelo pablo quincy shelby victor "
    "zac",
}
ACCENTS = "en-us en-us-nyc en-gb en-gb-scotland en-gb-x-rp en-gb-x-gbclan en-gb-x-gbcwmd en-029"
RATE = 16_000
Sound = NDArray[np.float64]


def speak(word: str, voice: str, rng: np.random.Generator) -> Sound:
    """Return a word without the silence around it, in a random accent, speed and pitch."""
    speed, pitch = rng.integers(120, 220), rng.integers(20, 80)
    accent = rng.choice(ACCENTS.split())
    command = ["espeak-ng", "-v", f"{accent}+{voice}", "-s", speed, "-p", pitch, "--stdout", word]
    done = subprocess.run(list(map(str, command)), capture_output=True, check=True)
    sound = np.frombuffer(done.stdout[44:], "<i2") / 2**15  # at 22,050 Hz, behind a header
    loud = np.flatnonzero(np.abs(sound) > 0.02 * np.abs(sound).max())
    return np.asarray(resample_poly(sound[loud[0] : loud[-1] + 1], 320, 441))


def record(sound: Sound, rng: np.random.Generator) -> NDArray[np.int16]:
    """Place a word within a second of noise, white to pink, 5 to 25 dB below the word."""
    sound = sound[:RATE]
    spectrum = np.fft.rfft(rng.normal(size=RATE))
    noise = np.fft.irfft(spectrum / np.arange(1, RATE // 2 + 2) ** rng.uniform(0, 0.5))
    loudness = 10 ** (-rng.uniform(5, 25) / 20) * sound.std() / noise.std()
    second, start = loudness * noise, rng.integers(0, RATE - len(sound) + 1)
    second[start : start + len(sound)] += sound
    return (second / np.abs(second).max() * rng.uniform(0.2, 0.9) * 32767).astype(np.int16)


def main(folder: Path, takes: int = 4, seed: int = 0) -> None:
    """Write all recordings: ``takes`` of each word in each voice."""
    if shutil.which("espeak-ng") is None:
        sys.exit("this needs espeak-ng: on Debian, run apt-get install espeak-ng.")
    rng = np.random.default_rng(seed)
    for word in WORDS.split():
        (folder / word).mkdir(parents=True, exist_ok=True)
        print(f"{word}: {takes} takes in each voice", flush=True)
        for voice in " ".join(VOICES.values()).split():
            for take in range(takes):
                sound = record(speak(word, voice, rng), rng)
                wavfile.write(folder / word / f"{voice}_nohash_{take}.wav", RATE, sound)
    for part in ("validation", "testing"):
        pairs = product(WORDS.split(), VOICES[part].split(), range(takes))
        lines = [f"{word}/{voice}_nohash_{take}.wav\n" for word, voice, take in pairs]
        (folder / f"{part}_list.txt").write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "speech"))
