"""Speech to text: the tokens of `amdgpu-ep transcribe`, and of ONNX Runtime GenAI on our device, are those of GenAI on its CPU
provider. GenAI computes the features of audio itself, so these are compared, too."""
import json
import sys
from pathlib import Path

import numpy as np
import pytest
from command_support import call, document, error
from support import LIBRARY

sys.path.append(str(Path(__file__).resolve().parents[1]))

import tiny_whisper
from tiny_whisper import VOCABULARY, save_wav, signal, special

pytestmark = pytest.mark.environment(AMDGPU_EP_PATH=LIBRARY)

SEEDS = range(4)
ENGLISH = "<|startoftranscript|><|en|><|transcribe|><|notimestamps|>"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("whisper") / "model"
    tiny_whisper.write(place)
    return place


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """The same weights, with keys and values in shared buffers."""
    place = tmp_path_factory.mktemp("whisper") / "shared"
    tiny_whisper.write(place, shared=True)
    return place


@pytest.fixture(scope="module")
def recordings(tmp_path_factory):
    place = tmp_path_factory.mktemp("audio")
    paths = [place / f"{seed}.wav" for seed in SEEDS]
    for seed, path in zip(SEEDS, paths):
        save_wav(path, signal(seed, seconds=2 + 5 * seed))
    return paths


def loaded(og, folder, provider):
    config = og.Config(str(folder))
    config.clear_providers()
    if provider != "cpu":
        config.append_provider(provider)
    return og.Model(config)


def by_genai(og, model, audio, prompt=ENGLISH, mask=None):
    """GenAI's tokens after the prompt. `mask` changes the scores of a step, given the number of earlier ones."""
    inputs = model.create_multimodal_processor()([prompt], audios=og.Audios.open(str(audio)))
    parameters = og.GeneratorParams(model)
    parameters.set_search_options(do_sample=False, batch_size=1, num_beams=1, max_length=tiny_whisper.CONTEXT)
    generator = og.Generator(model, parameters)
    generator.set_inputs(inputs)
    tokens = []
    while not generator.is_done():
        if mask:
            scores = np.array(generator.get_logits(), np.float32)
            mask(scores.reshape(-1, VOCABULARY)[-1], len(tokens))
            generator.set_logits(scores)
        generator.generate_next_token()
        tokens.append(int(generator.get_next_tokens()[0]))
    del generator
    return tokens


def transcribed(folder, audio, *words):
    """The document of the command, and the tokens of its segments."""
    found = document("transcribe", folder, audio, *words)
    return found, [segment["tokens"] for segment in found["segments"]]


def test_genai_gives_the_same_tokens_on_the_device(folder, shared, recordings):
    """GenAI refuses separate buffers on this provider, so the decoder on the device has shared ones."""
    import onnxruntime_genai as og

    models = [loaded(og, folder, "cpu"), loaded(og, shared, "amdgpu")]
    texts = [[by_genai(og, model, audio) for audio in recordings] for model in models]
    assert texts[1] == texts[0]
    assert len({tuple(tokens) for tokens in texts[0]}) == len(recordings), "the audio must make a difference"
    del models


@pytest.mark.parametrize("provider", ["cpu", "amdgpu"])
def test_tokens_are_those_of_genai(folder, shared, recordings, provider):
    import onnxruntime_genai as og

    model = loaded(og, folder, "cpu")
    for audio in recordings:
        expected = [by_genai(og, model, audio)]
        for place in (folder, shared):
            found, tokens = transcribed(place, audio, "--language", "en", "--provider", provider)
            assert tokens == expected, audio
            assert found["language"] == "en" and found["notices"] == []
            assert found["provider"].startswith("AMDGPU" if provider == "amdgpu" else "CPU")
    del model


def test_models_with_128_bands_run(recordings, tmp_path):
    import onnxruntime_genai as og

    tiny_whisper.write(tmp_path / "large", mels=128)
    model = loaded(og, tmp_path / "large", "cpu")
    for audio in recordings[:3]:
        tokens = transcribed(tmp_path / "large", audio, "--language", "en", "--provider", "amdgpu")[1]
        assert tokens == [by_genai(og, model, audio)], audio
    del model


