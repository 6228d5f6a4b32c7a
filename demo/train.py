"""Trains the demo model on the corpus and keeps the weights that perform best, as int4, on the held-back part.

    python train.py OUT [--steps N] [--device cuda]

OUT gets tokenizer.json, tokenizer_config.json, weights.pt (the best so far, rewritten after each improvement) and
training.json (settings and results). The seed determines the corpus, the initial weights and the order. Float sums may
still differ between machines, so the weights are not identical everywhere.
"""
import argparse
import json
import math
import time
from itertools import islice
from pathlib import Path

import torch
import torch.nn.functional as F
from tokenizers import Tokenizer

import corpus
import tokenizer as tokens
from model import Llama, Shape

EVALUATION_SEED = 1
POOL = 64
WARM_UP = 30
IGNORED = -100


class Muon(torch.optim.Optimizer):
    """Momentum with orthogonalised steps: each step becomes the nearest matrix with equal singular values
    (Newton-Schulz)."""

    def __init__(self, matrices, lr, momentum=0.95):
        super().__init__(matrices, {"lr": lr, "momentum": momentum})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for matrix in group["params"]:
                state = self.state[matrix]
                if not state:
                    state["momentum"] = torch.zeros_like(matrix)
                state["momentum"].lerp_(matrix.grad, 1 - group["momentum"])
                step = orthogonal(matrix.grad.lerp(state["momentum"], group["momentum"]))
                matrix.add_(step, alpha=-group["lr"] * max(1, matrix.shape[0] / matrix.shape[1]) ** 0.5)


def orthogonal(matrix, rounds=5):
    x = matrix.T if matrix.shape[0] > matrix.shape[1] else matrix
    x = x / (x.norm() + 1e-7)
    for _ in range(rounds):
        square = x @ x.T
        x = 3.4445 * x + (-4.7750 * square + 2.0315 * square @ square) @ x
    return x.T if matrix.shape[0] > matrix.shape[1] else x


def encoded(document, tokenizer):
    """The ids of a conversation, and the same with IGNORED for everything but the assistant's text."""
    ids, wanted = [], []
    for role, text in document.turns:
        head, said = (tokenizer.encode(part).ids for part in (f"{tokens.TURN}{role}\n", f"{text}{tokens.TURN_END}"))
        tail = tokenizer.encode("\n").ids
        ids += head + said + tail
        wanted += [IGNORED] * len(head) + (said if role == "assistant" else [IGNORED] * len(said)) + [IGNORED] * len(tail)
    return ids, wanted


def rows(documents, tokenizer, length):
    """Whole documents concatenated in rows of `length` ids, with the target of each id; the rest is padding.

    Each row takes the longest documents that still fit from a pool, so there is little padding.
    """
    pad, pool, source = tokenizer.token_to_id(tokens.PAD), [], iter(documents)
    while True:
        pool += [encoded(document, tokenizer) for document in islice(source, POOL - len(pool))]
        if not pool:
            return
        ids, wanted = pool.pop(0)
        while fitting := [item for item in pool if len(ids) + len(item[0]) <= length]:
            longest = max(fitting, key=lambda item: len(item[0]))
            pool.remove(longest)
            ids, wanted = ids + longest[0], wanted + longest[1]
        rest = length - len(ids)
        yield ids + [pad] * rest, wanted[1:] + [IGNORED] * (rest + 1)


def tensors(some_rows, device):
    ids, wanted = zip(*some_rows)
    return torch.tensor(ids, device=device), torch.tensor(wanted, device=device)


def loss_of(net, ids, wanted, reduction="mean"):
    logits = net(ids).float().flatten(0, 1)
    return F.cross_entropy(logits, wanted.flatten(), ignore_index=IGNORED, reduction=reduction)


@torch.no_grad()
def perplexity(net, tokenizer, documents, length, device):
    """The perplexity of the assistant's text in the documents."""
    total, count = 0.0, 0
    for row in rows(documents, tokenizer, length):
        ids, wanted = tensors([row], device)
        total += loss_of(net, ids, wanted, "sum").item()
        count += (wanted != IGNORED).sum().item()
    return math.exp(total / count)


@torch.no_grad()
def right_answers(net, tokenizer, documents, device):
    """The share of questions, by kind, that greedy decoding answers word for word.

    Greedy decoding produces the expected answer exactly if each of its tokens is the most likely one after those before
    it, so one forward pass over question and answer is enough.
    """
    asked, right = {}, {}
    for document in documents:
        for index, kind in document.answers:
            role, answer = document.turns[index]
            before = tokenizer.encode(tokens.chat(document.turns[:index]) + f"{tokens.TURN}{role}\n").ids
            ids = before + tokenizer.encode(answer + tokens.TURN_END).ids
            likeliest = net(torch.tensor([ids[:-1]], device=device)).argmax(-1)[0, len(before) - 1:]
            asked[kind] = asked.get(kind, 0) + 1
            right[kind] = right.get(kind, 0) + (likeliest.tolist() == ids[len(before):])
    return {kind: right[kind] / asked[kind] for kind in sorted(asked)}


