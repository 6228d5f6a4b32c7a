"""A minimal builder for ONNX graphs."""
import onnx
from onnx import TensorProto, helper, numpy_helper


class Builder:
    def __init__(self):
        self.nodes, self.weights = [], []

    def weight(self, array):
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(array, name))
        return name

    def node(self, op_type, *inputs, **attributes):
        name = f"{op_type}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op_type, list(inputs), [name], name=name, **attributes))
        return name

    def model(self, inputs, outputs, opset=20):
        """`inputs` and `outputs` map names to (element type, shape)."""
        infos = [[helper.make_tensor_value_info(name, *facts) for name, facts in side.items()] for side in (inputs, outputs)]
        graph = helper.make_graph(self.nodes, "network", *infos, initializer=self.weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
        onnx.checker.check_model(model)
        return model.SerializeToString()


FLOAT16, INT64 = TensorProto.FLOAT16, TensorProto.INT64
