//! hipDNN's backend C ABI on top of cuDNN 9, which is loaded at run time.
//!
//! A graph of hipDNN's descriptors becomes operations in cuDNN's terms (`lower`, `graph`). These become a cuDNN graph
//! with the engine configurations its heuristics offer (`cudnn_graph`), and a configuration becomes a plan (`plan`). If
//! cuDNN does not support a graph as a whole, it runs operation by operation, with intermediate tensors in the
//! workspace. The binding of cuDNN has three layers: `sys` (numbers, functions, loading), `result` (the same functions,
//! returning a `Result`) and `safe` (owned handles and descriptors).
//!
//! | what | how |
//! |---|---|
//! | cuDNN | `AMDGPU_EP_CUDNN_LIBRARY`, folders of `AMDGPU_EP_CUDA_LIBRARY_PATH`, then the loader's own search |
//! | no cuDNN, no device | `hipdnnCreate` returns `NOT_INITIALIZED` and says what was tried |
//! | attention | as a whole on cuDNN's fused engines (9.10.2 and later), in half precision and bfloat16 (`fused`) |
//! | precision | products of single precision never use reduced precision (no TF32) |
//! | plans | cached on disk below `AMDGPU_EP_CACHE_DIR` (`plan_cache`): cuDNN compiles most of them, one at a time |
//! | a machine without a GPU | `AMDGPU_EP_CUDNN_DEVICE_FILE` names a description of one, as cuDNN 9.8 and later serialise it: graphs and plans can then be built, but not executed |

mod arrange;
mod cudnn_graph;
mod fused;
mod graph;
mod layout;
mod library;
mod lower;
mod older;
mod plan;
mod plan_cache;
mod result;
mod safe;
mod sys;
mod translate;
mod worker;

hipdnn_abi::export!(crate::library::BRIDGE);
