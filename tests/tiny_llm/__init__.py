"""Small language models with random weights, in the forms that exporters write, and the tokens that they must generate.

A model is a folder that ONNX Runtime GenAI loads. `settings` lists the models, `graph` and `texts` write their files,
`reference` computes their scores in 64-bit floats, and goldens.json has the expected tokens.
"""
import hashlib
import json
import os
import shutil
from pathlib import Path

HERE = Path(__file__).resolve().parent
GOLDENS_FILE = HERE / "goldens.json"


def place():
    """Where models are stored. The name depends on the code that writes them, so a change of it leads to new models."""
    digest = hashlib.sha256()
    for name in ("settings", "weights", "graph", "texts"):
        digest.update((HERE / f"{name}.py").read_bytes())
    return HERE.parents[1] / "target" / "test-models" / digest.hexdigest()[:12]


def folder_of(name):
    """Returns the folder of a model, which is written once."""
    folder = place() / name
    if not folder.exists():
        from .settings import MODELS

        draft = folder.with_name(f".{name}.{os.getpid()}")
        write(draft, MODELS[name])
        try:
            draft.rename(folder)
        except OSError:
            shutil.rmtree(draft)  # another process was faster
    return folder


def write(folder, settings):
    """Writes the files of a model."""
    # Imported here, because asking for an existing folder must be quick.
    from . import graph, texts

    folder.mkdir(parents=True)
    graph.write(folder, settings)
    texts.write(folder, settings)


def goldens():
    """The recorded tokens by model."""
    return {model["name"]: model for model in json.loads(GOLDENS_FILE.read_text())["models"]}
