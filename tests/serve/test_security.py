"""Keys, origins, hosts, logs and settings."""
import json
import shutil

import openai
import pytest
from serving import ROOT, STORY, command, wait_until

KEY, OTHER = "a-long-key-for-the-tests", "another-long-key-for-tests"
SECRET = "Tell me a story about a purple submarine."


@pytest.fixture(scope="module")
def key_file(tmp_path_factory):
    done = command("serve", "--hash-key", "ann", stdin=KEY + "\n")
    assert done.returncode == 0 and KEY not in done.stdout, done.stderr
    file = tmp_path_factory.mktemp("keys") / "keys.txt"
    file.write_text(f"# people\n{done.stdout}")
    return file


def test_only_known_keys_are_accepted(start, key_file):
    server = start("demo=demo/model", "--api-keys", key_file, "--log", "json", AMDGPU_EP_API_KEYS=OTHER)
    for key in (KEY, OTHER):
        assert server.client(key).models.list().data[0].id == "demo"
    for key in ("wrong-but-long-enough-key", KEY[:-1], KEY + "x"):
        with pytest.raises(openai.AuthenticationError):
            server.client(key).models.list()
    for path in ("/v1/models", "/metrics", "/slots"):
        assert server.call(path)[0] == 401
    assert server.call("/tokenize", {"prompt": "x"})[0] == 401
    status, document, _ = server.call("/v1/messages", {"max_tokens": 1, "messages": STORY})
    assert status == 401 and (document["type"], document["error"]["type"]) == ("error", "authentication_error")
    assert [server.call(path)[0] for path in ("/health", "/ready")] == [200, 200]
    assert server.call("/v1/models", headers={"x-api-key": KEY})[0] == 200
    wait_until(lambda: '"key":"ann"' in server.log(), "the log names the key")
    assert KEY not in server.log()


def test_the_log_has_ids_and_counts_but_no_text(start):
    server = start("demo=demo/model", "--log", "json")
    messages = [{"role": "user", "content": SECRET}]
    body = {"messages": messages, "temperature": 0, "max_tokens": 8}
    status, answer, headers = server.call("/v1/chat/completions", body, {"X-Request-Id": "my-id-1"})
    assert status == 200 and headers["x-request-id"] == "my-id-1"
    wait_until(lambda: "my-id-1" in server.log(), "the request is logged")
    line = json.loads(next(line for line in server.lines if "my-id-1" in line))
    assert line["new_tokens"] == 8 and line["status"] == 200 and line["model"] == "demo" and line["complete"]
    assert "submarine" not in server.log() and answer["choices"][0]["message"]["content"] not in server.log()


def test_ids_differ_and_forged_ones_are_replaced(server):
    ids = [server.call("/health", headers={"X-Request-Id": text})[2]["x-request-id"] for text in ("a b", "a\tb", "")]
    assert len(set(ids)) == 3 and all(id.isalnum() for id in ids)


def test_other_hosts_are_refused(server):
    assert server.call("/v1/models", headers={"Host": "evil.example.org"})[0] == 403
    assert server.call("/v1/models", headers={"Host": "localhost:1"})[0] == 200


def test_web_pages_of_other_origins_get_no_permission(server, start):
    origin = {"Origin": "https://chat.example.org"}
    assert server.call("/health", headers=origin)[2]["access-control-allow-origin"] is None
    open_server = start("demo=demo/model", "--cors-origin", origin["Origin"])
    assert open_server.call("/health", headers=origin)[2]["access-control-allow-origin"] == origin["Origin"]
    other = {"Origin": "https://evil.example.org"}
    assert open_server.call("/health", headers=other)[2]["access-control-allow-origin"] is None
    # What the official clients for JavaScript ask for.
    wanted = "anthropic-version,authorization,content-type,x-api-key,x-stainless-lang"
    asked = {**origin, "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": wanted}
    status, _, headers = open_server.call("/v1/messages", headers=asked, method="OPTIONS")
    assert status == 200 and "POST" in headers["access-control-allow-methods"]
    assert set(headers["access-control-allow-headers"].split(",")) >= set(wanted.split(","))


def test_live_is_apart_from_ready(server):
    assert server.call("/health")[1] == {"status": "ok"}
    assert server.call("/ready")[1] == {"status": "ready"}


def test_metrics_count_requests_and_tokens(start):
    server = start("demo=demo/model")
    server.client().chat.completions.create(model="demo", messages=STORY, max_tokens=5, temperature=0)
    wait_until(lambda: server.metric("new_tokens_total") == 5, "five tokens are counted")
    text = server.call("/metrics")[1]
    assert 'amdgpu_ep_http_requests_total{path="/v1/chat/completions",status="200"} 1' in text
    assert "amdgpu_ep_time_to_first_token_seconds_count 1" in text
    assert 'le="+Inf"} 1' in text


def test_check_validates_settings(tmp_path):
    file = tmp_path / "serve.toml"
    file.write_text("slots = 2\n[[models]]\nname = 'demo'\nfolder = 'model'\n")
    (tmp_path / "model").symlink_to(ROOT / "demo/model")
    (tmp_path / "nobody.txt").write_text("# nobody\n")
    (tmp_path / "encoder").mkdir()
    (tmp_path / "encoder/model.onnx").touch()
    (tmp_path / "encoder/tokenizer.json").write_text("{}")
    done = command("serve", "--config", file, "--check")
    assert done.returncode == 0 and "demo (llama, 288 tokens)" in done.stdout, done.stderr
    for text, wanted in [
        ("slot = 2", "unknown field `slot`"),
        ("slots = 0\n[[models]]\nfolder = 'model'", "slots: it is 0"),
        ("[[models]]\nfolder = 'nowhere'", "nowhere"),
        ("", "there is no model"),
        ("api_keys = 'none.txt'\n[[models]]\nfolder = 'model'", "none.txt"),
        ("api_keys = 'nobody.txt'\n[[models]]\nfolder = 'model'", "nobody.txt: there is no key in it"),
        ("cors_origins = ['chat.example.org']\n[[models]]\nfolder = 'model'", "is not an origin"),
        ("[[models]]\nfolder = 'encoder'", "tokenizer.json"),
        ("[[models]]\nfolder = 'none.onnx'", "none.onnx"),
    ]:
        file.write_text(text)
        done = command("serve", "--config", file, "--check")
        assert done.returncode == 2 and wanted in done.stderr and "help:" in done.stderr, done.stderr


def test_a_wrong_folder_is_reported_before_the_server_listens(tmp_path):
    (tmp_path / "genai_config.json").write_text("{}")
    done = command("serve", str(tmp_path), "--port", "0")
    assert done.returncode == 2 and "genai_config.json" in done.stderr and "listening" not in done.stderr


def test_a_model_that_cannot_be_loaded_ends_the_server(tmp_path):
    folder = tmp_path / "broken"
    shutil.copytree(ROOT / "demo/model", folder)
    (folder / "model.onnx").write_bytes(b"not a model")
    done = command("serve", str(folder), "--port", "0")
    assert done.returncode == 2 and "listening" in done.stderr and "the model broken could not be loaded" in done.stderr


def test_a_variable_without_keys_does_not_open_the_server():
    done = command("serve", "demo/model", "--check", AMDGPU_EP_API_KEYS=",")
    assert done.returncode == 2 and "there is no key in it" in done.stderr
