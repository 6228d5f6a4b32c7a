"""Every hostile folder, made from the demo model.

    python tests/hostile/folders.py DIRECTORY [NAME...]    makes them there, each in its own sandbox
"""
import os
import sys
import tempfile
from pathlib import Path

import cases_config
import cases_model
import cases_options
import cases_text
from place import Place, compile_evil

SOURCES = (cases_options, cases_config, cases_text, cases_model)
CASES = [case for source in SOURCES for case in source.cases()]


def main(directory, *names):
    library = os.environ.get("AMDGPU_EP_LIBRARY", "libamdgpu-ep.so")
    with tempfile.TemporaryDirectory() as built:
        evil = compile_evil(built)
        for case in CASES:
            if not names or case.name in names:
                case.change(Place(Path(directory) / case.name, evil, library))
                print(Path(directory) / case.name / "model")


if __name__ == "__main__":
    main(*sys.argv[1:])
