"""The endpoints for speech, with the `openai` package's client, compared with `amdgpu-ep transcribe`. The command's tokens are
compared with ONNX Runtime GenAI in tests/python/test_genai_whisper.py."""
import json
import os
import subprocess

import openai
import pytest
from serving import ROOT, STORY, Server, command


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("speech")
    script = ROOT / "tests" / "tiny_whisper.py"
    words = [os.environ["AMDGPU_EP_TEST_ONNX_PYTHON"], script, folder / "whisper", "--signal", folder / "audio.wav"]
    subprocess.run(words, check=True)
    return folder


@pytest.fixture(scope="module")
def server(place):
    with Server("demo=demo/model", f"whisper={place / 'whisper'}") as server:
        yield server


def by_command(place, *words):
    done = command("transcribe", place / "whisper", place / "audio.wav", "--json", *words)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def ask(server, place, **fields):
    with open(place / "audio.wav", "rb") as file:
        return server.client().audio.transcriptions.create(model="whisper", file=file, **fields)


def test_the_text_is_that_of_the_command(server, place):
    assert ask(server, place, language="de").text == by_command(place, "--language", "de")["text"] != ""


def test_the_language_is_chosen_and_segments_are_reported(server, place):
    found, expected = ask(server, place, response_format="verbose_json"), by_command(place)
    assert (found.text, found.language, found.duration) == (expected["text"], expected["language"], 4.0)
    assert [segment.tokens for segment in found.segments] == [segment["tokens"] for segment in expected["segments"]]
    assert [(segment.start, segment.end) for segment in found.segments] == [(0.0, 4.0)]


def test_plain_text(server, place):
    assert ask(server, place, language="en", response_format="text") == by_command(place, "--language", "en")["text"] + "\n"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_translations(server, place):
    with open(place / "audio.wav", "rb") as file:
        found = server.client().audio.translations.create(model="whisper", file=file)
    assert found.text == by_command(place, "--task", "translate")["text"] != by_command(place)["text"]


def test_models_are_not_confused(server, place):
    kinds = {model.id: model.kind for model in server.client().models.list().data}
    assert kinds == {"demo": "text", "whisper": "transcripts"}
    with pytest.raises(openai.BadRequestError, match="makes text, not transcripts"), open(place / "audio.wav", "rb") as file:
        server.client().audio.transcriptions.create(model="demo", file=file)
    with pytest.raises(openai.BadRequestError, match="makes transcripts, not text"):
        server.client().chat.completions.create(model="whisper", messages=STORY)


@pytest.mark.parametrize("fields, problem", [
    ({"language": "xx"}, "does not know the language"),
    ({"response_format": "srt"}, "json, text or verbose_json"),
    ({"prompt": "Earlier words"}, "does not support"),
    ({"temperature": 0.5}, "does not support"),
    ({"stream": True}, "does not support"),
])
def test_wrong_fields_are_bad_requests(server, place, fields, problem):
    with pytest.raises(openai.BadRequestError, match=problem):
        ask(server, place, **fields)


@pytest.mark.parametrize("content, problem", [(b"", "ends before its samples"), (b"no audio" * 9, "not a WAV file")])
def test_unusable_audio_is_a_bad_request(server, content, problem):
    with pytest.raises(openai.BadRequestError, match=problem):
        server.client().audio.transcriptions.create(model="whisper", file=("audio.wav", content))


def test_large_bodies_are_refused(server):
    with pytest.raises(openai.APIStatusError) as caught:
        server.client().audio.transcriptions.create(model="whisper", file=("audio.wav", bytes(5 << 20)))
    assert caught.value.status_code == 413


@pytest.mark.parametrize("headers, body, status", [
    ({"Content-Type": "application/json"}, b"{}", 415),
    ({"Content-Type": "multipart/form-data"}, b"", 400),
    ({"Content-Type": "multipart/form-data; boundary=B"}, b"--B\r\n", 400),
    ({"Content-Type": "multipart/form-data; boundary=B"}, b'--B\r\nContent-Disposition: form-data; name="a"\r\n\r\n1\r\n--B--', 400),
    ({"Content-Type": "multipart/form-data; boundary=B", "Origin": "https://elsewhere.example"}, b"--B--", 403),
])
def test_other_bodies_are_refused(server, headers, body, status):
    found, document, _ = server.call("/v1/audio/transcriptions", body, headers)
    assert found == status and document["error"]["message"]
