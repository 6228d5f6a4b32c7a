//! Models, graphs, nodes and types. Field numbers are those of `onnx.proto`.

use super::tensor::{ElementType, Tensor, entry};
use super::wire::Message;

/// A model: a graph and the operator sets it uses.
#[derive(Debug, Clone)]
pub struct Model {
    graph: Graph,
    ir_version: i64,
    opsets: Vec<(String, i64)>,
    metadata: Vec<(String, String)>,
}

impl Model {
    /// A model of IR version 10, which every supported runtime reads. It needs at least one operator set.
    pub fn new(graph: Graph) -> Self {
        Self { graph, ir_version: 10, opsets: Vec::new(), metadata: Vec::new() }
    }

    /// Uses `version` of the operators of `domain` (empty: ONNX's own).
    #[must_use]
    pub fn opset(mut self, domain: &str, version: i64) -> Self {
        self.opsets.push((domain.into(), version));
        self
    }

    /// Sets another IR version.
    #[must_use]
    pub fn ir_version(mut self, version: i64) -> Self {
        self.ir_version = version;
        self
    }

    /// Adds an entry to the model's metadata.
    #[must_use]
    pub fn metadata(mut self, key: &str, value: &str) -> Self {
        self.metadata.push((key.into(), value.into()));
        self
    }

    /// The bytes of a `.onnx` file.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut message = Message::default();
        message.int(1, self.ir_version);
        message.text(2, "testkit");
        message.message(7, self.graph.to_message());
        for (domain, version) in &self.opsets {
            let mut opset = Message::default();
            opset.text_unless_empty(1, domain);
            opset.int(2, *version);
            message.message(8, opset);
        }
        for (key, value) in &self.metadata {
            message.message(14, entry(key, value));
        }
        message.into_bytes()
    }
}

/// A graph, or the body of a control-flow node.
#[derive(Debug, Clone)]
pub struct Graph {
    name: String,
    nodes: Vec<Node>,
    inputs: Vec<ValueInfo>,
    outputs: Vec<ValueInfo>,
    values: Vec<ValueInfo>,
    initializers: Vec<Tensor>,
}

impl Graph {
    /// An empty graph.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            nodes: Vec::new(),
            inputs: Vec::new(),
            outputs: Vec::new(),
            values: Vec::new(),
            initializers: Vec::new(),
        }
    }

    /// Adds an input.
    #[must_use]
    pub fn input(mut self, value: ValueInfo) -> Self {
        self.inputs.push(value);
        self
    }

    /// Adds an output.
    #[must_use]
    pub fn output(mut self, value: ValueInfo) -> Self {
        self.outputs.push(value);
        self
    }

    /// Declares the type of an intermediate value.
    #[must_use]
    pub fn value(mut self, value: ValueInfo) -> Self {
        self.values.push(value);
        self
    }

    /// Adds a constant.
    #[must_use]
    pub fn initializer(mut self, tensor: Tensor) -> Self {
        self.initializers.push(tensor);
        self
    }

    /// Adds a node; nodes must be in topological order.
    #[must_use]
    pub fn node(mut self, node: Node) -> Self {
        self.nodes.push(node);
        self
    }

    fn to_message(&self) -> Message {
        let mut message = Message::default();
        self.nodes.iter().for_each(|node| message.message(1, node.to_message()));
        message.text(2, &self.name);
        self.initializers.iter().for_each(|tensor| message.message(5, tensor.to_message()));
        for (field, values) in [(11, &self.inputs), (12, &self.outputs), (13, &self.values)] {
            values.iter().for_each(|value| message.message(field, value.to_message()));
        }
        message
    }
}

/// A node.
#[derive(Debug, Clone)]
pub struct Node {
    op_type: String,
    domain: String,
    name: String,
    inputs: Vec<String>,
    outputs: Vec<String>,
    attributes: Vec<(String, Attribute)>,
}

impl Node {
    /// A node of ONNX's own domain, without a name. An empty input name stands for an omitted optional input.
    pub fn new<'a>(
        op_type: &str,
        inputs: impl IntoIterator<Item = &'a str>,
        outputs: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        Self {
            op_type: op_type.into(),
            domain: String::new(),
            name: String::new(),
            inputs: inputs.into_iter().map(str::to_owned).collect(),
            outputs: outputs.into_iter().map(str::to_owned).collect(),
            attributes: Vec::new(),
        }
    }

    /// Names the node.
    #[must_use]
    pub fn name(mut self, name: &str) -> Self {
        self.name = name.into();
        self
    }

    /// Takes the operator from another domain.
    #[must_use]
    pub fn domain(mut self, domain: &str) -> Self {
        self.domain = domain.into();
        self
    }

    /// Adds an attribute.
    #[must_use]
    pub fn attribute(mut self, name: &str, value: Attribute) -> Self {
        self.attributes.push((name.into(), value));
        self
    }

    fn to_message(&self) -> Message {
        let mut message = Message::default();
        self.inputs.iter().for_each(|input| message.text(1, input));
        self.outputs.iter().for_each(|output| message.text(2, output));
        message.text_unless_empty(3, &self.name);
        message.text(4, &self.op_type);
        self.attributes.iter().for_each(|(name, value)| message.message(5, value.to_message(name)));
        message.text_unless_empty(7, &self.domain);
        message
    }
}

