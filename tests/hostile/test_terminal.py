"""Text from a folder reaches a terminal as plain text: no escape sequences, control characters or bidi overrides."""
import onnx
import pytest
from cases_config import ESCAPES, edited
from cases_model import tiny
from cases_text import BYTE_LEVEL
from onnx import helper
from terminal import acting, show

FORGED = "error: FORGED"
NAME = f"a{ESCAPES}\n{FORGED}\nb"
# The demo's token 32 is an A.
SAYS_A = ("--logit-bias", "32=1000")
TYPED = ("hello", "/quit")


def speaking(place):
    """Each A that the model generates becomes an escape sequence."""
    decoder = {"type": "Sequence", "decoders": [BYTE_LEVEL, {"type": "Replace", "pattern": {"String": "A"}, "content": ESCAPES}]}
    place.edit("tokenizer.json", lambda document: document.update(decoder=decoder))


def entry(key, value):
    return lambda place: place.options({key: value})


def template(text):
    return lambda place: place.edit("tokenizer_config.json", lambda document: document.update(chat_template=text))


def tokenizer_type(place):
    place.edit("tokenizer.json", lambda document: document["model"].update(type=NAME))


MESSAGES = {
    "type": edited("model", "type", to=NAME),
    "unknown-field": edited("model", NAME, to=1),
    "unknown-option": lambda place: place.options({NAME: 1}),
    "provider": lambda place: place.options({"profile": "hip"}, NAME),
    "provider-option": lambda place: place.options({NAME: NAME}, "amdgpu"),
    "provider-value": lambda place: place.options({"profile": NAME}, "amdgpu"),
    "entry": entry(f"ep.hip.{NAME}", NAME),
    "entry-value": entry("ep.hip.replay", NAME),
    "refused-value": entry("ep.hip.explain_file", "{target}/" + NAME.replace("/", "")),
    "filename": edited("model", "decoder", "filename", to=NAME),
    "tokenizer_dir": edited("model", "tokenizer_dir", to=NAME),
    "pattern": edited("model", "decoder", "inputs", "past_key_names", to=NAME),
    "input-name": edited("model", "decoder", "inputs", "input_ids", to=NAME),
    "log_id": edited("model", "decoder", "session_options", "log_id", to=NAME),
    "tokenizer": tokenizer_type,
    "template-raise": template("{{ raise_exception(" + repr(NAME) + ") }}"),
    "template-syntax": template("{% " + NAME + " %}"),
    "template-include": template("{% include " + repr(NAME) + " %}"),
}


def check(code, seen, edits_lines=False):
    assert code in (0, 2), f"exit {code}: {seen!r}"
    assert not acting(seen, edits_lines), f"{acting(seen, edits_lines)} in {seen!r}"


@pytest.mark.parametrize("way", ["generate", "chat"])
@pytest.mark.parametrize("name", MESSAGES)
def test_messages_about_a_folder_are_text(name, way, tools, place, record_property):
    record_property("case", f"terminal-{name}")
    record_property("way", "terminal")
    MESSAGES[name](place)
    words = [tools.command, way, place.model, "--max-new-tokens", "2", "--ort", tools.onnxruntime]
    words += ["--chat", "hello"] if way == "generate" else []
    code, seen = show(place, words, TYPED if way == "chat" else ())
    check(code, seen, way == "chat")


@pytest.mark.parametrize("name", ["unknown-field", "filename", "template-raise"])
def test_names_in_a_folder_do_not_forge_lines(name, tools, place):
    MESSAGES[name](place)
    words = [tools.command, "generate", place.model, "--chat", "hello", "--max-new-tokens", "2", "--ort", tools.onnxruntime]
    seen = show(place, words)[1]
    assert not any(line.startswith(FORGED) for line in seen.splitlines()), f"a line from the model folder in {seen!r}"


@pytest.mark.parametrize("way", ["generate", "chat"])
def test_generated_text_does_not_steer_the_terminal(way, tools, place, record_property):
    record_property("case", "terminal-generated")
    record_property("way", "terminal")
    speaking(place)
    words = [tools.command, way, place.model, "--max-new-tokens", "4", *SAYS_A, "--ort", tools.onnxruntime]
    words += ["hello"] if way == "generate" else []
    code, seen = show(place, words, TYPED if way == "chat" else ())
    assert "EVIL" in seen, f"the model generated no text: {seen!r}"
    check(code, seen, way == "chat")


@pytest.mark.parametrize("way", ["explain", "run"])
@pytest.mark.parametrize("operator", ["Relu", "Evil"])
def test_names_in_a_model_are_text(way, operator, tools, place, record_property):
    record_property("case", f"terminal-model-{operator}")
    record_property("way", "terminal")
    name = f"{operator}{NAME}"
    node = helper.make_node("Relu" if operator == "Relu" else name, [name], [f"out{NAME}"], name)
    model = tiny([node], inputs=(name,), outputs=(f"out{NAME}",))
    model.graph.name = model.producer_name = NAME
    onnx.save(model, place.model / "model.onnx")
    words = [tools.command, way, place.model / "model.onnx", "--ort", tools.onnxruntime]
    code, seen = show(place, [*words, "--nodes"] if way == "explain" else words)
    check(code, seen)
