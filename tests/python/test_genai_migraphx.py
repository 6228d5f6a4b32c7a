"""ONNX Runtime GenAI with `profile=migraphx`: the golden tokens of tiny models, with 64-bit and 32-bit ids.

MIGraphX gets everything except attention, which it computes wrongly; ONNX Runtime's CPU provider runs that. GenAI does
not pass `ep.migraphx.target` to its first session, so the environment sets it.
"""
from pathlib import Path

import pytest
from genai_support import GOLDENS, cases_of, generator_for, greedy, model_on_device
from support import LIBRARY
from migraphx_support import MIGRAPHX

pytestmark = [
    pytest.mark.skipif(not MIGRAPHX, reason="no MIGraphX is given: cargo xtask test --only genai,migraphx gives one"),
    pytest.mark.environment(AMDGPU_EP_PATH=LIBRARY, AMDGPU_EP_MIGRAPHX_TARGET="ref"),
]

MODELS = ["nano-fp32", "nano-fp32-int32ids-rope"]
# The length that prompts are padded to. It is short, because MIGraphX without a GPU is slow.
LONGEST = 40


def on_migraphx(name, cache):
    import onnxruntime_genai as og

    return og, model_on_device(name, og, [("profile", "migraphx")], {"ep.migraphx.cache_dir": str(cache)}, LONGEST)


@pytest.mark.parametrize("name", MODELS)
def test_golden_tokens_with_programs_for_all_prompts_and_for_all_steps(name, tmp_path):
    og, model = on_migraphx(name, tmp_path)
    counts = []
    for case in cases_of(name, "greedy"):
        assert len(case["prompt_ids"][0]) > 1
        assert greedy(og, model, case) == case["new_ids"][0]
        counts.append(len(list(Path(tmp_path).glob("*.mxr"))))
    lengths = {len(case["prompt_ids"][0]) for case in cases_of(name, "greedy")}
    assert len(lengths) > 1 and counts[0] > 0 and len(set(counts)) == 1, (lengths, counts)
    del model


def test_a_batch_is_refused_by_attention_on_the_cpu(tmp_path):
    """GenAI's mask of fixed width implies a past, which attention on the CPU refuses for batches."""
    name = MODELS[0]
    og, model = on_migraphx(name, tmp_path)
    case = cases_of(name, "greedy_batch_right_padded")[0]
    with pytest.raises(RuntimeError, match="GroupQueryAttention.*batch_size must be 1"):
        generator_for(og, model, case["prompt_ids"], GOLDENS[name]["pad_token_id"], max_length=case["max_length"])
    del model
