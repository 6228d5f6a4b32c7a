"""Provider options as users set them through ONNX Runtime: spellings, prefixes, and errors."""
import shutil
from pathlib import Path

import onnxruntime as ort
import pytest
from support import EP, LIBRARY, ON_HOST, affine, affine_model, close, options_for, registered, sample, session_on

PROFILES = ["auto", "", "eager", "optimize", "optimized", "migraphx", "directx", "directml", "dml"]
PROFILES += ["hip", "hipep", "llm", "0", "1", "2", "3", "4", "5", " Hip ", "MIGRAPHX"]

# The options that ONNX Runtime GenAI 0.18 sets for every session on this provider.
GENAI_ENTRIES = {
    "ep.migraphx.static_pad_seq": "1",
    "ep.migraphx.static_pad_seq_len": "256",
    "ep.migraphx.static_pad_inputs": "input_ids:1,position_ids:1",
    "ep.migraphx.static_pad_outputs": "logits:1",
    "ep.migraphx.hip_graph_enable": "1",
    "ep.amdgpuexecutionprovider.model_arch": "llama",
    "ep.directml.enable_host_accessible": "1",
}


def refusal(found, **options):
    """Returns the error message that the options cause."""
    with pytest.raises(Exception) as raised:
        session_on(found, affine_model(), **options)
    return str(raised.value)


def with_entries(found, entries, severity=3):
    options = options_for(found)
    options.log_severity_level = severity
    for key, value in entries.items():
        options.add_session_config_entry(key, value)
    return ort.InferenceSession(affine_model(), sess_options=options, enable_fallback=0)


def works(session):
    close(session.run(None, {"x": sample()})[0], affine(sample()))


def test_known_options_are_accepted(tmp_path):
    cache = tmp_path / "a folder with blanks"
    with registered() as found:
        session = session_on(
            found[:1],
            affine_model(),
            profile="auto",
            device_id=0,
            cache_dir=cache,
            disable_caching="Enabled",
            force_recompile="off",
            exhaustive_tune="FALSE",
            cpu_control_flow="1",
            model_arch="llama",
            model_fw="webnn",
            mlss_use_specific_ops="conv",
            hip_graph_enable="1",
            static_pad_seq="1",
            static_pad_seq_len="128",
            static_pad_inputs="input_ids:1",
            static_pad_outputs="logits:1",
        )
        works(session)
        del session


def test_every_profile_spelling_is_accepted():
    """A session works, or its backend is missing; no spelling is refused."""
    with registered() as found:
        for profile in PROFILES:
            try:
                session = session_on(found[:1], affine_model(), profile=profile)
            except Exception as error:
                text = str(error)
                assert "unknown profile" not in text and "INVALID_ARGUMENT" not in text, text
                assert any(reason in text for reason in ("migraphx", "directx", "has no device for")), text
                continue
            works(session)
            del session


def test_an_unknown_profile_error_lists_the_values():
    with registered() as found:
        text = refusal(found[:1], profile="turbo")
        for word in ("turbo", "auto", "eager", "migraphx", "directx", "hip"):
            assert word in text, text


def test_an_unknown_option_error_suggests_the_nearest():
    with registered() as found:
        text = refusal(found[:1], profil="hip", cach_dir="/tmp")
        for word in ("profil", "profile", "cach_dir", "cache_dir"):
            assert f'"{word}"' in text or f"'{word}'" in text or f"`{word}`" in text, text


def test_unknown_option_is_only_a_warning_when_not_strict():
    with registered() as found:
        session = session_on(found[:1], affine_model(), xyzzy="1", strict_options="0")
        works(session)
        del session


def test_malformed_values_name_option_text_and_spellings():
    with registered() as found:
        text = refusal(found[:1], disable_caching="perhaps")
        for word in ("disable_caching", "perhaps", "true", "false"):
            assert word in text, text
        text = refusal(found[:1], device_id="two")
        assert "device_id" in text and "two" in text, text


@pytest.mark.parametrize("number", ["-1", "99", "2147483648", "99999999999999999999"])
def test_device_id_out_of_range_names_the_range(number):
    with registered() as found:
        text = refusal(found[:1], device_id=number)
        assert "device_id" in text and number in text, text


def test_errors_are_invalid_argument():
    with registered() as found:
        for options in ({"profile": "turbo"}, {"xyzzy": "1"}, {"device_id": "99"}, {"force_recompile": "x"}):
            text = refusal(found[:1], **options)
            assert "INVALID_ARGUMENT" in text, text


