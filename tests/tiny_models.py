"""Makes the small language models of the tests, which have random weights.

    python tests/tiny_models.py NAME...                                makes models of tests, and prints their folders
    python tests/tiny_models.py --to DIR [--size 1b] [--precision …]   writes another model to a new folder, for benchmarks
    python tests/tiny_models.py --record                               records the tokens that the tests expect
"""
import argparse
from dataclasses import replace
from pathlib import Path

import tiny_llm
from tiny_llm.settings import MODELS, SIZES


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--to", type=Path, metavar="DIR")
    parser.add_argument("--size", choices=SIZES, default="nano")
    parser.add_argument("--precision", choices=["fp32", "fp16", "int4"], default="fp32", help="of the weights")
    parser.add_argument("--activations", choices=["fp32", "fp16"], default="fp32", help="also of the caches")
    parser.add_argument("--context", type=int, help="the longest sequence")
    given = parser.parse_args()
    if unknown := [name for name in given.names if name not in MODELS]:
        parser.error(f"unknown model {unknown[0]}: expected one of {', '.join(MODELS)}")
    if given.precision != "int4" and given.activations != given.precision:
        parser.error("only 4-bit weights have activations of another precision")
    for name in given.names:
        print(tiny_llm.folder_of(name))
    if given.to:
        size = SIZES[given.size]
        formats = {"precision": given.precision, "activations": given.activations}
        tiny_llm.write(given.to, replace(size, context=given.context or size.context, **formats))
    if given.record:
        from tiny_llm.record import record

        record()


if __name__ == "__main__":
    main()
