"""`amdgpu-ep bench-serve` against our server. The reference is the server's own counters."""
import json
import subprocess

import pytest
from serving import COMMAND, ROOT, TIMEOUT_SECONDS, environment


def bench(*words, **variables):
    return subprocess.run(
        [COMMAND, "bench-serve", *words], capture_output=True, text=True, cwd=ROOT, env=environment(**variables),
        timeout=TIMEOUT_SECONDS,
    )


@pytest.mark.parametrize("endpoint", ["chat", "completions"])
def test_tokens_are_those_that_the_server_counts(start, endpoint):
    server = start("demo=demo/model", "--slots", "4")
    before = server.metric("new_tokens_total")
    sizes = ["--prompt-tokens", "40", "--max-tokens", "12", "--requests", "8", "--concurrency", "1,4"]
    done = bench(server.url, "--endpoint", endpoint, *sizes, "--field", "ignore_eos=true", "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert (report["model"], report["endpoint"]) == ("demo", endpoint)
    one, four = report["measurements"]
    for measured in (one, four):
        assert (measured["failed"], measured["tokens"], measured["answers_without_usage"]) == (0, 8 * 12, 0)
        assert 20 < measured["mean_prompt_tokens"] < 60
        assert measured["first_token"]["p50_ms"] <= measured["total"]["p50_ms"]
    # Each of the two requests that show the length of prompts generates a token.
    assert server.metric("new_tokens_total") - before == one["tokens"] + four["tokens"] + 2


def test_refused_requests_are_listed_by_status(start):
    server = start("demo=demo/model", "--slots", "1", "--queue", "0")
    done = bench(f"{server.url}/v1", "--concurrency", "4", "--requests", "12", "--max-tokens", "32", "--json")
    assert done.returncode == 0, done.stderr
    measured = json.loads(done.stdout)["measurements"][0]
    assert [failure["kind"] for failure in measured["failures"]] == ["status 429"]
    assert measured["failures"][0]["count"] == measured["failed"] == server.metric("requests_rejected_total")


def test_the_key_comes_from_the_environment(start):
    server = start("demo=demo/model", AMDGPU_EP_API_KEYS="a-long-random-key")
    words = [server.url, "--model", "demo", "--concurrency", "2", "--requests", "4", "--max-tokens", "2", "--json"]
    refused = bench(*words, OPENAI_API_KEY="wrong")
    assert refused.returncode == 1
    assert json.loads(refused.stdout)["measurements"][0]["failures"][0]["kind"] == "status 401"
    assert "a-long-random-key" not in refused.stdout + refused.stderr
    assert bench(*words, OPENAI_API_KEY="a-long-random-key").returncode == 0
