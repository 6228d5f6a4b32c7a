"""Records goldens.json. The reference gives the tokens; only sampled ones come from ONNX Runtime GenAI on the CPU."""
import json

import numpy as np

from . import GOLDENS_FILE, folder_of
from .reference import Reference, greedy
from .settings import MODELS

PROMPTS = ["Hello world, this is", "The kernel of a small model", "once upon a time there was a graph"]
NEW = 24
# The least distance between the best and the second-best score. Devices whose scores are off by less than half of it
# generate the same tokens.
MARGINS = {"fp32": 0.02, "fp16": 0.06}
# How far the scores of devices may be from each other for sampled tokens to be the same.
NOISE = {"fp32": 0.001, "fp16": 0.03}
# These models also have penalties, samples, continuations and rewinding.
IN_DETAIL = ("nano-fp32", "nano-fp16", "nano-int4")


class Recorder:
    def __init__(self, name):
        import onnxruntime_genai as og

        self.name, self.settings, self.og = name, MODELS[name], og
        self.reference, self.model = Reference(self.settings), og.Model(str(folder_of(name)))
        self.tokenizer = og.Tokenizer(self.model)
        self.prompts = [[int(token) for token in self.tokenizer.encode(text)] for text in PROMPTS]

    def greedy(self, prompt, count=NEW, **rules):
        """The tokens and their margin, which must be wide."""
        tokens, margin = greedy(self.reference, prompt, count, **rules)
        if margin < MARGINS[self.settings.activations]:
            raise SystemExit(f"{self.name}: scores only {margin:.4f} apart\n  help: choose another seed in settings.py")
        return tokens, round(margin, 4)

    def singles(self):
        for prompt in self.prompts:
            tokens, margin = self.greedy(prompt)
            scores = self.reference.scores(prompt, {})
            best = [[int(token), round(float(scores[token]), 4)] for token in np.argsort(-scores)[:8]]
            yield {
                "kind": "greedy", "prompt_ids": [prompt], "max_length": len(prompt) + NEW, "new_ids": [tokens],
                "margin": margin, "top_scores": best,
            }

    def batch(self, singles):
        """All prompts as one batch. A row that has ended continues with padding until all have."""
        rows = [case["new_ids"][0] for case in singles]
        longest = max(map(len, rows))
        padded = [row + [self.settings.pad] * (longest - len(row)) for row in rows]
        length = max(map(len, self.prompts)) + NEW
        return {
            "kind": "greedy_batch_right_padded", "prompt_ids": self.prompts, "max_length": length, "new_ids": padded,
        }

    def details(self):
        prompt, more = self.prompts[0], self.prompts[1][:5]
        first, _ = self.greedy(prompt, 8)
        for kind, kept in (("continue", len(first)), ("rewind_append", 3)):
            sequence = prompt + first[:kept] + more
            second, _ = self.greedy(sequence, 8)
            yield {
                "kind": kind, "prompt_ids": prompt, "first_new": first, "rewind_to": len(prompt) + kept,
                "append_ids": more, "second_new": second, "sequence": sequence + second,
            }
        length = len(prompt) + NEW
        for rules in ({"repetition_penalty": 1.3}, {"no_repeat_ngram_size": 2}, {"min_length": len(prompt) + 20}):
            tokens, _ = self.greedy(prompt, **rules)
            yield self.with_options("greedy_penalty", rules, length, tokens)
        for top in (dict(top_k=8, temperature=0.8), dict(top_k=20, top_p=0.9, temperature=1.2), dict(top_k=0, top_p=0.7)):
            options, tokens = self.steady(prompt, length, top)
            yield self.with_options("sample", options, length, tokens)

    def with_options(self, kind, options, length, tokens):
        return {
            "kind": kind, "options": options, "prompt_ids": self.prompts[:1], "max_length": length, "new_ids": [tokens],
        }

    def steady(self, prompt, length, options):
        """The first seed whose tokens do not change if scores are off by as much as on another device."""
        for seed in range(42, 1000):
            seeded = {"random_seed": seed, **options}
            tokens = self.sampled(prompt, length, seeded, 0)
            if all(self.sampled(prompt, length, seeded, noise) == tokens for noise in range(1, 9)):
                return seeded, tokens
        raise SystemExit(f"{self.name}: every sample depends on the last bits of the scores")

    def sampled(self, prompt, length, options, noise):
        """Tokens that GenAI draws from the model's scores, with noise of this seed unless it is 0."""
        parameters = self.og.GeneratorParams(self.model)
        parameters.set_search_options(max_length=length, do_sample=True, **options)
        generator = self.og.Generator(self.model, parameters)
        generator.append_tokens(np.array(prompt, np.int32))
        random, tokens = np.random.RandomState(noise), []
        while not generator.is_done():
            if noise:
                scores, size = generator.get_logits(), NOISE[self.settings.activations]
                generator.set_logits((scores + random.uniform(-size, size, scores.shape)).astype(np.float32))
            generator.generate_next_token()
            tokens.append(int(generator.get_next_tokens()[0]))
        return tokens

    def golden(self):
        singles = list(self.singles())
        ended = [case["new_ids"][0][-1] in self.settings.ends for case in singles]
        assert any(ended) == ("eos" in self.name) and not all(ended), f"{self.name}: {ended}"
        details = self.details() if self.name in IN_DETAIL else ()
        return {
            "name": self.name, "pad_token_id": self.settings.pad, "eos_token_id": self.settings.ends,
            "prompts": [{"text": text, "ids": ids} for text, ids in zip(PROMPTS, self.prompts)],
            "cases": [*singles, self.batch(singles), *details],
        }


def record():
    """Writes the file, a case per line."""
    blocks = []
    for name in MODELS:
        golden = Recorder(name).golden()
        cases = ",\n".join(f"   {json.dumps(case)}" for case in golden.pop("cases"))
        blocks.append(f'  {json.dumps(golden)[:-1]}, "cases": [\n{cases}\n  ]}}')
    GOLDENS_FILE.write_text('{"models": [\n' + ",\n".join(blocks) + "\n]}\n")
