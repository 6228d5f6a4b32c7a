"""Text generation with the `amdgpu-ep` command in every ONNX Runtime: the recorded tokens of a tiny model."""
from genai_support import GOLDENS, folder_of
from textgen_support import command_tokens


def test_recorded_tokens():
    golden = GOLDENS["nano-fp32"]
    cases = [case for case in golden["cases"] if case["kind"] == "greedy"]
    for prompt, case in zip(golden["prompts"], cases):
        assert prompt["ids"] == case["prompt_ids"][0]
        for provider in ("cpu", "amdgpu"):
            found = command_tokens(folder_of("nano-fp32"), prompt["text"], len(case["new_ids"][0]), "--provider", provider)
            assert found["tokens"] == case["new_ids"][0]
            assert found["provider"].startswith("AMDGPU" if provider == "amdgpu" else "CPU")
