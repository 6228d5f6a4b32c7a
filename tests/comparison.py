"""Compares the outputs of a model with expected ones."""
from dataclasses import dataclass

import numpy as np


@dataclass
class Difference:
    """How far an output is from the expected one."""

    error: float  # the largest
    largest: float  # of the expected numbers
    cosine: float

    @property
    def relative(self):
        return 0.0 if self.error == 0 else self.error / max(self.largest, 1e-6)


WRONG = Difference(np.inf, 0.0, 0.0)
EQUAL = Difference(0.0, 0.0, 1.0)


def arrays(outputs):
    """Outputs by name as arrays: sequences of maps become tables with a column per key, and objects become texts."""
    result = {}
    for name, value in outputs.items():
        if isinstance(value, list) and value and isinstance(value[0], dict):
            value = [[row[key] for key in sorted(row)] for row in value]
            value = np.array(value, np.float32)
        value = np.asarray(value)
        result[name] = value.astype("U") if value.dtype.kind == "O" else value
    return result


def difference(found, wanted):
    """Texts, and numbers other than floats, must be equal; infinities and NaNs must be in the same places."""
    found, wanted = np.asarray(found), np.asarray(wanted)
    if found.shape != wanted.shape or found.dtype != wanted.dtype:
        return WRONG
    if wanted.dtype.kind != "f":
        return EQUAL if np.array_equal(found, wanted) else WRONG
    found, wanted = found.astype(np.float64).ravel(), wanted.astype(np.float64).ravel()
    is_finite = np.isfinite(wanted)
    if not np.array_equal(np.isfinite(found), is_finite):
        return WRONG
    found, wanted = found[is_finite], wanted[is_finite]
    norms = np.linalg.norm(found) * np.linalg.norm(wanted)
    cosine = float(found @ wanted / norms) if norms > 0 else float(np.allclose(found, wanted))
    return Difference(float(np.abs(found - wanted).max(initial=0)), float(np.abs(wanted).max(initial=0)), cosine)


def compared(outputs, golden):
    """The differences of the outputs that the golden has: in full, or samples of them at some indices."""
    differences = {}
    for name, wanted in golden.items():
        found = np.asarray(outputs[name])
        if "full" in wanted:
            differences[name] = difference(found, wanted["full"])
        elif found.shape == tuple(wanted["shape"]):
            differences[name] = difference(found.ravel()[wanted["idx"]], wanted["val"])
        else:
            differences[name] = WRONG
    return differences


def passes(differences, tolerance):
    return all(
        each.error <= tolerance["rel"] * max(each.largest, 1e-6) and each.cosine >= tolerance["cos"]
        for each in differences.values()
    )


def worst(differences):
    """The largest relative error and the smallest cosine."""
    cosines, errors = ([getattr(each, kind) for each in differences.values()] for kind in ("cosine", "relative"))
    return max(errors, default=0.0), min(cosines, default=1.0)
