"""The description of the API: read by people and programs, and tried out with random requests."""
import subprocess
import sys

CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"


def test_the_description_needs_no_key_and_loads_nothing(start):
    server = start("demo=demo/model", AMDGPU_EP_API_KEYS="a-long-key-for-the-tests")
    status, document, _ = server.call("/openapi.json")
    assert status == 200 and document["openapi"].startswith("3.") and document["info"]["version"] != "0"
    status, page, headers = server.call("/docs")
    assert status == 200 and headers["content-type"].startswith("text/html")
    assert headers["content-security-policy"].startswith("default-src 'none'; style-src 'self';")
    assert all(path in page for path in document["paths"])
    assert server.call("/docs/style.css")[2]["content-type"].startswith("text/css")
    assert server.call("/v1/models")[0] == 401, "everything else needs one"


def test_random_requests_get_only_described_answers(start, tmp_path, tensors):
    file = tmp_path / "serve.toml"
    file.write_text("default_max_tokens = 2\nmax_choices = 2\n")
    server = start("demo=demo/model", f"classifier={tensors}/classifier", "--config", file, "--log", "off")
    # Fixed random requests: values of the schemas, and values just outside of them.
    words = ["--phases", "coverage,fuzzing", "--checks", CHECKS, "--max-examples", "20", "--seed", "1", "--no-shrink"]
    quiet = ["--continue-on-failure", "--no-color", "--warnings", "off", "--generation-database", "none"]
    done = subprocess.run(
        [sys.executable, "-m", "schemathesis.cli", "run", f"{server.url}/openapi.json", *words, *quiet],
        capture_output=True, text=True, cwd=tmp_path,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert "No issues found" in done.stdout, done.stdout[-2000:]
    assert server.process.poll() is None, server.log()
