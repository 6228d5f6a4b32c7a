"""Operators of decoders, one at a time, compared with ONNX Runtime's own CPU kernels."""
import numpy as np
import onnxruntime as ort
import pytest
from op_support import MICROSOFT, Maker, angles, both, compare, model_of
from support import options_for, registered

HEADS, SHARED, SIZE, ROOM = 4, 2, 16, 12


def check_decoder(found, make, rows, past, shared=True, lengths=None, total=None, packed=False, half=8, options=(), **kw):
    """Checks a step of GroupQueryAttention; rows and caches are compared up to their lengths."""
    batch = len(past)
    lengths = np.array(lengths if lengths is not None else [held + rows for held in past])
    whole = total or int(max(lengths.max(), rows))
    room = ROOM if shared else int(max(past))
    q, k, v = make(batch, rows, HEADS * SIZE), make(batch, rows, SHARED * SIZE), make(batch, rows, SHARED * SIZE)
    caches = [make(batch, SHARED, room, SIZE), make(batch, SHARED, room, SIZE)]
    cosines, sines = angles(half) if kw.get("do_rotary") else (None, None)
    if packed:
        q, k, v = np.concatenate([q, k, v], -1), None, None
    inputs = [q, k, v, *caches, (lengths - 1).astype(np.int32), np.array([whole], np.int32), cosines, sines, *options]
    ours, theirs = both(found, "GroupQueryAttention", inputs, 3, num_heads=HEADS, kv_num_heads=SHARED, **kw)
    real = np.minimum(lengths, rows) if total is None and rows == whole else np.full(batch, rows)
    for row in range(batch):
        compare(ours[0][row, : real[row]], theirs[0][row, : real[row]])
        for at in (1, 2):
            assert ours[at].shape == theirs[at].shape
            compare(ours[at][row, :, : lengths[row]], theirs[at][row, :, : lengths[row]])


def test_group_query_attention():
    ragged = [3, 5, 9]
    with registered() as found:
        make = Maker(1)
        check_decoder(found, make, 1, ragged)
        check_decoder(found, make, 1, ragged, packed=True)
        check_decoder(found, make, 1, ragged, do_rotary=1, packed=True)
        check_decoder(found, make, 1, ragged, do_rotary=1, rotary_interleaved=1)
        check_decoder(found, make, 1, [0, 11, 4], do_rotary=1, softcap=2.0)
        check_decoder(found, make, 1, ragged, do_rotary=1, local_window_size=4, packed=True)
        check_decoder(found, make, 1, ragged, do_rotary=1, local_window_size=1, smooth_softmax=1)
        check_decoder(found, make, 1, [4, 4, 4], do_rotary=1, shared=False)
        check_decoder(found, make, 1, ragged, softcap=2.0)
        check_decoder(found, make, 1, ragged, local_window_size=4)
        check_decoder(found, make, 1, ragged, smooth_softmax=1)
        check_decoder(found, make, 1, ragged, scale=0.3)
        check_decoder(found, make, 1, [4, 4, 4], shared=False)
        check_decoder(found, make, 5, [0, 0, 0], do_rotary=1)
        check_decoder(found, make, 5, [0, 0, 0], lengths=[2, 5, 3], do_rotary=1, packed=True)
        check_decoder(found, make, 6, [0, 0, 0], local_window_size=3)
        check_decoder(found, make, 4, [6], do_rotary=1)
        check_decoder(found, make, 4, [6], do_rotary=1, total=ROOM)
        check_decoder(found, make, 4, [0], do_rotary=1, total=ROOM)