def evaluate(net, tokenizer, count, device, length, held=True):
    """Perplexity and right answers on documents of the held-back part, or on new ones like those of the training
    part."""
    documents = list(islice(corpus.documents(EVALUATION_SEED, held=held), count))
    right = right_answers(net, tokenizer, documents, device)
    return {"perplexity": round(perplexity(net, tokenizer, documents, length, device), 4),
            "right": {kind: round(share, 4) for kind, share in right.items()}}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--resume", type=Path, help="continue from the folder of an earlier run; use another --seed")
    parser.add_argument("--steps", type=int, default=5000)
    parser.add_argument("--minutes", type=float, default=math.inf, help="time limit; the schedule is shortened to fit")
    parser.add_argument("--int4-from", type=float, default=0.6, help="share of the run after which weights are rounded")
    parser.add_argument("--batch", type=int, default=6)
    parser.add_argument("--lr", type=float, default=0.015, help="for the matrices; embedding and norms use a quarter")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--compile", action="store_true", help="through torch.compile")
    chosen = parser.parse_args()
    torch.manual_seed(chosen.seed)
    torch.set_num_threads(chosen.threads)

    if chosen.resume:
        tokenizer = Tokenizer.from_file(str(chosen.resume / "tokenizer.json"))
        saved = torch.load(chosen.resume / "weights.pt", map_location=chosen.device)
        shape = Shape(**saved["shape"])
    else:
        tokenizer = tokens.train(chosen.seed)
        shape = Shape(vocabulary=-(-tokenizer.get_vocab_size() // 32) * 32)
    tokens.save(tokenizer, chosen.out)
    net = Llama(shape).to(chosen.device)
    if chosen.resume:
        net.load_state_dict(saved["weights"])
    run = torch.compile(net) if chosen.compile else net
    matrices = [weight for weight in net.layers.parameters() if weight.ndim == 2]
    others = [net.embedding.weight] + [weight for weight in net.parameters() if weight.ndim == 1]
    optimizers = [Muon(matrices, chosen.lr),
                  torch.optim.AdamW(others, lr=chosen.lr / 4, betas=(0.9, 0.95), weight_decay=0.0)]
    first = [group["lr"] for optimizer in optimizers for group in optimizer.param_groups]
    supply = rows(corpus.documents(chosen.seed, held=False), tokenizer, shape.context)
    began, seen, best, mean, step, progress, int4 = time.time(), 0, math.inf, None, 0, 0.0, False
    while progress < 1:
        if not int4 and progress >= chosen.int4_from:
            net.set_int4(True)
            int4 = True
        # Full rate for the first half, then linear decay to nearly zero.
        share = min(1.0, (step + 1) / WARM_UP, 2 * (1 - progress) + 0.01)
        for group, rate in zip((group for optimizer in optimizers for group in optimizer.param_groups), first):
            group["lr"] = rate * share
        ids, wanted = tensors(list(islice(supply, chosen.batch)), chosen.device)
        with torch.autocast(chosen.device, dtype=torch.bfloat16):
            loss = loss_of(run, ids, wanted)
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        step += 1
        seen += ids.numel()
        progress = max(step / chosen.steps, (time.time() - began) / (60 * chosen.minutes))
        mean = loss.item() if mean is None else 0.95 * mean + 0.05 * loss.item()
        if step % 25 == 0:
            print(f"step {step} loss {mean:.4f} seconds {time.time() - began:.0f} tokens {seen}", flush=True)
        if step % 400 == 0 or progress >= 1:
            net.set_int4(True)
            found = evaluate(net, tokenizer, 40, chosen.device, shape.context)
            net.set_int4(int4)
            print(f"step {step} as int4 {found}", flush=True)
            if found["perplexity"] < best:
                best = found["perplexity"]
                torch.save({"shape": shape.as_dict(), "weights": net.state_dict()}, chosen.out / "weights.pt")

    spent = time.time() - began
    net.load_state_dict(torch.load(chosen.out / "weights.pt")["weights"])
    report = {"parameters": sum(weight.numel() for weight in net.parameters()), "steps": step, "tokens": seen,
              "seconds": round(spent), "device": chosen.device, "torch": torch.__version__}
    for name, on in (("float", False), ("int4", True)):
        net.set_int4(on)
        report[name] = evaluate(net, tokenizer, 200, chosen.device, shape.context)
    (chosen.out / "training.json").write_text(json.dumps(report, indent=2) + "\n")
    print(json.dumps(report))


if __name__ == "__main__":
    main()
