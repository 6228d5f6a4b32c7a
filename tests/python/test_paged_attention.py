"""PagedAttention in ONNX Runtime sessions, on caches that are updated in place and on copies. ONNX Runtime's CPU provider has
no kernel for it, so results are compared with attention over whole sequences in double precision."""
import numpy as np
import onnxruntime as ort
import pytest
from op_support import Maker, angles, model_of
from support import on_device, options_for, registered

HEADS, SHARED, SIZE, BLOCK, BLOCKS, MOST = 4, 2, 16, 4, 13, 6


def expected(q, k, v, cosines, sines):
    """Causal attention of one sequence `[tokens, heads, size]`."""

    def turned(x):
        x, half = x.astype(np.float64), SIZE // 2
        c, s = (angle[: len(x), None].astype(np.float64) for angle in (cosines, sines))
        left, right = x[..., :half], x[..., half:]
        return np.concatenate([left * c - right * s, right * c + left * s], -1)

    q, k = turned(q), turned(k).repeat(HEADS // SHARED, 1)
    scores = np.einsum("qhd,khd->hqk", q, k) / SIZE**0.5
    scores[:, np.triu(np.ones(scores.shape[1:], bool), 1)] = -np.inf
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    return np.einsum("hqk,khd->qhd", weights, v.astype(np.float64).repeat(HEADS // SHARED, 1))


@pytest.mark.since("1.31")
@pytest.mark.parametrize("in_place", [True, False])
def test_sequences_that_come_and_grow_share_a_cache(in_place):
    steps = [(5, 0, 3), (1, 7, 1), (1, 1, 1), (2, 1, 0)]
    make = Maker(3)
    # Small numbers: half precision rounds scores.
    whole = [[(0.5 * make(9, heads, SIZE)).astype(np.float16) for heads in (HEADS, SHARED, SHARED)] for _ in range(3)]
    cosines, sines = (angle.astype(np.float16) for angle in angles(SIZE // 2))
    wanted = [expected(*parts, cosines, sines) for parts in whole]
    table = np.full((3, MOST), -1, np.int32)
    table[:, :3] = np.array([7, 2, 11, 0, 5, 9, 12, 4, 3]).reshape(3, 3)
    caches = [np.full((BLOCKS, BLOCK, SHARED, SIZE), np.nan, np.float16) for _ in range(2)]
    lengths = [0, 0, 0]
    with registered() as found:
        held = [on_device(cache) for cache in caches]
        session = binding = None
        for step in steps:
            rows = [np.concatenate([part[at].reshape(9, -1)[before : before + new] for part, before, new in zip(whole, lengths, step)]) for at in range(3)]
            starts = np.cumsum([0, *step]).astype(np.int32)
            inputs = [*rows, *caches, starts, np.array(lengths, np.int32), table, cosines, sines]
            if session is None:
                kinds = dict(num_heads=HEADS, kv_num_heads=SHARED, do_rotary=1)
                model = model_of("PagedAttention", inputs, 3, "com.microsoft", 21, kinds, [np.float16] * 3)
                options = options_for(found[:1])
                options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
                session = ort.InferenceSession(model, sess_options=options, enable_fallback=0)
            feed = {f"i{at}": value for at, value in enumerate(inputs)}
            if in_place:
                binding = session.io_binding()
                for at, value in enumerate(inputs):
                    if at in (3, 4):
                        binding.bind_ortvalue_input(f"i{at}", held[at - 3])
                        binding.bind_ortvalue_output(f"o{at - 2}", held[at - 3])
                    else:
                        binding.bind_cpu_input(f"i{at}", value)
                binding.bind_output("o0", "cpu")
                session.run_with_iobinding(binding)
                result = binding.get_outputs()[-1].numpy()
            else:
                result, *caches = session.run(None, feed)
            right = [want[before : before + new] for want, before, new in zip(wanted, lengths, step)]
            np.testing.assert_allclose(result.astype(np.float64), np.concatenate(right).reshape(len(result), -1), atol=4e-3)
            lengths = [before + new for before, new in zip(lengths, step)]
        stored = held[1].numpy() if in_place else caches[1]
        for row, parts in enumerate(whole):
            places = [table[row, at // BLOCK] * BLOCK + at % BLOCK for at in range(lengths[row])]
            np.testing.assert_array_equal(stored.reshape(-1, SHARED, SIZE)[places], parts[2][: lengths[row]])
        session = held = binding = None


@pytest.mark.since("1.31")
def test_a_table_that_leaves_the_cache_is_an_error():
    make = Maker(4)
    q, k, v = (make(2, heads * SIZE).astype(np.float16) for heads in (HEADS, SHARED, SHARED))
    cache = np.zeros((2, BLOCK, SHARED, SIZE), np.float16)
    with registered() as found:
        for entry in (2, -1):
            numbers = [np.array([0, 2], np.int32), np.array([0], np.int32), np.array([[entry]], np.int32)]
            inputs = [q, k, v, cache, cache, *numbers]
            model = model_of("PagedAttention", inputs, 3, "com.microsoft", 21, dict(num_heads=HEADS, kv_num_heads=SHARED), [np.float16] * 3)
            session = ort.InferenceSession(model, sess_options=options_for(found[:1]), enable_fallback=0)
            with pytest.raises(Exception, match="out of range"):
                session.run(None, {f"i{at}": value for at, value in enumerate(inputs)})
            del session
