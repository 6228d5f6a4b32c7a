"""Compiled models: created, loaded, rejected."""
import os
import shutil

import numpy as np
import onnx
import onnxruntime as ort
from onnxruntime.capi import onnxruntime_pybind11_state as native
from support import (
    FOLDER, NAME, cpu_session, expect_error, network, path, run_checks, sample, session, settings,
)

SOURCE = path("source.onnx")
OPERATORS = ["EPContext", "Det", "EPContext"]


def contexts(model):
    return [node for node in model.graph.node if node.op_type == "EPContext"]


def attribute(node, name):
    (found,) = [one for one in node.attribute if one.name == name]
    return found


def is_right(running):
    """The results match the CPU provider for several shapes."""
    reference = cpu_session(SOURCE)
    for rows in (3, 1, 17):
        for found, wanted in zip(running.run(None, sample(rows)), reference.run(None, sample(rows)), strict=True):
            assert found.dtype == wanted.dtype
            np.testing.assert_allclose(found, wanted, rtol=1e-3 if found.dtype == np.float16 else 1e-5, atol=1e-5)


def is_compiled(file, embedded):
    """The model is self-contained: it holds no weights outside its blobs and runs without its source."""
    model = onnx.load(file)
    assert sorted(node.op_type for node in model.graph.node) == sorted(OPERATORS), model.graph.node
    assert not model.graph.initializer, [one.name for one in model.graph.initializer]
    metadata = {entry.key: entry.value for entry in model.metadata_props}
    assert metadata[f"ep_compatibility_info.{NAME}"] == "hip-backend;format=1;version=0.1.0;arch=any", metadata
    for node in contexts(model):
        assert attribute(node, "source").s.decode() == NAME
        assert attribute(node, "embed_mode").i == embedded
        assert attribute(node, "hardware_architecture").s == b"any"
        context = attribute(node, "ep_cache_context").s
        if embedded:
            assert context.startswith(b"\x89HIPCTX\n"), context[:20]
        else:
            assert context.endswith(b".hipctx") and b"/" not in context, context
            assert os.path.exists(os.path.join(os.path.dirname(file), context.decode()))
    running = session(file)
    is_right(running)
    return running


def sources_and_sessions_agree():
    with open(SOURCE, "wb") as file:
        file.write(network())
    is_right(session(SOURCE))


def a_session_saves_what_it_compiled():
    for embedded in (1, 0):
        file = path(f"saved_{embedded}.onnx")
        entries = {"ep.context_enable": "1", "ep.context_embed_mode": str(embedded), "ep.context_file_path": file}
        is_right(session(SOURCE, entries))
        is_compiled(file, embedded)


def files_go_beside_the_source_by_default():
    folder = path("beside")
    os.mkdir(folder)
    source = os.path.join(folder, "net.onnx")
    shutil.copy(SOURCE, source)
    session(source, {"ep.context_enable": "1", "ep.context_embed_mode": "0"})
    (made,) = [name for name in os.listdir(folder) if name.endswith(".onnx") and name != "net.onnx"]
    assert {"net_ctx_0.hipctx", "net_ctx_1.hipctx"} <= set(os.listdir(folder)), os.listdir(folder)
    is_compiled(os.path.join(folder, made), 0)
    # The folder can be moved as a whole.
    moved = path("moved")
    os.rename(folder, moved)
    is_compiled(os.path.join(moved, made), 0)


def the_compiler_makes_models():
    for embedded in (1, 0):
        file = path(f"compiled_{embedded}.onnx")
        ort.ModelCompiler(settings(), SOURCE, embed_compiled_data_into_model=bool(embedded)).compile_to_file(file)
        is_compiled(file, embedded)
    blob = ort.ModelCompiler(settings(), SOURCE, embed_compiled_data_into_model=True).compile_to_bytes()
    is_right(session(blob))
    nowhere = ort.ModelCompiler(settings(), SOURCE, embed_compiled_data_into_model=False)
    expect_error(nowhere.compile_to_bytes, "the path of the compiled model is not known", "help: set ep.context_file_path")


def models_without_a_path_find_their_files():
    file = path("saved_0.onnx")
    with open(file, "rb") as opened:
        blob = opened.read()
    is_right(session(blob, {"ep.context_file_path": file}))
    expect_error(lambda: session(blob), "the model has no folder", "help: load the model by its path")