def test_a_registration_works_after_refused_options():
    with registered() as found:
        for _ in range(10):
            refusal(found[:1], profile="turbo")
        session = session_on(found[:1], affine_model())
        works(session)
        del session


@pytest.mark.parametrize("prefix", ["ep.amdgpu.", "ep.amdgpuexecutionprovider.", "ep.othername."])
def test_three_prefixes_are_equal(prefix):
    with registered("OtherName") as found:
        session = with_entries(found[:1], {prefix + "profile": "hip"})
        works(session)
        del session
        with pytest.raises(Exception, match="turbo"):
            with_entries(found[:1], {prefix + "profile": "turbo"})


def test_entries_of_other_providers_are_ignored():
    entries = {
        "ep.cuda.enable_cuda_graph": "1",
        "ep.nnapi.x": "y",
        "ep.share_ep_contexts": "0",
        "ep.context_enable": "0",
        "ep.enable_weightless": "0",
        "ep.hipgpu.anything": "1",
        "session.use_device_allocator_for_initializers": "1",
    }
    with registered() as found:
        session = with_entries(found[:1], entries)
        works(session)
        del session


def test_entries_of_genai_are_accepted():
    with registered() as found:
        session = with_entries(found[:1], GENAI_ENTRIES)
        works(session)
        del session


def test_arena_options_are_accepted():
    with registered() as found:
        session = with_entries(found[:1], {f"ep.{EP.lower()}.arena.extend_strategy": "1"})
        works(session)
        del session


def test_unusable_cache_folder_does_not_stop_the_session(tmp_path):
    file = tmp_path / "file"
    file.write_text("in the way")
    with registered() as found:
        for folder in (file, file / "below", "/proc/nowhere"):
            session = session_on(found[:1], affine_model(), cache_dir=folder)
            works(session)
            del session


@pytest.mark.environment(ORT_AMDGPU_TRACE_ROUTING="maybe")
def test_odd_trace_setting_does_not_stop_the_session():
    with registered() as found:
        session = session_on(found[:1], affine_model())
        works(session)
        del session


two_devices = pytest.mark.environment(AMDGPU_EP_DRIVER="host", AMDGPU_EP_HOST_DEVICES="2")


@two_devices
def test_second_device_runs_a_session():
    with registered() as found:
        assert len(found) == 2
        session = session_on([found[1]], affine_model())
        works(session)
        value = ort.OrtValue.ortvalue_from_numpy(sample(), "gpu", 1, 0x1002)
        result = session.run_with_ort_values(None, {"x": value})[0].numpy()
        close(result, affine(sample()))
        del session, value


@two_devices
def test_device_id_that_agrees_with_the_selected_device_is_accepted():
    with registered() as found:
        for ordinal in (0, 1):
            session = session_on([found[ordinal]], affine_model(), device_id=ordinal)
            works(session)
            del session


@two_devices
def test_device_id_that_contradicts_the_selected_device_is_refused():
    with registered() as found:
        text = refusal([found[1]], device_id=0)
        assert "device_id" in text and "INVALID_ARGUMENT" in text, text


@two_devices
@pytest.mark.since("1.27")
def test_one_of_several_selected_devices_is_picked():
    with registered() as found:
        session = session_on(found, affine_model())
        works(session)
        del session
        for ordinal in (0, 1):
            session = session_on(found, affine_model(), device_id=ordinal)
            works(session)
            del session
        assert "device_id" in refusal(found, device_id=2)


@pytest.mark.parametrize(
    ("entries", "meant"),
    [
        ({"ep.hip.bogus": "1"}, 'unknown option "bogus"'),
        ({"ep.hip.repaly": "on"}, 'did you mean "replay"'),
        ({"ep.hip.replay": "maybe"}, "expected auto, on or off"),
        ({"ep.hip.graph": "maybe"}, 'option replay is "maybe" (entry "ep.hip.graph")'),
        ({"ep.hip.disable_passes": "no-such-pass"}, "unknown pass no-such-pass"),
        ({"ep.migraphx.fp61_enable": "1"}, 'did you mean "fp16_enable"'),
    ],
    ids=["unknown", "misspelled", "value", "older-name", "pass", "other-backend"],
)
def test_typos_in_a_backends_options_are_errors(entries, meant):
    with registered() as found:
        with pytest.raises(Exception) as raised:
            with_entries(found[:1], {"ep.amdgpu.profile": "hip", **entries})
        assert meant in str(raised.value) and "INVALID_ARGUMENT" in str(raised.value), raised.value


