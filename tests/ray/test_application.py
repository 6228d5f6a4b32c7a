"""The application on a real Ray cluster: requests, failures of servers and replicas, and the end."""
import os
import signal
from concurrent.futures import ThreadPoolExecutor

import openai
import psutil
import pytest
from cluster import all_servers, call, is_busy, slots
from serving import ENDLESS, STORY, Server, wait_until

# Sixteen answers of full length take seconds on two slots.
LONG = {"messages": STORY, "n": 16, "logit_bias": ENDLESS, "stream": True}


def ask(client, **fields):
    return client.chat.completions.create(**{"model": "demo", "messages": STORY, "temperature": 0, "max_tokens": 20, **fields})


def text(client, **fields):
    return ask(client, **fields).choices[0].message.content


def test_answers_are_those_of_a_server_without_ray(application):
    with Server("demo=demo/model") as alone:
        wanted = text(alone.client())
    client = application.client()
    assert text(client) == wanted
    pieces = [chunk.choices[0].delta.content or "" for chunk in ask(client, stream=True) if chunk.choices]
    assert len(pieces) > 5 and "".join(pieces) == wanted


def test_errors_and_other_paths_are_passed_through(application):
    client = application.client()
    with pytest.raises(openai.BadRequestError) as caught:
        ask(client, temperature=-1)
    assert caught.value.param == "temperature"
    assert [model.id for model in client.models.list()] == ["demo"]


def test_each_replica_has_its_share_of_the_slots(application):
    assert [len(slots(server)) for server in application.servers()] == [2, 2]


def test_servers_see_the_devices_that_ray_assigned(application):
    # Ray finds no AMD GPU here, and then sets this variable for its GPUs instead of HIP_VISIBLE_DEVICES.
    assigned = [server.environ().get("CUDA_VISIBLE_DEVICES") for server in application.servers()]
    assert assigned == ["0", "0"]


def test_requests_are_spread_over_the_replicas(application):
    with ThreadPoolExecutor(8) as pool:
        texts = list(pool.map(lambda _: text(application.client()), range(24)))
    assert len(set(texts)) == 1
    counts = [metric(server, "requests_finished_total") for server in application.servers()]
    assert len(counts) == 2 and all(counts), counts


def metric(server, name):
    lines = call(server, "/metrics").splitlines()
    return next(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(f"amdgpu_ep_{name}{{"))


def test_a_client_that_disconnects_frees_its_slots(application):
    with application.client().chat.completions.create(model="demo", **LONG) as stream:
        next(iter(stream))
    wait_until(lambda: not any(is_busy(server) for server in application.servers()), "all slots are idle")


def read_to_the_end(stream):
    """Reads a stream; returns the error that ended it, or none if it was complete."""
    try:
        finished = sum(choice.finish_reason is not None for chunk in stream for choice in chunk.choices)
    except (openai.APIError, openai.APIConnectionError) as error:
        return error
    except Exception as error:
        # What the HTTP library raises when the connection ends.
        assert "closed" in str(error) or "incomplete" in str(error), repr(error)
        return error
    assert finished == LONG["n"], f"the stream ended without an error after {finished} answers"
    return None


def victim_of_stream(application):
    """Starts a long stream; returns it, and the server that generates it."""
    application.wait_until_whole(2)
    stream = iter(application.client().chat.completions.create(model="demo", **LONG))
    next(stream)
    [server] = [server for server in application.servers() if is_busy(server)]
    return stream, server


def test_a_stream_whose_server_is_killed_ends_with_an_error_event(application):
    stream, server = victim_of_stream(application)
    replica = server.parent()
    server.send_signal(signal.SIGKILL)
    error = read_to_the_end(stream)
    assert isinstance(error, openai.APIError) and "ended before the answer was complete" in error.message
    wait_until(lambda: not replica.is_running() or replica.status() == psutil.STATUS_ZOMBIE, "the replica leaves")
    assert text(application.client())
    application.wait_until_whole(2)
    assert [text(application.client()) for _ in range(8)] == [text(application.client())] * 8


def test_a_stream_whose_replica_is_killed_ends_and_its_server_ends_too(application):
    stream, server = victim_of_stream(application)
    os.kill(server.ppid(), signal.SIGKILL)
    assert read_to_the_end(stream) is not None
    wait_until(lambda: server not in all_servers(), "the server of the replica ends")
    assert text(application.client())
    application.wait_until_whole(2)


def test_requests_of_a_session_go_to_one_replica(ray_cluster, application):
    sizes = {"num_gpus": 0, "num_cpus": 0.5, "slots": 2, "min_replicas": 2, "max_replicas": 2}
    with ray_cluster.application("sticky", session_affinity=True, **sizes) as sticky:
        client = sticky.client().with_options(default_headers={"x-session-id": "one"})
        assert len({text(client) for _ in range(10)}) == 1
        counts = sorted(metric(server, "requests_finished_total") for server in sticky.servers())
        assert counts == [0, 10]


def test_no_server_is_left_behind(ray_cluster):
    before = set(all_servers())
    with ray_cluster.application("short", num_gpus=0, slots=1) as short:
        [server] = short.servers()
        assert server not in before and text(short.client())
    wait_until(lambda: set(all_servers()) <= before, "the server ends")
