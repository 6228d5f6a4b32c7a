"""The Open Inference Protocol with tiny models, compared with ONNX Runtime's CPU provider."""
import json
import os
import subprocess
import urllib.request

import pytest
from serving import STORY, Server, command, wait_until

CASES = range(4)
INFER = "/v2/models/{}/infer"


@pytest.fixture(scope="module")
def cases(tensors):
    return json.loads((tensors / "cases.json").read_text())


@pytest.fixture(scope="module")
def server(tensors):
    words = ["demo=demo/model", f"classifier={tensors}/classifier", f"{tensors}/twice.onnx", f"{tensors}/picky.onnx"]
    with Server(*words) as server:
        yield server


def without(tensor, *names):
    return {name: value for name, value in tensor.items() if name not in names}


def as_json(tensor):
    return without(tensor, "bytes")


def as_bytes(tensor):
    size = len(tensor["bytes"]) // 2
    return {**without(tensor, "bytes", "data"), "parameters": {"binary_data_size": size}}


def send_binary(server, model, document, tail, **headers):
    """Sends JSON and bytes, and returns the JSON and the bytes of the answer."""
    head = json.dumps(document).encode()
    headers = {"Inference-Header-Content-Length": str(len(head)), "Content-Type": "application/octet-stream", **headers}
    request = urllib.request.Request(server.url + INFER.format(model), head + tail, headers)
    with urllib.request.urlopen(request) as response:
        body, length = response.read(), response.headers["Inference-Header-Content-Length"]
        assert response.headers["Content-Type"] == ("application/octet-stream" if length else "application/json")
        length = int(length or len(body))
        return json.loads(body[:length]), body[length:]


def check(found, wanted):
    assert (found["name"], found["datatype"], found["shape"]) == (wanted["name"], wanted["datatype"], wanted["shape"])
    if wanted["datatype"] == "FP32":
        assert found["data"] == pytest.approx(wanted["data"], rel=1e-5, abs=1e-6)
    else:
        assert found["data"] == wanted["data"]


@pytest.mark.parametrize("number", CASES)
def test_answers_are_those_of_the_cpu_provider(server, cases, number):
    case = cases[number]
    inputs = [as_json(tensor) if tensor["data"] is not None else as_bytes(tensor) for tensor in case["inputs"]]
    tail = b"".join(bytes.fromhex(tensor["bytes"]) for tensor in case["inputs"] if tensor["data"] is None)
    wanted = [tensor for tensor in case["outputs"] if tensor["data"] is not None]
    document = {"id": "7", "inputs": inputs, "outputs": [{"name": tensor["name"]} for tensor in wanted]}
    answer, rest = send_binary(server, case["model"], document, tail)
    assert (answer["id"], answer["model_name"], rest) == ("7", case["model"], b"")
    for found, output in zip(answer["outputs"], wanted, strict=True):
        check(found, output)


@pytest.mark.parametrize("number", CASES)
def test_bytes_are_the_same_numbers(server, cases, number):
    case = cases[number]
    document = {"inputs": [as_bytes(tensor) for tensor in case["inputs"]], "parameters": {"binary_data_output": True}}
    answer, rest = send_binary(server, case["model"], document, b"".join(bytes.fromhex(t["bytes"]) for t in case["inputs"]))
    for found, wanted in zip(answer["outputs"], case["outputs"], strict=True):
        size = found["parameters"]["binary_data_size"]
        data, rest = rest[:size], rest[size:]
        assert found["shape"] == wanted["shape"] and "data" not in found
        if wanted["datatype"] == "FP32":
            data = memoryview(data).cast("f").tolist() if data else []
            assert data == pytest.approx(wanted["data"], rel=1e-5, abs=1e-6)
        else:
            assert data.hex() == wanted["bytes"]
    assert rest == b""


def test_lists_may_be_nested(server, cases):
    rows = cases[1]["inputs"][0]["data"]
    nested = [rows[at : at + 4] for at in range(0, 20, 4)]
    body = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [5, 4], "data": nested}]}
    status, answer, _ = server.call(INFER.format("classifier"), body)
    assert status == 200 and "id" not in answer
    for found, wanted in zip(answer["outputs"], cases[1]["outputs"], strict=True):
        check(found, wanted)


def test_metadata_describes_inputs_and_outputs(server):
    assert server.call("/v2")[1]["extensions"] == ["binary_tensor_data"]
    assert server.call("/v2/health/live")[:2] == (200, {"live": True})
    assert server.call("/v2/health/ready")[:2] == (200, {"ready": True})
    for name in ("demo", "classifier"):
        assert server.call(f"/v2/models/{name}/ready")[:2] == (200, {"name": name, "ready": True})
    status, model, _ = server.call("/v2/models/classifier")
    assert status == 200 and model["name"] == "classifier" and model["platform"] == "onnxruntime_onnx"
    assert model["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [-1, 4]}]
    assert model["outputs"] == [
        {"name": "probabilities", "datatype": "FP32", "shape": [-1, 3]},
        {"name": "label", "datatype": "INT64", "shape": [-1]},
    ]
    kinds = {entry["id"]: entry["kind"] for entry in server.call("/v1/models")[1]["data"]}
    assert kinds == {"demo": "text", "classifier": "tensors", "twice": "tensors", "picky": "tensors"}


X = {"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 4]}


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"inputs": []},
        {"inputs": [X, X]},
        {"inputs": [{**X, "name": "y"}]},
        {"inputs": [{**X, "datatype": "FP64"}]},
        {"inputs": [{**X, "datatype": "BYTES"}]},
        {"inputs": [{**X, "shape": [4]}]},
        {"inputs": [{**X, "shape": [1, 3]}]},
        {"inputs": [{**X, "shape": [-1, 4]}]},
        {"inputs": [{**X, "shape": [2**62, 4]}]},
        {"inputs": [{**X, "shape": [2**62, 4], "data": []}]},
        {"inputs": [{**X, "shape": [1.5, 4]}]},
        {"inputs": [{**X, "data": [1, 2, 3]}]},
        {"inputs": [{**X, "data": [1, 2, 3, "4"]}]},
        {"inputs": [{**X, "data": [1, 2, 3, 1e300]}]},
        {"inputs": [{**X, "data": None}]},
        {"inputs": [{**X, "parameters": {"binary_data_size": 16}}]},
        {"inputs": [{**without(X, "data"), "parameters": {"binary_data_size": 16}}]},
        {"inputs": [X], "outputs": [{"name": "y"}]},
        {"inputs": [X], "outputs": [{"name": "label", "parameters": {"classification": 1}}]},
        {"inputs": "x"},
    ],
    ids=range(21),
)
def test_wrong_requests_are_described(server, body):
    status, document, _ = server.call(INFER.format("classifier"), body)
    assert status == 400 and list(document) == ["error"] and isinstance(document["error"], str), document


