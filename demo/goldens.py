"""Records the outputs of the exported demo model in ONNX Runtime GenAI on the CPU: the goldens for every other device.

    python goldens.py MODEL GOLDENS.json

A greedy answer is stored with its margin: the smallest distance between the best and the second-best logit over all its
tokens. A device whose logits are off by less than half of that must produce the same tokens.
"""
import argparse
import json
from pathlib import Path

import numpy as np
import onnxruntime_genai as og

STORY = "Tell me a story about Mia the fox and a kite."
FACTS = "Zoe is in the cave. Zoe has a blue lamp."
PROMPTS = [
    [STORY],
    ["Tell me a story about a bear named Tom."],
    ["Tell me a story about Nora and Hugo."],
    ["Tell me a story about Leo the dog and a bell."],
    ["Tell me a story about a duck named Lily."],
    [f"{FACTS} Where is Zoe?", "What does Zoe have?", "Who has the lamp?"],
    ["What is 7 plus 2?"],
    ["What is 9 minus 6?"],
    ["What comes after 4?"],
    ["Rosa has 4 plums and gets 3 more. How many plums does Rosa have now?"],
    ["Hello! My name is Ruby.", "What can you do?", "Thank you!"],
    ["What is the opposite of hot?"],
    ["What does a cow say?"],
    # Each answer becomes part of the next prompt.
    ["Tell me a story about a duck named Lily.", "Where did Lily live?", "Who took the boat?", "How was Lily in the end?"],
]
# The minimum margin of a golden. Details that a story leaves open are equally likely in the corpus, so the best logits
# are often close. Float32 devices are off by about 1e-5.
MARGIN = 0.001
SAMPLING = {"temperature": 0.9, "top_k": 40, "top_p": 0.95}
SEEDS = (1, 2, 3)


def generate(model, ids, **search):
    """The new ids, and the smallest margin among them."""
    parameters = og.GeneratorParams(model)
    parameters.set_search_options(**search)
    generator = og.Generator(model, parameters)
    generator.append_tokens(np.array(ids, np.int32))
    new, margin = [], np.inf
    while not generator.is_done():
        second, best = np.sort(np.asarray(generator.get_logits()).ravel())[-2:]
        margin = min(margin, float(best - second))
        generator.generate_next_token()
        new.append(int(generator.get_next_tokens()[0]))
    return new, margin


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("goldens", type=Path)
    chosen = parser.parse_args()
    model = og.Model(str(chosen.model))
    tokenizer = og.Tokenizer(model)
    cases = []
    for questions in PROMPTS:
        messages = []
        for question in questions:
            messages.append({"role": "user", "content": question})
            prompt = tokenizer.apply_chat_template(json.dumps(messages), add_generation_prompt=True)
            ids = [int(token) for token in tokenizer.encode(prompt)]
            new, margin = generate(model, ids, do_sample=False)
            text = tokenizer.decode(np.array(new, np.int32))
            if margin < MARGIN:
                print(f"left out, with a margin of {margin:.4f}: {question} {text}")
                break
            case = {"messages": list(messages), "prompt_ids": ids, "search": {"do_sample": False}, "new_ids": new,
                    "text": text, "margin": round(margin, 4)}
            if case not in cases:
                cases.append(case)
            messages.append({"role": "assistant", "content": text})
    first = cases[0]
    for seed in SEEDS:
        search = {"do_sample": True, "random_seed": seed, **SAMPLING}
        new, _ = generate(model, first["prompt_ids"], **search)
        text = tokenizer.decode(np.array(new, np.int32))
        cases.append({"messages": first["messages"], "prompt_ids": first["prompt_ids"], "search": search, "new_ids": new,
                      "text": text})
    lines = ",\n".join("  " + json.dumps(case) for case in cases)
    chosen.goldens.write_text(f"[\n{lines}\n]\n")
    for case in cases:
        print(f"{case['messages'][-1]['content']}\n  {case['text']}  [{case.get('margin', 'sampled')}]")


if __name__ == "__main__":
    main()
