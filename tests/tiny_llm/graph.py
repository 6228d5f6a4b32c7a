"""The ONNX graph of a model, in the form that GenAI's model builder writes, or with the operators of ONNX 23."""
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from .weights import Weights

CONTRIB = "com.microsoft"
# Larger constants are in a file of their own, as in real models.
INLINE_BYTES = 1024


def nibbles(values):
    """Two numbers of the last axis per byte, the low half first."""
    if values.shape[-1] % 2:
        values = np.concatenate([values, np.zeros_like(values[..., :1])], -1)
    return values[..., 0::2] | values[..., 1::2] << 4


class Graph:
    def __init__(self, settings):
        self.settings, self.weights = settings, Weights(settings)
        self.element = TensorProto.FLOAT16 if settings.activations == "fp16" else TensorProto.FLOAT
        self.id_element = TensorProto.INT32 if settings.ids == "int32" else TensorProto.INT64
        self.is_standard = settings.attention == "standard"
        self.nodes, self.constants = [], {}

    def constant(self, name, array):
        if name not in self.constants:
            self.constants[name] = numpy_helper.from_array(np.ascontiguousarray(array), name)
        return name

    def node(self, op, inputs, outputs, domain="", **attributes):
        """Adds a node and returns its first output; one output may be given as a string."""
        outputs = [outputs] if isinstance(outputs, str) else outputs
        self.nodes.append(helper.make_node(op, inputs, outputs, f"{outputs[0]}.node", domain=domain, **attributes))
        return outputs[0]

    def four_bit(self, name, stored):
        """Adds the packed values of a matrix, its scales and its zero points, and returns their names."""
        names = [self.constant(f"{name}.values", nibbles(stored.values)), self.constant(f"{name}.scales", stored.scales)]
        if self.settings.has_zero_points:
            names.append(self.constant(f"{name}.zeros", nibbles(stored.zeros)))
        return names

    def linear(self, source, name, parts, columns, output=None):
        """The product with one matrix, or with several that are stored as one: (name, rows) of each."""
        matrices = [self.weights.linear(part, rows, columns) for part, rows in parts]
        output, rows = output or f"{name}.out", sum(rows for _, rows in parts)
        if self.settings.precision != "int4":
            weight = self.constant(f"{name}.weight", np.concatenate(matrices).T)
            return self.node("MatMul", [source, weight], output)
        whole = type(matrices[0])(
            *(np.concatenate([getattr(one, kind) for one in matrices]) for kind in ("values", "scales", "zeros"))
        )
        return self.node(
            "MatMulNBits", [source, *self.four_bit(name, whole)], output, CONTRIB, K=columns, N=rows, bits=4,
            block_size=self.settings.block,
        )

    def tied(self):
        return self.settings.is_tied and self.settings.precision != "int4"

    def embedding(self):
        stored = self.weights.embedding()
        if self.settings.has_packed_embedding:
            values, *others = self.four_bit("embedding", stored)
            flat = nibbles(stored.values).reshape(len(stored.values), -1)
            self.constants[values] = numpy_helper.from_array(flat, values)
            return self.node(
                "GatherBlockQuantized", [values, "input_ids", *others], "embedding.out", CONTRIB, bits=4,
                block_size=self.settings.block, gather_axis=0, quantize_axis=1,
            )
        if self.tied():
            table = self.node("Transpose", [self.constant("head.weight", stored.T)], "embedding.rows", perm=[1, 0])
        else:
            table = self.constant("embedding", stored)
        return self.node("Gather", [table, "input_ids"], "embedding.out")

    def head(self, source):
        settings = self.settings
        if not self.tied():
            return self.linear(source, "head", [("head", settings.vocabulary)], settings.hidden, "logits")
        made = self.node("MatMul", [source, "head.weight"], "head.out")
        return self.node("Mul", [made, self.constant("head.scale", self.weights.tied_scale())], "logits")

    def norm(self, source, name, size, output=None):
        op = "RMSNormalization" if self.is_standard else "SimplifiedLayerNormalization"
        weight = self.constant(name, self.weights.norm(name, size))
        return self.node(op, [source, weight], output or f"{name}.out", axis=-1, epsilon=self.settings.epsilon)

    def skip_norm(self, source, skip, name):
        """The norm of source + skip, and that sum; the first norm has no skip."""
        size = self.settings.hidden
        if skip is None:
            return self.norm(source, name, size), source
        if self.is_standard:
            total = self.node("Add", [source, skip], f"{name}.sum")
            return self.norm(total, name, size), total
        weight = self.constant(name, self.weights.norm(name, size))
        outputs = [f"{name}.out"] if name == "last" else [f"{name}.out", "", "", f"{name}.sum"]
        epsilon = self.settings.epsilon
        self.node("SkipSimplifiedLayerNormalization", [source, skip, weight], outputs, CONTRIB, epsilon=epsilon)
        return outputs[0], outputs[-1]

    def lengths(self):
        """What GroupQueryAttention needs of the mask: the last position of each row, and the longest length."""
        ids = np.int32 if self.settings.ids == "int32" else np.int64
        total = self.node("ReduceSum", ["attention_mask", self.constant("axis", np.array([1]))], "mask.sum", keepdims=0)
        last = self.node("Sub", [total, self.constant("one", np.array([1], ids))], "mask.last")
        if self.settings.ids != "int32":
            last = self.node("Cast", [last], "lengths", to=TensorProto.INT32)
        return [last, self.node("Cast", [self.width("attention_mask")], "total", to=TensorProto.INT32)]

    def width(self, name):
        """The number of columns of an input."""
        shape = self.node("Shape", [name], f"{name}.shape")
        return self.node("Gather", [shape, self.constant("column", np.array(1))], f"{name}.width", axis=0)

    def visible(self):
        """The mask of Attention: keys that the model's mask shows, up to the query's position."""
        total, new = self.width("attention_mask"), self.width("input_ids")
        past = self.node("Sub", [total, new], "past")
        zero, one = self.constant("zero", np.array(0)), self.constant("step", np.array(1))
        keys = self.node("Range", [zero, total, one], "key.positions")
        queries = self.node("Range", [past, total, one], "query.positions")
        queries = self.node("Unsqueeze", [queries, self.constant("last.axis", np.array([-1]))], "query.rows")
        causal = self.node("LessOrEqual", [keys, queries], "causal")
        shown = self.node("Cast", ["attention_mask"], "mask.shown", to=TensorProto.BOOL)
        shown = self.node("Unsqueeze", [shown, self.constant("middle.axes", np.array([1, 2]))], "mask.keys")
        return self.node("And", [shown, causal], "visible")

    def positions(self):
        """RotaryEmbedding takes 64-bit positions only."""
        if self.settings.ids == "int32" and "positions" not in (node.output[0] for node in self.nodes):
            self.node("Cast", ["position_ids"], "positions", to=TensorProto.INT64)
        return "positions" if self.settings.ids == "int32" else "position_ids"

    def rotated(self, source, heads):
        if self.is_standard:
            inputs = [source, "cos_cache", "sin_cache", self.positions()]
            return self.node("RotaryEmbedding", inputs, f"{source}.turned", num_heads=heads)
        inputs = [source, self.positions(), "cos_cache", "sin_cache"]
        return self.node("RotaryEmbedding", inputs, f"{source}.turned", CONTRIB, num_heads=heads)

    def head_norm(self, source, name, heads):
        """The norm of every head by itself."""
        size = self.settings.head
        apart = self.constant("head.shape", np.array([0, 0, -1, size]))
        together = self.constant(f"{heads}.heads.shape", np.array([0, 0, heads * size]))
        split = self.node("Reshape", [source, apart], f"{name}.heads")
        return self.node("Reshape", [self.norm(split, name, size), together], f"{name}.flat")

    def projections(self, source, name):
        """Queries, keys and values; if they are packed, the last two have no name."""
        settings = self.settings
        heads = {"q": settings.heads, "k": settings.key_heads, "v": settings.key_heads}
        parts = {part: (f"{name}.{part}", count * settings.head) for part, count in heads.items()}
        biases = {part: self.weights.bias(f"{matrix}.bias", rows) for part, (matrix, rows) in parts.items()}
        groups = [list(parts)] if settings.attention == "packed" else [[part] for part in parts]
        made = []
        for group in groups:
            whole = f"{name}.{''.join(group)}"
            result = self.linear(source, whole, [parts[part] for part in group], settings.hidden)
            if settings.has_bias:
                bias = self.constant(f"{whole}.bias", np.concatenate([biases[part] for part in group]))
                result = self.node("Add", [result, bias], f"{whole}.sum")
            if group[0] != "v" and settings.has_head_norms:
                result = self.head_norm(result, f"{whole}.norm", heads[group[0]])
            if group[0] != "v" and settings.has_positions:
                result = self.rotated(result, heads[group[0]])
            made.append(result)
        return made + [""] * (3 - len(made))

    def attention(self, layer, source, masks):
        settings, name = self.settings, f"{layer}.attention"
        caches = [f"past_key_values.{layer}.{part}" for part in ("key", "value")]
        outputs = [f"{name}.out", *(f"present.{layer}.{part}" for part in ("key", "value"))]
        tokens, scale = self.projections(source, name), settings.head**-0.5
        if self.is_standard:
            made = self.node(
                "Attention", [*tokens, *masks, *caches], outputs, q_num_heads=settings.heads,
                kv_num_heads=settings.key_heads, scale=scale, softcap=settings.softcap,
            )
        else:
            tables = [] if settings.has_positions else ["cos_cache", "sin_cache"]
            made = self.node(
                "GroupQueryAttention", [*tokens, *caches, *masks, *tables], outputs, CONTRIB, num_heads=settings.heads,
                kv_num_heads=settings.key_heads, scale=scale, softcap=settings.softcap,
                local_window_size=settings.window, do_rotary=int(not settings.has_positions),
            )
        return self.linear(made, f"{name}.o", [(f"{name}.o", settings.hidden)], settings.queries)

    def mlp(self, layer, source):
        settings, name = self.settings, f"{layer}.mlp"
        gate, up = (
            self.linear(source, f"{name}.{part}", [(f"{name}.{part}", settings.inner)], settings.hidden)
            for part in ("gate", "up")
        )
        share = self.node("Sigmoid", [gate], f"{name}.sigmoid")
        active = self.node("Mul", [gate, share], f"{name}.active")
        gated = self.node("Mul", [active, up], f"{name}.gated")
        return self.linear(gated, f"{name}.down", [(f"{name}.down", settings.hidden)], settings.inner)

    def inputs_and_outputs(self):
        settings, value = self.settings, helper.make_tensor_value_info
        ids = ["input_ids", "position_ids"] if settings.has_positions else ["input_ids"]
        inputs = [value(name, self.id_element, ["batch_size", "sequence_length"]) for name in ids]
        inputs.append(value("attention_mask", self.id_element, ["batch_size", "total_sequence_length"]))
        outputs = [value("logits", self.element, ["batch_size", "sequence_length", settings.vocabulary])]
        for layer in range(settings.layers):
            for part in ("key", "value"):
                shape = lambda part: ["batch_size", settings.key_heads, f"{part}_sequence_length", settings.head]
                inputs.append(value(f"past_key_values.{layer}.{part}", self.element, shape("past")))
                outputs.append(value(f"present.{layer}.{part}", self.element, shape("total")))
        return inputs, outputs

    def tables(self):
        """The rotary tables. With LongRoPE, the width of the mask chooses one of two pairs."""
        names, limit = ("cos_cache", "sin_cache"), self.settings.long_rope
        if not limit:
            for name, table in zip(names, self.weights.rotary()):
                self.constant(name, table)
            return
        branches = {}
        for branch, rows, growth in (("then_branch", self.settings.context, 0.5), ("else_branch", limit, 0.02)):
            parts = [f"{branch}.{name}" for name in names]
            tables = self.weights.rotary(rows, growth)
            nodes = [
                helper.make_node("Constant", [], [part], value=numpy_helper.from_array(table))
                for part, table in zip(parts, tables)
            ]
            outputs = [helper.make_tensor_value_info(part, self.element, tables[0].shape) for part in parts]
            branches[branch] = helper.make_graph(nodes, branch, [], outputs)
        is_long = self.node("Greater", ["attention_mask.width", self.constant("limit", np.array(limit))], "is_long")
        self.node("If", [is_long], names, **branches)

    def model(self):
        masks = [self.visible()] if self.is_standard else self.lengths()
        self.tables()
        total, skip = self.embedding(), None
        for layer in range(self.settings.layers):
            normed, total = self.skip_norm(total, skip, f"{layer}.before")
            attended = self.attention(layer, normed, masks)
            normed, total = self.skip_norm(total, attended, f"{layer}.after")
            skip = self.mlp(layer, normed)
        self.head(self.skip_norm(total, skip, "last")[0])
        inputs, outputs = self.inputs_and_outputs()
        graph = helper.make_graph(self.nodes, "tiny", inputs, outputs, list(self.constants.values()))
        opsets = [helper.make_opsetid("", 23 if self.is_standard else 21), helper.make_opsetid(CONTRIB, 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=11 if self.is_standard else 10)


def write(folder, settings):
    onnx.save(
        Graph(settings).model(), folder / "model.onnx", save_as_external_data=True, location="model.onnx.data",
        size_threshold=INLINE_BYTES,
    )
