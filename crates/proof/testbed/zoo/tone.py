"""Writes a few seconds of sound, the same each time: tone.py FILE."""

import sys
import wave

with wave.open(sys.argv[1], "wb") as out:
    out.setparams((1, 2, 22050, 0, "NONE", ""))
    out.writeframes(bytes(at * at // 300 % 256 for at in range(200_000)))
