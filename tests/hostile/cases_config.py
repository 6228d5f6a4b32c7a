"""Malformed files of a folder, and settings in `genai_config.json` other than options."""
import json
import os
import socket

from case import COMMAND, EITHER, GOES_ON, MODEL, REFUSED, TEXT, Case
from place import DEMO

FILES = ("genai_config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "model.onnx")
CONFIG = "genai_config.json"
ESCAPES = "\x1b]0;EVIL\x07\x1b[41;97mEVIL\x1b[2J\x1bc\r\n\u202eLIVE\u2066\x9b31m\x08"


def put(name, content):
    return lambda place: place.write(name, content)


def truncated(name):
    return lambda place: place.write(name, (DEMO / name).read_bytes()[: (DEMO / name).stat().st_size // 2])


def as_directory(name):
    return lambda place: place.replace(name).mkdir()


def as_fifo(name):
    return lambda place: os.mkfifo(place.replace(name))


def as_socket(name):
    def change(place):
        path = place.replace(name)
        here = os.getcwd()
        os.chdir(path.parent)  # socket paths have a short length limit
        try:
            with socket.socket(socket.AF_UNIX) as made:
                made.bind(path.name)
        finally:
            os.chdir(here)

    return change


def as_link(name, leads_to):
    return lambda place: place.replace(name).symlink_to(place.fill(leads_to))


def without_permission(name):
    def change(place):
        (place.model / name).touch()
        (place.model / name).chmod(0)

    return change


def huge(name):
    """A sparse file of 64 GiB: reading all of it is too much."""

    def change(place):
        with open(place.replace(name), "wb") as file:
            file.truncate(64 << 30)

    return change


FORMS = {
    "missing": lambda name: lambda place: place.replace(name),
    "empty": lambda name: put(name, b""),
    "zeros": lambda name: put(name, bytes(4096)),
    "not-utf8": lambda name: put(name, b'{"model": "\xff\xfe\xc0\x80\xed\xa0\x80"}'),
    "noise": lambda name: put(name, bytes((i * 7919 >> 3) & 255 for i in range(20000))),
    "directory": as_directory,
    "fifo": as_fifo,
    "socket": as_socket,
    "dev-zero": lambda name: as_link(name, "/dev/zero"),
    "dev-tty": lambda name: as_link(name, "/dev/tty"),
    "dangling": lambda name: as_link(name, "{target}/gone"),
    "loop": lambda name: as_link(name, name),
    "unreadable": without_permission,
    "64-gib": huge,
}
# A folder is valid without these files, and with invalid ones.
OPTIONAL = ("tokenizer_config.json", "chat_template.jinja")
# GenAI itself reads these files, and waits for a pipe or reads a device to its end.
ENDLESS = ("fifo", "socket", "dev-zero", "dev-tty", "64-gib")


def edited(*path, to):
    """Sets the value at a path of keys."""

    def change(place):
        def inner(document):
            for key in path[:-1]:
                document = document.setdefault(key, {})
            document[path[-1]] = place.fill(to)

        place.edit(CONFIG, inner)

    return change


def form_cases():
    for name in FILES:
        plain = name.replace(".", "_")
        if (DEMO / name).exists():
            ways = MODEL if name == "model.onnx" else TEXT
            yield Case(f"file-{plain}-truncated", truncated(name), ways, REFUSED, names=(name,))
        for form, make in FORMS.items():
            ways = COMMAND if form in ENDLESS else TEXT
            if name == "model.onnx":
                ways = (*COMMAND, "explain", "run") if form in ENDLESS else MODEL
            ends = EITHER if name in OPTIONAL else REFUSED
            yield Case(f"file-{plain}-{form}", make(name), ways, ends, names=(name, "max_length"), seconds=20)


NAMES = {
    "parent": "../target/outside.onnx",
    "absolute": "{target}/outside.onnx",
    "winding": "sub/../../target/outside.onnx",
    "empty": "",
    "dot": ".",
    "nul": "model.onnx\0.txt",
    "long": "x" * 5000,
    "escapes": ESCAPES,
    "newline": "model\nerror: trust me.onnx",
    "proc": "/proc/self/exe",
    "windows": "..\\target\\outside.onnx",
    "url": "http://127.0.0.1:9/model.onnx",
}


def name_cases():
    for form, name in NAMES.items():
        yield Case(f"filename-{form}", edited("model", "decoder", "filename", to=name), TEXT, REFUSED, names=("filename", "model.decoder"))
        if form not in ("dot", "empty"):
            yield Case(f"tokenizer_dir-{form}", edited("model", "tokenizer_dir", to=name), COMMAND, REFUSED, names=("tokenizer_dir", "tokenizer"))
    for name in ("model.onnx", "tokenizer.json"):
        target = "outside.onnx" if name == "model.onnx" else name
        yield Case(f"link-outside-{name.replace('.', '_')}", as_link(name, "{target}/" + target), TEXT, EITHER, names=(name,))
    yield Case("link-secret-as-template", as_link("chat_template.jinja", "{target}/secret.txt"), COMMAND, EITHER, names=("chat_template",))
    yield Case("folder-unreadable", lambda place: place.model.chmod(0), COMMAND, REFUSED, names=("model",))


NUMBERS = {"negative": -1, "zero": 0, "2-31": 2**31 - 1, "2-63": 2**63 - 1, "2-64": 2**64, "float": 1e308, "text": "many", "null": None, "list": [1] * 1000}
FIELDS = [
    ("model", "vocab_size"), ("model", "context_length"), ("model", "eos_token_id"), ("model", "pad_token_id"),
    ("model", "decoder", "num_hidden_layers"), ("model", "decoder", "num_key_value_heads"), ("model", "decoder", "head_size"),
    ("search", "max_length"), ("search", "top_k"), ("search", "temperature"), ("search", "chunk_size"), ("search", "num_beams"),
    ("model", "decoder", "session_options", "intra_op_num_threads"),
]  # fmt: skip


def number_cases():
    for path in FIELDS:
        for form, number in NUMBERS.items():
            if form in ("negative", "2-31", "2-63", "float", "text"):
                ways = ("generate", "genai") if form in ("negative", "2-31") else ("generate",)
                yield Case(f"number-{path[-1]}-{form}", edited(*path, to=number), ways, names=(path[-1], "token", CONFIG))

    def long_context(place):
        place.edit(CONFIG, lambda document: (document["model"].update(context_length=2**31 - 1), document["search"].update(max_length=2**31 - 1)))

    yield Case("number-cache-of-terabytes", long_context, TEXT, EITHER, names=("length", "memory", "byte", "GiB"))
    yield Case("number-threads", edited("model", "decoder", "session_options", "intra_op_num_threads", to=4096), COMMAND)
    yield Case("number-eos-list", edited("model", "eos_token_id", to=[798] * 1_000_000), ("generate",))


def nested(opening, closing=""):
    return put(CONFIG, '{"model": ' + opening * 200_000 + closing * 200_000 + "}")


def noise(place):
    """100 MB in fields that are never read."""
    with open(place.model / CONFIG, "w") as file:
        file.write('{"noise": [')
        line = ",".join(["[1,2,{\"a\":\"bbbbbbbbbbbbbbbb\"}]"] * 1000)
        for _ in range(100_000_000 // len(line)):
            file.write(line + ",")
        file.write("0], " + json.dumps(json.loads((DEMO / CONFIG).read_text()))[1:])


def many_unknown(place):
    place.edit(CONFIG, lambda document: document["model"].update({f"unknown_{i}": i for i in range(100_000)}))


def many_entries(place):
    place.options({f"ep.hip.nothing_{i}": "1" for i in range(20_000)})


def duplicates(place):
    text = (DEMO / CONFIG).read_text()
    evil = '"session_options": {"provider_options": [{"amdgpu": {"backend_library": "%s"}}]},\n' % place.evil
    place.write(CONFIG, text.replace('"session_options"', evil + '      "session_options"', 1))


def json_cases():
    yield Case("json-nested-arrays", nested("["), TEXT, REFUSED, names=(CONFIG,))
    yield Case("json-nested-objects", nested('{"a":', "}"), TEXT, REFUSED, names=(CONFIG,))
    for name in ("tokenizer.json", "tokenizer_config.json"):
        yield Case(f"json-nested-{name.replace('.', '_')}", put(name, '{"a":' * 200_000), TEXT, REFUSED, names=(name,))
    yield Case("json-100-mb", noise, COMMAND, EITHER, names=(CONFIG,))
    yield Case("json-many-unknown", many_unknown, COMMAND, EITHER, names=(CONFIG,))
    yield Case("json-many-entries", many_entries, (*COMMAND, "python"), EITHER)
    yield Case("json-duplicate-keys", duplicates, TEXT, EITHER)
    yield Case("json-bom", put(CONFIG, "\ufeff" + (DEMO / CONFIG).read_text()), COMMAND, EITHER, names=(CONFIG,))
    yield Case("json-lone-surrogate", edited("model", "type", to="\ud800"), COMMAND, REFUSED, names=("type", CONFIG))
    yield Case("json-huge-exponent", put(CONFIG, '{"model": 1' + "0" * 1_000_000 + "}"), TEXT, REFUSED, names=(CONFIG,))
    yield Case("json-top-list", put(CONFIG, "[]"), TEXT, REFUSED, names=(CONFIG,))
    for pattern in ("%d%d", "%n%n%n", "%s%d%s", "%99999999d", "%d" + "x" * 100_000):
        form = "".join(letter if letter.isalnum() else "_" for letter in pattern[:12])
        yield Case(f"pattern-{form}", edited("model", "decoder", "inputs", "past_key_names", to=pattern), TEXT, REFUSED, names=("past_key",))
    run = {"memory.enable_memory_arena_shrinkage": "gpu:99999999999999999999;" * 1000, "gpu_graph_id": "-999999999999999999999"}
    yield Case("run-options", edited("model", "decoder", "run_options", to=run), TEXT, EITHER)
    yield Case("log_id-long", edited("model", "decoder", "session_options", "log_id", to="x" * 1_000_000), TEXT, EITHER)


def cases():
    yield from form_cases()
    yield from name_cases()
    yield from number_cases()
    yield from json_cases()