def compatibility():
    kinds = native.OrtCompiledModelCompatibility
    answers = {
        "hip-backend;format=1;version=0.1.0;arch=any": kinds.EP_SUPPORTED_OPTIMAL,
        "hip-backend;format=1;version=0.0.9;arch=any": kinds.EP_SUPPORTED_PREFER_RECOMPILATION,
        "hip-backend;format=2;version=0.1.0;arch=any": kinds.EP_UNSUPPORTED,
        "hip-backend;format=1;version=0.1.0;arch=gfx942": kinds.EP_UNSUPPORTED,
        "somebody else's": kinds.EP_NOT_APPLICABLE,
    }
    devices = [device for device in ort.get_ep_devices() if device.ep_name == NAME]
    for text, wanted in answers.items():
        found = native.get_model_compatibility_for_ep_devices(devices, text)
        assert found == wanted, (text, found)


def refused(change, *texts, file="saved_1.onnx"):
    """A compiled model with a change in its first saved partition is rejected with these messages."""
    model = onnx.load(path(file))
    change(contexts(model)[0])
    changed = path("changed.onnx")
    onnx.save(model, changed)
    expect_error(lambda: session(changed), *texts)


def with_blob(change):
    def apply(node):
        context = attribute(node, "ep_cache_context")
        context.s = bytes(change(bytearray(context.s)))
    return apply


def flip(blob):
    blob[len(blob) // 2] ^= 4
    return blob


def other_format(blob):
    blob[8] = 7
    return blob


def wrong_blobs_are_refused():
    refused(with_blob(flip), "cannot be used: it is damaged", "help: copy it again")
    refused(with_blob(lambda blob: blob[:-100]), "it is damaged")
    refused(with_blob(lambda blob: blob[:10]), "it is malformed at byte 8")
    refused(with_blob(lambda blob: b""), "not a partition of the hip backend")
    refused(with_blob(lambda blob: b"somebody else's"), "it starts with \"somebody\"", "x89HIPCTX")
    refused(with_blob(other_format), "it has format 7", "reads format 1", "help: compile the model again")


def nodes_of_others_are_left_alone():
    def rename(node):
        attribute(node, "source").s = b"SomebodyElse"
    # No provider can run the node, and ONNX Runtime reports it.
    refused(rename, "EPContext")


def wrong_types_are_refused():
    model = onnx.load(path("saved_1.onnx"))
    for output in model.graph.output:
        if output.name == "half":
            output.type.tensor_type.elem_type = onnx.TensorProto.DOUBLE
    changed = path("changed.onnx")
    onnx.save(model, changed)
    expect_error(lambda: session(changed), "\"half\" is f64, but was saved as f16")
    model = onnx.load(path("saved_1.onnx"))
    for node in contexts(model):
        if "half" in node.output:
            node.output.remove("half")
    (half,) = [output for output in model.graph.output if output.name == "half"]
    model.graph.output.remove(half)
    onnx.save(model, changed)
    expect_error(lambda: session(changed), "cannot be used: it has")


def wrong_files_are_refused():
    def named(name):
        return lambda node: setattr(attribute(node, "ep_cache_context"), "s", name.encode())

    def refused_file(name, *texts):
        refused(named(name), *texts, file="saved_0.onnx")

    secret = os.path.join(os.path.dirname(FOLDER.name), f"{os.path.basename(FOLDER.name)}.secret")
    with open(secret, "wb") as file:
        file.write(b"secret")
    try:
        refused_file(f"../{os.path.basename(secret)}", "refers to the file \"../", "only files in")
        refused_file(secret, "refers to the file", "only files in")
        os.symlink(secret, path("link.hipctx"))
        refused_file("link.hipctx", "a link to a file outside")
    finally:
        os.remove(secret)
    refused_file("gone.hipctx", "could not read", "gone.hipctx", "help: keep the model's files next to it")
    refused_file("source.onnx", "it is not a partition of the hip backend")
    os.mkdir(path("folder.hipctx"))
    refused_file("folder.hipctx", "which is not a file")


def a_place_that_cannot_be_written_is_named():
    entries = {"ep.context_enable": "1", "ep.context_embed_mode": "0", "ep.context_file_path": path("none/x.onnx")}
    expect_error(lambda: session(SOURCE, entries), "none")
    expect_error(lambda: session(SOURCE, {"ep.context_enable": "1", "ep.context_embed_mode": "2"}), "embed_mode")


run_checks(
    sources_and_sessions_agree, a_session_saves_what_it_compiled, files_go_beside_the_source_by_default,
    the_compiler_makes_models, models_without_a_path_find_their_files, compatibility, wrong_blobs_are_refused,
    nodes_of_others_are_left_alone, wrong_types_are_refused, wrong_files_are_refused,
    a_place_that_cannot_be_written_is_named,
)
