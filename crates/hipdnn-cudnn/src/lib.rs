//! hipDNN's backend C ABI over cuDNN 9, which is loaded at run time.
//!
//! A graph of hipDNN's descriptors becomes operations in cuDNN's terms (`lower`, `graph`), those a graph of cuDNN's with
//! the engine configurations its heuristics offer (`piece`), and a configuration becomes a plan (`plan`). Where cuDNN does not
//! take a graph as a whole it is run operation by operation, with what stands between them in the workspace.
//!
//! | what | how |
//! |---|---|
//! | cuDNN | `AMDGPU_EP_CUDNN_LIBRARY`, folders of `AMDGPU_EP_CUDA_LIBRARY_PATH`, then the loader's own search |
//! | no cuDNN, no device | `hipdnnCreate` gives `NOT_INITIALIZED` with what was tried |
//! | attention | as a whole on cuDNN's fused engines (9.10.2 and later), in half precision and bfloat16 (`fused`) |
//! | precision | products of single precision are never rounded to less (no TF32) |
//! | plans | kept on disk below `AMDGPU_EP_CACHE_DIR` (`kept`): cuDNN compiles most of them, one at a time |
//! | a machine without a GPU | `AMDGPU_EP_CUDNN_DEVICE_FILE` names a description of one, as cuDNN 9.8 and later write it: then graphs and plans can be made, and not executed |

mod arrange;
mod descriptor;
mod fused;
mod graph;
mod kept;
mod layout;
mod library;
mod lower;
mod older;
mod piece;
mod plan;
mod sys;
mod translate;
mod worker;

hipdnn_abi::export!(crate::library::BRIDGE);