def test_language_and_task_are_part_of_the_prompt(folder, recordings):
    import onnxruntime_genai as og

    model = loaded(og, folder, "cpu")
    prompt = ENGLISH.replace("en", "de").replace("transcribe|", "translate|")
    found, tokens = transcribed(folder, recordings[1], "--language", "de", "--task", "translate", "--provider", "cpu")
    assert tokens == [by_genai(og, model, recordings[1], prompt)] and found["language"] == "de"
    assert tokens != [by_genai(og, model, recordings[1])]
    del model


def test_the_most_likely_language_is_chosen(folder, recordings):
    """The first token that GenAI generates after the start, if only languages are allowed."""
    import onnxruntime_genai as og

    languages = {special(f"<|{code}|>"): code for code in ("en", "de", "fr")}

    def only_languages(scores, step):
        if step == 0:
            scores[[token for token in range(VOCABULARY) if token not in languages]] = -1e30

    model = loaded(og, folder, "cpu")
    chosen = set()
    for audio in recordings:
        language = languages[by_genai(og, model, audio, "<|startoftranscript|>", only_languages)[0]]
        found, tokens = transcribed(folder, audio, "--provider", "cpu")
        assert found["language"] == language
        assert tokens == [by_genai(og, model, audio, ENGLISH.replace("en", language))]
        chosen.add(language)
    assert len(chosen) > 1
    del model


def changed(folder, place, change):
    """A copy of the folder with other settings."""
    place.mkdir()
    for file in folder.iterdir():
        (place / file.name).symlink_to(file)
    config = json.loads((folder / "genai_config.json").read_text())
    change(config["model"])
    (place / "genai_config.json").unlink()
    (place / "genai_config.json").write_text(json.dumps(config))
    return place


def test_end_tokens_end_a_transcript(folder, recordings, tmp_path):
    import onnxruntime_genai as og

    model = loaded(og, folder, "cpu")
    plain = by_genai(og, model, recordings[2])
    end = next(token for token in plain[8:] if token not in plain[:8])
    copy = changed(folder, tmp_path / "ending", lambda model: model.update(eos_token_id=[end, model["eos_token_id"]]))
    found, tokens = transcribed(copy, recordings[2], "--language", "en", "--provider", "cpu")
    assert tokens == [plain[: plain.index(end) + 1]] and found["segments"][0]["finish"] == "end_token"
    assert by_genai(og, loaded(og, copy, "cpu"), recordings[2]) == tokens[0]
    del model


def test_suppressed_tokens_are_never_chosen(folder, recordings, tmp_path):
    import onnxruntime_genai as og

    model = loaded(og, folder, "cpu")
    plain = by_genai(og, model, recordings[2])
    always, first = sorted(set(plain[1:]))[:3], [plain[0]]

    def mask(scores, step):
        scores[always + (first if step == 0 else [])] = -1e30

    copy = changed(folder, tmp_path / "suppressing", lambda model: None)
    lists = {"suppress_tokens": [*always, -1], "begin_suppress_tokens": first}
    (copy / "generation_config.json").write_text(json.dumps(lists))
    expected = by_genai(og, model, recordings[2], mask=mask)
    assert transcribed(copy, recordings[2], "--language", "en", "--provider", "cpu")[1] == [expected] != [plain]
    del model


def test_long_audio_is_transcribed_in_chunks_of_30_seconds(folder, tmp_path):
    import onnxruntime_genai as og

    model = loaded(og, folder, "cpu")
    sound = signal(9, 75)
    save_wav(tmp_path / "whole.wav", sound)
    found, tokens = transcribed(folder, tmp_path / "whole.wav", "--language", "en", "--provider", "cpu")
    expected = []
    for start in (0, 30, 60):
        save_wav(tmp_path / "part.wav", sound[start * 16000 : (start + 30) * 16000])
        expected.append(by_genai(og, model, tmp_path / "part.wav"))
    assert tokens == expected
    assert [(segment["start"], segment["end"]) for segment in found["segments"]] == [(0, 30), (30, 60), (60, 75)]
    assert found["seconds"] == 75 and found["text"] == "".join(segment["text"] for segment in found["segments"]).strip()
    del model


