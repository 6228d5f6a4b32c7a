//! Tensor element types.
use ort_ep_sys as sys;

macro_rules! element_types {
    ($($name:ident = $raw:ident, $bits:expr, $doc:literal;)*) => {
        /// The type of a tensor's elements.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum ElementType {
            $(#[doc = $doc] $name,)*
            /// A type this SDK has no name for.
            Other(i32),
        }

        impl ElementType {
            /// Every type with a name.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The type for the runtime's number.
            pub fn from_raw(raw: i32) -> Self {
                match raw {
                    $(sys::$raw => Self::$name,)*
                    other => Self::Other(other),
                }
            }

            /// The runtime's number.
            pub fn to_raw(self) -> i32 {
                match self {
                    $(Self::$name => sys::$raw,)*
                    Self::Other(raw) => raw,
                }
            }

            /// The width of one element in bits; `None` for strings and unknown types.
            pub fn bits(self) -> Option<usize> {
                match self {
                    $(Self::$name => $bits,)*
                    Self::Other(_) => None,
                }
            }
        }
    };
}

element_types! {
    F32 = ONNX_FLOAT, Some(32), "IEEE single";
    U8 = ONNX_UINT8, Some(8), "unsigned byte";
    I8 = ONNX_INT8, Some(8), "signed byte";
    U16 = ONNX_UINT16, Some(16), "unsigned 16-bit";
    I16 = ONNX_INT16, Some(16), "signed 16-bit";
    I32 = ONNX_INT32, Some(32), "signed 32-bit";
    I64 = ONNX_INT64, Some(64), "signed 64-bit";
    String = ONNX_STRING, None, "text";
    Bool = ONNX_BOOL, Some(8), "one byte, 0 or 1";
    F16 = ONNX_FLOAT16, Some(16), "IEEE half";
    F64 = ONNX_DOUBLE, Some(64), "IEEE double";
    U32 = ONNX_UINT32, Some(32), "unsigned 32-bit";
    U64 = ONNX_UINT64, Some(64), "unsigned 64-bit";
    Complex64 = ONNX_COMPLEX64, Some(64), "two singles";
    Complex128 = ONNX_COMPLEX128, Some(128), "two doubles";
    Bf16 = ONNX_BFLOAT16, Some(16), "bfloat16";
    F8E4M3Fn = ONNX_FLOAT8E4M3FN, Some(8), "fp8 e4m3, finite";
    F8E4M3FnUz = ONNX_FLOAT8E4M3FNUZ, Some(8), "fp8 e4m3, finite, no negative zero";
    F8E5M2 = ONNX_FLOAT8E5M2, Some(8), "fp8 e5m2";
    F8E5M2FnUz = ONNX_FLOAT8E5M2FNUZ, Some(8), "fp8 e5m2, finite, no negative zero";
    U4 = ONNX_UINT4, Some(4), "unsigned 4-bit, two to a byte";
    I4 = ONNX_INT4, Some(4), "signed 4-bit, two to a byte";
    F4E2M1 = ONNX_FLOAT4E2M1, Some(4), "fp4 e2m1, two to a byte";
    U2 = ONNX_UINT2, Some(2), "unsigned 2-bit, four to a byte";
    I2 = ONNX_INT2, Some(2), "signed 2-bit, four to a byte";
    F8E8M0 = ONNX_FLOAT8E8M0, Some(8), "powers of two";
}
