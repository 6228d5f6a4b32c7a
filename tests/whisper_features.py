"""Computes Whisper's features with the transformers library, for the Rust test `speech_features`.

    python tests/whisper_features.py BANDS... < SIGNALS > FEATURES

Stdin has signals at 16 kHz: the number of samples as a 32-bit integer, then 32-bit floats. Stdout gets the features of each
signal with each number of bands, as 32-bit floats.
"""
import os
import sys

import numpy as np

os.environ["TRANSFORMERS_VERBOSITY"] = "error"  # it warns that there is no PyTorch, which features do not need

from transformers import WhisperFeatureExtractor

extractors = [WhisperFeatureExtractor(feature_size=int(bands)) for bands in sys.argv[1:]]
data = sys.stdin.buffer.read()
while data:
    end = 4 + 4 * int.from_bytes(data[:4], "little")
    samples, data = np.frombuffer(data[4:end], "<f4"), data[end:]
    for extractor in extractors:
        found = extractor(samples, sampling_rate=16000, return_tensors="np").input_features
        sys.stdout.buffer.write(found.astype("<f4").tobytes())
