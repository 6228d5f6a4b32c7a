//! Operators that are known but left to other providers, with the reason.
//!
//! `explain` shows the reason to users, and the table of supported operators lists all of them.

/// Operators of a domain, and why they are left alone.
type Row = (&'static str, &'static [&'static str], &'static str);

const MICROSOFT: &str = "com.microsoft";

const ROWS: &[Row] = &[
    (
        "",
        &["NonMaxSuppression", "Unique"],
        "the shape of its result depends on data, and a plan needs all shapes before it runs",
    ),
    ("", &["Det"], "inverting and factoring matrices is not supported"),
    ("", &["MaxRoiPool"], "the extents of its windows are data; RoiAlign has replaced it"),
    (
        "",
        &["RegexFullMatch", "StringConcat", "StringNormalizer", "StringSplit", "TfIdfVectorizer"],
        "text stays on the CPU provider",
    ),
    (MICROSOFT, &["Tokenizer"], "text stays on the CPU provider"),
    (
        MICROSOFT,
        &["Unique", "RemovePadding"],
        "the shape of its result depends on data, and a plan needs all shapes before it runs",
    ),
    (
        MICROSOFT,
        &["RestorePadding", "PackedAttention", "PackedMultiHeadAttention"],
        "it needs RemovePadding, whose result has as many rows as there are tokens, which only a run knows",
    ),
    (MICROSOFT, &["Inverse"], "inverting and factoring matrices is not supported"),
    (
        MICROSOFT,
        &[
            "SparseAttention",
            "SparsePagedAttention",
            "SparseAttentionIndexer",
            "PackedSparseAttentionIndexer",
            "DynamicSparseAttention",
            "LongformerAttention",
            "QOrderedLongformerAttention",
        ],
        "sparse attention is not supported: dense attention would read what the operator skips",
    ),
    (MICROSOFT, &["DecoderMaskedSelfAttention", "DecoderAttention"], "beam-search caches are not supported"),
    (
        MICROSOFT,
        &["BeamSearch", "GreedySearch", "Sampling", "WhisperBeamSearch"],
        "it runs whole models; the provider can take the nodes of these",
    ),
    (
        MICROSOFT,
        &["EPContext"],
        "it holds a compiled model; those of this provider are loaded whole, before operators are looked at",
    ),
    (MICROSOFT, &["Snpe"], "it holds a model that another provider compiled"),
    (
        MICROSOFT,
        &["MatMulFpQ4"],
        "its weights have the layout of ONNX Runtime's CPU kernels; MatMulNBits has replaced it",
    ),
    (
        MICROSOFT,
        &[
            "QOrderedAttention",
            "QOrderedGelu",
            "QOrderedLayerNormalization",
            "QOrderedMatMul",
            "QuantizeWithOrder",
            "DequantizeWithOrder",
            "GemmFloat8",
        ],
        "its tensors have layouts of NVIDIA's libraries",
    ),
    (MICROSOFT, &["QuantizeBFP", "DequantizeBFP"], "block floating point is not supported"),
    (MICROSOFT, &["BitmaskDropout", "BitmaskBiasDropout", "IsAllFinite", "TorchEmbedding"], "only training uses it"),
    (
        MICROSOFT,
        &["Rfft", "Irfft", "ComplexMul", "ComplexMulConj"],
        "complex numbers and Fourier transforms are not supported",
    ),
    (
        MICROSOFT,
        &[
            "BifurcationDetector",
            "NGramRepeatBlock",
            "MurmurHash3",
            "NGramHashMapping",
            "VarlenNGramHashMapping",
            "DynamicTimeWarping",
        ],
        "it works on lists of tokens, which are on the CPU",
    ),
    (
        MICROSOFT,
        &[
            "AttnLSTM",
            "CDist",
            "EngramGate",
            "ExpandDims",
            "GemmaRotaryEmbedding",
            "HyperConnectionPostMix",
            "HyperConnectionPreMix",
            "MatMulInteger16",
            "MaxpoolWithMask",
            "MulInteger",
            "Pad",
            "Range",
            "ReduceSumInteger",
            "SampleOp",
            "ScaledSiLU",
            "SparseToDenseMatMul",
            "UnfoldTensor",
            "VarlenCausalConvWithState",
            "WordConvEmbedding",
        ],
        "no model or family that is tested has it",
    ),
    (
        "com.microsoft.nchwc",
        &[
            "AveragePool",
            "Conv",
            "GlobalAveragePool",
            "GlobalMaxPool",
            "MaxPool",
            "ReorderInput",
            "ReorderOutput",
            "Upsample",
        ],
        "its images have a layout of ONNX Runtime's CPU kernels; save optimised models at the level `extended`",
    ),
];

/// All of them as (domain, operator, reason).
pub(super) fn all() -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
    ROWS.iter()
        .flat_map(|&(domain, operators, reason)| operators.iter().map(move |&operator| (domain, operator, reason)))
}