def test_the_older_name_of_an_option_still_works():
    with registered() as found:
        works(with_entries(found[:1], {"ep.amdgpu.profile": "hip", "ep.hip.graph": "off"}))


def test_unknown_options_of_a_backend_do_not_reach_it_when_not_strict():
    with registered() as found:
        works(with_entries(found[:1], {"ep.amdgpu.profile": "hip", "ep.amdgpu.strict_options": "0", "ep.hip.bogus": "1"}))


def test_options_of_other_backends_are_skipped():
    with registered() as found:
        works(with_entries(found[:1], {"ep.directml.anything": "1", "ep.hipgpu.anything": "1"}))


def files_named(tmp_path):
    return {
        "ep.hip.explain_file": tmp_path / "explain",
        "ep.hip.dump_dir": tmp_path / "dump",
        "ep.hip.memory_file": tmp_path / "memory",
        "ep.hip.profile_file": tmp_path / "profile",
        "ep.hip.report_dir": tmp_path / "reports",
    }


@pytest.mark.environment(AMDGPU_EP_TRUST_OPTIONS=None)
def test_options_that_name_files_are_ignored_with_one_warning(tmp_path, capfd):
    named = {key: str(path) for key, path in files_named(tmp_path).items()}
    with registered() as found:
        entries = {"ep.amdgpu.profile": "hip", "ep.amdgpu.routing_table": str(tmp_path / "no"), **named}
        session = with_entries(found[:1], entries, severity=2)
        works(session)
        del session
    said = [line for line in capfd.readouterr().err.splitlines() if "AMDGPU_EP_TRUST_OPTIONS" in line]
    assert len(said) == 1 and all(key in said[0] for key in (*named, "ep.amdgpu.routing_table")), said
    assert not list(tmp_path.iterdir())


@pytest.mark.environment(AMDGPU_EP_TRUST_OPTIONS=None)
def test_a_process_can_trust_its_options(tmp_path):
    import ctypes

    with registered() as found:
        ctypes.CDLL(LIBRARY).amdgpu_ep_trust_options(1)
        session = with_entries(found[:1], {"ep.amdgpu.profile": "hip", **{k: str(v) for k, v in files_named(tmp_path).items()}})
        works(session)
        del session
        assert {path.name for path in tmp_path.iterdir()} == {"explain", "dump", "memory", "profile", "reports"}
        for report in ("explain", "memory"):
            assert (tmp_path / "reports" / f"{report}.jsonl").read_text() == (tmp_path / report).read_text()
        # A GPU also reports its progress with kernels.
        expected = {"explain.jsonl", "memory.jsonl"} | (set() if ON_HOST else {"progress.jsonl"})
        assert {path.name for path in (tmp_path / "reports").iterdir()} == expected


@pytest.mark.environment(AMDGPU_EP_TRUST_OPTIONS="perhaps")
def test_a_misspelled_trust_setting_grants_nothing(tmp_path, capfd):
    with registered() as found:
        entries = {"ep.amdgpu.profile": "hip", "ep.hip.explain_file": str(tmp_path / "explain")}
        works(with_entries(found[:1], entries, severity=2))
    assert not list(tmp_path.iterdir())
    assert "AMDGPU_EP_TRUST_OPTIONS is ignored" in capfd.readouterr().err


def test_our_own_library_as_a_backend_is_refused():
    with registered() as found:
        text = refusal(found[:1], backend_library=LIBRARY)
        assert "is this library itself" in text, text


def test_a_copy_of_our_own_library_as_a_backend_is_refused(tmp_path):
    copied = shutil.copy(LIBRARY, tmp_path / "copy.so")
    shutil.copy(Path(LIBRARY).with_name("libhip-host.so"), tmp_path)
    with registered() as found:
        text = refusal(found[:1], backend_library=copied)
        assert "is this library itself" in text, text


@pytest.mark.environment(AMDGPU_EP_HIPGPU_LIBRARY=LIBRARY)
def test_our_own_library_behind_a_stand_in_is_refused():
    with registered() as found:
        text = refusal(found[:1], profile="hipgpu")
        assert "is this library itself" in text, text


@pytest.mark.environment(AMDGPU_EP_HIPGPU_LIBRARY=str(Path(LIBRARY).with_name("libhipgpu-backend.so")))
def test_a_stand_in_for_itself_is_refused():
    with registered() as found:
        text = refusal(found[:1], profile="hipgpu")
        assert "is this library itself" in text, text
