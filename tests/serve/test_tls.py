"""TLS with a certificate of our own, and clients that verify it."""
import http.client
import shutil
import socket
import ssl
import subprocess
import urllib.error
import urllib.request
from urllib.parse import urlsplit

import httpx2
import pytest
from serving import STORY, Server, command

pytestmark = pytest.mark.skipif(not shutil.which("openssl"), reason="openssl is not installed")


def make_certificate(folder, name):
    """A certificate for 127.0.0.1, and its key."""
    certificate, key = folder / f"{name}.pem", folder / f"{name}-key.pem"
    words = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    names = ["-subj", "/CN=test", "-addext", "subjectAltName=IP:127.0.0.1"]
    usage = ["-addext", "keyUsage=critical,digitalSignature,keyCertSign"]
    subprocess.run([*words, *names, *usage, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    return certificate, key


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("certificates")
    return {name: make_certificate(folder, name) for name in ("right", "other")}


@pytest.fixture(scope="module")
def server(files):
    certificate, key = files["right"]
    words = ["demo=demo/model", "--tls-certificate", certificate, "--tls-key", key]
    with Server(*words, certificate=certificate) as server:
        yield server


def test_clients_that_verify_the_certificate_are_answered(server):
    assert server.url.startswith("https://") and server.call("/health")[0] == 200
    with httpx2.Client(verify=server.context) as transport:
        client = server.client(http_client=transport)
        request = {"model": "demo", "messages": STORY, "max_tokens": 8, "temperature": 0}
        whole = client.chat.completions.create(**request).choices[0].message.content
        chunks = client.chat.completions.create(stream=True, **request)
        assert whole and "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == whole


def test_clients_refuse_an_unknown_certificate(server, files):
    for context in (ssl.create_default_context(), ssl.create_default_context(cafile=files["other"][0])):
        with pytest.raises(urllib.error.URLError, match="CERTIFICATE_VERIFY_FAILED"):
            urllib.request.urlopen(server.url + "/health", context=context)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_both_current_versions_are_spoken(server, files, version):
    address = urlsplit(server.url)
    context = ssl.create_default_context(cafile=files["right"][0])
    context.minimum_version = context.maximum_version = version
    with socket.create_connection((address.hostname, address.port)) as plain, context.wrap_socket(plain, server_hostname=address.hostname) as secure:
        assert secure.version() == {"TLSv1_2": "TLSv1.2", "TLSv1_3": "TLSv1.3"}[version.name]


def test_connections_without_tls_do_not_disturb_others(server):
    address = urlsplit(server.url)
    with socket.create_connection((address.hostname, address.port)) as silent:
        with pytest.raises((http.client.HTTPException, OSError)):
            urllib.request.urlopen(f"http://{address.netloc}/health")
        assert server.call("/health")[0] == 200
        silent.sendall(b"nonsense")
        assert server.call("/health")[0] == 200


def test_wrong_files_are_reported_before_the_server_listens(files, tmp_path):
    (right, key), (_, other) = files["right"], files["other"]
    empty = tmp_path / "empty.pem"
    empty.touch()
    for certificate, private, wanted in [
        (right, other, "other-key.pem"),
        (empty, key, "there is no certificate in it"),
        (right, empty, "there is no private key in it"),
        (tmp_path / "none.pem", key, "none.pem could not be read"),
    ]:
        words = ["serve", "demo/model", "--check", "--tls-certificate", certificate, "--tls-key", private]
        done = command(*words)
        assert done.returncode == 2 and wanted in done.stderr and "help:" in done.stderr, done.stderr
    file = tmp_path / "serve.toml"
    file.write_text(f"tls_key = '{key}'")
    done = command("serve", "demo/model", "--check", "--config", file)
    assert done.returncode == 2 and "tls_certificate is missing" in done.stderr
