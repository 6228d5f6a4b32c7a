"""`amdgpu-ep generate --profile migraphx`: the recorded tokens of tiny models, with 64-bit and 32-bit ids."""
import pytest
from genai_support import GOLDENS, cases_of, folder_of
from migraphx_support import needs_migraphx
from textgen_support import command_tokens

pytestmark = [
    needs_migraphx,
    pytest.mark.environment(AMDGPU_EP_MIGRAPHX_TARGET="ref"),
]


@pytest.mark.parametrize("shape", ["auto", "exact"])
@pytest.mark.parametrize("name", ["nano-fp32", "nano-fp32-int32ids-rope"])
def test_recorded_tokens(name, shape, tmp_path):
    case = cases_of(name, "greedy")[0]
    prompt = next(prompt["text"] for prompt in GOLDENS[name]["prompts"] if prompt["ids"] == case["prompt_ids"][0])
    wanted = case["new_ids"][0]
    flags = ["--profile", "migraphx", "--prompt-shape", shape, "--max-length", str(case["max_length"])]
    flags += ["--option", f"ep.migraphx.cache_dir={tmp_path}"]
    found = command_tokens(folder_of(name), prompt, len(wanted), *flags)
    assert found["tokens"] == wanted
    assert found["provider"].startswith("AMDGPU") and list(tmp_path.glob("*.mxr"))