@pytest.mark.parametrize("position, length", [([9], 1), ([-9], 1), ([0, 1, 2], 2)])
def test_inputs_that_the_model_refuses_are_no_server_errors(server, position, length):
    inputs = [
        {"name": "position", "datatype": "INT64", "shape": [len(position)], "data": position},
        {"name": "y", "datatype": "FP32", "shape": [length], "data": [0.0] * length},
    ]
    status, document, _ = server.call(INFER.format("picky"), {"inputs": inputs})
    assert status == 422 and "these inputs" in document["error"], document
    good = {"inputs": [{**inputs[0], "shape": [1], "data": [3]}, {**inputs[1], "shape": [1], "data": [0.5]}]}
    assert server.call(INFER.format("picky"), good)[1]["outputs"][0]["data"] == [3.5]


def test_half_floats_need_bytes(server, cases):
    tensor = next(tensor for tensor in cases[3]["inputs"] if tensor["datatype"] == "FP16")
    status, document, _ = server.call(INFER.format("twice"), {"inputs": [{**as_json(tensor), "data": [0.5] * 6}]})
    assert status == 400 and "binary" in document["error"]


@pytest.mark.parametrize("length", ["9999999", "-1", "x", ""])
def test_a_wrong_length_of_the_json_is_described(server, length):
    headers = {"Inference-Header-Content-Length": length}
    status, document, _ = server.call(INFER.format("classifier"), {"inputs": [X]}, headers)
    assert status == 400 and isinstance(document["error"], str)


def test_models_are_not_confused(server):
    assert server.call("/v2/models/none")[0] == 404
    assert server.call("/v2/models/none/ready")[0] == 404
    assert server.call(INFER.format("none"), {"inputs": []})[0] == 404
    for path in ("/v2/models/demo", INFER.format("demo")):
        status, document, _ = server.call(path, {"inputs": []} if "infer" in path else None)
        assert status == 400 and "text" in document["error"]
    assert server.call("/v1/chat/completions", {"model": "twice", "messages": STORY})[0] == 400
    assert server.call("/v1/embeddings", {"model": "twice", "input": "a"})[0] == 400
    assert server.call("/v2/none")[1] == {"error": "there is nothing at /v2/none"}
    assert server.call(INFER.format("twice"), b"{}", {"Content-Type": "text/plain"})[0] == 415


def test_a_model_of_other_types_is_refused_before_it_is_served(tmp_path):
    code = (
        "import onnx, sys\nfrom onnx import helper as h\n"
        "info = lambda name: h.make_tensor_value_info(name, onnx.TensorProto.STRING, [None])\n"
        "graph = h.make_graph([h.make_node('Identity', ['x'], ['y'])], 'g', [info('x')], [info('y')])\n"
        "onnx.save(h.make_model(graph, opset_imports=[h.make_opsetid('', 21)], ir_version=10), sys.argv[1])"
    )
    model = tmp_path / "strings.onnx"
    subprocess.run([os.environ["AMDGPU_EP_TEST_ONNX_PYTHON"], "-c", code, model], check=True)
    done = command("serve", str(model), "--port", "0")
    assert done.returncode == 2 and "its input \"x\" is a tensor of strings" in done.stderr and "help:" in done.stderr


PICKY = {
    "inputs": [
        {"name": "position", "datatype": "INT64", "shape": [2], "data": [1, 4]},
        {"name": "y", "datatype": "FP32", "shape": [2], "data": [0.5, 0.25]},
    ]
}


def test_a_lost_device_is_an_error_of_the_server(start, tensors, tmp_path):
    lost = tmp_path / "lost"
    server = start(f"picky={tensors}/picky.onnx", AMDGPU_EP_HOST_LOST=str(lost))
    infer = lambda: server.call("/v2/models/picky/infer", PICKY)
    status, document, _ = infer()
    assert status == 200 and document["outputs"][0]["data"] == [1.5, 4.25], document
    lost.touch()
    status, document, _ = infer()
    assert status == 500 and "these inputs" not in document["error"], document
    assert str(tmp_path) not in document["error"], "details are for the server's log"
    wait_until(lambda: "719" in server.log(), "the log has the device's error")
    lost.unlink()
    status, document, _ = infer()
    assert status == 200 and document["outputs"][0]["data"] == [1.5, 4.25], document
