"""Expected results of the models with real weights on real inputs: a cat is a cat, speech is speech.

Each function takes the outputs of one run and a function that runs the model on other inputs, and returns a description
of the result. It raises AssertionError if the result is not the expected one.
"""
import numpy as np


def tabby_leads(outputs, rerun):
    best = int(outputs["softmaxout_1"].argmax())
    assert best == 281, f"class {best} leads, not 281 (tabby)"
    return "a tabby"


def cats_lead(outputs, rerun):
    lead = [int(index) for index in np.argsort(outputs["scores"][0])[:-3:-1]]
    assert sorted(lead) == [281, 285], f"classes {lead} lead, not 285 and 281 (Egyptian cat, tabby)"
    return "cats"


def digit_is_five(outputs, rerun):
    digit = int(outputs["Plus214_Output_0"].argmax())
    assert digit == 5, f"digit {digit}, not 5"
    return "a five"


def picture(outputs, rerun):
    image = outputs["outputImage"]
    low, high = float(image.min()), float(image.max())
    assert -64 < low and high < 320 and image.std() > 30, f"{low:.0f} to {high:.0f} is not a picture with values of about 0 to 255"
    return f"a picture, {low:.0f} to {high:.0f}"


def best_cell_is_a_cat(outputs, rerun):
    cells = outputs["758"][0].reshape(85, -1).astype(np.float64)
    scores = cells[0] ** 0.6 * cells[5:].max(axis=0) ** 0.4
    best = int(scores.argmax())
    kind = int(cells[5:, best].argmax())
    assert kind == 15 and 0.85 < scores[best] < 0.95, f"class {kind} at {scores[best]:.2f}, not 15 (cat) at 0.90"
    return f"a cat, {scores[best]:.2f}"


def speech_differs_from_silence(outputs, rerun):
    speech = float(outputs["output"][0, 0])
    silence = float(rerun({"input": np.zeros((1, 576), np.float32)})["output"][0, 0])
    assert speech > 0.5 and silence < 0.01, f"speech {speech:.3f}, silence {silence:.3f}"
    return f"speech {speech:.2f}, silence {silence:.4f}"


def mask_in_range(outputs, rerun):
    mask = outputs["activation_2"]
    assert (mask >= 0).all() and (mask <= 1).all(), f"a mask from {mask.min()} to {mask.max()}"
    return f"a mask, {mask.min():.2f} to {mask.max():.2f}"


def clean_speech(outputs, rerun):
    scores = outputs["Identity:0"][0]
    assert np.allclose(scores, (3.34, 3.91, 3.08), atol=0.02), f"scores {scores}, not about (3.34, 3.91, 3.08)"
    return "scores " + ", ".join(f"{score:.2f}" for score in scores)


def python_source(outputs, rerun):
    labels = outputs["target_label"][0]
    assert labels.argmax() == 143 and labels[143] > 0.9, f"label {labels.argmax()} at {labels.max():.2f}, not 143 (python)"
    return f"python, {labels[143]:.2f}"


def three_flowers(outputs, rerun):
    labels, chances = outputs["label"], outputs["probabilities"]
    assert labels.shape == (3,) and np.allclose(chances.sum(axis=1), 1, atol=1e-5), f"labels {labels}, chances {chances}"
    return "three labels"


# The integers of the rl_* models are compared exactly with the golden; there is nothing else to check.
EXPECTED = {
    "squeezenet_fp16": tabby_leads,
    "mobilenet_v2_qdq": cats_lead,
    "mnist_cnn": digit_is_five,
    "style_candy": picture,
    "fastestdet": best_cell_is_a_cat,
    "silero_vad": speech_differs_from_silence,
    "dtln_stage1": mask_in_range,
    "dnsmos": clean_speech,
    "magika_v3": python_source,
    "logreg_iris": three_flowers,
}
