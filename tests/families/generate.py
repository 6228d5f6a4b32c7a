"""Tokens and scores of one folder through GenAI: `python -m families.generate FOLDER PROVIDER RESULT [SHARED]`.

A process of its own, because a fault in a provider may end it. What is known so far is written after each prompt.
"""
import json
import sys
from pathlib import Path

import numpy as np
import onnxruntime_genai as og
from tokenizers import Tokenizer

from families.prompts import PROMPTS, STEPS

# Room behind the tokens that are compared, so that masks and caches are wider than what they hold.
ROOM = 40


def run(model, rows):
    longest = max(map(len, rows))
    parameters = og.GeneratorParams(model)
    parameters.set_search_options(batch_size=len(rows), max_length=longest + STEPS + ROOM, do_sample=False)
    generator = og.Generator(model, parameters)
    padded = [row + [0] * (longest - len(row)) for row in rows]
    generator.append_tokens(np.array(padded if len(rows) > 1 else padded[0], np.int32))
    tokens, scores = [[] for _ in rows], []
    while not generator.is_done() and len(tokens[0]) < STEPS:
        generator.generate_next_token()
        for row, token in zip(tokens, generator.get_next_tokens(), strict=True):
            row.append(int(token))
        if len(rows) == 1:
            # NumPy lacks bfloat16; then only tokens are compared.
            try:
                last = np.asarray(generator.get_output("logits"))
            except Exception:
                continue
            scores.append(last.astype(np.float32).reshape(-1, last.shape[-1])[-1].tolist())
    return {"tokens": tokens, "scores": scores if len(scores) == len(tokens[0]) else []}


def main(folder, provider, result, shared=""):
    tokenizer = Tokenizer.from_file(str(Path(folder) / "tokenizer.json"))
    prompts = {name: [tokenizer.encode(text).ids] for name, text in PROMPTS.items()}
    prompts["batch"] = [rows[0] for rows in prompts.values()]
    config = og.Config(folder)
    config.clear_providers()
    if provider == "amdgpu":
        config.append_provider("amdgpu")
    if shared:
        config.overlay(json.dumps({"search": {"past_present_share_buffer": True}}))
    model = og.Model(config)
    cases = {}
    for name, rows in prompts.items():
        try:
            cases[name] = run(model, rows)
        except Exception as error:
            cases[name] = {"error": str(error).strip().splitlines()[0]}
        Path(result).write_text(json.dumps({"cases": cases}))


if __name__ == "__main__":
    main(*sys.argv[1:])
