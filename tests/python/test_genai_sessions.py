"""Decoders as plain ONNX Runtime sessions: caches bound by the caller, and invalid input."""
import numpy as np
import onnxruntime as ort
import pytest
from genai_support import cases_of, config_of, folder_of
from support import LIBRARY, ON_HOST, on_device, options_for, registered

pytestmark = pytest.mark.environment(AMDGPU_EP_PATH=LIBRARY)


class Decoder:
    """A session with a cache for `room` tokens, and one row."""

    def __init__(self, found, name, room=40, shared=True):
        decoder = config_of(name)["model"]["decoder"]
        self.session = ort.InferenceSession(
            str(folder_of(name) / "model.onnx"), sess_options=options_for(found[:1]), enable_fallback=0
        )
        self.room, self.shared = room, shared
        self.dtype = np.float16 if "fp16" in name else np.float32
        self.shape = [1, decoder["num_key_value_heads"], room, decoder["head_size"]]
        self.names = [
            (f"past_key_values.{layer}.{part}", f"present.{layer}.{part}")
            for layer in range(decoder["num_hidden_layers"])
            for part in ("key", "value")
        ]
        self.caches = {past: on_device(np.zeros(self.shape, self.dtype)) for past, _ in self.names}

    def step(self, ids, mask):
        """Runs a step, and returns the last row of logits."""
        binding = self.session.io_binding()
        binding.bind_cpu_input("input_ids", np.array([ids], np.int64).reshape(1, -1))
        binding.bind_cpu_input("attention_mask", np.array([mask], np.int64))
        fresh = {}
        for past, present in self.names:
            binding.bind_ortvalue_input(past, self.caches[past])
            fresh[past] = self.caches[past] if self.shared else on_device(np.full(self.shape, 7, self.dtype))
            binding.bind_ortvalue_output(present, fresh[past])
        binding.bind_output("logits", "cpu")
        self.session.run_with_iobinding(binding)
        self.caches = fresh
        return binding.copy_outputs_to_cpu()[-1][0, -1]

    def generate(self, prompt, count):
        tokens, ids = [], list(prompt)
        length = 0
        for _ in range(count):
            length += len(ids)
            logits = self.step(ids, [1] * length + [0] * (self.room - length))
            ids = [int(logits.argmax())]
            tokens += ids
        return tokens


def golden(name="nano-fp32"):
    case = cases_of(name, "greedy")[0]
    return case["prompt_ids"][0], case["new_ids"][0]


@pytest.mark.parametrize("name", ["nano-fp32", "nano-fp16", "nano-int4"])
def test_caches_may_be_shared_or_separate(name):
    prompt, new = golden(name)
    with registered() as found:
        for shared in (True, False):
            decoder = Decoder(found, name, shared=shared)
            assert decoder.generate(prompt, len(new)) == new
            del decoder


def test_only_new_rows_of_a_shared_cache_change():
    prompt, _ = golden()
    with registered() as found:
        decoder = Decoder(found, "nano-fp32")
        decoder.caches = {past: on_device(np.full(decoder.shape, 7, np.float32)) for past, _ in decoder.names}
        decoder.step(prompt, [1] * len(prompt) + [0] * (decoder.room - len(prompt)))
        first = {past: cache.numpy() for past, cache in decoder.caches.items()}
        decoder.step([5], [1] * (len(prompt) + 1) + [0] * (decoder.room - len(prompt) - 1))
        for past, cache in decoder.caches.items():
            now = cache.numpy()
            assert (now[:, :, len(prompt) + 1 :] == 7).all()
            assert (now[:, :, : len(prompt)] == first[past][:, :, : len(prompt)]).all()
            assert (now[:, :, len(prompt)] != 7).all()
        del decoder, first


def test_standard_operators_with_a_growing_cache():
    """Attention of opset 23 returns a longer cache in each step, which GenAI does not support on this provider."""
    name = "nano-fp32-standard"
    prompt, new = golden(name)
    decoder = config_of(name)["model"]["decoder"]
    with registered() as found:
        model = str(folder_of(name) / "model.onnx")
        session = ort.InferenceSession(model, sess_options=options_for(found[:1]), enable_fallback=0)
        empty = np.zeros((1, decoder["num_key_value_heads"], 0, decoder["head_size"]), np.float32)
        outputs = [output.name for output in session.get_outputs()]
        cache = {output.replace("present", "past_key_values"): empty for output in outputs if output != "logits"}
        tokens, ids, length = [], list(prompt), 0
        for _ in new:
            feed = {"input_ids": np.array([ids], np.int64), **cache}
            feed["attention_mask"] = np.ones((1, length + len(ids)), np.int64)
            feed["position_ids"] = np.arange(length, length + len(ids), dtype=np.int64)[None]
            names = {given.name for given in session.get_inputs()}
            results = dict(zip(outputs, session.run(None, {key: value for key, value in feed.items() if key in names})))
            length += len(ids)
            ids = [int(results["logits"][0, -1].argmax())]
            tokens += ids
            cache = {key.replace("present", "past_key_values"): value for key, value in results.items() if key != "logits"}
        assert tokens == new
        del session


def wrong_inputs(prompt, room):
    count = len(prompt)
    full = [1] * count + [0] * (room - count)
    # GPU kernels report that an index is wrong, but not which.
    beyond = "out of range for an axis of" if ON_HOST else "out of range"
    return [
        ("no tokens", [], full, "there are no new tokens"),
        ("ids outside the vocabulary", prompt[:-1] + [10**6], full, "out of range"),
        ("a negative id", prompt[:-1] + [-(10**6)], full, "out of range"),
        ("a mask that counts to more than the cache holds", prompt, [3] * room, beyond),
        ("a mask narrower than the prompt", prompt, [1] * (count - 1), "total_sequence_length is"),
        ("a mask wider than the cache", prompt, [1] * count + [0] * (room + 1), "shape"),
    ]


def test_wrong_input_gives_a_readable_error_and_the_next_generation_is_right():
    prompt, new = golden()
    with registered() as found:
        decoder = Decoder(found, "nano-fp32")
        assert decoder.generate(prompt, len(new)) == new
        kept = {past: cache.numpy().copy() for past, cache in decoder.caches.items()}
        for what, ids, mask, tells in wrong_inputs(prompt, decoder.room):
            with pytest.raises(Exception, match=tells):
                decoder.step(ids, mask)
                pytest.fail(what)
            # A GPU reports a wrong index after the run, when the rows of the tokens may already have been written.
            written = 0 if ON_HOST else len(ids)
            for past, cache in decoder.caches.items():
                assert (cache.numpy()[:, :, written:] == kept[past][:, :, written:]).all(), what
        with pytest.raises(Exception, match="Unexpected input data type"):
            decoder.session.run(None, {"input_ids": np.zeros((1, 3), np.float32)} | {
                "attention_mask": np.ones((1, 3), np.int64),
                **{past: np.zeros(decoder.shape, np.float32) for past, _ in decoder.names},
            })
        assert decoder.generate(prompt, len(new)) == new
        del decoder


def test_a_mask_narrower_than_the_cache_is_enough():
    prompt, new = golden()
    with registered() as found:
        decoder = Decoder(found, "nano-fp32")
        first = decoder.step(prompt, [1] * len(prompt))
        assert int(first.argmax()) == new[0]
        second = decoder.step(new[:1], [1] * (len(prompt) + 1))
        assert int(second.argmax()) == new[1]
        del decoder
