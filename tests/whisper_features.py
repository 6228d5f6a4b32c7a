"""Computes Whisper's features of samples at 16 kHz with the transformers library: 32-bit floats from stdin to stdout.

    python tests/whisper_features.py BANDS < SAMPLES > FEATURES
"""
import os
import sys

import numpy as np

os.environ["TRANSFORMERS_VERBOSITY"] = "error"  # it warns that there is no PyTorch, which features do not need

from transformers import WhisperFeatureExtractor

samples = np.frombuffer(sys.stdin.buffer.read(), "<f4")
extractor = WhisperFeatureExtractor(feature_size=int(sys.argv[1]))
found = extractor(samples, sampling_rate=16000, return_tensors="np").input_features[0]
sys.stdout.buffer.write(found.astype("<f4").tobytes())