@pytest.mark.since("1.27")
def test_group_query_attention_with_biases_positions_and_sinks():
    with registered() as found:
        make = Maker(2)
        check_decoder(found, make, 1, [4, 4, 4], options=[None, make(3, HEADS, 1, 5)])
        check_decoder(found, make, 1, [4, 4, 4], options=[None, make(3, HEADS, 1, 5)], softcap=2.0)
        places = np.array([[7], [2], [11]], np.int64)
        check_decoder(found, make, 1, [3, 5, 9], options=[places], do_rotary=1)
        check_decoder(found, make, 1, [4, 4, 4], options=[places, make(3, HEADS, 1, 5)], do_rotary=1)
        check_decoder(found, make, 1, [3, 5, 9], options=[None, None, make(HEADS)], do_rotary=1, softcap=3.0, packed=True)
        check_decoder(found, make, 1, [3, 5, 9], options=[None, None, make(HEADS)], local_window_size=4, softcap=3.0)


def test_rotary_embedding_of_both_domains():
    with registered() as found:
        make = Maker(3)
        x, places = make(2, 5, HEADS * SIZE), make.random.integers(0, 31, (2, 5))
        for interleaved in (0, 1):
            for half in (8, 4):
                size = {} if half == 8 else {"rotary_embedding_dim": 2 * half}
                cosines, sines = angles(half)
                inputs = [x, places, cosines, sines]
                ours, theirs = both(found, "RotaryEmbedding", inputs, 1, num_heads=HEADS, interleaved=interleaved, **size)
                compare(ours[0], theirs[0])
        first = np.array([3], np.int64)
        ours, theirs = both(found, "RotaryEmbedding", [x, first, *angles(8)], 1, num_heads=HEADS)
        compare(ours[0], theirs[0])
        heads_apart = make(2, HEADS, 5, SIZE)
        ours, theirs = both(found, "RotaryEmbedding", [heads_apart, places, *angles(8)], 1)
        compare(ours[0], theirs[0])
        if tuple(int(part) for part in ort.__version__.split(".")[:2]) >= (1, 24):
            inputs = [x, *angles(8), places]
            ours, theirs = both(found, "RotaryEmbedding", inputs, 1, domain="", version=23, num_heads=HEADS)
            compare(ours[0], theirs[0])


def test_multi_head_attention_with_a_past():
    with registered() as found:
        make = Maker(4)
        width = HEADS * SIZE
        q, k, v = make(2, 3, width), make(2, 3, width), make(2, 3, width)
        past = [make(2, HEADS, 5, SIZE), make(2, HEADS, 5, SIZE)]
        padding = np.array([[1] * 8, [1, 1, 1, 1, 0, 0, 1, 1]], np.int32)
        for options, attributes in (
            ([make(3 * width)], {}),
            ([None, None, make(2, HEADS, 3, 8), *past], {}),
            ([None, None, None, *past], {"unidirectional": 1}),
            ([None, padding, None, *past], {}),
        ):
            inputs = [q, k, v, *options]
            ours, theirs = both(found, "MultiHeadAttention", inputs, 3, num_heads=HEADS, **attributes)
            for at in range(3):
                compare(ours[at], theirs[at])


def test_attention_with_a_past():
    with registered() as found:
        make = Maker(5)
        inputs = [make(2, 3, 32), make(32, 96), make(96), None, make(2, 2, HEADS, 5, 8)]
        ours, theirs = both(found, "Attention", inputs, 2, num_heads=HEADS, unidirectional=1)
        compare(ours[0], theirs[0])
        compare(ours[1], theirs[1])


def test_skip_simplified_layer_normalization_gives_the_sum_too():
    with registered() as found:
        make = Maker(6)
        inputs = [make(2, 5, 64), make(2, 5, 64), make(64), make(64)]
        model = model_of("SkipSimplifiedLayerNormalization", inputs, 4, MICROSOFT, 21, {"epsilon": 1e-5})
        # Outputs 1 and 2 are for training and are not requested.
        from onnx import load_from_string

        proto = load_from_string(model)
        del proto.graph.output[1:3]
        proto.graph.node[0].output[1:3] = ["", ""]
        feed = {f"i{at}": value for at, value in enumerate(inputs)}
        ours = ort.InferenceSession(proto.SerializeToString(), sess_options=options_for(found[:1]), enable_fallback=0)
        theirs = ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
        for one, other in zip(ours.run(None, feed), theirs.run(None, feed)):
            compare(one, other)
        del ours
