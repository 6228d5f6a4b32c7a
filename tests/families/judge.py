"""The rule: when tokens and scores are those of a reference.

Tokens are equal, and scores are close: at every step they differ by at most a share of the standard deviation of the
reference's scores, which depends on the types of weights and caches (`NEAR`). Where tokens part at a step whose scores
are close, the reference's scores of the two tokens must differ by less than twice the distance of the scores; what comes
after that step does not count. If the scores of the folder are not known (`textgen` does not give them), the two must
differ by less than a third of that share.

In a mixture, rounding may choose another expert at single steps. There, scores count as close if those of half of the
steps so far differ by at most half of the share, and there are at least four.
"""
from statistics import median, pstdev

NEAR = {"cache": 0.25, "int4": 0.25, "bf16": 0.2, "fp16": 0.12, "int8": 0.1, "fp32": 0.002}


def nearness(build):
    """The share of a folder's types."""
    if "kv_cache_quant_scheme" in build.options:
        return NEAR["cache"]
    if build.is_wide:
        return max(NEAR["bf16"], NEAR[build.precision])
    return NEAR[build.precision]


def verdict(wanted, tokens, scores, near, is_mixture):
    """Whether tokens and scores are those of a reference, and a word why or why not."""
    distances = []
    scores = scores or [None] * len(tokens)

    def another_expert():
        return is_mixture and len(distances) > 3 and median(distances) <= near / 2

    for step, (ours, theirs, row) in enumerate(zip(tokens, wanted["tokens"][0], scores)):
        reference = wanted["scores"][step] if step < len(wanted["scores"]) else None
        spread = (pstdev(reference) or 1.0) if reference else None
        distance = None
        if reference and row:
            distance = max(abs(left - right) for left, right in zip(row, reference, strict=True)) / spread
            if not distance < float("inf"):
                return False, f"scores of step {step} are not numbers"
            distances.append(distance)
        if ours == theirs:
            continue
        if reference:
            margin = (reference[theirs] - reference[ours]) / spread
            is_tie = margin < near / 3 if distance is None else distance <= near and margin < 2 * distance
            if is_tie or another_expert():
                return True, f"parts at step {step}"
            far = "" if distance is None else f", scores {distance:.3f}"
            return False, f"token {step} differs (margin {margin:.3f}{far})"
        return False, f"token {step} differs"
    if len(tokens) != len(wanted["tokens"][0]):
        return False, f"{len(tokens)} tokens"
    if distances and max(distances) > near and not another_expert():
        return False, f"scores differ by {max(distances):.3f}"
    return True, "equal"
