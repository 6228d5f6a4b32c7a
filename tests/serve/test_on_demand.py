"""Models that are loaded by the first request, and unloaded when they are not used."""
import shutil
from concurrent.futures import ThreadPoolExecutor

from serving import ENDLESS, ROOT, STORY, command, wait_until


def settings(tmp_path, text):
    file = tmp_path / "serve.toml"
    file.write_text(text)
    return file


def states(server):
    return {model.id: model.state for model in server.client().models.list().data}


def ask(server, model, **fields):
    fields = {"messages": STORY, "max_tokens": 4, "temperature": 0, **fields}
    return server.client().chat.completions.create(model=model, **fields)


def test_the_first_request_loads_a_model(start, server):
    on_demand = start("a=demo/model", "b=demo/model", "--on-demand")
    assert on_demand.call("/ready")[0] == 200 and states(on_demand) == {"a": "unloaded", "b": "unloaded"}
    assert on_demand.call("/v2/models/a/ready")[0] == 200
    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(lambda _: ask(on_demand, "b").choices[0].message.content, range(6)))
    assert set(answers) == {ask(server, "demo").choices[0].message.content}
    assert states(on_demand) == {"a": "unloaded", "b": "ready"}
    assert on_demand.log().count("runs on") == 1, "six requests need one load"


def test_the_least_recently_used_model_makes_room(start, tmp_path, tensors):
    file = settings(tmp_path, "max_loaded = 2")
    words = ["a=demo/model", "b=demo/model", f"c={tensors}/classifier", "--on-demand", "--config", file]
    server = start(*words)
    for model in ("a", "b", "a"):
        ask(server, model)
    assert server.call("/v2/models/c")[0] == 200
    assert states(server) == {"a": "ready", "b": "unloaded", "c": "ready"}
    ask(server, "b")
    assert states(server) == {"a": "unloaded", "b": "ready", "c": "ready"}


def test_a_model_in_use_is_not_unloaded(start, tmp_path):
    server = start("a=demo/model", "b=demo/model", "--on-demand", "--config", settings(tmp_path, "max_loaded = 1"))
    with ThreadPoolExecutor(1) as pool:
        # Sixteen answers of full length; the stream stays open until it is read.
        with ask(server, "a", max_tokens=None, n=16, logit_bias=ENDLESS, stream=True) as stream:
            next(iter(stream))
            other = pool.submit(ask, server, "b")
            for _ in range(5):
                next(iter(stream))
            assert states(server) == {"a": "ready", "b": "unloaded"} and not other.done()
        assert other.result().usage.completion_tokens == 4, "it runs when the other client has gone away"
    assert states(server) == {"a": "unloaded", "b": "ready"}


def sizes(server):
    return {model.id: model.memory_bytes for model in server.client().models.list().data}


def test_the_memory_of_models_is_known(start):
    server = start("a=demo/model", "--on-demand")
    file = (ROOT / "demo/model/model.onnx").stat().st_size
    estimate = sizes(server)["a"]
    ask(server, "a")
    assert sizes(server)["a"] == file + server.metric("cache_bytes") <= estimate
    assert f"amdgpu_ep_models_bytes {sizes(server)['a']}\n" in server.call("/metrics")[1]


def test_models_stay_within_the_memory_budget(start, tmp_path):
    one = sizes(start("a=demo/model", "--on-demand"))["a"]
    models = [f"{name}=demo/model" for name in "abc"]
    server = start(*models, "--on-demand", "--memory-budget", str(2 * one))
    for model in ("a", "b", "a"):
        ask(server, model)
    assert states(server) == {"a": "ready", "b": "ready", "c": "unloaded"}
    ask(server, "c")
    assert states(server) == {"a": "ready", "b": "unloaded", "c": "ready"}, "b was used least recently"
    assert f"amdgpu_ep_memory_budget_bytes {2 * one}\n" in server.call("/metrics")[1]


def test_the_memory_of_a_model_can_be_set(start, tmp_path):
    text = "".join(f'[[models]]\nname = "{name}"\nfolder = "{ROOT}/demo/model"\nload = "on_demand"\nmemory = "3G"\n' for name in "ab")
    server = start("--config", settings(tmp_path, f'memory_budget = "5G"\n{text}'))
    for model in ("a", "b"):
        ask(server, model)
    assert states(server) == {"a": "unloaded", "b": "ready"} and sizes(server) == {"a": 3 << 30, "b": 3 << 30}


def test_a_model_that_never_fits_is_an_error_at_the_start(tmp_path):
    done = command("serve", "a=demo/model", "--on-demand", "--memory-budget", "64K", "--check")
    assert done.returncode == 2 and "memory_budget: the model a takes about" in done.stderr and "help:" in done.stderr, done.stderr
    done = command("serve", "a=demo/model", "--memory-budget", "lots")
    assert done.returncode == 2 and "suffix K, M, G or T" in done.stderr, done.stderr


def test_an_idle_model_is_unloaded(start, tmp_path):
    server = start("a=demo/model", "b=demo/model", "--config", settings(tmp_path, "idle_seconds = 1"), "--on-demand")
    first = ask(server, "a").choices[0].message.content
    wait_until(lambda: states(server) == {"a": "unloaded", "b": "unloaded"}, "the model is unloaded")
    assert ask(server, "a").choices[0].message.content == first


def test_only_the_named_models_are_loaded_on_demand(start, tmp_path):
    text = f"""
        [[models]]
        name = "first"
        folder = "{ROOT}/demo/model"
        [[models]]
        name = "second"
        folder = "{ROOT}/demo/model"
        load = "on_demand"
    """
    server = start("--config", settings(tmp_path, text))
    assert states(server) == {"first": "ready", "second": "unloaded"}
    assert ask(server, "second").usage.completion_tokens == 4
    assert states(server) == {"first": "ready", "second": "ready"}


def test_a_model_that_cannot_be_loaded_is_tried_again(start, tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(ROOT / "demo/model", folder)
    model = (folder / "model.onnx").read_bytes()
    (folder / "model.onnx").write_bytes(b"not a model")
    server = start(f"a={folder}", "--on-demand")
    status, document, _ = server.call("/v1/chat/completions", {"messages": STORY})
    assert status == 500 and "loading the model a failed" in document["error"]["message"]
    assert states(server) == {"a": "unloaded"}
    (folder / "model.onnx").write_bytes(model)
    assert ask(server, "a").usage.completion_tokens == 4


def test_a_server_stops_while_models_are_unloaded(start):
    server = start("a=demo/model", "--on-demand")
    server.terminate()
    assert server.process.wait(timeout=60) == 0, server.log()
