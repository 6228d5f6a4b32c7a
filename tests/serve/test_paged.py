"""The server and `generate` with a decoder over a cache in blocks. The reference is the same model with a cache for each
sequence."""
from concurrent.futures import ThreadPoolExecutor

import pytest
from serving import ROOT, STORY, command

# The model's longest sequence is 18 blocks of 16 tokens.
FEW_BLOCKS = "cache_blocks = 20\nslots = 6\n"
STORIES = [
    [{"role": "user", "content": f"Tell me a story about {subject}."}]
    for subject in ("a bear named Tom", "a cat named Mia", "a red kite", "a dog", "a bear named Tom", "the sea")
]


def answer(server, messages, **fields):
    answer = server.client().chat.completions.create(
        model=server.client().models.list().data[0].id, messages=messages, **{"temperature": 0, "max_tokens": 48, **fields}
    )
    return answer.choices[0].message.content, answer.usage


@pytest.fixture(scope="module")
def folder(written_folder):
    return written_folder("paged.py")


def test_answers_are_those_of_the_other_kind_of_cache(server, start, folder):
    paged = start(f"paged={folder}")
    for messages in STORIES[:3]:
        assert answer(paged, messages)[0] == answer(server, messages)[0]
    assert answer(paged, STORIES[0])[1].prompt_tokens_details.cached_tokens >= 16


def test_requests_that_compete_for_blocks_get_their_answers(start, folder, tmp_path):
    config = tmp_path / "serve.toml"
    config.write_text(FEW_BLOCKS)
    paged = start("--config", str(config), f"paged={folder}")
    fields = [{"temperature": 1.1, "seed": at, "max_tokens": 100} if at % 2 else {"max_tokens": 100} for at in range(6)]
    alone = [answer(paged, messages, **more)[0] for messages, more in zip(STORIES, fields)]
    with ThreadPoolExecutor(6) as pool:
        together = list(pool.map(lambda pair: answer(paged, pair[0], **pair[1])[0], zip(STORIES, fields)))
    assert together == alone
    assert paged.metric("preempted_total") > 0
    assert paged.slots() == ["idle"] * 6


def test_generate_runs_the_folder(folder):
    words = [STORY[0]["content"], "--max-new-tokens", "30"]
    paged, plain = (command("generate", str(one), *words) for one in (folder, ROOT / "demo/model"))
    assert paged.returncode == plain.returncode == 0, paged.stderr
    assert paged.stdout == plain.stdout