/// The value of an attribute, of any type that nodes use.
#[derive(Debug, Clone)]
#[allow(missing_docs)]
pub enum Attribute {
    Float(f32),
    Int(i64),
    String(String),
    Tensor(Tensor),
    Graph(Graph),
    Floats(Vec<f32>),
    Ints(Vec<i64>),
    Strings(Vec<String>),
    Tensors(Vec<Tensor>),
    Graphs(Vec<Graph>),
    Type(ValueType),
    Types(Vec<ValueType>),
}

impl Attribute {
    fn to_message(&self, name: &str) -> Message {
        let mut message = Message::default();
        message.text(1, name);
        match self {
            Self::Float(value) => message.float(2, *value),
            Self::Int(value) => message.int(3, *value),
            Self::String(value) => message.text(4, value),
            Self::Tensor(value) => message.message(5, value.to_message()),
            Self::Graph(value) => message.message(6, value.to_message()),
            Self::Floats(values) => values.iter().for_each(|value| message.float(7, *value)),
            Self::Ints(values) => values.iter().for_each(|value| message.int(8, *value)),
            Self::Strings(values) => values.iter().for_each(|value| message.text(9, value)),
            Self::Tensors(values) => values.iter().for_each(|value| message.message(10, value.to_message())),
            Self::Graphs(values) => values.iter().for_each(|value| message.message(11, value.to_message())),
            Self::Type(value) => message.message(14, value.to_message()),
            Self::Types(values) => values.iter().for_each(|value| message.message(15, value.to_message())),
        }
        message.int(20, self.kind());
        message
    }

    /// `AttributeProto.AttributeType`.
    fn kind(&self) -> i64 {
        match self {
            Self::Float(_) => 1,
            Self::Int(_) => 2,
            Self::String(_) => 3,
            Self::Tensor(_) => 4,
            Self::Graph(_) => 5,
            Self::Floats(_) => 6,
            Self::Ints(_) => 7,
            Self::Strings(_) => 8,
            Self::Tensors(_) => 9,
            Self::Graphs(_) => 10,
            Self::Type(_) => 13,
            Self::Types(_) => 14,
        }
    }
}

/// A value's name and type.
#[derive(Debug, Clone)]
pub struct ValueInfo {
    name: String,
    value_type: ValueType,
}

impl ValueInfo {
    /// A tensor with known rank.
    pub fn tensor(name: &str, element_type: ElementType, dims: impl IntoIterator<Item = Dim>) -> Self {
        Self::of(name, ValueType::Tensor(element_type, Some(dims.into_iter().collect())))
    }

    /// A value with any type.
    pub fn of(name: &str, value_type: ValueType) -> Self {
        Self { name: name.into(), value_type }
    }

    fn to_message(&self) -> Message {
        let mut message = Message::default();
        message.text(1, &self.name);
        message.message(2, self.value_type.to_message());
        message
    }
}

/// The type of a value.
#[derive(Debug, Clone)]
pub enum ValueType {
    /// A tensor; without dimensions its rank is unknown.
    Tensor(ElementType, Option<Vec<Dim>>),
    /// A sequence.
    Sequence(Box<ValueType>),
    /// A value that may be absent.
    Optional(Box<ValueType>),
}

impl ValueType {
    fn to_message(&self) -> Message {
        let mut message = Message::default();
        let mut inner = Message::default();
        match self {
            Self::Tensor(element_type, dims) => {
                inner.int(1, *element_type as i64);
                if let Some(dims) = dims {
                    let mut shape = Message::default();
                    dims.iter().for_each(|dim| shape.message(1, dim.to_message()));
                    inner.message(2, shape);
                }
                message.message(1, inner);
            }
            Self::Sequence(element) | Self::Optional(element) => {
                inner.message(1, element.to_message());
                message.message(if matches!(self, Self::Sequence(_)) { 4 } else { 9 }, inner);
            }
        }
        message
    }
}

/// A dimension of a shape.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Dim {
    /// A fixed size.
    Size(i64),
    /// A name: equal names are equal sizes.
    Name(String),
    /// Unknown.
    Unknown,
}

impl From<i64> for Dim {
    fn from(size: i64) -> Self {
        Self::Size(size)
    }
}

impl From<&str> for Dim {
    fn from(name: &str) -> Self {
        Self::Name(name.into())
    }
}

impl Dim {
    fn to_message(&self) -> Message {
        let mut message = Message::default();
        match self {
            Self::Size(size) => message.int(1, *size),
            Self::Name(name) => message.text(2, name),
            Self::Unknown => {}
        }
        message
    }
}
