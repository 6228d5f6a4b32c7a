"""Uses a model folder in ONNX Runtime's Python package or in ONNX Runtime GenAI, as an application would.

    python child.py python|genai FOLDER LIBRARY    registers the library; without LIBRARY, uses only the CPU provider

Exit code 0: it ran. 3: it failed, and the error message is printed.
"""
import json
import sys
from pathlib import Path

NAME = "AMDGPUExecutionProvider"
TYPES = {"tensor(int64)": "int64", "tensor(int32)": "int32", "tensor(float16)": "float16", "tensor(float)": "float32"}


def session_options(folder):
    """The folder's session options; none if the file is not JSON."""
    try:
        options = json.loads((folder / "genai_config.json").read_bytes())["model"]["decoder"]["session_options"]
        return options if isinstance(options, dict) else {}
    except Exception:
        return {}


def providers(options):
    """The options of our provider, in all places where the folder names it."""
    found = {}
    for entry in options.get("provider_options", []):
        for name, values in entry.items():
            if name.lower().removesuffix("executionprovider") == "amdgpu":
                found.update({key: value for key, value in values.items() if isinstance(value, str)})
    return found


def with_onnxruntime(folder, library):
    import numpy as np
    import onnxruntime as ort

    given = session_options(folder)
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    for key, value in given.items():
        if isinstance(value, str):
            options.add_session_config_entry(key, value)
    if library:
        ort.register_execution_provider_library(NAME, library)
        devices = [device for device in ort.get_ep_devices() if device.ep_name == NAME]
        options.add_provider_for_devices(devices, providers(given))
    tiny = folder / "tiny.onnx"
    model = tiny if tiny.exists() else folder / "model.onnx"
    session = ort.InferenceSession(str(model), options, enable_fallback=0)
    feeds = {}
    for value in session.get_inputs():
        shape = [extent if isinstance(extent, int) else int(extent != "past") for extent in value.shape]
        feeds[value.name] = np.ones(shape, TYPES.get(value.type, "float32"))
    session.run(None, feeds)


def with_genai(folder, library):
    import onnxruntime_genai as og

    config = og.Config(str(folder))
    if library:
        og.register_execution_provider_library(NAME, library)
        if not providers(session_options(folder)):
            config.clear_providers()
            config.append_provider("amdgpu")
    else:
        config.clear_providers()
    model = og.Model(config)
    tokenizer = og.Tokenizer(model)
    messages = json.dumps([{"role": "user", "content": "hello"}])
    prompt = tokenizer.apply_chat_template(messages=messages, add_generation_prompt=True)
    parameters = og.GeneratorParams(model)
    parameters.set_search_options(do_sample=False)
    generator = og.Generator(model, parameters)
    generator.append_tokens(tokenizer.encode(prompt)[:64])
    for _ in range(2):
        if not generator.is_done():
            generator.generate_next_token()
            tokenizer.decode(generator.get_next_tokens())
    del generator, parameters, tokenizer, model


def main(way, folder, library=""):
    run = {"python": with_onnxruntime, "genai": with_genai}[way]
    try:
        run(Path(folder), library)
    except Exception as error:
        print(f"{type(error).__name__}: {error}")
        return 3
    print("ran")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
