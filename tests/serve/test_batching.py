"""Requests that run together, wait, leave early or are refused."""
import threading
from concurrent.futures import ThreadPoolExecutor

import openai
from serving import ENDLESS, STORY, wait_until

WORDS = ["bear", "fox", "mouse", "cat", "rabbit"]


def mixed_requests():
    """Twenty requests: greedy and seeded, of different lengths."""
    for number in range(20):
        content = f"Tell me a story about a {WORDS[number % 5]} named Tom."
        sampling = {"temperature": 0} if number % 2 else {"temperature": 1.3, "seed": number}
        yield {"messages": [{"role": "user", "content": content}], "max_tokens": 10 + 7 * number % 60, **sampling}


def text_of(client, request):
    return client.chat.completions.create(model="demo", **request).choices[0].message.content


def test_twenty_requests_at_once_are_answered_as_one_after_the_other(server):
    client, requests = server.client(), list(mixed_requests())
    alone = [text_of(client, request) for request in requests]
    steps, rows = server.metric("steps_total"), server.metric("step_rows_total")
    with ThreadPoolExecutor(len(requests)) as pool:
        together = list(pool.map(lambda request: text_of(client, request), requests))
    assert together == alone
    mean = (server.metric("step_rows_total") - rows) / (server.metric("steps_total") - steps)
    assert mean > 1.5, f"steps had {mean:.2f} rows on average: the requests did not run together"


def test_a_client_that_disconnects_frees_its_slot(start):
    server = start("demo=demo/model", "--slots", "1")
    # Sixteen answers of full length take seconds on one slot.
    request = {"messages": STORY, "n": 16, "logit_bias": ENDLESS, "stream": True}
    with server.client().chat.completions.create(model="demo", **request) as stream:
        next(iter(stream))
        wait_until(lambda: server.slots() != ["idle"], "the request runs")
    wait_until(lambda: server.metric("requests_cancelled_total") == 1, "the request is cancelled")
    wait_until(lambda: server.slots() == ["idle"], "the slot is free")
    assert text_of(server.client(), {"messages": STORY, "max_tokens": 2, "temperature": 0})


def test_a_client_that_disconnects_before_the_answer_frees_its_slot(start):
    server = start("demo=demo/model", "--slots", "1")
    request = {"messages": STORY, "n": 16, "logit_bias": ENDLESS}
    try:
        server.client().with_options(timeout=0.5).chat.completions.create(model="demo", **request)
    except openai.APITimeoutError:
        wait_until(lambda: server.metric("requests_cancelled_total") == 1, "the request is cancelled")
        wait_until(lambda: server.slots() == ["idle"], "the slot is free")
    else:
        raise AssertionError("sixteen answers took less than half a second")


def test_requests_beyond_the_queue_are_refused_until_there_is_room(start):
    server = start("demo=demo/model", "--slots", "1", "--queue", "1")
    client, request = server.client(), {"messages": STORY, "n": 4, "logit_bias": ENDLESS}
    barrier = threading.Barrier(6)

    def attempt(_):
        barrier.wait()
        try:
            return client.chat.completions.create(model="demo", **request)
        except openai.RateLimitError as error:
            return error

    with ThreadPoolExecutor(6) as pool:
        results = list(pool.map(attempt, range(6)))
    refused = [result for result in results if isinstance(result, openai.RateLimitError)]
    assert 0 < len(refused) < 6
    assert all(int(error.response.headers["retry-after"]) >= 1 and error.code == "queue_full" for error in refused)
    assert server.metric("requests_rejected_total") == len(refused)
    assert text_of(client, {"messages": STORY, "max_tokens": 2, "temperature": 0})


def test_running_requests_end_when_the_server_stops(start):
    server = start("demo=demo/model", "--slots", "1")
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(text_of, server.client(), {"messages": STORY, "logit_bias": ENDLESS, "temperature": 0})
        wait_until(lambda: server.slots() != ["idle"] or answer.done(), "the request runs")
        server.terminate()
        assert len(answer.result()) > 100
    assert server.process.wait(timeout=60) == 0, server.log()
