"""Programs that the migraphx backend keeps: its cache, and models that ONNX Runtime compiled."""
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from migraphx_support import close, cpu, entries, needs_migraphx, options_for, session_on
from support import EP, affine, affine_model, registered, sample

PYTHON = os.environ.get("AMDGPU_EP_TEST_PYTHON", sys.executable)

pytestmark = needs_migraphx


def with_weight(scale):
    model = onnx.load_from_string(affine_model(5))
    weight = model.graph.initializer[0]
    weight.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(weight) * np.float32(scale), weight.name))
    return model.SerializeToString()


def test_the_cache_knows_weights_options_and_shapes(tmp_path):
    with registered() as devices:
        make = lambda model, **options: session_on(devices, model, cache_dir=tmp_path, **options)
        make(affine_model(5)), make(affine_model(5))
        assert len(entries(tmp_path)) == 1
        changed = make(with_weight(2))
        assert len(entries(tmp_path)) == 2
        close(changed.run(None, {"x": sample(5)}), cpu(with_weight(2), {"x": sample(5)}))
        make(affine_model(5), fp16_enable=1)
        assert len(entries(tmp_path)) == 3
        make(affine_model(6))
        assert len(entries(tmp_path)) == 4
        del changed


def test_damaged_entries_are_replaced(tmp_path):
    with registered() as devices:
        session_on(devices, affine_model(5), cache_dir=tmp_path)
        (entry,) = tmp_path.glob("*.mxr")
        whole = entry.read_bytes()
        for damaged in (b"", whole[: len(whole) // 2], whole[:-1] + bytes([whole[-1] ^ 1]), b"nonsense"):
            entry.write_bytes(damaged)
            session = session_on(devices, affine_model(5), cache_dir=tmp_path)
            close(session.run(None, {"x": sample(5)}), [affine(sample(5))])
            assert [one.read_bytes() for one in tmp_path.glob("*.mxr")] == [whole]
        del session


def test_an_unwritable_folder_only_disables_the_cache(tmp_path):
    file = tmp_path / "file"
    file.write_text("")
    with registered() as devices:
        session = session_on(devices, affine_model(5), cache_dir=file)
        close(session.run(None, {"x": sample(5)}), [affine(sample(5))])
        del session


@pytest.mark.skipif(os.name == "nt", reason="permissions of folders are checked on Unix only")
def test_a_cache_folder_that_others_can_write_to_is_not_used_and_one_line_says_what_to_do(tmp_path, capfd):
    with registered() as devices:
        session_on(devices, affine_model(5), cache_dir=tmp_path)
        kept = {file: file.stat().st_mtime_ns for file in tmp_path.glob("*.mxr")}
        assert len(kept) == 1
        tmp_path.chmod(0o777)
        capfd.readouterr()
        for rows in (5, 6):
            options = options_for(devices, cache_dir=tmp_path)
            options.log_severity_level = 2
            session = ort.InferenceSession(affine_model(rows), sess_options=options, enable_fallback=0)
            close(session.run(None, {"x": sample(rows)}), [affine(sample(rows))])
            del session
        said = capfd.readouterr().err
        assert {file: file.stat().st_mtime_ns for file in tmp_path.glob("*.mxr")} == kept
        assert said.count("compiled programs are not cached") == 1, said
        assert f"help: chmod go-w {tmp_path}" in said


@pytest.mark.environment(MIGRAPHX_STANDIN_COMPILE_MS="300")
def test_four_processes_make_one_entry(tmp_path):
    code = f"""
import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})
import migraphx_support as t
import support as s
with s.registered() as devices:
    session = t.session_on(devices, s.affine_model(5), cache_dir={str(tmp_path)!r})
    t.close(session.run(None, {{"x": s.sample(5)}}), [s.affine(s.sample(5))])
    del session
"""
    command = [PYTHON, "-c", code]
    started = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(4)]
    for process in started:
        _, errors = process.communicate(timeout=600)
        assert process.returncode == 0, errors
    assert len(entries(tmp_path)) == 1


@pytest.mark.parametrize("embedded", [0, 1])
def test_compiled_models_run_without_their_source(tmp_path, embedded):
    source, compiled = tmp_path / "source.onnx", tmp_path / "out" / "compiled.onnx"
    compiled.parent.mkdir()
    source.write_bytes(affine_model(5))
    with registered() as devices:
        options = options_for(devices)
        for key, text in {"enable": 1, "embed_mode": embedded, "file_path": compiled}.items():
            options.add_session_config_entry(f"ep.context_{key}", str(text))
        ort.InferenceSession(str(source), sess_options=options, enable_fallback=0)
        model = onnx.load(compiled)
        assert [node.op_type for node in model.graph.node] == ["EPContext"] and not model.graph.initializer
        attributes = {one.name: one for one in model.graph.node[0].attribute}
        assert attributes["embed_mode"].i == embedded and attributes["hardware_architecture"].s == b"host"
        metadata = {entry.key: entry.value for entry in model.metadata_props}
        assert "migraphx-backend;migraphx=" in metadata[f"ep_compatibility_info.{EP}"], metadata
        source.unlink()
        session = session_on(devices, compiled)
        close(session.run(None, {"x": sample(5)}), [affine(sample(5))])
        del session

        def refused(change, *texts):
            other = onnx.load(compiled)
            change({one.name: one for one in other.graph.node[0].attribute})
            path = compiled.with_name("other.onnx")
            onnx.save(other, path)
            with pytest.raises(Exception) as error:
                session_on(devices, path)
            assert all(text in str(error.value) for text in texts), error.value

        def set_bytes(name, text):
            return lambda attributes: setattr(attributes[name], "s", text)

        refused(set_bytes("hardware_architecture", b"gfx1100"), "gfx1100", "compile the model again")
        if embedded:
            refused(set_bytes("ep_cache_context", b"nonsense"), "not a MIGraphX program")
        else:
            (tmp_path / "secret.mxr").write_bytes((compiled.parent / "compiled_0.mxr").read_bytes())
            refused(set_bytes("ep_cache_context", b"../secret.mxr"), "not a path inside its folder")
            (compiled.parent / "link.mxr").symlink_to(tmp_path / "secret.mxr")
            refused(set_bytes("ep_cache_context", b"link.mxr"), "a link to a file outside")
            refused(set_bytes("ep_cache_context", b"gone.mxr"), "gone.mxr")


def test_dynamic_shapes_are_not_saved(tmp_path):
    source = tmp_path / "source.onnx"
    source.write_bytes(affine_model())
    with registered() as devices:
        options = options_for(devices)
        options.add_session_config_entry("ep.context_enable", "1")
        with pytest.raises(Exception, match="dynamic shapes"):
            ort.InferenceSession(str(source), sess_options=options, enable_fallback=0)