def test_the_command_prints_the_text(folder, recordings):
    words = ("transcribe", folder, recordings[0], "--language", "en", "--provider", "cpu")
    done = call(*words)
    assert done.returncode == 0 and done.stdout.decode() == document(*words)["text"] + "\n"


def test_audio_comes_from_stdin(folder, recordings):
    import subprocess

    from command_support import COMMAND, onnxruntime_library

    words = [COMMAND, "transcribe", folder, "-", "--language", "en", "--provider", "cpu", "--ort", onnxruntime_library()]
    done = subprocess.run(words, input=recordings[0].read_bytes(), capture_output=True, timeout=600)
    assert done.returncode == 0
    assert done.stdout == call("transcribe", folder, recordings[0], "--language", "en", "--provider", "cpu").stdout


def test_half_precision_runs_on_the_device(recordings, tmp_path):
    """Scores of half precision round differently on other providers, so only the first tokens are compared."""
    import onnxruntime_genai as og

    tiny_whisper.write(tmp_path / "half", half=True)
    model = loaded(og, tmp_path / "half", "cpu")
    for audio in recordings[:3]:
        tokens = transcribed(tmp_path / "half", audio, "--language", "en", "--provider", "amdgpu")[1]
        assert tokens[0][:4] == by_genai(og, model, audio)[:4]
    del model


@pytest.mark.parametrize("name", ["empty", "text", "no samples", "no channels", "odd bits", "header"])
def test_unusable_audio_is_refused(folder, recordings, tmp_path, name):
    whole = recordings[0].read_bytes()
    files = {
        "empty": (b"", "ends before its samples"),
        "text": (b"this is not audio, but a text that is long enough", "not a WAV file"),
        "no samples": (whole[:40] + bytes(4), "has no samples"),
        "no channels": (whole[:22] + bytes(2) + whole[24:], "0 channels"),
        "odd bits": (whole[:34] + b"\x0d\0" + whole[36:], "13 bits"),
        "header": (whole[:30], "ends before its samples"),
    }
    content, problem = files[name]
    (tmp_path / "audio.wav").write_bytes(content)
    message = error("transcribe", folder, tmp_path / "audio.wav", "--provider", "cpu")
    assert problem in message and "help:" in message


@pytest.mark.parametrize("words, problem", [
    (["--language", "xx"], "does not know the language"),
    (["--max-length", "99"], "--max-length is 99"),
])
def test_wrong_options_are_refused(folder, recordings, words, problem):
    assert problem in error("transcribe", folder, recordings[0], "--provider", "cpu", *words)


@pytest.mark.parametrize("field, value, problem", [
    ("filename", "../elsewhere.onnx", "not a path inside the model folder"),
    ("filename", "/etc/passwd", "not a path inside the model folder"),
    ("filename", "missing.onnx", "missing.onnx"),
    ("filename", "decoder.onnx", "inputs"),
    ("outputs", {"cross_present_key_names": "same"}, "no %d for the layer number"),
    ("outputs", {"encoder_hidden_states": "other"}, "no output"),
])
def test_a_wrong_encoder_is_refused(folder, recordings, tmp_path, field, value, problem):
    place = changed(folder, tmp_path / "wrong", lambda model: model["encoder"].update({field: value}))
    message = error("transcribe", place, recordings[0], "--provider", "cpu")
    assert problem in message and "help:" in message


def test_other_commands_name_this_one(folder, recordings):
    assert "amdgpu-ep transcribe" in error("generate", folder, "Hello", "--provider", "cpu")


def test_language_models_are_refused(recordings):
    from genai_support import folder_of

    message = error("transcribe", folder_of("nano-fp32"), recordings[0], "--provider", "cpu")
    assert "does not transcribe audio" in message
